package gateway

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"
)

// input is the message of a call while it is received and until it is answered, with what it takes of the gates. The
// number of calls bounds no memory: each may bring as much as --max-request-bytes allows. So the bytes of all of them
// are counted together, from the moment when gRPC has one whole and before it is copied (codec.go); small ones go
// uncounted, as they take no more than the call itself, and so pass when large ones have used everything up.
//
// What a client has sent of a message that is not whole is gRPC's: its flow control and the bounds of the calls are
// over that.
type input struct {
	into   protobuf.Message
	server *Server
	raw    *gate
	// held are the bytes in raw, decoded those in the gate of transactions (txninput.go).
	held, decoded int64
	refused       bool
}

// inputGate gives the gate of the bytes of a method's messages. Renewals and the requests on watch streams are small;
// what is not has a gate of its own, so that neither they nor a flood of puts can keep the other out.
func (g *gates) inputGate(calls *gate) *gate {
	if calls == &g.leases || calls == &g.streams {
		return &g.controlBytes
	}
	return &g.requestBytes
}

// receive reads the message of a call. It fails with ErrTooManyCalls, or as the stream does. The caller calls leave in
// any case, when the call is over.
func (in *input) receive(stream grpc.ServerStream) error {
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	if in.refused {
		return ErrTooManyCalls
	}
	return nil
}

// enter makes room for a message of that many bytes, or notes that it is refused.
func (in *input) enter(bytes int) (entered bool) {
	if bytes > requestBytesFree {
		in.held, in.refused = in.server.enterBytes(in.raw, int64(bytes))
	}
	return !in.refused
}

// decode decodes the message, or notes that it is refused.
func (in *input) decode(b []byte) error {
	if txn, ok := in.into.(*pb.TxnRequest); ok {
		return in.decodeTxn(b, txn)
	}
	return protobuf.Unmarshal(b, in.into)
}

// leave gives back what the message has in the gates.
func (in *input) leave() {
	if in.held > 0 {
		in.raw.open.Add(-in.held)
	}
	if in.decoded > 0 {
		in.server.gates.txns.open.Add(-in.decoded)
	}
	in.held, in.decoded = 0, 0
}

// enterBytes takes room in a gate of bytes, and gives how much to give back. What is larger than the whole is let in
// when there is nothing else.
func (s *Server) enterBytes(g *gate, bytes int64) (held int64, refused bool) {
	held = min(bytes, g.max)
	if g.open.Add(held) <= g.max {
		return held, false
	}
	g.open.Add(-held)
	g.rejected.Inc()
	s.sayRejected(g)
	return 0, true
}
