package gateway

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// A transaction may be small on the wire and large in memory: an operation may be two bytes there and fifty times that
// when it is decoded. So what the messages within take is bounded before they are:
//
//   - Of a list at the top that is longer than CheckTxn lets through, only as much is decoded as makes it be refused.
//   - A nested transaction may come to the same number of operations and be legal. What all transactions in flight are
//     decoded to is counted in a gate, and more is refused as too many requests.
//
// Other requests have no need of it. The lists of WatchCreateRequest, MemberAddRequest and MemberUpdateRequest hold
// numbers and strings, not messages: 16 bytes at most for two of the wire. LeaseCheckpointRequest is not served.

// decodeTxn decodes a transaction, or notes that it is refused.
func (in *input) decodeTxn(b []byte, into *pb.TxnRequest) error {
	if int64(len(b))/2*txnMessageBytes > txnBytesFree { // a message is at least two bytes
		w := &txnWalk{listMax: in.server.cfg.TxnOpsMax}
		b = b[:w.walk(b)]
		if bytes := w.messages * txnMessageBytes; bytes > txnBytesFree {
			if in.decoded, in.refused = in.server.enterBytes(&in.server.gates.txns, bytes); in.refused {
				return nil
			}
		}
	}
	return protobuf.Unmarshal(b, into)
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
