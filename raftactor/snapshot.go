package raftactor

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// onCheckpointed decides whether a checkpoint of the file becomes a snapshot: a .snap file and a snapshot record, from
// which the next start begins, and before which segments may go. Only when the last one is SnapshotCount entries back,
// the disk is full and segments can go, or the log must begin later (SnapshotPast), and one at a time.
//
// The order of rule 4.5 is: the checkpoint is durable (this message says so, and backend has made sure that a hard
// state with that commit is durable too), then .snap, then the record, then the release. The last three are wal's.
func (c *core) onCheckpointed(m *checkpointed) {
	c.checkpoint = m
	if m.index >= c.snapshotIndex+proto.Index(c.cfg.snapshotCount) {
		c.takeSnapshot(m)
	}
	c.snapshotForPass()
}

// onPassSnapshot takes a question for a snapshot.
func (c *core) onPassSnapshot(m *passSnapshot) {
	if len(c.asked) >= snapshotsAskedMax {
		c.emit(answerPass{m.done, ErrTooManyRequests})
		return
	}
	c.asked = append(c.asked, m)
	c.answerPasses()
	c.snapshotForPass()
}

// snapshotForPass takes a snapshot before it is due for who waits for one that the file's checkpoint is new enough for.
func (c *core) snapshotForPass() {
	if m := c.checkpoint; m != nil && m.index > c.snapshotIndex &&
		slices.ContainsFunc(c.asked, func(p *passSnapshot) bool { return p.index <= m.index }) {
		c.takeSnapshot(m)
	}
}

// answerPasses answers who waits for a snapshot that is durable now.
func (c *core) answerPasses() {
	c.asked = slices.DeleteFunc(c.asked, func(p *passSnapshot) bool {
		if p.index > c.snapshotIndex {
			return false
		}
		c.emit(answerPass{p.done, nil})
		return true
	})
}

// onSnapshotSaved goes on from a snapshot that is durable.
func (c *core) onSnapshotSaved(index proto.Index) {
	c.snapshotting, c.snapshotDelay = false, 0
	c.snapshotIndex = max(c.snapshotIndex, index)
	c.emit(noteSnapshot{index})
	c.answerPasses()
	c.snapshotForPass()
}

// snapshotForSpace takes a snapshot before it is due when the disk is full and that gives back a segment.
func (c *core) snapshotForSpace() {
	m := c.checkpoint
	if c.room.full && c.room.release > 0 && m != nil && m.index >= c.room.release && m.index > c.snapshotIndex {
		c.takeSnapshot(m)
	}
}

// onSnapshotFailed puts off the next try.
func (c *core) onSnapshotFailed() {
	c.snapshotting = false
	c.snapshotDelay = min(max(2*c.snapshotDelay, snapshotRetryTicksMin), snapshotRetryTicksMax)
	c.snapshotAt = c.now + c.snapshotDelay
}

// takeSnapshot makes a snapshot of the checkpoint, unless one is being made or was without room a moment ago.
func (c *core) takeSnapshot(m *checkpointed) {
	if c.snapshotting || c.snapshotDelay > 0 && c.now < c.snapshotAt {
		return
	}
	actors.Must(uint64(m.index) <= c.hard.GetCommit(), "the file holds index %d, but only %d is committed",
		m.index, c.hard.GetCommit())
	actors.Must(m.membership != nil, "a checkpoint at %d without a membership", m.index)
	conf := checkpointConf(m)
	if len(conf.GetVoters()) == 0 {
		return // a record without voters would not be a place to start from
	}
	c.snapshotting = true
	c.flushHardState() // a record counts only if a hard state with that commit index is in the log
	c.emit(saveSnapshot{&walSnapshot{
		record: SnapshotRecord{Index: m.index, Term: m.term, ConfState: conf},
		data:   encodeV2Members(m.membership, uint64(m.index)),
	}})
}

// checkpointConf is the conf state at the checkpoint: the file's, or that of its members.
func checkpointConf(m *checkpointed) *raftpb.ConfState {
	if len(m.confState) > 0 {
		conf, err := parseConfState(m.confState)
		actors.Must(err == nil, "the conf state of the checkpoint at %d: %v", m.index, err)
		return conf
	}
	return ConfStateOf(m.membership)
}
