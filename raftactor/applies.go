package raftactor

import (
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// outstandingApply is one group of committed entries that raft has given out and not been told applied.
type outstandingApply struct {
	first, last uint64
	response    *raftpb.Message
	// confs is the number of conf changes in it that raft has not been given yet.
	confs int
}

// confAnswer is the answer to a conf change of this member, which waits for raft's applied index to pass it: before,
// the leader would silently drop the proposer's next change.
type confAnswer struct {
	index  uint64
	waiter *propose
	err    error
	result *proto.Result
}

// applyQueue is what was committed, from raft's hand to the store's publication.
type applyQueue struct {
	// outstanding are the groups as raft gave them out, in order.
	outstanding []outstandingApply
	// held is what waits for credit, merged into one work; nil when nothing does.
	held []*applyWork
	// handed are the last indexes of the works that apply or the store has.
	handed []uint64
	confs  []confAnswer
	// given is the last index that raft has given out.
	given uint64
	// released is raft's applied index.
	released uint64
}

// abandon gives the answers of all that will not go to apply any more.
func (q *applyQueue) abandon() []proto.Answer {
	var answers []proto.Answer
	for _, w := range q.held {
		for _, m := range w.waiters {
			if m != nil {
				answers = append(answers, m.answer)
			}
		}
	}
	for i := range q.confs {
		if w := q.confs[i].waiter; w != nil {
			answers = append(answers, w.answer)
		}
	}
	q.held, q.confs = nil, nil
	return answers
}

// onStorageApply takes committed entries. Those the file holds already are done: they are not applied, and their conf
// changes not given to raft, which started from the members in the file.
func (c *core) onStorageApply(m *raftpb.Message) {
	entries := m.GetEntries()
	actors.Must(len(m.GetResponses()) == 1, "committed entries came with %d responses", len(m.GetResponses()))
	o := outstandingApply{
		first:    entries[0].GetIndex(),
		last:     entries[len(entries)-1].GetIndex(),
		response: m.GetResponses()[0],
	}
	for len(entries) > 0 && entries[0].GetIndex() <= uint64(c.cfg.appliedAtStart) {
		entries = entries[1:]
	}
	if len(entries) > 0 {
		o.confs = c.hold(entries)
	}
	c.applies.outstanding = append(c.applies.outstanding, o)
	c.applies.given = o.last
	c.release()
}

// hold matches entries with their local waiters and keeps them until there is credit. It gives the number of conf
// changes among them.
func (c *core) hold(entries []*raftpb.Entry) (confs int) {
	w := &applyWork{entries: entries}
	for i, e := range entries {
		w.bytes += len(e.Data) + entryOverheadBytes
		var m *propose
		if len(c.proposals.pending) > 0 && len(e.Data) > 0 {
			m = c.proposals.take(entryID(e))
		}
		if e.GetType() == raftpb.EntryConfChange {
			confs++
			c.applies.confs = append(c.applies.confs, confAnswer{index: e.GetIndex(), waiter: m})
			continue
		}
		if m != nil {
			if w.waiters == nil {
				w.waiters = make([]*propose, len(entries))
			}
			w.waiters[i] = m
		}
	}
	c.applies.held = append(c.applies.held, w)
	return confs
}

// handOverHeld gives apply what is held, as one work, when there is credit.
func (c *core) handOverHeld() {
	q := &c.applies
	if len(q.held) == 0 || len(q.handed) >= batchesOutstandingMax {
		return
	}
	work := mergeWorks(q.held)
	q.held = nil
	q.handed = append(q.handed, work.last())
	c.emit(handOver{work})
}

// mergeWorks makes one work of several that follow each other.
func mergeWorks(works []*applyWork) *applyWork {
	if len(works) == 1 {
		return works[0]
	}
	total, waited := 0, false
	for _, w := range works {
		total += len(w.entries)
		waited = waited || w.waiters != nil
	}
	merged := &applyWork{entries: make([]*raftpb.Entry, 0, total)}
	if waited {
		merged.waiters = make([]*propose, 0, total)
	}
	for _, w := range works {
		merged.entries = append(merged.entries, w.entries...)
		merged.bytes += w.bytes
		switch {
		case w.waiters != nil:
			merged.waiters = append(merged.waiters, w.waiters...)
		case waited:
			merged.waiters = append(merged.waiters, make([]*propose, len(w.entries))...)
		}
	}
	return merged
}

// awaitsPublished reports whether something cannot go on until the store has published more: entries that wait for
// credit, or that raft holds back because too many bytes are not applied; conf changes and reads that wait for the
// applied index, and changes that wait for those before them; a term whose first entry is not applied, and a sole voter
// that must apply its log before it can campaign; proposers, whom a large gap in the published status turns away. Else
// the news may wait for the next turn, which a proposal or the log's answer to it brings, and every tick.
func (c *core) awaitsPublished() bool {
	q := &c.applies
	return len(q.held) > 0 || len(q.confs) > 0 || q.given < c.hard.GetCommit() || c.reads.count() > 0 ||
		len(c.changes.waiting) > 0 || c.publishedTerm != c.term || c.campaign && c.soleVoter() || c.gap() > applyGapMax/2
}

// onPublished moves the applied index: raft's as far as its conf changes are known, and the credit.
func (c *core) onPublished(index proto.Index) {
	c.published = max(c.published, index)
	for len(c.applies.handed) > 0 && c.applies.handed[0] <= uint64(c.published) {
		c.applies.handed = c.applies.handed[1:]
	}
	c.release()
}

// onConfChanged changes raft's configuration and then lets the applied index move past the entry.
func (c *core) onConfChanged(m *confChanged) {
	c.conf = c.node.ApplyConfChange(m.change)
	for i := range c.applies.outstanding {
		o := &c.applies.outstanding[i]
		if o.first <= uint64(m.index) && uint64(m.index) <= o.last {
			o.confs--
		}
	}
	for i := range c.applies.confs {
		if a := &c.applies.confs[i]; a.index == uint64(m.index) {
			a.err, a.result = m.err, m.result
		}
	}
	c.release()
}

// release tells raft what is applied: published by the store, and all conf changes of it given to raft before. The two
// are told by different actors and may arrive in either order.
func (c *core) release() {
	q := &c.applies
	for len(q.outstanding) > 0 {
		o := &q.outstanding[0]
		if o.last > uint64(c.published) || o.confs > 0 {
			break
		}
		_ = c.node.Step(o.response) // raft's own message; it cannot fail
		q.released = o.last
		q.outstanding[0] = outstandingApply{}
		q.outstanding = q.outstanding[1:]
		c.answerConfs()
	}
	c.publishedTerm = c.termAt(min(c.published, proto.Index(q.released)))
}

// answerConfs answers the conf changes that raft's applied index has passed.
func (c *core) answerConfs() {
	q := &c.applies
	for len(q.confs) > 0 && q.confs[0].index <= q.released {
		a := q.confs[0]
		q.confs = q.confs[1:]
		switch {
		case a.waiter == nil:
		case a.err != nil:
			c.emit(refuse{a.waiter.answer, a.err})
		default:
			c.emit(accept{a.waiter.answer, a.result})
		}
	}
}
