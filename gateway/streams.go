package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"
)

// stream is one streaming call: it counts messages and knows why it ends.
type stream struct {
	grpc.ServerStream
	ctx      context.Context
	end      context.CancelCauseFunc
	counters *rpcMethod
	server   *Server
	api      string
	// call, bytes and count are, for a stream that answers one request, its times, what it has sent, and what it found.
	call  *call
	bytes int
	count int64
	// input is the message that was received last. Only the goroutine that receives uses it, and leaves it at its end.
	input input
	// keep takes the stream out of those that the drain ends; false when the drain has begun.
	keep func() bool
}

// streaming makes the descriptor of a streaming method.
func (s *Server) streaming(kind rpcKind, service, name, api string, handle func(*stream) error) grpc.StreamDesc {
	counters := s.metrics.rpc.method(kind, service, name)
	gate := s.gates.of(kind, service, name)
	return grpc.StreamDesc{
		StreamName:    name,
		ServerStreams: true,
		ClientStreams: kind == rpcBidiStream,
		Handler: func(_ any, wire grpc.ServerStream) (err error) {
			conn := connectionOf(wire.Context())
			if err := s.enterCall(gate, conn); err != nil {
				return counters.refused(wireError(err))
			}
			defer s.leaveCall(gate, conn)
			if conn != nil {
				conn.streams.Add(1)
				defer conn.streams.Add(-1)
			}
			started := time.Now()
			counters.started.Inc()
			defer func() {
				if r := recover(); r != nil {
					err = s.panicked(name, r)
				}
				counters.finished(err, time.Since(started))
			}()
			if err := s.serveStream(wire, counters, api, handle); err != nil {
				return wireError(err)
			}
			return nil
		},
	}
}

// serveStream admits a stream and runs it until it ends or the member stops.
func (s *Server) serveStream(wire grpc.ServerStream, counters *rpcMethod, api string,
	handle func(*stream) error) error {
	ctx := wire.Context()
	if err := s.open(ctx); err != nil {
		return err
	}
	if s.cfg.Raft.Status().Learner {
		return ErrNotForLearner
	}
	if err := s.versions.count(ctx, "stream"); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if wantsLeader(ctx) {
		if s.cfg.Raft.Status().Leader == 0 {
			return ErrNoLeader
		}
		defer s.leader.register(end)()
	}
	keep := context.AfterFunc(s.lifetime, func() { end(ErrDraining) })
	defer keep()
	return handle(&stream{ServerStream: wire, ctx: ctx, end: end, counters: counters, server: s, api: api, keep: keep})
}

// admit makes a stream that answers one request, now that it has been read, work that the drain waits for instead of
// ending it. The caller calls done when the answer is given. It fails with ErrDraining in a drain.
func (s *stream) admit() (done func(), err error) {
	s.server.work.enter()
	if !s.keep() {
		s.server.work.leave()
		return nil, ErrDraining
	}
	return s.server.work.leave, nil
}

// receive reads one message. The error is io.EOF when the client has said all. It counts whatever comes of it, as send
// does; so do those of etcd.
//
// The message before has been answered when it is called, or passed on to a room whose mailbox counts it.
func (s *stream) receive(m protobuf.Message) error {
	s.input.leave()
	s.input = input{into: m, server: s.server, raw: &s.server.gates.controlBytes}
	err := s.input.receive(s.ServerStream)
	s.counters.received.Inc()
	if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		s.server.metrics.streamFailures.WithLabelValues("receive", s.api).Inc()
	}
	return err
}

// send writes one message; it is encoded when send returns.
func (s *stream) send(m any) error {
	err := s.SendMsg(m)
	s.counters.sent.Inc()
	if err != nil && s.ctx.Err() == nil {
		s.server.metrics.streamFailures.WithLabelValues("send", s.api).Inc()
	}
	return err
}

// leaderWatch ends the streams that asked for a leader when there has been none for some election timeouts: a member
// that is cut off would otherwise keep its watchers for ever. One goroutine serves all streams.
type leaderWatch struct {
	mu      sync.Mutex
	streams map[*context.CancelCauseFunc]struct{}
	done    chan struct{}
}

func newLeaderWatch(raft Raft, period time.Duration, stop <-chan struct{}) *leaderWatch {
	w := &leaderWatch{streams: make(map[*context.CancelCauseFunc]struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		misses := 0
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			if raft.Status().Leader != 0 {
				misses = 0
				continue
			}
			if misses++; misses >= leaderMissesMax {
				w.endAll()
			}
		}
	}()
	return w
}

// register adds a stream; the result takes it out again.
func (w *leaderWatch) register(end context.CancelCauseFunc) (remove func()) {
	key := &end
	w.mu.Lock()
	w.streams[key] = struct{}{}
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.streams, key)
		w.mu.Unlock()
	}
}

func (w *leaderWatch) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := range w.streams {
		(*end)(ErrNoLeader)
	}
}

// wait waits until the goroutine has ended; the stop channel must be closed.
func (w *leaderWatch) wait() { <-w.done }
