package raftactor

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"troupe/proto"
)

// learnerReadyPart is how much of the leader's log a learner must have before it may vote. etcd's number.
const learnerReadyPart = 0.9

// reconfiguration are the conf changes that this member was asked for. Raft replaces a conf change, without a word, by
// an empty entry while another one is not applied, and its proposer would wait for the request timeout. So they go to
// raft one at a time, each when raft is known to take it. They are among the pending proposals, too, which owe their
// answers: here is only their order.
type reconfiguration struct {
	// waiting are those that raft has not been given, in the order in which they came, and so in that of their ends.
	waiting []*propose
	// given is the one that raft was given last.
	given *propose
	// last is the index up to which this member's log may hold conf changes that are not applied: that of the last one in
	// it, or where it ended when this member was elected, as the leader before may have left one.
	last uint64
	// forwarded says that another member's has come in this turn, and is not in the log yet.
	forwarded bool
}

// forget drops those that have timed out.
func (r *reconfiguration) forget() {
	for len(r.waiting) > 0 && r.waiting[0].done {
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
	}
}

// onChangeMembers takes a change of the membership or refuses it.
func (c *core) onChangeMembers(m *propose) {
	err := c.changeError(m.change)
	switch {
	case err != nil:
		c.refuse(m, err)
	case len(c.changes.waiting) >= confChangesWaitingMax:
		c.refuse(m, ErrTooManyRequests)
	default:
		c.proposals.keep(m, c.now, c.now+c.cfg.requestTicks)
		c.changes.waiting = append(c.changes.waiting, m)
	}
}

// queueChange puts the next change among the proposals that raft is given in this turn, if raft will take it. What it
// was checked against when it came may have changed since.
func (c *core) queueChange() {
	for len(c.changes.waiting) > 0 && c.mayChange() {
		m := c.changes.waiting[0]
		c.changes.waiting[0] = nil
		c.changes.waiting = c.changes.waiting[1:]
		err := c.changeError(m.change)
		if err == nil && c.leads() {
			err = c.refusedAtApply(m.change)
		}
		if err == nil {
			err = c.roomError(m)
		}
		if err != nil {
			c.fail(m, err)
			continue
		}
		c.changes.given = m
		c.proposals.queue(m)
	}
}

// mayChange reports whether raft takes a conf change now, as far as this member can know.
func (c *core) mayChange() bool {
	r := &c.changes
	switch {
	case c.leader == 0, r.given != nil && !r.given.done, len(c.applies.confs) > 0, r.forwarded:
		return false
	case c.leads():
		return c.applies.released >= r.last
	}
	return true // the leader decides, and the timeout answers what it drops
}

// noteConfEntries remembers where the last conf change of the log is.
func (c *core) noteConfEntries(entries []*raftpb.Entry) {
	for _, e := range entries {
		if isConfChange(e) {
			c.changes.last = e.GetIndex()
		}
	}
}

func isConfChange(e *raftpb.Entry) bool { return e.GetType() == raftpb.EntryConfChange }

// changeError is why a change is not proposed, nil when it may be. These are the checks that no member repeats at
// apply, because they depend on who is reached: a leader makes them in the turn in which the change goes to raft.
func (c *core) changeError(ch *memberChange) error {
	switch {
	case ch.promotes:
		return c.promotionError(ch.id)
	case ch.kind == raftpb.ConfChangeRemoveNode:
		return c.removalError(ch.id)
	case !c.cfg.strict:
		return nil
	case ch.votes() && !startedEnough(c.started(), c.voters()+1, true):
		return ErrNotEnoughStarted
	case ch.kind != raftpb.ConfChangeUpdateNode && !c.healthyToAdd():
		return ErrUnhealthy
	}
	return nil
}

// refusedAtApply is why apply would refuse a change, nil when it would not. A leader knows, as no other change is under
// way. Such a change would be in the log for nothing, and worse: etcd, when it starts again, takes what an update was
// refused.
func (c *core) refusedAtApply(ch *memberChange) error {
	_, err := validateConfChange(c.members, ch.entry, c.cfg.learnersMax)
	return err
}

// promotionError checks a promotion: the learner must have nearly all of the log, which the leader knows, and enough
// members that have started must remain.
func (c *core) promotionError(id proto.MemberID) error {
	switch {
	case c.leader == 0:
		return nil // it waits for a leader
	case !c.leads():
		return ErrNotLeader
	}
	known, match, own := false, uint64(0), uint64(0)
	c.node.WithProgress(func(of uint64, _ raft.ProgressType, p tracker.Progress) {
		if of == uint64(id) {
			known, match = true, p.Match
		}
		if of == uint64(c.cfg.member) {
			own = p.Match
		}
	})
	switch {
	case !known:
		return ErrMemberNotFound
	case float64(match) < float64(own)*learnerReadyPart:
		return ErrLearnerNotReady
	case c.cfg.strict && !startedEnough(c.started()+1, c.voters()+1, false): // it has, or it would not be in sync
		return ErrNotEnoughStarted
	}
	return nil
}

// removalError checks a removal. Who leaves must not take the quorum along; a member that is not reached is no part of
// it. The last voter cannot go at all: there would be nobody to be a cluster, and etcd, without the strict checks, ends
// over it at every start.
func (c *core) removalError(id proto.MemberID) error {
	m := c.members.Member(id)
	voter := m != nil && !m.IsLearner
	if voter && c.voters() == 1 {
		return ErrNotEnoughStarted
	}
	if !c.cfg.strict || m != nil && m.IsLearner {
		return nil
	}
	started, voters := c.started(), c.voters()
	if voter {
		voters--
		if m.Name != "" {
			started--
		}
	}
	if !startedEnough(started, voters, false) {
		return ErrNotEnoughStarted
	}
	if _, reached := c.reached(id); id != c.cfg.member && !reached {
		return nil
	}
	if c.connected()-1 < quorum(c.voters()-1) {
		return ErrUnhealthy
	}
	return nil
}

// healthyToAdd reports whether the quorum after one more member, which is not there yet, is reached now. The second
// member of a cluster is let in: it could never have two before.
func (c *core) healthyToAdd() bool {
	return c.voters() == 1 || c.connected() >= quorum(c.voters()+1)
}

// startedEnough reports whether so many of so many voters are a quorum. grows says that a single one may take in a
// second.
func startedEnough(started, voters int, grows bool) bool {
	return grows && started == 1 && voters == 2 || started >= quorum(voters)
}

func quorum(voters int) int { return voters/2 + 1 }

// voters is the number of members with a vote, and started how many of them have told their names.
func (c *core) voters() int { return len(c.members.Members) - learners(c.members) }

func (c *core) started() (n int) {
	for i := range c.members.Members {
		if m := &c.members.Members[i]; !m.IsLearner && m.Name != "" {
			n++
		}
	}
	return n
}

// connected is the number of voters, this member included, that have been reached for a while without a break.
func (c *core) connected() (n int) {
	for i := range c.members.Members {
		m := &c.members.Members[i]
		if m.IsLearner {
			continue
		}
		if since, reached := c.reached(m.ID); m.ID == c.cfg.member || reached && since >= c.cfg.healthTicks {
			n++
		}
	}
	return n
}

// reached is for how many ticks another member has been reached without a break, and whether it is reached now.
func (c *core) reached(id proto.MemberID) (ticks int, now bool) {
	if c.cfg.reached == nil {
		return 0, false
	}
	return c.cfg.reached(id)
}
