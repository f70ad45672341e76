package fieldreports

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

// T30 (etcd-io/etcd#18267, #22209, #6145), as a kind: whatever options of a range are put together, the answer is
// etcd's: which keys, in which order, count, more, and what of each key is shown.
func TestRange_EveryCombinationOfOptionsIsEtcds(t *testing.T) {
	troupe, etcd := newAPI(t, harness.Start(t, harness.Options{})), newAPI(t, harness.Start(t, harness.Options{
		Kind: harness.Etcd,
	}))
	for _, a := range []*api{troupe, etcd} {
		if _, err := pb.NewLeaseClient(a.conn).LeaseGrant(a.ctx, &pb.LeaseGrantRequest{ID: 5, TTL: 1000}); err != nil {
			t.Fatal(err)
		}
		for i, key := range []string{"d", "b", "c", "a", "b", "e", "a"} { // revisions 2 to 8
			put := &pb.PutRequest{Key: []byte(key), Value: fmt.Append(nil, i%3), Lease: int64(i % 2 * 5)}
			if _, err := a.kv.Put(a.ctx, put); err != nil {
				t.Fatal(err)
			}
		}
		a.remove("c")
		a.compact(4)
	}
	calls := 0
	everyRange(func(r *pb.RangeRequest) {
		calls++
		got, want := rangeText(troupe, r), rangeText(etcd, r)
		if got != want {
			t.Errorf("%v\ntroupe: %s\netcd:   %s", r, got, want)
		}
	})
	t.Logf("%d calls", calls)
	if calls < 1000 {
		t.Errorf("only %d combinations were tried", calls)
	}
}

// everyRange calls f with every combination of options.
func everyRange(f func(*pb.RangeRequest)) {
	filters := []pb.RangeRequest{{}, {MinModRevision: 6}, {MaxModRevision: 7}, {MinCreateRevision: 4},
		{MaxCreateRevision: 4, MinModRevision: 3}}
	for _, limit := range []int64{0, 2, 4, -1} {
		for order := range pb.RangeRequest_SortOrder(len(pb.RangeRequest_SortOrder_name)) {
			for target := range pb.RangeRequest_SortTarget(len(pb.RangeRequest_SortTarget_name)) {
				for i := range filters {
					for _, shown := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
						for _, revision := range []int64{0, 6} {
							r := proto.Clone(&filters[i]).(*pb.RangeRequest)
							r.Key, r.RangeEnd = []byte("a"), []byte{0}
							r.Limit, r.SortOrder, r.SortTarget, r.Revision = limit, order, target, revision
							r.KeysOnly, r.CountOnly = shown[0], shown[1]
							f(r)
						}
					}
				}
			}
		}
	}
}

// rangeText gives the answer to a range, without what tells two servers apart.
func rangeText(a *api, r *pb.RangeRequest) string {
	reply, err := a.kv.Range(a.ctx, r)
	if err != nil {
		return status.Convert(err).String()
	}
	reply.Header.ClusterId, reply.Header.MemberId, reply.Header.RaftTerm = 0, 0, 0
	return reply.String()
}
