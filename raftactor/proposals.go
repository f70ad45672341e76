package raftactor

import (
	"troupe/actors"
)

// proposals are the requests of this member that are waiting for raft or for their commit.
//
// A proposal is in here from its arrival until its answer is due from someone else: it is failed here (refused, timed
// out, stopped), or it is taken when its entry is committed, and then apply and the store owe the answer. So it is
// answered exactly once, whatever happens to its entry: raft may drop or replace an entry without a word, which is what
// the sweep is for.
type proposals struct {
	// queued are those that raft has not seen, in the order of arrival.
	queued []*propose
	// pending are all, by request id.
	pending map[uint64]*propose
	// order are all in the order of arrival, those that are done included until they are at the head. All have the same
	// timeout, so the head is the oldest.
	order []*propose
	head  int
	// bytes is what the pending ones count for.
	bytes int
	// own is how many of the pending ones are bound to a term.
	own int
	// changes is how many of the pending ones are changes of the membership, which etcd does not count.
	changes int
	// queuedBytes is what the queued ones will take of the log's room.
	queuedBytes int64
}

// full reports whether no further one may be taken. Those that are bound to a term are counted apart, so that clients
// cannot take their place. A single one is taken whatever its size.
func (p *proposals) full(m *propose) bool {
	if m.term != 0 {
		return p.own >= proposalsOwnMax || p.bytes >= proposalsPendingBytesMax+proposalsOwnBytesMax
	}
	return len(p.pending)-p.own >= proposalsPendingMax ||
		len(p.pending) > 0 && p.bytes+m.Size() > proposalsPendingBytesMax
}

// count is the number of the pending ones for the metrics.
func (p *proposals) count() int { return len(p.pending) - p.changes }

// add takes a proposal, due at tick deadline, for raft's next turn.
func (p *proposals) add(m *propose, now, deadline int) {
	p.keep(m, now, deadline)
	p.queue(m)
}

// queue puts a proposal that is in here at the end of those that raft is given next.
func (p *proposals) queue(m *propose) {
	p.queued = append(p.queued, m)
	p.queuedBytes += int64(entryBytes(m.entry))
}

// keep takes a proposal that raft is not given yet.
func (p *proposals) keep(m *propose, now, deadline int) {
	if p.pending == nil {
		p.pending = make(map[uint64]*propose)
	}
	if p.pending[m.id] != nil {
		actors.Must(false, "request id %x is used twice", m.id)
	}
	m.since, m.deadline, m.size = now, deadline, m.Size()
	p.pending[m.id] = m
	p.bytes += m.size
	if m.term != 0 {
		p.own++
	}
	if m.change != nil {
		p.changes++
	}
	p.order = append(p.order, m)
}

// take removes the proposal with that id and gives it, nil if there is none. Its answer is then the caller's to give.
func (p *proposals) take(id uint64) *propose {
	m := p.pending[id]
	if m == nil {
		return nil
	}
	p.drop(m)
	return m
}

// drop removes a proposal that is in here.
func (p *proposals) drop(m *propose) {
	delete(p.pending, m.id)
	m.done = true
	p.bytes -= m.size
	if m.term != 0 {
		p.own--
	}
	if m.change != nil {
		p.changes--
	}
	p.compact()
}

// oldest gives the proposal that has waited longest, nil if there is none.
func (p *proposals) oldest() *propose {
	p.compact()
	if p.head == len(p.order) {
		return nil
	}
	return p.order[p.head]
}

// compact drops what is done from the head of the order, and gives back the space when it is worth a copy.
func (p *proposals) compact() {
	for p.head < len(p.order) && p.order[p.head].done {
		p.order[p.head] = nil
		p.head++
	}
	switch {
	case p.head == len(p.order):
		p.order, p.head = p.order[:0], 0
	case p.head > 1024 && p.head > len(p.order)/2:
		p.order = append([]*propose(nil), p.order[p.head:]...)
		p.head = 0
	}
}
