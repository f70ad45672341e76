package gateway

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"troupe/storeactor"
)

// gate bounds how many of one kind there are at a time: requests of a service, streams, connections. Kinds have gates
// of their own, so that a flood of one cannot use up the places of another.
type gate struct {
	name     string
	max      int64
	open     atomic.Int64
	rejected prometheus.Counter
	// idle, of a gate of connections, are those that make room for new ones; nil if none do.
	idle *idleConnections
}

// enter takes a place and reports whether there was one.
func (g *gate) enter() bool {
	for !g.tryEnter() {
		if g.idle == nil || !g.idle.closeOldest(g) {
			g.rejected.Inc()
			return false
		}
	}
	return true
}

func (g *gate) tryEnter() bool {
	if g.open.Add(1) <= g.max {
		return true
	}
	g.open.Add(-1)
	return false
}

// leave gives a place back.
func (g *gate) leave() { g.open.Add(-1) }

// inside is how many there are. Those that are just being refused are not counted.
func (g *gate) inside() int64 { return min(g.open.Load(), g.max) }

// gates are all gates of a server.
type gates struct {
	// requests are those of the KV service and of whatever has no gate of its own; operators those of the services for
	// operators; leases the calls and streams of the Lease service.
	requests, operators, leases gate
	// turns are the calls that wait for a lock or an election, apart from those that end the waiting.
	turns gate
	// streams are watch streams and all others that last.
	streams gate
	// snapshots are those that are made and downloaded, of the streams (downloads.go).
	snapshots gate
	// grpc, json and pages are connections by what they speak: gRPC, HTTP/1.1 with the JSON gateway, HTTP/1.1 without.
	// metrics are those of the metrics ports: probes there get through whatever happens on the client ports.
	grpc, json, pages, metrics gate
	// callsPerConnection bounds the calls of each connection, except leases'; beyondConnection counts what it refused.
	callsPerConnection int64
	beyondConnection   prometheus.Counter
	// halfOpen counts the connections that were closed before they had shown what they speak, for others (listener.go).
	halfOpen prometheus.Counter
	// requestBytes bounds the bytes of large requests in flight, controlBytes those of large messages of the Lease service
	// and on streams (requestinput.go), txns what transactions in flight are decoded to, in bytes (txninput.go).
	requestBytes, controlBytes, txns gate
	// lines bounds what they make the log say.
	lines lineRate
}

// make makes the gates and registers their metrics.
func (g *gates) make(registry prometheus.Registerer) {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "troupe_gateway_rejected_total",
		Help: "What was refused because as many as the bound allows were there already, by kind."}, []string{"kind"})
	registry.MustRegister(rejected, &gateCollector{gates: g,
		open: prometheus.NewDesc("troupe_gateway_open", "Requests, streams, connections, bytes that there are now, by kind.",
			[]string{"kind"}, nil),
		bound: prometheus.NewDesc("troupe_gateway_open_bound", "How many of them there may be, by kind.",
			[]string{"kind"}, nil)})
	connections, json := int64(grpcConnectionsMax), int64(jsonConnectionsMax)
	if limit := int64(descriptorLimit()); limit > 0 {
		json = min(json, limit/jsonDescriptorShare)
		others := json + pageConnectionsMax + metricsConnectionsMax + descriptorsReserved
		connections = max(min(connections, limit-others), limit/2)
	}
	g.requests.name, g.requests.max = "request", requestsMax
	g.operators.name, g.operators.max = "operator_request", operatorRequestsMax
	g.leases.name, g.leases.max = "lease_request", leaseRequestsMax
	g.turns.name, g.turns.max = "turn", turnsMax
	g.requestBytes.name, g.requestBytes.max = "request_bytes", requestBytesInFlightMax
	g.controlBytes.name, g.controlBytes.max = "control_bytes", controlBytesInFlightMax
	g.txns.name, g.txns.max = "txn_bytes", txnBytesMax
	g.streams.name, g.streams.max = "stream", streamsMax
	g.snapshots.name, g.snapshots.max = "snapshot", storeactor.SnapshotsOpenMax
	g.grpc.name, g.grpc.max = "grpc_connection", connections
	g.json.name, g.json.max = "json_connection", json
	g.pages.name, g.pages.max = "http_connection", pageConnectionsMax
	g.metrics.name, g.metrics.max = "metrics_connection", metricsConnectionsMax
	for _, one := range g.all() {
		one.rejected = rejected.WithLabelValues(one.name)
	}
	g.callsPerConnection = streamsPerConnectionMax
	g.beyondConnection = rejected.WithLabelValues("connection_stream")
	g.halfOpen = rejected.WithLabelValues(halfOpenKind)
	g.lines.max = rejectedLinesPerSecondMax
}

// halfOpenKind is the kind of the connections that halfOpen counts.
const halfOpenKind = "half_open_connection"

func (g *gates) all() []*gate {
	return []*gate{&g.requests, &g.operators, &g.leases, &g.turns, &g.streams, &g.snapshots, &g.grpc, &g.json,
		&g.pages, &g.metrics, &g.requestBytes, &g.controlBytes, &g.txns}
}

// of gives the gate of a method.
func (g *gates) of(kind rpcKind, service, method string) *gate {
	switch {
	case service == serviceLock && method == methodLock, service == serviceElection && method == methodCampaign:
		return &g.turns
	case service == serviceLease:
		return &g.leases
	case service == serviceKV:
		return &g.requests
	case kind != rpcUnary:
		return &g.streams
	case service == serviceMaintenance || service == serviceCluster || service == serviceAuth:
		return &g.operators
	}
	return &g.requests
}

// gateCollector reports the gates as they are when asked.
type gateCollector struct {
	gates       *gates
	open, bound *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *gateCollector) Describe(out chan<- *prometheus.Desc) { out <- c.open; out <- c.bound }

// Collect implements prometheus.Collector.
func (c *gateCollector) Collect(out chan<- prometheus.Metric) {
	for _, g := range c.gates.all() {
		out <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(g.inside()), g.name)
		out <- prometheus.MustNewConstMetric(c.bound, prometheus.GaugeValue, float64(g.max), g.name)
	}
}

// enterCall takes the places that a call needs, before its message is read, on the server and on its connection. It
// fails with ErrTooManyCalls. The caller calls leaveCall with the same.
func (s *Server) enterCall(g *gate, conn *connection) error {
	if conn != nil && conn.calls.Add(1) > s.gates.callsPerConnection && g != &s.gates.leases {
		conn.calls.Add(-1)
		s.gates.beyondConnection.Inc()
		return ErrTooManyCalls
	}
	if !g.enter() {
		if conn != nil {
			conn.calls.Add(-1)
		}
		s.sayRejected(g)
		return ErrTooManyCalls
	}
	return nil
}

// leaveCall gives the places of a call back.
func (s *Server) leaveCall(g *gate, conn *connection) {
	g.leave()
	if conn != nil {
		conn.calls.Add(-1)
	}
}

func (s *Server) sayRejected(g *gate) {
	if s.gates.lines.allow(time.Now()) {
		s.cfg.Log.Warn().Str("kind", g.name).Int64("bound", g.max).
			Msg("overloaded, refusing more; troupe_gateway_rejected_total counts them")
	}
}
