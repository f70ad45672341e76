package storeactor

import (
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"
)

// TestRangeChunk_PiecesAreTheRangeAtOneRevision: whatever the size of the pieces, and whatever is written between them,
// together they are the range as it was, and a compaction that passes the revision ends them.
func TestRangeChunk_PiecesAreTheRangeAtOneRevision(t *testing.T) {
	r := newRig(t)
	for i := range 57 {
		r.put(fmt.Sprintf("k%02d", i), "old")
	}
	r.checkpoint()
	q := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
	view := func() *View { return newView(r.m.state()) }
	for _, limit := range []int64{0, 1, 7, 56, 57, 58} {
		whole := &pb.RangeResponse{}
		result, err := view().Range(q)
		if err != nil {
			t.Fatal(err)
		}
		decode(t, result, whole)
		var got []*mvccpb.KeyValue
		pinned, from := gproto.CloneOf(q), []byte(nil)
		for more := true; more; more = from != nil {
			chunk, err := view().rangeChunk(pinned, from, limit)
			if err != nil {
				t.Fatal(err)
			}
			piece := &pb.RangeResponse{}
			decode(t, chunk.Result, piece)
			if int64(len(piece.Kvs)) != chunk.Keys || piece.Count != 0 || piece.More {
				t.Fatalf("limit %d: a chunk of %d keys has %v", limit, chunk.Keys, piece)
			}
			got = append(got, piece.Kvs...)
			pinned.Revision, from = int64(chunk.At), chunk.Next
			r.put("k00", "new")
			r.delete("k31")
			r.put("k31", "new")
		}
		if len(got) != len(whole.Kvs) {
			t.Fatalf("limit %d: %d keys of %d", limit, len(got), len(whole.Kvs))
		}
		for i := range got {
			if !gproto.Equal(got[i], whole.Kvs[i]) {
				t.Fatalf("limit %d: key %d is %v, want %v", limit, i, got[i], whole.Kvs[i])
			}
		}
	}
	q.Revision = int64(r.m.revision) - 1
	r.must(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: int64(r.m.revision)}})
	if _, err := view().rangeChunk(q, []byte("k30"), 5); !errors.Is(err, ErrCompacted) {
		t.Errorf("a chunk below the compact revision: %v", err)
	}
}

func TestKeyRange_StartingAt(t *testing.T) {
	for _, c := range []struct{ key, end, from, inside, before string }{
		{"a", "z", "m", "m", "l"}, {"a", "\x00", "m", "zz", "l"},
	} {
		r := NewKeyRange([]byte(c.key), []byte(c.end)).startingAt([]byte(c.from))
		if !r.Contains([]byte(c.inside)) || r.Contains([]byte(c.before)) {
			t.Errorf("%q to %q from %q: %v", c.key, c.end, c.from, r)
		}
	}
	if r := NewKeyRange([]byte("a"), nil).startingAt(nil); !r.Single() || !r.Contains([]byte("a")) {
		t.Errorf("a single key became %v", r)
	}
}
