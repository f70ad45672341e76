package fieldreports

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"troupe/integration/harness"
)

const duplicateKey = "etcdserver: duplicate key given in txn request"

// overlaps are transactions that delete a key and put it, in every spelling of the range and every nesting.
func overlaps() map[string][]*pb.RequestOp {
	return map[string][]*pb.RequestOp{
		"point":                {removeOp("cfg/a", ""), putOp("cfg/a", "new")},
		"prefix":               {removeOp("cfg/", "cfg0"), putOp("cfg/a", "new")},
		"range":                {removeOp("a", "d"), putOp("cfg/a", "new")},
		"from key":             {removeOp("a", "\x00"), putOp("cfg/a", "new")},
		"everything":           {removeOp("\x00", "\x00"), putOp("cfg/a", "new")},
		"from the key itself":  {removeOp("cfg/a", "\x00"), putOp("cfg/a", "new")},
		"put first":            {putOp("cfg/a", "new"), removeOp("a", "\x00")},
		"deletion is outer":    {removeOp("a", "\x00"), nested(putOp("cfg/a", "new"))},
		"deletion is nested":   {nested(removeOp("a", "\x00")), putOp("cfg/a", "new")},
		"point, outer":         {removeOp("cfg/a", ""), nested(putOp("cfg/a", "new"))},
		"siblings":             {nested(removeOp("cfg/a", "")), nested(putOp("cfg/a", "new"))},
		"siblings, from key":   {nested(removeOp("a", "\x00")), nested(putOp("cfg/a", "new"))},
		"two levels down":      {removeOp("a", "d"), nested(nested(putOp("cfg/a", "new")))},
		"outer and two nested": {nested(putOp("cfg/b", "1")), removeOp("cfg/", "cfg0"), nested(putOp("cfg/a", "new"))},
	}
}

// T23 (etcd-io/etcd#22445, #16380): a transaction that deletes and puts one key is refused however it is spelled.
func TestTxn_DeleteAndPutOfOneKeyIsRefusedInEverySpelling(t *testing.T) {
	harness.TroupeOnly(t, "etcd 3.7.3 does not see it behind an open range or in nested transactions")
	a := newAPI(t, harness.Start(t, harness.Options{}))
	before := a.put("cfg/a", "old")
	for name, ops := range overlaps() {
		_, err := a.kv.Txn(a.ctx, &pb.TxnRequest{Success: ops})
		a.wantCode(name, err, codes.InvalidArgument, duplicateKey)
		_, err = a.kv.Txn(a.ctx, &pb.TxnRequest{Failure: ops})
		a.wantCode(name+", in the branch not taken", err, codes.InvalidArgument, duplicateKey)
	}
	if value, _ := a.get("cfg/a", 0); value != "old" {
		t.Errorf("a refused transaction has changed the key to %q", value)
	}
	if now := a.put("other", "1"); now != before+1 {
		t.Errorf("refused transactions have used up revisions: %d after %d", now, before)
	}
}

// T23, the rest: what does not overlap stays legal.
func TestTxn_WhatDoesNotOverlapIsAccepted(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	a.put("a", "1")
	for name, r := range map[string]*pb.TxnRequest{
		"put in both branches": {Success: []*pb.RequestOp{putOp("a", "1")}, Failure: []*pb.RequestOp{putOp("a", "2")}},
		"put and delete in different branches": {
			Success: []*pb.RequestOp{putOp("a", "1")}, Failure: []*pb.RequestOp{removeOp("a", "\x00")},
		},
		"range that ends before the put": {Success: []*pb.RequestOp{removeOp("b", "c"), putOp("c", "1")}},
		"from-key range behind the put":  {Success: []*pb.RequestOp{removeOp("d", "\x00"), putOp("c", "1")}},
		"two overlapping deletions":      {Success: []*pb.RequestOp{removeOp("c", "\x00"), removeOp("c", "d")}},
	} {
		if _, err := a.kv.Txn(a.ctx, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// T23 (etcd-io/etcd#20020): two deletions of one key in one transaction make one event.
func TestTxn_TwoDeletionsOfOneKeyAreOneEvent(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	a.put("a", "1")
	r, err := a.kv.Txn(a.ctx, &pb.TxnRequest{Success: []*pb.RequestOp{removeOp("a", ""), removeOp("a", "\x00")}})
	if err != nil {
		t.Fatalf("txn: %v", err)
	}
	first, second := r.Responses[0].GetResponseDeleteRange(), r.Responses[1].GetResponseDeleteRange()
	if first.Deleted != 1 || second.Deleted != 0 {
		t.Errorf("deleted %d and %d, want 1 and 0", first.Deleted, second.Deleted)
	}
	last := a.put("b", "end")
	stream := a.watch(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: r.Header.Revision})
	events := 0
	for seen := int64(0); seen < last; {
		for _, e := range a.receive(stream).Events {
			if seen = e.Kv.ModRevision; seen == r.Header.Revision {
				events++
			}
		}
	}
	if events != 1 {
		t.Errorf("%d events of the transaction, want 1", events)
	}
}

// T22 (etcd-io/etcd#22376): a key that was deleted and put again in the compacted revision keeps its value. Requests to
// troupe cannot make such a revision (T23), so etcd writes it here, and troupe starts on etcd's directory.
func TestCompaction_KeyPutAgainInTheCompactedRevisionSurvives(t *testing.T) {
	harness.TroupeOnly(t, "etcd 3.7.3 loses the value")
	s := harness.Start(t, harness.Options{Kind: harness.Etcd})
	a := newAPI(t, s)
	a.put("cfg/a", "old")
	a.put("cfg/b", "kept")
	ops := []*pb.RequestOp{removeOp("cfg/a", "\x00"), putOp("cfg/a", "new")}
	r, err := a.kv.Txn(a.ctx, &pb.TxnRequest{Success: ops})
	if err != nil {
		t.Fatalf("etcd refused the transaction that this test is about: %v", err)
	}
	s.Terminate(t)
	s.UseKind(t, harness.Troupe)
	s.Start(t)
	for range 2 {
		a = newAPI(t, s)
		if value, ok := a.get("cfg/a", 0); !ok || value != "new" {
			t.Fatalf("before the compaction: %q, %v", value, ok)
		}
		request := &pb.CompactionRequest{Revision: r.Header.Revision, Physical: true}
		if _, err := a.kv.Compact(a.ctx, request); err != nil {
			a.wantCode("second compaction", err, codes.OutOfRange,
				"etcdserver: mvcc: required revision has been compacted")
		}
		for _, revision := range []int64{0, r.Header.Revision} {
			if value, ok := a.get("cfg/a", revision); !ok || value != "new" {
				t.Errorf("after the compaction, at revision %d: %q, %v", revision, value, ok)
			}
		}
		s.Kill(t)
		s.Start(t)
	}
}
