package node

import (
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
	"troupe/raftactor"
)

// alarmRaiser proposes this member's NOSPACE alarm when apply finds the quota exceeded. One proposal is under way at a
// time; the alarm itself is idempotent.
type alarmRaiser struct {
	member proto.MemberID
	raft   func() *raftactor.Client
	// note is told the id of each request, so that --quota-auto-disarm knows its alarm.
	note    func(proto.RequestID)
	pending atomic.Bool
	timer   *timer
}

// noSpace is called in the store's turn and only tells.
func (a *alarmRaiser) noSpace() {
	raft := a.raft()
	if raft == nil || !a.pending.CompareAndSwap(false, true) {
		return
	}
	answer := actors.ReplyTo(func(*proto.Result, error) { a.pending.Store(false) })
	request := &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: uint64(a.member), Alarm: pb.AlarmType_NOSPACE,
	}}
	if raft.ProposeTo(request, a.timer.answered(request, answer)) != nil {
		a.pending.Store(false)
		return
	}
	a.note(proto.RequestID(request.GetHeader().GetID()))
}
