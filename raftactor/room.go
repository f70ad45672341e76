package raftactor

import (
	"go.etcd.io/raft/v3/raftpb"
)

// What raft does about a log that cannot grow. The wal actor says with each completion how much the log surely takes
// behind it; raft admits no more than that, so that wal never has to give up what raft has promised. When the disk is
// full, requests of clients are refused while the end of the room is kept for what must go on.

// useOf is what a proposal is for.
func useOf(m *propose) logUse {
	r := m.request
	switch {
	case m.change != nil:
		return useClient
	case m.term != 0, r == nil, r.ClusterVersionSet != nil, r.ClusterMemberAttrSet != nil:
		return useOwn
	case r.LeaseRevoke != nil, r.DeleteRange != nil, r.Compaction != nil, r.Alarm != nil:
		return useFreeing
	}
	return useClient
}

// onRoom takes over what wal says about its room.
func (c *core) onRoom(room logRoom) {
	c.room = room
	c.noteRefusing(room.full && (c.refusing || !room.fits(c.underWay(), 0, useClient)))
	c.snapshotForSpace()
}

// noteRefusing remembers, and has logged, that writes are refused, from the first one on until there is space again.
func (c *core) noteRefusing(refusing bool) {
	if c.refusing != refusing {
		c.refusing = refusing
		c.emit(noteSpace{refused: refusing, bytes: c.room.bytes})
	}
}

// underWay is what was admitted and is not in the log yet.
func (c *core) underWay() int64 { return c.appends.bytes + c.proposals.queuedBytes }

// roomError is why a proposal does not fit into the log, nil when it does. Without a full disk that is only overload:
// more is under way than the log has reserved for.
func (c *core) roomError(m *propose) error {
	if c.room.fits(c.underWay(), int64(entryBytes(m.entry)), m.use) {
		return nil
	}
	if !c.room.full {
		return ErrTooManyRequests
	}
	c.noteRefusing(true)
	return ErrNoSpace
}

// hasRoomFor reports whether entries of another member fit into the log.
func (c *core) hasRoomFor(entries []*raftpb.Entry) bool {
	if len(entries) == 0 {
		return true
	}
	bytes := int64(entryOverheadBytes)
	for _, e := range entries {
		bytes += int64(entryBytes(e))
	}
	return c.room.fits(c.underWay(), bytes, useOwn)
}

// noteSpace writes the two lines of a full disk that concern clients.
func (a *raftActor) noteSpace(e noteSpace) {
	if e.refused {
		a.log.Error().Int64("room-bytes", e.bytes).Msg("the disk of the log is full, writes are refused; " +
			"reads, watches and leases go on; free space on it and writes go on by themselves")
	} else {
		a.log.Info().Msg("the log has room again, writes are taken")
	}
}
