package gateway

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// metrics is what the gateway counts, under etcd's names, labels and buckets. Children are resolved once.
type metrics struct {
	rpc      *rpcMetrics
	sent     prometheus.Counter
	received prometheus.Counter

	requests     *RequestTimes
	rangeSeconds [2]atomic.Pointer[prometheus.Observer]
	ranges       *prometheus.HistogramVec

	clientRequests *prometheus.CounterVec
	streamFailures *prometheus.CounterVec
	slow           prometheus.Counter
	suppressed     prometheus.Counter
	stalled        prometheus.Counter
	panics         prometheus.Counter
	healthSuccess  prometheus.Counter
	healthFailures prometheus.Counter
	healthcheck    *prometheus.GaugeVec
	healthchecks   *prometheus.CounterVec
}

// durationBuckets are etcd's: doubling from start, count of them.
func durationBuckets(start float64, count int) []float64 {
	return prometheus.ExponentialBuckets(start, 2, count)
}

func newMetrics(cfg *Config, answers *ledger) *metrics {
	r := cfg.Registry
	requests := cfg.RequestTimes
	if requests == nil {
		requests, _ = NewRequestTimes(nil)
		r.MustRegister(requests.all)
	}
	register := func(c prometheus.Collector) { r.MustRegister(c) }
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		register(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		register(c)
		return c
	}
	m := &metrics{
		rpc: newRPCMetrics(r, cfg.ExtensiveMetrics), requests: requests,
		sent: counter("etcd_network_client_grpc_sent_bytes_total",
			"The total number of bytes sent to grpc clients."),
		received: counter("etcd_network_client_grpc_received_bytes_total",
			"The total number of bytes received from grpc clients."),
		clientRequests: vector("etcd_server_client_requests_total",
			"The total number of client requests per client version.", "type", "client_api_version"),
		streamFailures: vector("etcd_network_server_stream_failures_total",
			"The total number of stream failures from the local server.", "Type", "API"),
		slow: counter("troupe_gateway_slow_requests_total",
			"Requests that took longer than --warning-unary-request-duration."),
		suppressed: counter("troupe_gateway_slow_lines_suppressed_total",
			"Lines about slow requests that were left out of the log because there were too many."),
		stalled: counter("troupe_gateway_stalled_connections_total",
			"Connections closed because their clients did not read what they asked for while others waited for the memory."),
		panics: counter("troupe_gateway_panics_total", "Requests whose handler panicked."),
		healthSuccess: counter("etcd_server_health_success",
			"The total number of successful health checks"),
		healthFailures: counter("etcd_server_health_failures", "The total number of failed health checks"),
		healthchecks: vector("etcd_server_healthchecks_total",
			"The total number of each kind of healthcheck.", "type", "name", "status"),
	}
	m.healthcheck = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_healthcheck",
		Help: "The result of each kind of healthcheck."}, []string{"type", "name"})
	register(m.healthcheck)
	m.ranges = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "etcd_server_range_duration_seconds", Help: "The latency distributions of txn.Range",
		Buckets: durationBuckets(0.0001, 20),
	}, []string{"success"})
	register(m.ranges)
	m.registerFacts(cfg, register)
	registerAnswers(answers, register)
	return m
}

// registerAnswers registers the gauges of the ledger.
func registerAnswers(answers *ledger, register func(prometheus.Collector)) {
	gauge := func(name, help string, value func(ledgerNumbers) float64) {
		register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(answers.numbers()) }))
	}
	gauge("troupe_gateway_answer_bytes_in_flight", "Bytes of large answers that are read and not yet written.",
		func(n ledgerNumbers) float64 { return float64(n.inUse) })
	gauge("troupe_gateway_answer_bytes_bound", "The bound of troupe_gateway_answer_bytes_in_flight.",
		func(n ledgerNumbers) float64 { return float64(n.max) })
	gauge("troupe_gateway_answer_bytes_high_water", "The most that troupe_gateway_answer_bytes_in_flight has been.",
		func(n ledgerNumbers) float64 { return float64(n.highWater) })
	gauge("troupe_gateway_answer_waiters", "Reads that wait for room among the answers in flight.",
		func(n ledgerNumbers) float64 { return float64(n.waiting) })
	register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "troupe_gateway_answers_refused_total",
		Help: "Reads that were refused, or left, because there was no room among the answers in flight."},
		func() float64 { return float64(answers.numbers().refused) }))
}

// registerFacts registers the gauges that state what this member is; etcd_server_id is raft's.
func (m *metrics) registerFacts(cfg *Config, register func(prometheus.Collector)) {
	fact := func(name, help, label, value string) {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
		g.WithLabelValues(value).Set(1)
		register(g)
	}
	fact("etcd_server_version", "Which version is running. 1 for 'server_version' label with current version.",
		"server_version", cfg.Versions.Server)
	fact("troupe_version", "Which version of troupe is running. 1 for 'version' label with current version.",
		"version", cfg.Versions.Troupe)
	fact("etcd_server_go_version", "Which Go version server is running with. "+
		"1 for 'server_go_version' label with current version.", "server_go_version", runtime.Version())
	quota := prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcd_server_quota_backend_bytes",
		Help: "Current backend storage quota size in bytes."})
	quota.Set(float64(cfg.quotaBytes()))
	register(quota)
	register(&clusterVersions{
		desc: prometheus.NewDesc("etcd_cluster_version",
			"Which version is running. 1 for 'cluster_version' label with current cluster version",
			[]string{"cluster_version"}, nil),
		membership: func() *proto.Membership { return cfg.Store.State().Membership },
		seen:       make(map[string]bool),
	})
	register(&raisedAlarms{
		desc: prometheus.NewDesc("etcd_debugging_server_alarms",
			"Alarms for every member in cluster. 1 for 'server_id' label with current ID. "+
				"2 for 'alarm_type' label with type of this alarm", []string{"server_id", "alarm_type"}, nil),
		state: cfg.Store.State, seen: make(map[seenAlarm]bool),
	})
	registerAbsent(register)
	register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "os_fd_used",
		Help: "The number of used file descriptors."}, usedDescriptors))
	register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "os_fd_limit",
		Help: "The file descriptor limit."}, descriptorLimit))
	register(featureGauge(cfg.Features))
	register(newKnownPeers(cfg))
	register(collectors.NewGoCollector())
	register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// clusterVersions reports the cluster version as it is when asked, without the patch level, as etcd does. One that was
// seen, or was in force before the last lowering, stays as 0, so that a query does not take it for the present one.
type clusterVersions struct {
	desc       *prometheus.Desc
	membership func() *proto.Membership

	mu   sync.Mutex
	seen map[string]bool
}

// Describe implements prometheus.Collector.
func (c *clusterVersions) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *clusterVersions) Collect(out chan<- prometheus.Metric) {
	m := c.membership()
	if m == nil || m.ClusterVersion == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, version := range []string{m.Lowered.From, m.ClusterVersion} {
		if version != "" {
			c.seen[shortVersion(version)] = true
		}
	}
	for version := range c.seen {
		value := 0.0
		if version == shortVersion(m.ClusterVersion) {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value, version)
	}
}

// raisedAlarms reports the alarms as they are when asked. One that was seen and is cleared stays, as 0, so that a query
// does not take the last value for the present one.
type raisedAlarms struct {
	desc  *prometheus.Desc
	state func() State

	mu   sync.Mutex
	seen map[seenAlarm]bool
}

type seenAlarm struct {
	member proto.MemberID
	kind   pb.AlarmType
}

// Describe implements prometheus.Collector.
func (c *raisedAlarms) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *raisedAlarms) Collect(out chan<- prometheus.Metric) {
	for alarm, raised := range c.look() {
		value := 0.0
		if raised {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value,
			alarm.member.String(), alarm.kind.String())
	}
}

// look gives the alarms that are raised (true) and those that were (false). Clients choose the id, so that of alarms
// whose id is no member's only alarmsSeenMax are shown.
func (c *raisedAlarms) look() map[seenAlarm]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := make(map[seenAlarm]bool, len(c.seen))
	for alarm := range c.seen {
		now[alarm] = false
	}
	state := c.state()
	for _, a := range state.Alarms {
		alarm := seenAlarm{proto.MemberID(a.MemberID), a.Alarm}
		m := state.Membership
		if !c.seen[alarm] && len(c.seen) >= alarmsSeenMax && (m == nil || m.Member(alarm.member) == nil) {
			continue
		}
		c.seen[alarm], now[alarm] = true, true
	}
	return now
}

// observeRange notes how long the execution of one range took.
func (m *metrics) observeRange(took time.Duration, err error) {
	column, label := 1, "true"
	if err != nil {
		column, label = 0, "false"
	}
	slot := &m.rangeSeconds[column]
	observer := slot.Load()
	if observer == nil {
		resolved := m.ranges.WithLabelValues(label)
		observer = &resolved
		slot.Store(observer)
	}
	(*observer).Observe(took.Seconds())
}
