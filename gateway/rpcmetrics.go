package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The grpc_server_* metrics have the names, labels and texts of go-grpc-middleware's Prometheus provider, which etcd
// uses and dashboards read. They are kept here because the provider looks its counters up by label for every event of
// every call, and the counters of a method never change: here a call only adds.

// rpcKind is the label grpc_type.
type rpcKind string

// The kinds of call that etcd's API has.
const (
	rpcUnary        rpcKind = "unary"
	rpcServerStream rpcKind = "server_stream"
	rpcBidiStream   rpcKind = "bidi_stream"
)

// codesCount is the number of gRPC codes, from OK to Unauthenticated.
const codesCount = int(codes.Unauthenticated) + 1

// rpcMetrics makes the counters of methods.
type rpcMetrics struct {
	started, handled, received, sent *prometheus.CounterVec
	// handling is nil unless --metrics=extensive.
	handling *prometheus.HistogramVec
}

func newRPCMetrics(registry prometheus.Registerer, extensive bool) *rpcMetrics {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	m := &rpcMetrics{
		started: counter("grpc_server_started_total", "Total number of RPCs started on the server.", labels...),
		handled: counter("grpc_server_handled_total",
			"Total number of RPCs completed on the server, regardless of success or failure.",
			append(labels, "grpc_code")...),
		received: counter("grpc_server_msg_received_total",
			"Total number of RPC stream messages received on the server.", labels...),
		sent: counter("grpc_server_msg_sent_total",
			"Total number of gRPC stream messages sent by the server.", labels...),
	}
	if extensive {
		m.handling = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "grpc_server_handling_seconds",
			Help:    "Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.",
			Buckets: prometheus.DefBuckets,
		}, labels)
		registry.MustRegister(m.handling)
	}
	return m
}

// rpcMethod is the counters of one method, all of them present from the start with the value 0.
type rpcMethod struct {
	name     string
	unary    bool
	started  prometheus.Counter
	received prometheus.Counter
	sent     prometheus.Counter
	handled  [codesCount]prometheus.Counter
	handling prometheus.Observer
}

// method resolves the counters of one method.
func (m *rpcMetrics) method(kind rpcKind, service, name string) *rpcMethod {
	k := string(kind)
	r := &rpcMethod{
		name:     name,
		unary:    kind == rpcUnary,
		started:  m.started.WithLabelValues(k, service, name),
		received: m.received.WithLabelValues(k, service, name),
		sent:     m.sent.WithLabelValues(k, service, name),
	}
	for c := range r.handled {
		r.handled[c] = m.handled.WithLabelValues(k, service, name, codes.Code(c).String())
	}
	if m.handling != nil {
		r.handling = m.handling.WithLabelValues(k, service, name)
	}
	return r
}

// refused counts a call that got no place, for which alerts look among the others, and gives the error back.
func (r *rpcMethod) refused(wire error) error {
	r.started.Inc()
	r.finished(wire, 0)
	return wire
}

// finished counts the end of a call; wire is nil or carries a status.
func (r *rpcMethod) finished(wire error, took time.Duration) {
	code := codes.OK
	if wire != nil {
		code = status.Code(wire)
	}
	if int(code) < codesCount {
		r.handled[code].Inc()
	}
	if r.handling != nil {
		r.handling.Observe(took.Seconds())
	}
}
