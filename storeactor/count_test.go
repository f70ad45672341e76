package storeactor

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// walkedCount counts a range at a revision key by key.
func walkedCount(r *reader, keys KeyRange, at proto.Revision) (n int64) {
	r.visit(keys, func(e *keyEntry) bool {
		if _, ok := e.get(at); ok {
			n++
		}
		return true
	})
	return n
}

func countKey(i int) string { return fmt.Sprintf("key/%05d", i) }

// A range is counted by positions as it is counted key by key, whatever was put, deleted one by one and together,
// and compacted; and the dead entries are known exactly.
func TestCount_ByPositionsIsWhatAWalkCounts(t *testing.T) {
	const keys = 3 * countWalkMax
	random := rand.New(rand.NewPCG(7, 1))
	r := newRig(t)
	compacted := proto.Revision(0)
	for range 60 {
		for range 100 {
			r.put(countKey(random.IntN(keys)), "v")
		}
		for range 30 {
			r.delete(countKey(random.IntN(keys)))
		}
		from := random.IntN(keys)
		r.must(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{
			Key: []byte(countKey(from)), RangeEnd: []byte(countKey(from + random.IntN(60))),
		}})
		if random.IntN(8) == 0 {
			compacted += (r.m.revision - compacted) / 2
			r.must(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: int64(compacted)}})
			for r.m.compactionDue() {
				r.m.compactStep(1 + random.IntN(keys))
				checkCounts(t, &r.m.reader, random)
			}
			close(r.m.compactedPhysically(compacted))
		}
		checkCounts(t, &r.m.reader, random)
	}
	old := newView(r.m.state())
	want := walkedCount(&old.reader, NewKeyRange([]byte{0}, []byte{0}), old.revision)
	r.must(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}})
	if got := old.living(NewKeyRange([]byte{0}, []byte{0})); got != want || want == 0 {
		t.Errorf("a published state counts %d keys, it has %d", got, want)
	}
	if got := r.m.living(NewKeyRange([]byte{0}, []byte{0})); got != 0 {
		t.Errorf("%d keys are left of none", got)
	}
}

func checkCounts(t *testing.T, r *reader, random *rand.Rand) {
	t.Helper()
	dead := 0
	r.tree.Scan(func(e *keyEntry) bool {
		if !e.alive() {
			dead++
			if b, ok := r.dead.Get(e); !ok || b != e {
				t.Fatalf("the dead entry of %s is not known", e.key)
			}
		}
		return true
	})
	if r.dead.Len() != dead {
		t.Fatalf("%d entries are called dead, %d are", r.dead.Len(), dead)
	}
	for range 20 {
		from, end := []byte(countKey(random.IntN(3*countWalkMax))), []byte(countKey(random.IntN(3*countWalkMax)))
		switch random.IntN(6) {
		case 0:
			from = []byte{0}
		case 1:
			end = []byte{0}
		case 2:
			end = nil
		}
		keys := NewKeyRange(from, end)
		want := walkedCount(r, keys, r.revision)
		if got := r.living(keys); got != want {
			t.Fatalf("[%q, %q) has %d keys by positions, %d by a walk", from, end, got, want)
		}
		for _, q := range []*pb.RangeRequest{
			{CountOnly: true}, {Limit: 3, KeysOnly: true},
			{Limit: 3, KeysOnly: true, SortTarget: pb.RangeRequest_CREATE},
		} {
			q.Key, q.RangeEnd = from, end
			result, err := r.ranged(q, r.revision)
			if err != nil || result.count != want || result.more != (q.Limit > 0 && want > q.Limit) {
				t.Fatalf("%v: count %d of %d, more %v, %v", q, result.count, want, result.more, err)
			}
			result.giveBack()
		}
	}
}

// A start knows which entries are dead, so that what was deleted before it is not counted after it.
func TestCount_ARestoredIndexKnowsTheDead(t *testing.T) {
	const keys = 2 * countWalkMax
	r := newRig(t)
	for i := range keys {
		r.put(countKey(i), "v")
	}
	for i := range keys / 4 {
		r.delete(countKey(i))
	}
	r.restart()
	random := rand.New(rand.NewPCG(7, 2))
	checkCounts(t, &r.m.reader, random)
	view := r.view()
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true}
	if result, err := view.ranged(all, view.revision); err != nil || result.count != keys-keys/4 {
		t.Errorf("%d keys after a restart, %v, want %d", result.count, err, keys-keys/4)
	}
	for i := range keys / 8 {
		r.put(countKey(i), "again")
	}
	checkCounts(t, &r.m.reader, random)
}

// What an older revision saw is not what is alive now.
func TestCount_AnOlderRevisionIsCountedAsItWas(t *testing.T) {
	const keys = 2 * countWalkMax
	r := newRig(t)
	for i := range keys {
		r.put(countKey(i), "v")
	}
	before := r.m.revision
	for i := range keys / 2 {
		r.delete(countKey(i))
	}
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true}
	for at, want := range map[proto.Revision]int64{0: keys / 2, before: keys, r.m.revision: keys / 2} {
		all.Revision = int64(at)
		if result, err := r.m.ranged(all, r.m.revision); err != nil || result.count != want {
			t.Errorf("at %d: %d keys, %v, want %d", at, result.count, err, want)
		}
	}
}

// A page of a large range costs the page, not the rest of the range.
func BenchmarkCount_FirstPageOfAMillion(b *testing.B) {
	r := newRig(b)
	for i := range 1_000_000 {
		_, _ = r.run(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%08d", i)}}, false)
		r.unsent, r.events = nil, nil
	}
	q := &pb.RangeRequest{Key: []byte("key/"), RangeEnd: []byte("key0"), Limit: 500, KeysOnly: true}
	b.ReportAllocs()
	for b.Loop() {
		result, err := r.m.ranged(q, r.m.revision)
		if err != nil || result.count != 1_000_000 {
			b.Fatal(result.count, err)
		}
		result.giveBack()
	}
}
