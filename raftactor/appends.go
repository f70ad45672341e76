package raftactor

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
)

// outstandingAppend is an append, or a group of answers, that waits for the disk.
type outstandingAppend struct {
	// seq is the append that must be durable, with all before it.
	seq       uint64
	issued    int
	responses []*raftpb.Message
	// bytes is what it takes of the log's room.
	bytes int64
}

// appendQueue is the one FIFO of what waits for the disk. Answers leave only when their append and all before it are
// durable, in the order in which raft gave them out.
type appendQueue struct {
	waiting []outstandingAppend
	// last is the number of the newest append, durable that of the newest durable one.
	last, durable uint64
	// bytes is what all that wait take of the log's room.
	bytes int64
}

// done notes that all appends up to upTo are durable.
func (q *appendQueue) done(upTo uint64) {
	actors.Must(upTo <= q.last, "append %d is durable, but only %d were made", upTo, q.last)
	q.durable = max(q.durable, upTo)
}

// next removes and gives the answers of the oldest append if it is durable.
func (q *appendQueue) next() ([]*raftpb.Message, bool) {
	if len(q.waiting) == 0 || q.waiting[0].seq > q.durable {
		return nil, false
	}
	responses := q.waiting[0].responses
	q.bytes -= q.waiting[0].bytes
	q.waiting[0] = outstandingAppend{}
	q.waiting = q.waiting[1:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	return responses, true
}

// age is the number of ticks for which the oldest append has been without an answer.
func (q *appendQueue) age(now int) int {
	if len(q.waiting) == 0 {
		return 0
	}
	return now - q.waiting[0].issued
}

// onStorageAppend takes what raft wants in the log.
//
// What must be durable goes to wal at once. A commit index alone need not be: it is kept until the next append, the
// next tick or the next checkpoint takes it along, which saves a hand-over to wal and a write per batch. Losing it in a
// crash is allowed by raft, and the file never gets ahead of it (rule 4.5). Answers that come with it attest to entries
// and votes that were handed out before, so they wait for those, and for those only.
func (c *core) onStorageAppend(m *raftpb.Message, mustSync bool) {
	actors.Must(m.GetSnapshot() == nil, "raft wants a snapshot installed, but none was stepped")
	c.log.append(m.GetEntries())
	c.noteConfEntries(m.GetEntries())
	if mustSync {
		c.persist(m.GetEntries(), m.GetResponses(), true)
		return
	}
	if len(m.GetResponses()) > 0 {
		c.appends.waiting = append(c.appends.waiting,
			outstandingAppend{seq: c.appends.last, issued: c.now, responses: m.GetResponses()})
	}
}

// persist hands an append to wal, and the newest hard state with it when wal does not have that.
func (c *core) persist(entries []*raftpb.Entry, responses []*raftpb.Message, mustSync bool) {
	c.appends.last++
	a := &walAppend{entries: entries, mustSync: mustSync, seq: c.appends.last}
	if c.hardWaits {
		a.hardState, c.hardWaits = c.hard, false
	}
	bytes := int64(entryOverheadBytes) // the hard state
	for _, e := range entries {
		bytes += int64(entryBytes(e))
	}
	c.appends.bytes += bytes
	c.appends.waiting = append(c.appends.waiting,
		outstandingAppend{seq: a.seq, issued: c.now, responses: responses, bytes: bytes})
	c.emit(persistLog{a})
}

// flushHardState hands a commit index that was kept back to wal.
func (c *core) flushHardState() {
	if c.hardWaits {
		c.persist(nil, nil, false)
	}
}

// stepDurable delivers the answers that no longer wait for anything.
func (c *core) stepDurable() {
	for {
		responses, ok := c.appends.next()
		if !ok {
			return
		}
		for _, m := range responses {
			if m.GetTo() != uint64(c.cfg.member) {
				c.send([]*raftpb.Message{m})
				continue
			}
			_ = c.node.Step(m) // raft's own answer to itself; stale ones are ignored
		}
	}
}

// awaitsLog reports whether new proposals may as well wait: the log is being written, its answer brings a turn that
// takes them all, and nobody but the log wants them before. On a stalled disk they are refused, which need not wait.
func (c *core) awaitsLog() bool { return c.alone() && len(c.appends.waiting) > 0 && !c.stalled() }

// watchDisk takes the consequences of a disk that does not answer. A leader that cannot write must be made to go, and
// CheckQuorum does not see its own disk: past two election timeouts it goes mute, so that the others elect another.
// With a single voter there is nobody to hand over to; then only new work is refused.
func (c *core) watchDisk() {
	age := c.appends.age(c.now)
	c.muted = age >= 2*c.cfg.electionTicks
	if stalled := c.stalled(); stalled != c.stallNoted {
		c.stallNoted = stalled
		if !stalled {
			age = 0
		}
		c.emit(noteStall{age})
	}
	if c.stalled() && c.leads() {
		c.handLeadershipOver()
	}
}

// stalled reports whether the disk has left an append without an answer for an election timeout.
func (c *core) stalled() bool { return c.appends.age(c.now) >= c.cfg.electionTicks }

// handLeadershipOver asks the voter that is furthest to take over. Nothing happens while a transfer is under way.
func (c *core) handLeadershipOver() {
	status := c.node.BasicStatus()
	if status.LeadTransferee != 0 || c.soleVoter() {
		return
	}
	best, match := uint64(0), uint64(0)
	full := c.node.Status()
	for _, id := range c.conf.GetVoters() {
		if p, ok := full.Progress[id]; ok && id != uint64(c.cfg.member) && p.RecentActive && p.Match >= match {
			best, match = id, p.Match
		}
	}
	if best != raft.None {
		c.node.TransferLeader(best)
	}
}
