package gateway

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
)

// localStream is a stream on a localConn, as its client sees it. Nothing is buffered between the two sides: a client
// that takes no answer makes the handler wait, which is what keeps a slow reader's watch in the watch room's bounds.
type localStream struct {
	desc  *grpc.StreamDesc
	local *localConn
	call  *jsonCall
	ctx   context.Context // the client's
	// serving is the handler's context. It ends with the client's, and when the handler has returned.
	serving context.Context
	end     context.CancelFunc

	requests chan []byte // closed when the client has said all
	answers  chan localAnswer
	started  chan struct{} // closed before the first answer
	starts   sync.Once
	// done is closed when the handler has returned; err is what it returned.
	done chan struct{}
	err  error
}

// localAnswer is an encoded answer and what it has in the ledger.
type localAnswer struct {
	data mem.BufferSlice
	held *claim
}

var (
	_ grpc.ClientStream = (*localStream)(nil)
	_ grpc.ServerStream = localServing{}
)

// NewStream implements grpc.ClientConnInterface. The handler runs in a goroutine of its own, for which the HTTP request
// waits at its end.
func (l *localConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (
	grpc.ClientStream, error) {
	handler, err := l.method(ctx, method)
	if err != nil {
		return nil, err
	}
	s := &localStream{desc: desc, local: l, call: jsonCallOf(ctx), ctx: ctx, requests: make(chan []byte),
		answers: make(chan localAnswer), started: make(chan struct{}), done: make(chan struct{})}
	if s.call.paced != nil {
		s.call.paced.streams.Store(true)
	}
	s.serving, s.end = context.WithCancel(incoming(ctx))
	if !desc.ClientStreams {
		s.call.bodyRead()
	}
	s.call.handlers.Go(func() {
		s.err = handler.Handler(l.server, localServing{s})
		s.end() // what the handler has left behind sends and receives no more
		close(s.done)
	})
	return s, nil
}

// Header implements grpc.ClientStream: it waits for the first answer or the end, and is nil for an end, whose reason
// RecvMsg gives.
func (s *localStream) Header() (metadata.MD, error) {
	select {
	case <-s.started:
		return localHeader(), nil
	case <-s.done:
	case <-s.ctx.Done():
	}
	return nil, nil
}

// Trailer implements grpc.ClientStream.
func (s *localStream) Trailer() metadata.MD { return nil }

// CloseSend implements grpc.ClientStream. It is called once, after the last SendMsg.
func (s *localStream) CloseSend() error {
	close(s.requests)
	return nil
}

// Context implements grpc.ClientStream.
func (s *localStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ClientStream.
func (s *localStream) SendMsg(m any) error {
	request, err := s.local.encode(m)
	if err != nil {
		return err
	}
	select {
	case s.requests <- request:
		return nil
	case <-s.serving.Done():
	}
	if !s.desc.ClientStreams {
		return nil // RecvMsg tells
	}
	return io.EOF
}

// RecvMsg implements grpc.ClientStream. The answer before has been written when it is called.
func (s *localStream) RecvMsg(m any) error {
	s.call.hold(nil)
	select {
	case a := <-s.answers:
		s.call.hold(a.held)
		return open(a.data, m.(protobuf.Message))
	case <-s.done:
		if s.err != nil {
			return s.call.ended(s.err)
		}
		if err := s.call.failed(); err != nil {
			return err
		}
		return io.EOF
	case <-s.ctx.Done():
		return statusOf(s.ctx)
	}
}

// localServing is the same stream as its handler sees it.
type localServing struct{ *localStream }

// Context implements grpc.ServerStream.
func (s localServing) Context() context.Context { return s.serving }

// SetHeader implements grpc.ServerStream. No handler of this package sets metadata.
func (s localServing) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (s localServing) SendHeader(metadata.MD) error {
	s.starts.Do(func() { close(s.started) })
	return nil
}

// SetTrailer implements grpc.ServerStream.
func (s localServing) SetTrailer(metadata.MD) {}

// RecvMsg implements grpc.ServerStream.
func (s localServing) RecvMsg(m any) error {
	select {
	case request, more := <-s.requests:
		if !more {
			return io.EOF
		}
		return s.local.decode(request, m)
	case <-s.serving.Done():
		return status.FromContextError(s.serving.Err()).Err()
	}
}

// SendMsg implements grpc.ServerStream.
func (s localServing) SendMsg(m any) error {
	data, held, err := s.local.take(s.serving, m)
	if err != nil {
		return err
	}
	_ = s.SendHeader(nil)
	select {
	case s.answers <- localAnswer{data, held}:
		return nil
	case <-s.serving.Done():
		data.Free()
		held.drop()
		return status.FromContextError(s.serving.Err()).Err()
	}
}
