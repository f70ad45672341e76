package gateway

import (
	"context"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// QuotaNotes is a Store that is told which requests to raise the alarm are the quota's, so that --quota-auto-disarm
// leaves alone what an operator raised in this member's name.
type QuotaNotes interface {
	// NoteQuotaRaise is told the id of the request; 0 when none was made.
	NoteQuotaRaise(id proto.RequestID)
}

// quota refuses writes that would grow the file beyond --quota-backend-bytes, before they are proposed, and raises the
// NOSPACE alarm, which refuses them on every member. The check at apply remains the one that all members share.
type quota struct {
	server  *Server
	bytes   int64
	raising atomic.Bool
}

func newQuota(s *Server) *quota { return &quota{server: s, bytes: s.cfg.quotaBytes()} }

// check refuses a request of that cost with ErrNoSpace when it does not fit. Cost 0 always fits: what frees space must
// go on.
func (q *quota) check(ctx context.Context, cost int) error {
	if cost == 0 || q.bytes < 0 {
		return nil
	}
	if q.server.cfg.Store.State().Sizes.Projected+int64(cost) < q.bytes {
		return nil
	}
	q.raise(ctx)
	return ErrNoSpace
}

// raise raises this member's alarm unless it is raised already. Only one call does so at a time: at a full quota every
// write comes here, and an alarm each would fill the log. It waits, so that a client that was refused sees the alarm.
func (q *quota) raise(ctx context.Context) {
	s := q.server
	member := uint64(s.cfg.Member)
	for _, a := range s.cfg.Store.State().Alarms {
		if a.MemberID == member && a.Alarm == pb.AlarmType_NOSPACE {
			return
		}
	}
	if !q.raising.CompareAndSwap(false, true) {
		return
	}
	defer q.raising.Store(false)
	s.cfg.Log.Warn().Int64("quota-backend-bytes", q.bytes).Msg("database space exceeded, raising alarm NOSPACE")
	// A client that gives up does not take the alarm back.
	began := time.Now()
	request := &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: pb.AlarmType_NOSPACE}}
	_, err := s.cfg.Raft.Propose(context.WithoutCancel(ctx), request)
	if store, ok := s.cfg.Store.(QuotaNotes); ok { // after an error too: the alarm may still be raised
		store.NoteQuotaRaise(proto.RequestID(request.GetHeader().GetID()))
	}
	s.metrics.requests.proposed(kindAlarm, time.Since(began), err)
	if err != nil {
		s.cfg.Log.Warn().Err(err).Msg("alarm NOSPACE could not be raised; the next refused write tries again")
	}
}
