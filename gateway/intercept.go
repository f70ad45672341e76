package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	protobuf "google.golang.org/protobuf/proto"
)

// unary makes the descriptor of one unary method: find a place, read, count, admit, handle, map the error, look whether
// it was slow. It is written as one function, not as a chain of interceptors, which would cost an allocation and a call
// per link. Sending belongs to it: the time that an answer takes to be encoded and handed to its connection is the
// request's.
func unary[T any, P interface {
	*T
	protobuf.Message
}](s *Server, service, name string, handle func(context.Context, P) (any, error)) grpc.MethodDesc {
	m := &unaryMethod{server: s, name: name, full: "/" + service + "/" + name,
		counters: s.metrics.rpc.method(rpcUnary, service, name), gate: s.gates.of(rpcUnary, service, name)}
	bytesGate := s.gates.inputGate(m.gate)
	return grpc.MethodDesc{MethodName: name, Handler: func(wire any, _ context.Context, _ func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		stream := wire.(grpc.ServerStream)
		ctx := stream.Context()
		conn := connectionOf(ctx)
		if err := s.enterCall(m.gate, conn); err != nil {
			return nil, m.counters.refused(wireError(err))
		}
		defer s.leaveCall(m.gate, conn)
		r := new(request[T])
		in := P(&r.message)
		r.input = input{into: in, server: s, raw: bytesGate}
		defer r.input.leave()
		switch err := r.input.receive(stream); {
		case err == nil:
		case errors.Is(err, ErrTooManyCalls):
			return nil, m.counters.refused(wireError(err))
		default:
			return nil, err
		}
		r.begin(ctx)
		s.enterUnary()
		defer s.leaveUnary()
		out, err := m.handle(&r.call, in, func() (any, error) { return handle(&r.call, in) })
		// The answer is sent from here, not from within, so that the stack of most calls need not grow for it.
		if err == nil {
			size := r.measure(s, in, out)
			err = stream.SendMsg(out)
			m.end(&r.call, in, size, err)
			return nil, err
		}
		m.end(&r.call, in, answerSize{count: -1, bytes: -1}, err)
		return nil, err
	}}
}

func (s *Server) enterUnary() {
	s.work.enter()
	if s.unary.Add(1) >= crowdedCalls && s.cfg.Crowded != nil {
		s.cfg.Crowded()
	}
}

func (s *Server) leaveUnary() {
	s.unary.Add(-1)
	s.work.leave()
}

// unaryMethod is what is the same for all calls of one unary method.
type unaryMethod struct {
	server     *Server
	name, full string
	counters   *rpcMethod
	gate       *gate
}

// handle admits one call whose message has been read, and runs its handler. The error is as on the wire.
func (m *unaryMethod) handle(c *call, in any, run func() (any, error)) (out any, err error) {
	m.counters.started.Inc()
	m.counters.received.Inc()
	m.counters.sent.Inc() // an error counts as sent, too
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, m.server.panicked(m.name, r)
		}
	}()
	if err = m.server.admit(c, in); err == nil {
		out, err = run()
	}
	if err != nil {
		return nil, wireError(err)
	}
	return out, nil
}

// end notes the end of a call.
func (m *unaryMethod) end(c *call, in protobuf.Message, size answerSize, err error) {
	last := phaseSend
	switch {
	case c.last > c.began:
	case err != nil:
		last = phaseQueue // refused before anything was asked of a room
	default:
		last = phaseRead // it asked a room for something that is not timed apart
	}
	c.lap(last)
	took := c.took()
	m.counters.finished(err, took)
	if s := m.server; took-c.rested > s.cfg.SlowRequest {
		s.slow.note(c, c, &slowRequest{method: m.full, in: in, answerSize: size, err: err})
	}
}

// measure gives what a line about a slow request says of its answer, which is gone once it is sent. What costs
// something is looked for only when the request is slow already.
func (c *call) measure(s *Server, in protobuf.Message, out any) answerSize {
	size := answerSize{count: -1, bytes: -1}
	slow := c.took()-c.rested > s.cfg.SlowRequest
	switch a := out.(type) {
	case *answer:
		size.revision = int64(a.header.revision)
		size.bytes = headerBytesMax + a.len()
		if slow {
			size.count = countIn(in, a)
		}
	case protobuf.Message:
		if slow {
			size.bytes = protobuf.Size(a)
		}
	}
	return size
}

// panicked turns a handler's panic into an answer. A handler owns no state of the cluster, so nothing is left
// half-changed; the stack goes to the log, because it is a bug whatever the client sent.
func (s *Server) panicked(name string, reason any) error {
	s.metrics.panics.Inc()
	if s.panicLines.allow(time.Now()) {
		s.cfg.Log.Error().Str("method", name).Str("reason", fmt.Sprint(reason)).Bytes("stack", debug.Stack()).
			Msg("request handler panicked")
	}
	return statusPanicked
}

// admit decides whether a request is served at all: the member is ready and does not stop, the metadata is sound, and a
// learner serves it.
func (s *Server) admit(ctx context.Context, in any) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	status := s.cfg.Raft.Status()
	if status.Learner && !learnerServes(in) {
		return ErrNotForLearner
	}
	if err := s.versions.count(ctx, "unary"); err != nil {
		return err
	}
	if status.Leader == 0 && wantsLeader(ctx) {
		return ErrNoLeader
	}
	return nil
}

// open waits until the member is ready, and refuses when it stops or could not check who asks.
func (s *Server) open(ctx context.Context) error {
	if !s.isReady.Load() {
		if s.readyWaiters.Add(1) > readyWaitersMax {
			s.readyWaiters.Add(-1)
			return ErrNotReady
		}
		defer s.readyWaiters.Add(-1)
		select {
		case <-s.ready:
		case <-s.lifetime.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch {
	case s.isDraining():
		return ErrDraining
	case s.cfg.Store.State().AuthEnabled:
		return ErrAuthEnabled
	}
	return nil
}

// learnerServes tells what a learner answers: its own state, and reads that may be old.
func learnerServes(in any) bool {
	switch r := in.(type) {
	case *pb.StatusRequest:
		return true
	case *pb.RangeRequest:
		return r.Serializable
	}
	return false
}

// wantsLeader reports whether the client asked to be refused without a leader.
func wantsLeader(ctx context.Context) bool {
	values := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
}

// clientVersions counts requests by the version that clients say they are. Clients choose the label, so that the number
// of its values is bounded: later ones are counted as unknown.
type clientVersions struct {
	counters *prometheus.CounterVec
	known    sync.Map // string -> *[2]atomic.Pointer[prometheus.Counter]
	size     atomic.Int64
}

const versionUnknown = "unknown"

// count counts one request. It fails with ErrInvalidClientVersion for a version that is not valid text, which no metric
// could carry.
func (v *clientVersions) count(ctx context.Context, kind string) error {
	version := versionUnknown
	values := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataClientAPIVersionKey)
	if len(values) > 0 {
		version = values[0]
		if !utf8.ValidString(version) {
			return ErrInvalidClientVersion
		}
	}
	v.counter(version, kind).Inc()
	return nil
}

// counter finds the counter of a version and a kind, "unary" or "stream".
func (v *clientVersions) counter(version, kind string) prometheus.Counter {
	slot := 0
	if kind == "stream" {
		slot = 1
	}
	if found, ok := v.known.Load(version); ok {
		if c := found.(*[2]atomic.Pointer[prometheus.Counter])[slot].Load(); c != nil {
			return *c
		}
	} else if version != versionUnknown &&
		(len(version) > clientVersionBytesMax || v.size.Load() >= clientVersionsMax) {
		return v.counter(versionUnknown, kind)
	}
	entry, loaded := v.known.LoadOrStore(version, new([2]atomic.Pointer[prometheus.Counter]))
	if !loaded {
		v.size.Add(1)
	}
	c := v.counters.WithLabelValues(kind, version)
	entry.(*[2]atomic.Pointer[prometheus.Counter])[slot].Store(&c)
	return c
}
