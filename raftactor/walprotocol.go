package raftactor

import (
	"troupe/proto"
	"troupe/raftactor/disk"

	"go.etcd.io/raft/v3/raftpb"
)

// walMessage is anything the wal actor understands. Only this package can add to it.
//
// All messages travel on one lane and are executed in the order of arrival, many per turn: what arrived during the
// last fsync becomes one write and at most one fsync. None is dropped, coalesced or reordered. When the mailbox is
// full the sender keeps its message (actors.ErrFull).
type walMessage interface {
	walMessage()
	// Size is the number of bytes the message counts for in the mailbox's bound.
	Size() int
}

// walAppend makes entries and a hard state part of the log. Sent by raft for each MsgStorageAppend, in order. Answered
// by walOwner.persisted with a number at or above seq, once this append and all before it are durable as far as they
// must be. The entries are shared and stay immutable.
type walAppend struct {
	// hardState is nil or empty when it did not change.
	hardState *raftpb.HardState
	// entries are contiguous; the first may overwrite what an earlier append wrote.
	entries []*raftpb.Entry
	// responses are kept by raft; here only their number counts: an append someone waits for is synced.
	responses []*raftpb.Message
	// mustSync is raft's word that entries, term or vote changed.
	mustSync bool
	// seq numbers the appends of one run, rising.
	seq uint64
}

// walConfirm asks for rule 4.5: done runs, in the wal actor's turn, once a hard state with commit >= index is durable.
// Sent for backend before it commits index. done must only tell; it gets an error when the actor stops before.
type walConfirm struct {
	index proto.Index
	done  func(error)
}

// walSnapshot makes a snapshot durable and gives back the segments before it. Sent by raft after the backend's
// checkpoint at record.Index is durable. The order is the point:
//
//  1. the .snap file: written as a temporary file, synced, renamed, its directory synced;
//  2. the snapshot record in the log, synced together with all before it (a hard state with commit >= record.Index is
//     among it, else the record would not count after a restart);
//  3. older segments and .snap files are released and purged;
//  4. walOwner.snapshotSaved.
//
// A crash between any two leaves a directory from which the member starts: the record is the only thing that moves the
// start, and all it points to is durable before it.
type walSnapshot struct {
	record SnapshotRecord
	// hardState goes into the log right behind the record, under the same sync. It is required, with a commit index that
	// reaches the record, for a snapshot that came from the leader: until such a hard state the record does not count,
	// and entries between the two could belong to the log before it or behind it. Else nil.
	hardState *raftpb.HardState
	// data is the v2 membership JSON, for readers of 3.6 and before.
	data []byte
}

// walSpare answers an order for the next segment: its file, locked and with its space reserved, or why there is none.
// Sent by wal's helper, once per order. An answer to an order that does not count any more is dropped with its file.
type walSpare struct {
	disk       Disk
	path       string
	generation uint64
	file       disk.File
	err        error
}

// walRetry says that the time has come to order a segment again. Sent by the wal actor's own timer.
type walRetry struct{ generation uint64 }

// Abort deletes the file; nothing is in it.
func (s *walSpare) Abort(error) {
	if s.file != nil {
		_ = s.file.Close()
		_ = s.disk.Remove(s.path)
	}
}

// Abort is part of actors.Aborter: a confirmation that is abandoned in the mailbox is answered too.
func (c *walConfirm) Abort(err error) { c.done(err) }

func (*walAppend) walMessage()   {}
func (*walConfirm) walMessage()  {}
func (*walSnapshot) walMessage() {}
func (*walSpare) walMessage()    {}
func (*walRetry) walMessage()    {}

// Size counts the entries' data and a fixed share per entry.
func (a *walAppend) Size() int {
	n := walMessageOverheadBytes
	for _, e := range a.entries {
		n += len(e.Data) + entryOverheadBytes
	}
	return n
}

// Size is a fixed share.
func (*walConfirm) Size() int { return walMessageOverheadBytes }

// Size is a fixed share.
func (*walSpare) Size() int { return walMessageOverheadBytes }

// Size is a fixed share.
func (*walRetry) Size() int { return walMessageOverheadBytes }

// Size counts the data.
func (s *walSnapshot) Size() int { return walMessageOverheadBytes + len(s.data) }

// walOwner is whom the wal actor tells what became durable: the raft actor. All methods run in the wal actor's turn,
// must not wait and must not fail: a completion is never lost and never overtakes another.
type walOwner interface {
	// persisted says that all appends numbered up to upToSeq are durable, and how much fits behind them. It is told
	// again with the same number when only the room has changed.
	persisted(upToSeq uint64, room logRoom)
	// snapshotSaved says that the snapshot at index is durable and older segments are released.
	snapshotSaved(index proto.Index)
	// snapshotFailed says that the disk had no room for the file of the snapshot. Nothing has changed, and the snapshot
	// may be tried again.
	snapshotFailed(index proto.Index)
}
