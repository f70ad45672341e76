package node

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/leaseactor"
	"troupe/proto"
	"troupe/raftactor"
)

// leaseTable is the store's published lease table as the lease room reads it.
type leaseTable struct{ troupe *Troupe }

// Lease is part of leaseactor.Table.
func (l leaseTable) Lease(id proto.LeaseID) (proto.Lease, bool) {
	return l.troupe.Store.State().Lease(id)
}

// All is part of leaseactor.Table.
func (l leaseTable) All(f func(proto.Lease)) {
	l.troupe.Store.State().Leases(func(lease proto.Lease) bool {
		f(lease)
		return true
	})
}

// KeyCount is part of leaseactor.Table.
func (l leaseTable) KeyCount(id proto.LeaseID, most int) int {
	return l.troupe.Store.State().LeaseKeyCount(id, most)
}

// leaseProposer is raft as the lease room sees it, which is spawned before raft. Until raft is bound there is no term
// to propose in.
type leaseProposer struct {
	links *links
	timer timer
}

// ProposeInTerm is part of leaseactor.Proposer.
func (p leaseProposer) ProposeInTerm(t proto.Term, r *pb.InternalRaftRequest,
	answer actors.Reply[*proto.Result]) error {
	raft := p.links.bound()
	if raft == nil {
		return raftactor.ErrNotLeader
	}
	return raft.ProposeInTerm(t, r, p.timer.answered(r, answer))
}

// spawnLeases starts the lease room. It decides who is primary by raft's published status.
func (t *Troupe) spawnLeases(l *links) error {
	none := &proto.RaftStatus{Member: t.Meta.Member}
	var err error
	t.Leases, err = leaseactor.Spawn(t.System, leaseactor.Config{
		Table:    leaseTable{t},
		Proposer: leaseProposer{l, t.timer},
		Status: func() *proto.RaftStatus {
			if raft := l.bound(); raft != nil {
				return raft.Status()
			}
			return none
		},
		ConfirmLeader: func(done func(error)) {
			answer := actors.ReplyTo(func(_ proto.Index, err error) { done(err) })
			if err := l.bound().ReadIndexTo(answer); err != nil {
				done(err)
			}
		},
		WaitApplied:       t.Store.WaitApplied,
		ElectionTimeout:   t.cfg.Election,
		HeartbeatInterval: t.cfg.Heartbeat,
		Checkpoint:        t.cfg.LeaseCheckpoint,
		WaitOnRenew:       t.cfg.WaitOnRenew,
		Metrics:           t.Registry,
		Log:               t.log,
	})
	if err != nil {
		return fmt.Errorf("start the lease room: %w", err)
	}
	l.leases = t.Leases
	return nil
}
