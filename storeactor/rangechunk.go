package storeactor

import (
	"bytes"
	"context"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// RangeChunk is a piece of a range that is read bit by bit at one revision.
type RangeChunk struct {
	// Result has the revision of the state read and a body with the KeyValues alone, without `more` and `count`.
	Result *proto.Result
	// Keys is how many there are, Bytes their encoded size.
	Keys  int64
	Bytes int
	// Next is the key to go on with; nil at the end of the range.
	Next []byte
	// At is the revision that was read; the chunks that follow are read at the same.
	At proto.Revision
}

// CheckRangeStream says whether a range can be read in chunks: only in key order, or sorted within each chunk when it
// names a target without an order, as etcd has it, and without filters. Errors: ErrChunkOrder, ErrChunkFilters.
func CheckRangeStream(q *pb.RangeRequest) error {
	if q.SortOrder != pb.RangeRequest_NONE && !defaultOrder(q) {
		return ErrChunkOrder
	}
	if filtersRevisions(q) {
		return ErrChunkFilters
	}
	return nil
}

// RangeChunk reads at most limit keys of the range of q, beginning with the key from (nil: the range's first), at the
// revision q.Revision, 0 meaning the current one. The caller owns the body. Errors: as of Range; ErrCompacted also when
// a compaction has passed the revision since the last chunk.
func (c *Client) RangeChunk(ctx context.Context, q *pb.RangeRequest, from []byte, limit int64) (RangeChunk, error) {
	var chunk RangeChunk
	_, err := c.read(ctx, func(v *View) (*proto.Result, error) {
		var err error
		chunk, err = v.rangeChunk(q, from, limit)
		return chunk.Result, err
	})
	return chunk, err
}

// CountFrom counts the keys of the range of q from a key on, at q.Revision.
func (c *Client) CountFrom(q *pb.RangeRequest, from []byte) (int64, error) {
	v := c.View()
	defer v.Release()
	at, err := v.readRevision(proto.Revision(q.Revision), v.revision)
	if err != nil {
		return 0, err
	}
	return v.counted(NewKeyRange(q.Key, q.RangeEnd).startingAt(from), at, at == v.revision).count, nil
}

// startingAt is the part of the range at or behind a key inside it; nil is the whole range.
func (r KeyRange) startingAt(from []byte) KeyRange {
	if from != nil && r.kind != rangeSingle {
		r.From = from
	}
	return r
}

func (v *View) rangeChunk(q *pb.RangeRequest, from []byte, limit int64) (RangeChunk, error) {
	at, err := v.readRevision(proto.Revision(q.Revision), v.revision)
	if err != nil {
		return RangeChunk{}, err
	}
	if limit <= 0 {
		limit = math.MaxInt64
	}
	var found chunkBody
	found.borrow()
	defer found.giveBack()
	keys := NewKeyRange(q.Key, q.RangeEnd).startingAt(from)
	var next []byte
	if q.SortTarget == pb.RangeRequest_KEY {
		next, err = v.chunkInKeyOrder(&found, q, keys, at, limit)
	} else {
		next, err = v.chunkSorted(&found, q, keys, at, limit)
	}
	if err != nil {
		return RangeChunk{}, err
	}
	return RangeChunk{
		Result: newResult(v.revision, &found, found.bytes), Keys: int64(len(found.kvs)), Bytes: found.bytes,
		Next: next, At: at,
	}, nil
}

// chunkInKeyOrder is the common case: one walk over the index. It gives the key after the last one taken.
func (v *View) chunkInKeyOrder(into *chunkBody, q *pb.RangeRequest, keys KeyRange, at proto.Revision, limit int64) (
	next []byte, failed error) {
	v.visit(keys, func(e *keyEntry) bool {
		f, ok := e.get(at)
		if !ok {
			return true
		}
		if int64(len(into.kvs)) == limit {
			next = bytes.Clone(e.key)
			return false
		}
		kv, err := v.shown(q, e, f)
		if err != nil {
			failed = err
			return false
		}
		into.add(kv)
		return true
	})
	return next, failed
}

// chunkSorted sorts within the chunk.
func (v *View) chunkSorted(into *chunkBody, q *pb.RangeRequest, keys KeyRange, at proto.Revision, limit int64) (
	next []byte, err error) {
	var items []rangeItem
	v.visit(keys, func(e *keyEntry) bool {
		f, ok := e.get(at)
		if ok && int64(len(items)) == limit {
			next = bytes.Clone(e.key)
			return false
		}
		if ok {
			items = append(items, rangeItem{entry: e, found: f})
		}
		return true
	})
	if err := v.sortItems(q, items); err != nil {
		return nil, err
	}
	for i := range items {
		kv, err := v.shown(q, items[i].entry, items[i].found)
		if err != nil {
			return nil, err
		}
		into.add(kv)
	}
	return next, nil
}

// chunkBody is the KeyValues of a chunk, as a message without more and count.
type chunkBody struct{ rangeResult }

func (c *chunkBody) write(w *bodyWriter) {
	for _, kv := range c.kvs {
		w.field(tagRangeKeyValue, kv)
	}
}
