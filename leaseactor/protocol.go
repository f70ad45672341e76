package leaseactor

import (
	"troupe/actors"
	"troupe/proto"
)

// message is anything the lease actor understands. What rooms tell travels in the Control lane, whose policy is
// resync: changes that do not fit are replaced by reload, nothing else is lost. Requests travel in the Normal lane,
// where renewals of one lease share a place; past the bound the asker waits.
type message interface{ leaseMessage() }

// ticked says that time has passed. Made by the system's ticker, coalesced; the shell reads the clock itself.
type ticked struct{}

// changed is what a batch did to the lease table. Told in the store's turn, before the answers of the batch leave.
type changed struct{ changes []proto.LeaseChange }

// Size counts the changes.
func (m changed) Size() int { return 64 + 32*len(m.changes) }

// led says that this member leads in a term and has applied its first entry; term 0 that it does not lead. Told by
// Client.Led and Client.Deposed.
type led struct{ term proto.Term }

// reload stands for changes that were dropped: the lease table is read again.
type reload struct{}

// revokeAnswered is raft's answer to a revocation. Told in raft's or the store's turn.
type revokeAnswered struct {
	id   proto.LeaseID
	term proto.Term
	at   moment // of the proposal
	err  error
}

// confirmed is the answer to a question whether this member still leads.
type confirmed struct {
	round uint64
	err   error
}

// replay is the marker of the full Control lane: what came since, in order.
type replay struct {
	messages  []message
	reloading bool // ends with a reload that covers further changes
}

// renew extends a lease. Answered once with the granted TTL in seconds, with 0 if there is no such lease, or with
// ErrNotPrimary or ErrBusy.
type renew struct {
	id      proto.LeaseID
	replies []actors.Reply[int64]
}

// Abort answers all who wait.
func (m *renew) Abort(err error) {
	for _, r := range m.replies {
		r.Fail(err)
	}
}

// Size counts those who wait.
func (m *renew) Size() int { return 64 + 8*len(m.replies) }

// remaining asks how much time a lease has left. Answered once.
type remaining struct {
	id    proto.LeaseID
	reply actors.Reply[Remaining]
}

// Abort answers who waits.
func (m *remaining) Abort(err error) { m.reply.Fail(err) }

// listEnds asks when each lease ends. Answered once.
type listEnds struct{ reply actors.Reply[endings] }

// Abort answers who waits.
func (m *listEnds) Abort(err error) { m.reply.Fail(err) }

// endings says when the leases end that a primary keeps the time of.
type endings struct {
	now, second tick
	leases      []ending
}

type ending struct {
	id proto.LeaseID
	at tick
}

// Remaining is the state of a lease.
type Remaining struct {
	// Seconds is what is left, truncated; 0 or less when the lease has expired and is about to be revoked.
	Seconds int64
	// Granted is the time to live it was granted, in seconds.
	Granted int64
	// Found is false when there is no such lease.
	Found bool
}

func (ticked) leaseMessage()         {}
func (changed) leaseMessage()        {}
func (led) leaseMessage()            {}
func (reload) leaseMessage()         {}
func (revokeAnswered) leaseMessage() {}
func (confirmed) leaseMessage()      {}
func (*replay) leaseMessage()        {}
func (*renew) leaseMessage()         {}
func (*remaining) leaseMessage()     {}
func (*listEnds) leaseMessage()      {}

// add appends m to what a full lane keeps. A change becomes a reload; later ones are covered by it unless something
// that has to keep its place came in between.
func (r *replay) add(m message) message {
	if _, is := m.(changed); is {
		if !r.reloading {
			r.messages = append(r.messages, reload{})
			r.reloading = true
		}
		return r
	}
	// A reload reads the table when it is handled, after everything that was dropped, so it covers later changes too.
	r.messages = append(r.messages, m)
	return r
}

// policy is what senders experience.
func policy(control, requests actors.Bound) actors.Policy[message] {
	return actors.Lanes(
		actors.Resync(control,
			func(first message) message { return new(replay).add(first) },
			func(marker, m message) message { return marker.(*replay).add(m) },
		),
		actors.Coalesce(requests,
			func(m message) (proto.LeaseID, bool) {
				r, is := m.(*renew)
				if !is {
					return 0, false
				}
				return r.id, true
			},
			mergeRenewals,
		),
	)
}

// mergeRenewals lets renewals of one lease share a place, up to a bound.
func mergeRenewals(waiting, fresh message) message {
	w, f := waiting.(*renew), fresh.(*renew)
	if len(w.replies)+len(f.replies) > waitersPerLeaseMax {
		f.Abort(ErrBusy)
		return w
	}
	w.replies = append(w.replies, f.replies...)
	return w
}
