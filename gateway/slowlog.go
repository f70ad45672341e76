package gateway

import (
	"context"
	"io"
	"log"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/peer"
	protobuf "google.golang.org/protobuf/proto"
)

// slowLog writes the line "request stats" for requests over --warning-unary-request-duration: etcd's message and
// fields, and how the time was spent. No line holds a value. It is sampled: when everything is slow, the log must not
// be what is slow.
type slowLog struct {
	log       zerolog.Logger
	threshold time.Duration
	counter   prometheus.Counter
	// suppressed counts the lines that were left out, leftOut those since the last line.
	suppressed prometheus.Counter
	leftOut    atomic.Int64
	rate       lineRate
}

// make prepares the log.
func (l *slowLog) make(log zerolog.Logger, threshold time.Duration, m *metrics) {
	l.log, l.threshold, l.counter, l.suppressed = log, threshold, m.slow, m.suppressed
	l.rate.max = slowLinesPerSecondMax
}

// slowRequest is what is known of a slow request at its end.
type slowRequest struct {
	// method is the full name, as in etcd's line.
	method string
	in     protobuf.Message
	answerSize
	err error
}

// answerSize is what a line says of an answer.
type answerSize struct {
	// count is what was found or deleted, -1 if that is not known; bytes is the size of the answer, -1 if there is none.
	count int64
	bytes int
	// revision is that of the answer's header, 0 if there is none.
	revision int64
}

// note counts a slow request and, within the sample, logs it.
func (l *slowLog) note(ctx context.Context, c *call, r *slowRequest) {
	l.counter.Inc()
	now := time.Now()
	if !l.rate.allow(now) {
		l.suppressed.Inc()
		l.leftOut.Add(1)
		return
	}
	about := describe(r.in)
	phases := zerolog.Dict()
	for p, name := range phaseNames {
		phases.Str(name, c.spent[p].String())
	}
	line := l.log.Warn().
		Time("start time", now.Add(c.began-monotonic())).
		Str("time spent", c.took().String()).
		Str("remote", remoteOf(ctx)).
		Str("response type", r.method).
		Int64("request count", about.ops).
		Int("request size", protobuf.Size(r.in)).
		Int64("response count", r.count).
		Int("response size", r.bytes).
		Str("request content", about.content).
		Str("user", "").
		Int64("revision", r.revision).
		Dict("phases", phases)
	if r.err != nil {
		line.Str("answer", r.err.Error())
	}
	if n := l.leftOut.Swap(0); n > 0 {
		line.Int64("suppressed", n)
	}
	line.Msg("request stats")
}

// remoteOf names the client of a call for the log, as etcd does.
func remoteOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return "No remote client info."
}

// grpc-go logs to standard error on its own, for the whole process and mostly about single connections. The daemon's
// log is JSON lines and nothing else, so that it is silenced here, before any server is made; what matters is counted.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// quietLogger sends what net/http says about single connections to the debug level: clients that speak nonsense must
// not fill the log.
func quietLogger(to zerolog.Logger) *log.Logger {
	return log.New(lineWriter{to}, "", 0)
}

type lineWriter struct{ to zerolog.Logger }

// Write implements io.Writer.
func (w lineWriter) Write(p []byte) (int, error) {
	w.to.Debug().Str("detail", string(p)).Msg("http connection")
	return len(p), nil
}
