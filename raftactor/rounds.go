package raftactor

import (
	"go.etcd.io/raft/v3"

	"troupe/proto"
)

// onRead takes a read, or refuses it. While the disk is stalled others may have elected another leader by now; a sole
// voter knows that they have not, and its reads need no disk.
func (c *core) onRead(m *read) {
	switch {
	case c.stalled() && !c.soleVoter():
		c.failReads([]*read{m}, ErrDiskStalled)
	case c.reads.count() >= readsWaitingMax:
		c.failReads([]*read{m}, ErrTooManyRequests)
	default:
		m.since = c.now
		c.reads.waiting = append(c.reads.waiting, m)
	}
}

func (c *core) failReads(gone []*read, err error) {
	c.tally.failedReads += len(gone)
	c.emit(answerReads{reads: gone, err: err})
}

// mayRead reports whether a round can be asked now. A leader must have applied an entry of its own term: before, its
// commit index may be older than what an earlier leader acknowledged, and raft answers for a single voter without
// looking. A follower asks the leader, and raft drops the question without one.
func (c *core) mayRead() bool {
	if c.leads() {
		return c.publishedTerm == c.term
	}
	return c.leader != 0
}

// startRound asks one round for all reads that wait, when none is out.
func (c *core) startRound() {
	if len(c.reads.waiting) > 0 && !c.reads.outstanding() && c.mayRead() {
		c.node.ReadIndex(c.reads.start(c.cfg.nextID(), c.now))
	}
}

// retryRound asks again when the answer is late: the question, or the answer, may be lost.
func (c *core) retryRound() {
	if !c.reads.outstanding() || !c.mayRead() {
		return
	}
	if c.now-c.reads.asked >= max(1, c.cfg.requestTicks/readRetryPart) {
		c.node.ReadIndex(c.reads.again(c.cfg.nextID(), c.now))
	}
}

// onReadState answers the round that is out, and starts the next one.
func (c *core) onReadState(s *raft.ReadState) {
	if done := c.reads.finish(s.RequestCtx); done != nil {
		c.emit(answerReads{reads: done, index: proto.Index(s.Index)})
		c.startRound()
	}
}
