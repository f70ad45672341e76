package gateway

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
)

// header is a ResponseHeader by value: it is made once per answer, and encoding it by hand saves the message.
type header struct {
	cluster  proto.ClusterID
	member   proto.MemberID
	revision proto.Revision
	term     proto.Term
}

// headerBytesMax is the longest encoding of a header field: its tag and length, and four tags with their varints.
const headerBytesMax = 2 + 4*(1+10)

// rangeFieldsBytesMax is the longest encoding of the fields more and count of a RangeResponse.
const rangeFieldsBytesMax = 2 + 1 + 10

// Field numbers of ResponseHeader and WatchResponse in etcdserverpb/rpc.proto; every answer has its header as field 1.
const (
	fieldHeader         = 1
	fieldHeaderCluster  = 1
	fieldHeaderMember   = 2
	fieldHeaderRevision = 3
	fieldHeaderTerm     = 4

	fieldWatchID        = 2
	fieldWatchCreated   = 3
	fieldWatchCanceled  = 4
	fieldWatchCompacted = 5
	fieldWatchReason    = 6
	fieldWatchFragment  = 7
)

// prefixBytesOnStack is room for a header and the fields of a watch answer with an ordinary reason.
const prefixBytesOnStack = 256

// append appends the header as field 1 of an answer. A header never exceeds 127 bytes, so that its length is one byte
// and can be filled in afterwards.
func (h header) append(b []byte) []byte {
	b = append(b, fieldHeader<<3|byte(protowire.BytesType), 0)
	at := len(b)
	b = appendUint(b, fieldHeaderCluster, uint64(h.cluster))
	b = appendUint(b, fieldHeaderMember, uint64(h.member))
	b = appendUint(b, fieldHeaderRevision, uint64(h.revision))
	b = appendUint(b, fieldHeaderTerm, uint64(h.term))
	b[at-1] = byte(len(b) - at)
	return b
}

// appendUint appends a varint field, or nothing for zero, as proto3 has it. A negative int64 is given as its
// two's complement.
func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

// appendBool appends a boolean field, or nothing for false.
func appendBool(b []byte, field protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return appendUint(b, field, 1)
}

// answer is a response that is spliced from encoded pieces: its header, a few fields, and the body as the room made it.
// Whoever encodes it calls the body's Release. It is encoded exactly once.
type answer struct {
	header header
	// frame holds the fields of a watch answer, nil for all others.
	frame *WatchFrame
	// bare, if not nil, stands in front of the body instead of header and frame.
	bare []byte
	body proto.Body
	// more are further bodies that follow body, of a range that was read in pieces.
	more []proto.Body
	// count is what a range found or a deletion deleted, where that is known without decoding; for the log.
	count int64
	// entered is what the bodies have in the ledger of answers in flight, or a watch response has been lent; nil for a
	// small answer.
	entered *claim
}

// len is the length of the bodies.
func (a *answer) len() int {
	n := a.body.Len()
	for i := range a.more {
		n += a.more[i].Len()
	}
	return n
}

// release releases the bodies of an answer that has been encoded into other bytes.
func (a *answer) release() {
	if a.body.Release != nil {
		a.body.Release()
	}
	for i := range a.more {
		if release := a.more[i].Release; release != nil {
			release()
		}
	}
}

// lend gives gRPC the bodies themselves, behind the prefix; small ones it copies, because the memory behind them is
// larger than they are, and a client that does not read would hold it.
func (a *answer) lend(prefix []byte) mem.BufferSlice {
	if n := a.len(); n < lentBytesMin {
		own := a.appendTo(make([]byte, 0, n))
		a.release()
		a.body, a.more = proto.Body{Pieces: [][]byte{own}}, nil
	}
	n := len(a.body.Pieces) + 2
	for i := range a.more {
		n += len(a.more[i].Pieces) + 1
	}
	out := append(make(mem.BufferSlice, 0, n), mem.SliceBuffer(slices.Clone(prefix)))
	out = a.entered.lend(out, a.body)
	for _, body := range a.more {
		out = a.entered.lend(out, body)
	}
	return out
}

// prefix appends everything in front of the body.
func (a *answer) prefix(b []byte) []byte {
	if a.bare != nil {
		return a.bare
	}
	b = a.header.append(b)
	f := a.frame
	if f == nil {
		return b
	}
	b = appendUint(b, fieldWatchID, uint64(f.WatchID))
	b = appendBool(b, fieldWatchCreated, f.Created)
	b = appendBool(b, fieldWatchCanceled, f.Canceled)
	b = appendUint(b, fieldWatchCompacted, uint64(f.CompactRevision))
	if f.CancelReason != "" {
		b = protowire.AppendTag(b, fieldWatchReason, protowire.BytesType)
		b = protowire.AppendString(b, f.CancelReason)
	}
	return appendBool(b, fieldWatchFragment, f.Fragment)
}
