package raftactor

import (
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// What each role does with proposals and reads. A leader appends; a follower lets raft forward, except what is bound to
// a term; a member that knows no leader keeps them until there is one, or until the request timeout.

// onPropose takes a proposal or refuses it.
func (c *core) onPropose(m *propose) {
	m.use = useOf(m)
	switch {
	case c.stalled():
		c.refuse(m, ErrDiskStalled)
	case m.change != nil:
		c.onChangeMembers(m)
	case c.proposals.full(m) || c.gap() > gapMax(m.request, c.cfg.priority) && m.term == 0:
		c.refuse(m, ErrTooManyRequests)
	default:
		if err := c.roomError(m); err != nil {
			c.refuse(m, err)
			return
		}
		c.proposals.add(m, c.now, c.now+c.cfg.requestTicks)
	}
}

// gapMax is how far apply may be behind for a request to be taken.
func gapMax(r *etcdserverpb.InternalRaftRequest, priority bool) uint64 {
	if priority && r.GetLeaseRevoke() != nil {
		return applyGapPriorityMax
	}
	return applyGapMax
}

// gap is the number of committed entries that are not published.
func (c *core) gap() uint64 {
	if commit := c.hard.GetCommit(); commit > uint64(c.published) {
		return commit - uint64(c.published)
	}
	return 0
}

// refuse answers a proposal with an error. Changes of the membership are not counted among the proposals, as by etcd.
func (c *core) refuse(m *propose, err error) {
	if m.change == nil {
		c.tally.failedProposals++
	}
	c.emit(refuse{m.answer, err})
}

// fail ends a proposal that was taken.
func (c *core) fail(m *propose, err error) {
	c.proposals.drop(m)
	c.refuse(m, err)
}

// stepProposals gives raft all proposals that wait, as one message, so that they become one append.
func (c *core) stepProposals() {
	if len(c.proposals.queued) == 0 && len(c.changes.waiting) == 0 {
		return
	}
	status := c.node.BasicStatus()
	leads := status.RaftState == raft.StateLeader
	if leads && !c.leads() {
		return // elected in this turn: they are proposed behind the term's first entry, in the next one
	}
	c.refuseOutOfTerm(leads, status.HardState.GetTerm())
	if status.Lead == raft.None || status.LeadTransferee != raft.None {
		return
	}
	if leads == c.leads() {
		c.queueChange()
	}
	if len(c.proposals.queued) == 0 {
		return
	}
	entries := make([]*raftpb.Entry, len(c.proposals.queued))
	for i, m := range c.proposals.queued {
		entries[i] = m.entry
	}
	member := uint64(c.cfg.member)
	err := c.node.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &member, Entries: entries})
	for i, m := range c.proposals.queued {
		if err != nil {
			c.fail(m, dropError(err))
		}
		m.entry = nil // raft has its own copy
		c.proposals.queued[i] = nil
	}
	c.proposals.queued, c.proposals.queuedBytes = c.proposals.queued[:0], 0
}

// dropError is why raft would not take proposals: as a leader it has more uncommitted bytes than it may have.
func dropError(err error) error {
	if errors.Is(err, raft.ErrProposalDropped) {
		return ErrTooManyRequests
	}
	return err
}

// refuseOutOfTerm keeps of the queue what may be proposed now. What is bound to a term is proposed in that term by a
// leader or not at all (rule 4.8): the entry itself carries no term, so here is the only place to check.
func (c *core) refuseOutOfTerm(leads bool, term uint64) {
	kept := c.proposals.queued[:0]
	c.proposals.queuedBytes = 0
	for _, m := range c.proposals.queued {
		switch {
		case m.done: // swept while there was no leader
		case m.term != 0 && (!leads || uint64(m.term) != term):
			c.fail(m, ErrNotLeader)
		default:
			kept = append(kept, m)
			c.proposals.queuedBytes += int64(entryBytes(m.entry))
		}
	}
	clear(c.proposals.queued[len(kept):])
	c.proposals.queued = kept
}

// sweep fails what has waited for the request timeout. Raft drops and replaces entries without a word, so this is the
// only answer some proposals get. It says that the outcome is unknown.
func (c *core) sweep() {
	for m := c.proposals.oldest(); m != nil && m.deadline <= c.now; m = c.proposals.oldest() {
		c.fail(m, c.lateError(m))
	}
	c.changes.forget()
	c.endTransfers(0)
	gone := c.reads.expire(c.now - c.cfg.requestTicks)
	if len(gone) > 0 {
		c.tally.slowReads++
		c.emit(answerReads{reads: gone, err: c.timeoutError(gone[0].since)})
	}
}

// lateError is the answer to a proposal that has waited for the request timeout. What raft was never given was surely
// not proposed; etcd lets the deadline of such a request pass in its caller, and a promotion say that nobody leads.
func (c *core) lateError(m *propose) error {
	switch {
	case m.entry == nil:
		return c.timeoutError(m.since)
	case m.change != nil && m.change.promotes && c.leader == 0:
		return ErrNoLeader
	}
	return ErrNeverProposed
}

// timeoutError names the likely reason: the leader changed while the request was under way.
func (c *core) timeoutError(since int) error {
	if c.electedAt > since && since > c.electedAt-2*c.cfg.electionTicks {
		return ErrTimeoutLeaderFail
	}
	return ErrTimeout
}
