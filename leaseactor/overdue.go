package leaseactor

import "time"

// overdue is the list of the leases that have expired and are not revoked yet, the one that expired first in front: it
// says how late the latest revocation will be at least. A lease stays in its place whatever becomes of its revocation.
type overdue struct {
	first, last *lease
	count       int
}

func (o *overdue) add(l *lease) {
	if l.before, o.last = o.last, l; l.before == nil {
		o.first = l
	} else {
		l.before.after = l
	}
	o.count++
}

// drop takes out a lease that is in the list.
func (o *overdue) drop(l *lease) {
	if l.before == nil {
		o.first = l.after
	} else {
		l.before.after = l.after
	}
	if l.after == nil {
		o.last = l.before
	} else {
		l.after.before = l.before
	}
	l.before, l.after = nil, nil
	o.count--
}

// Inspection is what an operator sees of the leases of a primary; of another member all of it is zero.
type Inspection struct {
	// Leases are those whose time this member keeps, the overdue ones included.
	Leases int
	// Overdue are those that have expired and are not revoked yet: Queued ones wait for their turn, RevokesInFlight are
	// with raft, and others wait a little because raft refused them.
	Overdue, Queued, RevokesInFlight int
	// RevokeWindow is how many revocations may be with raft at present.
	RevokeWindow int
	// OldestOverdue is the time since the expiry of the lease that is overdue for longest; 0 when none is.
	OldestOverdue time.Duration
	// Waiting are the renewals and questions that wait for a revocation or for leadership to be confirmed.
	Waiting int
}

// inspection is what is published of Inspection: the oldest expiry in the place of its age, so that the age grows while
// the actor does nothing.
type inspection struct {
	Inspection
	oldest moment // 0: none is overdue
}

func (c *core) inspect() inspection {
	if !c.primary() {
		return inspection{}
	}
	i := inspection{Inspection: Inspection{
		Leases: len(c.leases), Overdue: c.overdue.count, Queued: c.queued, RevokesInFlight: c.pace.inFlight,
		RevokeWindow: c.pace.limit(), Waiting: c.waiting,
	}}
	if c.overdue.first != nil {
		i.oldest = c.deadline(c.overdue.first)
	}
	return i
}
