package raftactor

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// nobody is an answer that must not be given.
type nobody struct{ t *testing.T }

func (n nobody) Send(*proto.Result) { n.t.Error("answered by apply") }
func (n nobody) Fail(error)         { n.t.Error("failed by apply") }

func encoded(t *testing.T, m pb.Message) []byte {
	t.Helper()
	data, err := pb.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func normalEntry(index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: new(uint64(3)), Data: data}
}

func confEntry(t *testing.T, index uint64, cc *raftpb.ConfChange) *raftpb.Entry {
	t.Helper()
	return &raftpb.Entry{Index: &index, Term: new(uint64(3)), Type: raftpb.EntryConfChange.Enum(), Data: encoded(t, cc)}
}

func newApplyCore() *applyCore {
	return &applyCore{membership: testMembership(1), learnersMax: 1, version: "3.7.3"}
}

func TestApply_EveryEntryBecomesACommand(t *testing.T) {
	a := newApplyCore()
	mine := putRequest("mine")
	w := &applyWork{
		entries: []*raftpb.Entry{
			normalEntry(5, nil),
			normalEntry(6, encodedPut(77, "theirs", 3)),
			normalEntry(7, []byte("not decoded, as its decoded form travels along")),
			confEntry(t, 8, confChangeOf(raftpb.ConfChangeAddNode, 2, `{"id":2,"peerURLs":["http://x:1"]}`)),
			confEntry(t, 9, confChangeOf(raftpb.ConfChangeAddNode, 2, `{"id":2,"peerURLs":["http://x:1"]}`)),
			normalEntry(10, encoded(t, &etcdserverpb.InternalRaftRequest{
				Header: &etcdserverpb.RequestHeader{ID: 78},
				ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 2,
					MemberAttributes: &membershippb.Attributes{Name: "two"}}})),
		},
		waiters: make([]*propose, 6),
		bytes:   123,
	}
	mine.Header = &etcdserverpb.RequestHeader{ID: 9}
	w.waiters[2] = &propose{request: mine, answer: nobody{t}}
	batch, changes := a.apply(w)
	if last, term := batch.Last(); last != 10 || term != 3 || len(batch.Commands) != 6 || batch.Bytes != 123 {
		t.Fatalf("got %d commands to %d in term %d", len(batch.Commands), last, term)
	}
	c := batch.Commands
	switch {
	case c[0].Request != nil || c[0].Answered != nil:
		t.Error("a no-op has content")
	case string(c[1].Request.GetPut().GetKey()) != "theirs" || c[1].Answer != nil:
		t.Error("a foreign entry was not decoded")
	case c[2].Request != mine || c[2].Answer == nil:
		t.Error("the waiter's request was not used")
	case len(c[3].Writes) != 1 || c[3].Writes[0].Bucket != proto.BucketMembers:
		t.Error("the conf change wrote nothing")
	case len(c[4].Writes) != 0:
		t.Error("the refused conf change wrote something")
	case len(c[5].Writes) != 1 || c[5].Answered == nil || c[5].Request != nil:
		t.Error("the attributes were not applied here")
	}
	if len(changes) != 2 || changes[0].change.GetNodeId() != 2 || changes[0].err != nil {
		t.Fatalf("changes %+v", changes)
	}
	if changes[1].change.GetNodeId() != 0 || !errors.Is(changes[1].err, ErrMemberExists) {
		t.Fatalf("the refused change goes to raft as %+v", changes[1])
	}
	if string(batch.ConfState) != `{"voters":[1,2],"auto_leave":false}` {
		t.Fatalf("conf state %s", batch.ConfState)
	}
	if m := batch.Membership.Member(2); m == nil || m.Name != "two" {
		t.Fatalf("membership %+v", batch.Membership)
	}
	if batch, _ := a.apply(&applyWork{entries: []*raftpb.Entry{normalEntry(11, nil)}}); batch.ConfState != nil {
		t.Fatal("a batch without conf changes carries a conf state")
	}
}

func TestApply_StopsAtWhatNoMemberWrites(t *testing.T) {
	for name, e := range map[string]*raftpb.Entry{
		"garbage":       normalEntry(5, []byte{0xff, 0xff}),
		"no content":    normalEntry(5, encoded(t, &etcdserverpb.InternalRaftRequest{ID: 3})),
		"no request id": normalEntry(5, encoded(t, putRequest("k"))),
		"joint change": {Index: new(uint64(5)), Term: new(uint64(3)), Type: raftpb.EntryConfChangeV2.Enum(),
			Data: []byte{}},
	} {
		mustPanic(t, name, func() { newApplyCore().apply(&applyWork{entries: []*raftpb.Entry{e}}) })
	}
	a := newApplyCore()
	a.apply(&applyWork{entries: []*raftpb.Entry{normalEntry(5, nil)}})
	mustPanic(t, "a gap", func() { a.apply(&applyWork{entries: []*raftpb.Entry{normalEntry(7, nil)}}) })
}
