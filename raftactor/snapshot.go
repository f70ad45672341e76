package raftactor

import (
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// onCheckpointed decides whether a checkpoint of the file becomes a snapshot: a .snap file and a snapshot record, from
// which the next start begins, and before which segments may go. Only when the last one is SnapshotCount entries back,
// or the disk is full and segments can go, and one at a time.
//
// The order of rule 4.5 is: the checkpoint is durable (this message says so, and backend has made sure that a hard
// state with that commit is durable too), then .snap, then the record, then the release. The last three are wal's.
func (c *core) onCheckpointed(m *checkpointed) {
	c.checkpoint = m
	if m.index >= c.snapshotIndex+proto.Index(c.cfg.snapshotCount) {
		c.takeSnapshot(m)
	}
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
