package gateway

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
)

// localConn is the connection on which the JSON gateway calls the services of its own process: the client's side of
// gRPC with nothing in between. The naive way, gRPC over a pipe, would hide whose call it is: all calls would come from
// one connection, and everything that this package keeps for each connection (calls, streams, answers, leases) would be
// about that one. Here a call runs in the handler that gRPC itself would call, with the context of the HTTP request and
// so with the client's own connection; limits, metrics and the log are the handler's.
type localConn struct {
	server *Server
	// methods are the handlers by full name. They are complete before the first call.
	methods map[string]grpc.StreamDesc
}

var _ grpc.ClientConnInterface = (*localConn)(nil)

// localHeader is the metadata in front of an answer: what gRPC's own transport would put there.
func localHeader() metadata.MD { return metadata.Pairs("content-type", "application/grpc") }

// Invoke implements grpc.ClientConnInterface.
func (l *localConn) Invoke(ctx context.Context, method string, in, out any, options ...grpc.CallOption) error {
	desc, request, err := l.prepare(ctx, method, in)
	if err != nil {
		return err
	}
	call := jsonCallOf(ctx)
	call.bodyRead()
	u := &localUnary{ctx: incoming(ctx), local: l, call: call, request: request, out: out.(protobuf.Message)}
	if err := desc.Handler(l.server, u); err != nil {
		return call.ended(err)
	}
	for _, o := range options {
		if h, ok := o.(grpc.HeaderCallOption); ok {
			*h.HeaderAddr = localHeader()
		}
	}
	return nil
}

// prepare finds the method of a unary call and encodes its request. It is encoded to be decoded again, because the
// official Unmarshal decides what may enter the log.
func (l *localConn) prepare(ctx context.Context, method string, in any) (grpc.StreamDesc, []byte, error) {
	desc, err := l.method(ctx, method)
	if err != nil {
		return desc, nil, err
	}
	request, err := l.encode(in)
	return desc, request, err
}

func (l *localConn) method(ctx context.Context, method string) (grpc.StreamDesc, error) {
	desc, ok := l.methods[method]
	if !ok {
		return desc, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if ctx.Err() != nil {
		return desc, statusOf(ctx)
	}
	return desc, nil
}

// encode encodes a request and refuses one that gRPC would not receive, in its words.
func (l *localConn) encode(in any) ([]byte, error) {
	request, err := protobuf.Marshal(in.(protobuf.Message))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if most := l.server.receivedBytesMax(); len(request) > most {
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)",
			len(request), most)
	}
	return request, nil
}

// receivedBytesMax is the largest message that a client may send.
func (s *Server) receivedBytesMax() int { return s.cfg.RequestBytesMax + grpcOverheadBytes }

// incoming turns the metadata that a client sends into those that a server gets.
func incoming(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(ctx, sent)
}

// statusOf is the status with which a call ends whose context has ended.
func statusOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ok := status.FromError(cause); ok {
		return cause
	}
	return status.FromContextError(ctx.Err()).Err()
}

// localUnary is a unary call, as its handler sees it.
type localUnary struct {
	ctx     context.Context
	local   *localConn
	call    *jsonCall
	request []byte // nil when it has been read
	out     protobuf.Message
}

var _ grpc.ServerStream = (*localUnary)(nil)

// Context implements grpc.ServerStream.
func (u *localUnary) Context() context.Context { return u.ctx }

// SetHeader implements grpc.ServerStream. No handler of this package sets metadata.
func (u *localUnary) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (u *localUnary) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (u *localUnary) SetTrailer(metadata.MD) {}

// RecvMsg implements grpc.ServerStream.
func (u *localUnary) RecvMsg(m any) error {
	if u.request == nil {
		return io.EOF
	}
	err := u.local.decode(u.request, m)
	u.request = nil
	return err
}

// SendMsg implements grpc.ServerStream.
func (u *localUnary) SendMsg(m any) error {
	data, held, err := u.local.take(u.ctx, m)
	if err != nil {
		return err
	}
	u.call.hold(held)
	return open(data, u.out)
}

// decode decodes a request as gRPC does, counted.
func (l *localConn) decode(request []byte, m any) error {
	if err := l.server.wire.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// take encodes an answer as gRPC does, counted. What it has in the ledger stays there until the caller drops it: the
// bytes become text, and leave with that. What is large and has nothing there is entered now.
func (l *localConn) take(ctx context.Context, m any) (data mem.BufferSlice, held *claim, err error) {
	if a, ok := m.(*answer); ok {
		held, a.entered = a.entered, nil
	}
	data, err = l.server.wire.Marshal(m)
	if err != nil {
		held.drop()
		return nil, nil, status.Error(codes.Internal, err.Error())
	}
	if n := int64(data.Len()); held == nil && n >= answerBytesCounted {
		n *= answerWeight(ctx)
		if err := l.server.answers.enter(ctx, n); err != nil {
			data.Free()
			return nil, nil, wireError(err)
		}
		held = newClaim(ctx, l.server.answers, n)
	}
	return data, held, nil
}

// open decodes an answer and frees its bytes.
func open(data mem.BufferSlice, into protobuf.Message) error {
	defer data.Free()
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := protobuf.Unmarshal(whole.ReadOnlyData(), into); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// answerWeight is what each byte of a large answer counts for in the ledger.
func answerWeight(ctx context.Context) int64 {
	if jsonCallOf(ctx) != nil {
		return jsonAnswerWeight
	}
	return 1
}
