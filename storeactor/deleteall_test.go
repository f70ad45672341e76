package storeactor

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"troupe/proto"
)

// leasedRig has n keys on one lease and as many on none, all of which the file holds.
func leasedRig(tb testing.TB, n int) *rig {
	r := newRig(tb)
	r.m.cache.max = 1 << 30
	_, _ = r.run(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 600}}, false)
	attachAll(r, n)
	return r
}

func attachAll(r *rig, n int) {
	value := bytes.Repeat([]byte("v"), 64)
	for i := range n {
		for _, p := range []*pb.PutRequest{
			{Key: fmt.Appendf(nil, "leased/%08d", i), Value: value, Lease: 7},
			{Key: fmt.Appendf(nil, "free/%08d", i), Value: value},
		} {
			_, _ = r.run(&pb.InternalRaftRequest{Put: p}, false)
		}
	}
	r.m.recent.trim(r.m.revision)
	r.unsent, r.events, r.changes = nil, nil, nil
}

// BenchmarkDeleteAll deletes 100,000 keys in one revision: what nothing else can be executed beside.
func BenchmarkDeleteAll(b *testing.B) {
	for name, request := range map[string]*pb.InternalRaftRequest{
		"revoke": {LeaseRevoke: &pb.LeaseRevokeRequest{ID: 7}},
		"range":  {DeleteRange: &pb.DeleteRangeRequest{Key: []byte("leased/"), RangeEnd: []byte("leased0")}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				r := leasedRig(b, 100_000)
				keep := r.m.state()
				b.StartTimer()
				r.m.execute(&proto.Batch{Commands: []proto.Command{{Index: r.m.applied + 1, Term: 1, Request: request}}})
				b.StopTimer()
				if n := len(r.m.takeOutput().events); n != 100_000 || keep.Keys != r.m.keys+n {
					b.Fatalf("%d events, %d keys are left of %d", n, r.m.keys, keep.Keys)
				}
			}
		})
	}
}

// TestDeleteAll_IsManyDeletions makes many keys, on leases and on none, and deletes them together in every way there
// is: by the end of their lease, by a range, alone or in a txn that writes before and after it. The list of all changes
// says what must come out, also after a restart and a compaction.
func TestDeleteAll_IsManyDeletions(t *testing.T) {
	leases := []int64{0, 1, 2, math.MinInt64, math.MaxInt64}
	rapid.Check(t, func(rt *rapid.T) {
		r, n := newRig(t), newNaive()
		for _, id := range leases[1:] {
			_, err := n.apply(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: 60}})
			if err != nil {
				rt.Fatal(err)
			}
			r.must(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: 60}})
		}
		for range rapid.IntRange(2, 8).Draw(rt, "rounds") {
			bulkRound(rt, r, n, leases)
			switch rapid.IntRange(0, 5).Draw(rt, "between") {
			case 0:
				r.checkpoint()
			case 1:
				r.restart()
			case 2:
				compareStep(rt, r, n, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: n.revision}})
				r.compactAll()
			}
			checkState(rt, r, n)
			compareStep(rt, r, n, &pb.InternalRaftRequest{Range: &pb.RangeRequest{
				Key: []byte("k"), RangeEnd: []byte("l"),
				Revision: rapid.Int64Range(max(n.compacted, 1), n.revision).Draw(rt, "revision"),
			}})
		}
		r.compactAll()
		checkFile(rt, r, n)
	})
}

// bulkKeys is several times bulkDeletionMin, so that whole nodes of the trees go.
const bulkKeys = 12 * bulkDeletionMin

func bulkRound(rt *rapid.T, r *rig, n *naive, leases []int64) {
	one := rapid.SampledFrom(leases)
	number := rapid.IntRange(0, bulkKeys)
	key := func(i int) []byte { return fmt.Appendf(nil, "k%04d", i) }
	from, to := 0, bulkKeys
	if rapid.Bool().Draw(rt, "some") {
		from, to = number.Draw(rt, "from"), number.Draw(rt, "to")
	}
	lease, every := one.Draw(rt, "lease"), rapid.IntRange(1, 3).Draw(rt, "every")
	for i := from; i < to; i += every {
		p := &pb.PutRequest{Key: key(i), Value: []byte("v"), Lease: lease}
		if _, ok := n.leases[lease]; !ok {
			p.Lease = 0
		}
		compareStep(rt, r, n, &pb.InternalRaftRequest{Put: p})
	}
	from, to = number.Draw(rt, "delete from"), number.Draw(rt, "delete to")
	deletion := &pb.DeleteRangeRequest{Key: key(from), RangeEnd: key(to), PrevKv: rapid.Bool().Draw(rt, "prev")}
	switch id := one.Draw(rt, "end"); rapid.IntRange(0, 3).Draw(rt, "how") {
	case 0:
		compareStep(rt, r, n, &pb.InternalRaftRequest{DeleteRange: deletion})
	case 1:
		compareStep(rt, r, n, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key(from), Value: []byte("w")}}},
			{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: deletion}},
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key(from), Value: []byte("x")}}},
		}}})
	default:
		compareStep(rt, r, n, &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: id}})
		if id != 0 && rapid.Bool().Draw(rt, "again") {
			compareStep(rt, r, n, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: 60}})
		}
	}
}

// compareStep executes a request on both and compares answer, events and revision.
func compareStep(rt *rapid.T, r *rig, n *naive, request *pb.InternalRaftRequest) {
	before := len(n.log)
	r.events = nil
	got, err := r.run(request, true)
	want, wantErr := n.apply(request)
	compareAnswers(rt, r, request, got, err, want, wantErr)
	changes := n.log[before:]
	if r.m.revision != proto.Revision(n.revision) || len(changes) != len(r.events) {
		rt.Fatalf("%v\nrevision %d with %d events, want %d with %d", request, r.m.revision, len(r.events), n.revision,
			len(changes))
	}
	for i := range changes {
		compareEvent(rt, n, &r.events[i], changes[i])
	}
}

// TestDeleteAll_SharesMemory counts allocations, which is what a large deletion takes its time for: the keys share
// them.
func TestDeleteAll_SharesMemory(t *testing.T) {
	const keys = 5000
	r := leasedRig(t, keys)
	then := r.m.state() // also so that the trees have to be copied
	batch := &proto.Batch{Commands: []proto.Command{{
		Index: r.m.applied + 1, Term: 1, Request: &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 7}},
	}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.m.execute(batch)
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > keys*2/3 {
		t.Errorf("%d allocations to delete %d keys", n, keys)
	}
	if n := len(r.m.takeOutput().events); n != keys {
		t.Errorf("%d events", n)
	}
	if n := len(r.m.state().LeaseKeys(7)); n != 0 {
		t.Errorf("%d keys are attached to what is gone", n)
	}
	if n := then.LeaseKeyCount(7, 2*keys); n != keys {
		t.Errorf("%d keys are counted", n)
	}
	if n, none := then.LeaseKeyCount(7, 10), then.LeaseKeyCount(8, 10); n != 10 || none != 0 {
		t.Errorf("%d and %d keys are counted up to 10", n, none)
	}
}
