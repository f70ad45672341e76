package storeactor

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestTally_CountsWhatEtcdCounts: the numbers are what etcd's counters moved by for the same request.
func TestTally_CountsWhatEtcdCounts(t *testing.T) {
	has := func(key string) *pb.Compare {
		return &pb.Compare{Result: pb.Compare_GREATER, Target: pb.Compare_VERSION, Key: []byte(key),
			TargetUnion: &pb.Compare_Version{}}
	}
	put := func(r *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	}
	get := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
	}
	remove := func(r *pb.DeleteRangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	}
	a, none := []byte("a"), []byte("none")
	txn := func(compares []*pb.Compare, ops ...*pb.RequestOp) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Compare: compares, Success: ops}}
	}
	both := []*pb.Compare{has("a"), has("a")}
	for _, c := range []struct {
		name    string
		request *pb.InternalRaftRequest
		want    tally // without putBytes
	}{
		{"put", putOf("a", 0), tally{puts: 1}},
		{"put with the value before", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: a, PrevKv: true}},
			tally{puts: 1, ranges: 1, txns: 1}},
		{"put without a value and none there", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: none, IgnoreValue: true}},
			tally{ranges: 1}},
		{"put with an unknown lease", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: a, PrevKv: true, Lease: 77}},
			tally{}},
		{"deletion of nothing", &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: none}}, tally{deletes: 1}},
		{"deletion with the values", &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: none, PrevKv: true}},
			tally{deletes: 1, ranges: 1, txns: 1}},
		{"two puts", txn(nil, put(&pb.PutRequest{Key: a}), put(&pb.PutRequest{Key: []byte("b")})), tally{puts: 2, txns: 1}},
		{"a compare and a put", txn(both[:1], put(&pb.PutRequest{Key: a})), tally{ranges: 1, puts: 1}},
		{"two compares and a put", txn(both, put(&pb.PutRequest{Key: a})), tally{ranges: 2, puts: 1, txns: 1}},
		{"compares after a false one", txn([]*pb.Compare{has("none"), has("a")}, put(&pb.PutRequest{Key: a})),
			tally{ranges: 1}},
		{"put with the value before, in a txn", txn(nil, put(&pb.PutRequest{Key: a, PrevKv: true})),
			tally{ranges: 2, puts: 1, txns: 1}},
		{"deletion with the values, in a txn", txn(nil, remove(&pb.DeleteRangeRequest{Key: none, PrevKv: true})),
			tally{ranges: 1, deletes: 1, txns: 1}},
		{"two compares and a refused put", txn(both, put(&pb.PutRequest{Key: a, Lease: 77})), tally{ranges: 2, txns: 1}},
		{"nested", txn(both[:1], put(&pb.PutRequest{Key: []byte("b")}), &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
			RequestTxn: &pb.TxnRequest{Compare: both, Success: []*pb.RequestOp{put(&pb.PutRequest{Key: a})}}}}),
			tally{ranges: 3, puts: 2, txns: 2}},
		{"put and range", txn(nil, put(&pb.PutRequest{Key: a}), get("a")), tally{ranges: 1, puts: 1, txns: 1}},
		{"compaction", &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2}}, tally{ranges: 1}},
		{"compaction of the future", &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 1 << 40}}, tally{}},
		{"end of a lease with two keys", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 1}},
			tally{deletes: 2, txns: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.mustRun(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 1, TTL: 100}})
			r.mustRun(putOf("a", 0))
			for _, key := range []string{"leased 1", "leased 2"} {
				r.mustRun(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Lease: 1}})
			}
			got := r.tallyOf(c.request)
			if got.putBytes = 0; got != c.want {
				t.Errorf("counted %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestApplyHistogram_OneSlowEntryIsOne: entries of a turn have a time each, and only those that take longer are slow.
func TestApplyHistogram_OneSlowEntryIsOne(t *testing.T) {
	var list []applied
	for range 99 {
		list = appendApplied(list, applyPut, nil, time.Millisecond)
	}
	list = appendApplied(list, applyDeleteRange, nil, time.Minute)
	count, slowest := newApplyHistogram().add(list, time.Second)
	if count != 1 || slowest != time.Minute {
		t.Errorf("%d slow entries, the slowest took %v", count, slowest)
	}
}
