package fieldreports

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// T26 (etcd-io/etcd#6633, #5074): what a compaction leaves readable, and what not, before and after a restart.
func TestCompaction_TheCompactedRevisionStaysReadable(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	a.put("foo", "1") // 2
	a.remove("foo")   // 3
	a.compact(3)
	abc := a.put("abc", "2") // 4
	check := func(when string) {
		t.Helper()
		a = newAPI(t, s)
		if value, ok := a.get("foo", 0); ok {
			t.Errorf("%s: foo is %q, want nothing", when, value)
		}
		if value, _ := a.get("abc", 0); value != "2" {
			t.Errorf("%s: abc is %q", when, value)
		}
	}
	check("after the first compaction")
	s.Kill(t)
	s.Start(t)
	check("after the restart")
	a.compact(abc)
	check("after the second compaction")
	if value, _ := a.get("abc", abc); value != "2" {
		t.Errorf("abc at the compacted revision is %q", value)
	}
	for revision, text := range map[int64]string{
		abc - 1: "etcdserver: mvcc: required revision has been compacted",
		99:      "etcdserver: mvcc: required revision is a future revision",
	} {
		_, err := a.kv.Range(a.ctx, &pb.RangeRequest{Key: []byte("abc"), Revision: revision})
		a.wantCode(fmt.Sprint("revision ", revision), err, codes.OutOfRange, text)
	}
	s.Terminate(t)
	s.Start(t)
	check("after the second restart")
}

// T30 (etcd-io/etcd#18267, #6145, #22209): count, more, filters and keys_only are etcd 3.7.3's, odd ones included.
func TestRange_CountMoreFiltersAndKeysOnlyAreEtcds(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	if _, err := pb.NewLeaseClient(a.conn).LeaseGrant(a.ctx, &pb.LeaseGrantRequest{ID: 5, TTL: 1000}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		request := &pb.PutRequest{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v"), Lease: 5}
		if _, err := a.kv.Put(a.ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	read := func(change func(*pb.RangeRequest)) *pb.RangeResponse {
		t.Helper()
		request := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
		change(request)
		r, err := a.kv.Range(a.ctx, request)
		if err != nil {
			t.Fatalf("range %v: %v", request, err)
		}
		return r
	}
	if r := read(func(r *pb.RangeRequest) { r.Limit = 2 }); r.Count != 4 || !r.More || len(r.Kvs) != 2 {
		t.Errorf("limit 2 of 4: count %d, more %v, %d pairs", r.Count, r.More, len(r.Kvs))
	}
	if r := read(func(r *pb.RangeRequest) { r.Limit = 4 }); r.Count != 4 || r.More || len(r.Kvs) != 4 {
		t.Errorf("limit 4 of 4: count %d, more %v, %d pairs", r.Count, r.More, len(r.Kvs))
	}
	if r := read(func(r *pb.RangeRequest) { r.MinModRevision = 5 }); r.Count != 4 || len(r.Kvs) != 1 {
		t.Errorf("filter: count %d (must ignore the filter), %d pairs", r.Count, len(r.Kvs))
	}
	r := read(func(r *pb.RangeRequest) { r.CountOnly, r.MinModRevision = true, 5 })
	if r.Count != 4 || len(r.Kvs) != 0 {
		t.Errorf("count only with a filter: count %d, %d pairs", r.Count, len(r.Kvs))
	}
	for _, kv := range read(func(r *pb.RangeRequest) { r.KeysOnly = true }).Kvs {
		if kv.Lease != 0 || len(kv.Value) != 0 || kv.Version != 1 || kv.ModRevision == 0 {
			t.Errorf("keys only: %v", kv)
		}
	}
	for _, kv := range read(func(*pb.RangeRequest) {}).Kvs {
		if kv.Lease != 5 {
			t.Errorf("lease is missing: %v", kv)
		}
	}
}

// T28 (etcd-io/etcd#13554, #13553): values that no enum has are refused or ignored, and nobody dies of them. What else
// is wrong on purpose is in package badinput.
func TestRequests_UnknownEnumValuesDoNoHarm(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	a.put("a", "1")
	_, err := a.kv.Range(a.ctx, &pb.RangeRequest{Key: []byte("a"), SortTarget: 99})
	a.wantCode("sort target 99", err, codes.InvalidArgument, "etcdserver: invalid sort option")
	_, err = a.kv.Range(a.ctx, &pb.RangeRequest{Key: []byte("a"), SortOrder: 99})
	a.wantCode("sort order 99", err, codes.InvalidArgument, "etcdserver: invalid sort option")
	_, err = pb.NewMaintenanceClient(a.conn).Alarm(a.ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET, Alarm: 99})
	if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
		t.Errorf("alarm 99: %v", err)
	}
	key := []byte("a")
	for _, c := range []*pb.Compare{{Key: key, Result: 99}, {Key: key, Target: 99}, {Key: key}} {
		request := &pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{putOp("b", "1")}}
		_, err := a.kv.Txn(a.ctx, request)
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Errorf("compare %v: %v", c, err)
		}
	}
	stream := a.watch(&pb.WatchCreateRequest{
		Key: []byte("a"), Filters: []pb.WatchCreateRequest_FilterType{99}, StartRevision: 1,
	})
	if r := a.receive(stream); !r.Created {
		t.Errorf("filter 99: %v", r)
	}
	s.Kill(t)
	s.Start(t)
	if value, _ := newAPI(t, s).get("a", 0); value != "1" {
		t.Errorf("after the restart a is %q", value)
	}
}
