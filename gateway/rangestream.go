package gateway

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
	"troupe/storeactor"
)

// Field numbers of RangeStreamResponse and RangeResponse in etcdserverpb/rpc.proto.
const (
	fieldStreamRange = 1
	fieldRangeMore   = 3
	fieldRangeCount  = 4
)

// rangeStream answers a range in chunks that grow towards half of the largest request, all at one revision. Only the
// last message has a header, `more` and `count`, as in etcd. Between chunks nothing is held: a client that does not
// read pins no view, and a compaction that passes the revision ends the stream with that error.
func (s *Server) rangeStream(stream *stream) error {
	q := new(pb.RangeRequest)
	defer stream.input.leave()
	if err := stream.receive(q); err != nil {
		return err
	}
	done, err := stream.admit()
	if err != nil {
		return err
	}
	defer done()
	if err := storeactor.CheckRange(q); err != nil {
		return err
	}
	if err := storeactor.CheckRangeStream(q); err != nil {
		return err
	}
	c := new(call)
	c.begin(stream.ctx)
	stream.call = c
	defer s.noteSlowStream(stream, q)
	return s.sendRange(stream, q)
}

// noteSlowStream logs a streamed range that took the member long. The time in which the client had to take what was
// sent is the client's.
func (s *Server) noteSlowStream(stream *stream, q *pb.RangeRequest) {
	c := stream.call
	if c.took()-c.spent[phaseSend] > s.cfg.SlowRequest {
		s.slow.note(stream.ctx, c, &slowRequest{method: "/" + serviceKV + "/RangeStream", in: q,
			answerSize: answerSize{count: stream.count, bytes: stream.bytes, revision: q.Revision}})
	}
}

// noteChunk counts a chunk as etcd does, as a range of its own.
func (s *Server) noteChunk(took time.Duration, err error) {
	s.cfg.Store.NoteRange()
	s.metrics.observeRange(took, err)
}

func (s *Server) sendRange(stream *stream, q *pb.RangeRequest) error {
	ctx := stream.call
	if !q.Serializable {
		if err := s.linearize(ctx); err != nil {
			return err
		}
	}
	if q.CountOnly {
		return s.sendCount(stream, q)
	}
	chunks := chunkSizes{limit: rangeStreamKeysFirst, bytesMax: s.cfg.RequestBytesMax, left: q.Limit}
	sent, from := int64(0), []byte(nil)
	for {
		var chunk storeactor.RangeChunk
		result, held, err := s.readEntered(ctx, func() (_ *proto.Result, err error) {
			chunk, err = s.cfg.Store.RangeChunk(ctx, q, from, chunks.next())
			return chunk.Result, err
		})
		s.noteChunk(stream.call.lap(phaseRead), err)
		if err != nil {
			return err
		}
		q.Revision = int64(chunk.At)
		sent += chunk.Keys
		if chunk.Next == nil || chunks.took(chunk.Keys, chunk.Bytes) {
			return s.sendLast(stream, q, &chunk, sent, held)
		}
		from = chunk.Next
		if err := s.sendChunk(stream, nil, result.Body, held); err != nil {
			return err
		}
	}
}

// sendLast sends the last chunk, with what is known only now.
func (s *Server) sendLast(stream *stream, q *pb.RangeRequest, chunk *storeactor.RangeChunk, sent int64,
	held *claim) error {
	count := sent
	if chunk.Next != nil {
		rest, err := s.cfg.Store.CountFrom(q, chunk.Next)
		if err != nil {
			release(chunk.Result)
			held.drop()
			return err
		}
		count += rest
	}
	stream.count = count
	front := s.header(chunk.Result.Revision).append(nil)
	front = appendBool(front, fieldRangeMore, chunk.Next != nil)
	front = appendUint(front, fieldRangeCount, uint64(count))
	return s.sendChunk(stream, front, chunk.Result.Body, held)
}

func (s *Server) sendCount(stream *stream, q *pb.RangeRequest) error {
	result, err := s.cfg.Store.Range(stream.call, q)
	s.metrics.observeRange(stream.call.lap(phaseRead), err)
	if err != nil {
		return err
	}
	return s.sendChunk(stream, s.header(result.Revision).append(nil), result.Body, nil)
}

// sendChunk sends one RangeStreamResponse: fields of a RangeResponse, then the body.
func (s *Server) sendChunk(stream *stream, front []byte, body proto.Body, held *claim) error {
	size := body.Len()
	prefix := protowire.AppendTag(make([]byte, 0, len(front)+headerBytesMax), fieldStreamRange, protowire.BytesType)
	prefix = protowire.AppendVarint(prefix, uint64(len(front)+size))
	prefix = append(prefix, front...)
	err := stream.send(&answer{bare: prefix, body: body, entered: held})
	stream.call.lap(phaseSend)
	stream.bytes += len(prefix) + size
	return err
}

// chunkSizes decides how many keys the next chunk has: twice as many while chunks are small, half as many when they are
// too large, and never more than the client's limit leaves.
type chunkSizes struct {
	limit    int64 // keys of the next chunk
	bytesMax int
	left     int64 // of the client's limit; 0 or less: no limit
}

func (c *chunkSizes) next() int64 {
	if c.left > 0 {
		return min(c.limit, c.left)
	}
	return c.limit
}

// took notes what a chunk was like and reports whether the client's limit is reached.
func (c *chunkSizes) took(keys int64, bytes int) (done bool) {
	switch {
	case bytes < c.bytesMax/2:
		c.limit *= 2
	case bytes > 2*c.bytesMax:
		c.limit = max(c.limit/2, 1)
	}
	if c.left <= 0 {
		return false
	}
	c.left -= keys
	return c.left <= 0
}
