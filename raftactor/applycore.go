package raftactor

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
)

// applyCore is the apply actor without its surroundings: committed entries in, one batch for the state machine out. It
// owns the membership in force at each entry. What it does to an entry is a function of the entry and of what came
// before it, and nothing else, as every member must do the same.
type applyCore struct {
	membership *proto.Membership
	// learnersMax is --max-learners, equal on all members.
	learnersMax int
	// version is this program's, against which cluster versions are checked.
	version string
	// next is the index that must come next, 0 before the first entry.
	next uint64
}

// apply makes the batch of a work, and the conf changes that raft must be given before the batch is handed on.
//
// Every entry becomes one command, also those that concern nobody, because every entry moves the consistent index.
func (a *applyCore) apply(w *applyWork) (*proto.Batch, []*confChanged) {
	batch := &proto.Batch{Commands: make([]proto.Command, len(w.entries)), Bytes: w.bytes}
	var changes []*confChanged
	for i, e := range w.entries {
		index := e.GetIndex()
		if a.next != 0 && index != a.next {
			actors.Must(false, "entry %d to apply where %d is due", index, a.next)
		}
		a.next = index + 1
		c := &batch.Commands[i]
		c.Index, c.Term = proto.Index(e.GetIndex()), proto.Term(e.GetTerm())
		switch e.GetType() {
		case raftpb.EntryNormal:
			var waiter *propose
			if w.waiters != nil {
				waiter = w.waiters[i]
			}
			a.normal(c, e, waiter)
		case raftpb.EntryConfChange:
			changes = append(changes, a.confChange(c, e))
		default:
			actors.Must(false, "entry %d has type %v, which no member of etcd writes", e.GetIndex(), e.GetType())
		}
	}
	if len(changes) > 0 {
		batch.ConfState = encodeConfState(ConfStateOf(a.membership))
	}
	batch.Membership = a.membership
	return batch, changes
}

// normal fills the command of a normal entry. An entry without data is a leader's first of its term.
func (a *applyCore) normal(c *proto.Command, e *raftpb.Entry, waiter *propose) {
	if len(e.Data) == 0 {
		return
	}
	var r *etcdserverpb.InternalRaftRequest
	if waiter != nil {
		r, c.Answer = waiter.request, waiter.answer
	} else {
		r = &etcdserverpb.InternalRaftRequest{}
		err := pb.Unmarshal(e.Data, r)
		actors.Must(err == nil, "entry %d cannot be decoded: %v", e.GetIndex(), err)
	}
	if r.GetID() == 0 && r.GetHeader() == nil {
		actors.Must(false, "entry %d has no request id", e.GetIndex())
	}
	next, writes, mine := a.internal(r, c.Index)
	if mine {
		a.membership = next
		c.Writes = writes
		c.Answered = &proto.Result{}
		return
	}
	if !hasApplicable(r) {
		actors.Must(false, "entry %d has no content", e.GetIndex())
	}
	c.Request = r
}

// internal executes the requests that change the membership and the versions. mine is false for all others. The order
// of the tests is etcd's; they come before all others.
func (a *applyCore) internal(r *etcdserverpb.InternalRaftRequest, index proto.Index) (next *proto.Membership,
	writes []proto.BucketWrite, mine bool) {
	switch {
	case r.ClusterVersionSet != nil:
		next, writes = applyClusterVersion(a.membership, r.ClusterVersionSet, a.version, index)
	case r.ClusterMemberAttrSet != nil:
		next, writes = applyAttributes(a.membership, r.ClusterMemberAttrSet)
	case r.DowngradeInfoSet != nil:
		next, writes = applyDowngrade(a.membership, r.DowngradeInfoSet)
	case r.DowngradeVersionTest != nil:
		next = a.membership // exists for tests of etcd only, and does nothing
	default:
		return nil, nil, false
	}
	return next, writes, true
}

// hasApplicable reports whether the request has content for the store.
func hasApplicable(r *etcdserverpb.InternalRaftRequest) bool {
	return r.Range != nil || r.Txn != nil || r.Alarm != nil || hasContent(r)
}

// confChange fills the command of a conf change and gives what raft is to be told. A change that is refused goes to
// raft without a node, and the entry counts like any other.
func (a *applyCore) confChange(c *proto.Command, e *raftpb.Entry) *confChanged {
	var cc raftpb.ConfChange
	err := pb.Unmarshal(e.Data, &cc)
	actors.Must(err == nil, "conf change %d cannot be decoded: %v", e.GetIndex(), err)
	told := &confChanged{index: c.Index, change: &cc, result: &proto.Result{}}
	ctx, err := validateConfChange(a.membership, &cc, a.learnersMax)
	if err != nil {
		cc.NodeId = new(uint64(0))
		told.err, told.result = err, nil
		return told
	}
	a.membership, c.Writes = applyConfChange(a.membership, &cc, ctx)
	told.result.Membership = a.membership
	return told
}
