package gateway

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// txnInput is a transaction that is being received. An operation may be two bytes on the wire and fifty times that in
// memory, so that what the messages within take is bounded before they are decoded:
//
//   - Of a list at the top that is longer than CheckTxn lets through, only as much is decoded as makes it be refused.
//   - A nested transaction may come to the same number of operations and be legal. What all transactions in flight are
//     decoded to is counted in a gate, and more is refused as too many requests.
//
// Other requests have no need of it. The lists of WatchCreateRequest, MemberAddRequest and MemberUpdateRequest hold
// numbers and strings, not messages: 16 bytes at most for two of the wire. LeaseCheckpointRequest is not served.
type txnInput struct {
	into    *pb.TxnRequest
	server  *Server
	held    int64 // bytes in the gate
	refused bool
}

// txnInput makes the input of a transaction, nil for other requests.
func (s *Server) txnInput(in protobuf.Message) *txnInput {
	if txn, ok := in.(*pb.TxnRequest); ok {
		return &txnInput{into: txn, server: s}
	}
	return nil
}

// receive reads the message of a call; t is nil for all but transactions. It fails with ErrTooManyCalls, or as the
// stream does. The caller calls leave in any case, when the call is over.
func (t *txnInput) receive(stream grpc.ServerStream, in protobuf.Message) error {
	if t == nil {
		return stream.RecvMsg(in)
	}
	if err := stream.RecvMsg(t); err != nil {
		return err
	}
	if t.refused {
		return ErrTooManyCalls
	}
	return nil
}

// leave gives back what the transaction has in the gate.
func (t *txnInput) leave() {
	if t != nil && t.held > 0 {
		t.server.gates.txns.open.Add(-t.held)
	}
}

// decode decodes the transaction, or notes that it is refused.
func (t *txnInput) decode(b []byte) error {
	if int64(len(b))/2*txnMessageBytes > txnBytesFree { // a message is at least two bytes
		w := &txnWalk{listMax: t.server.cfg.TxnOpsMax}
		b = b[:w.walk(b)]
		if !t.enter(w.messages * txnMessageBytes) {
			t.refused = true
			return nil
		}
	}
	return protobuf.Unmarshal(b, t.into)
}

// enter takes room in the gate. One that is larger than the whole is let in when there is no other.
func (t *txnInput) enter(bytes int64) bool {
	if bytes <= txnBytesFree {
		return true
	}
	g := &t.server.gates.txns
	bytes = min(bytes, g.max)
	if g.open.Add(bytes) > g.max {
		g.open.Add(-bytes)
		g.rejected.Inc()
		t.server.sayRejected(g)
		return false
	}
	t.held = bytes
	return true
}

// txnWalk looks at the wire form of a transaction, without an allocation.
type txnWalk struct {
	listMax int
	// messages are the messages within that Unmarshal makes of what is kept. One that the next of a oneof replaces is
	// counted too.
	messages int64
	// cut is where the first list that is too long is so, 0 for none.
	cut           int
	messagesAtCut int64
}

// walk gives how much of the transaction is to be decoded: all, or up to the operation by which CheckTxn will refuse
// it, which looks at the lengths of the three lists before all else. Bytes that are not a transaction are kept whole,
// for Unmarshal to say so; it gets no further than what has been counted. What is wrong behind the cut within a range,
// a put, a deletion or a comparison is not looked for.
func (w *txnWalk) walk(b []byte) int {
	if !w.txn(b, 0) || w.cut == 0 {
		return len(b)
	}
	w.messages = w.messagesAtCut
	return w.cut
}

// The field numbers of TxnRequest's lists, and of RequestOp's transaction, the last of its oneof.
const (
	txnCompareField = 1
	txnFailureField = 3
	opTxnField      = 4
)

// txn counts the messages in one transaction, and reports whether its form is right.
func (w *txnWalk) txn(b []byte, depth int) bool {
	var lengths [txnFailureField + 1]int
	for at := 0; at < len(b); {
		field, value, n := consumeField(b[at:])
		if n < 0 {
			return false
		}
		at += n
		if value == nil || field > txnFailureField {
			continue
		}
		w.messages++
		if field != txnCompareField && !w.operation(value, depth) {
			return false
		}
		lengths[field]++
		if depth == 0 && w.cut == 0 && lengths[field] > w.listMax {
			w.cut, w.messagesAtCut = at, w.messages
		}
	}
	return true
}

// operation does the same for one operation.
func (w *txnWalk) operation(b []byte, depth int) bool {
	for at := 0; at < len(b); {
		field, value, n := consumeField(b[at:])
		if n < 0 {
			return false
		}
		at += n
		if value == nil || field > opTxnField {
			continue
		}
		w.messages++
		if field == opTxnField && (depth >= txnDepthMax || !w.txn(value, depth+1)) {
			return false
		}
	}
	return true
}

// consumeField gives the number of the first field, its value if that is bytes (not nil then), and the length of both,
// which is negative for bad bytes.
func consumeField(b []byte) (protowire.Number, []byte, int) {
	field, kind, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return 0, nil, tag
	}
	if kind == protowire.BytesType {
		value, n := protowire.ConsumeBytes(b[tag:])
		if n < 0 {
			return 0, nil, n
		}
		return field, value[:len(value):len(value)], tag + n
	}
	n := protowire.ConsumeFieldValue(field, kind, b[tag:])
	if n < 0 {
		return 0, nil, n
	}
	return field, nil, tag + n
}
