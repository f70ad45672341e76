package raftactor

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// memLog is the part of the log that is in memory, as raft reads it (raft.Storage). The raft actor alone owns it, so it
// needs no lock; raft calls it in the raft actor's turn only.
//
// Entries are put in when they are handed to the wal, not when they are durable. That is safe: raft believes an entry
// to be stable only when the append's response is stepped, and reads it from here only then. It is necessary: raft lets
// go of its own copy while it steps that response.
//
// Slices given out are never written to afterwards: a conflict copies the part that stays, and a cut copies the rest.
// A peer may still be encoding a message with an older slice.
type memLog struct {
	hard *raftpb.HardState
	conf *raftpb.ConfState
	// offset is the index before entries[0], offsetTerm its term: the last snapshot record, or where the log was cut.
	offset     uint64
	offsetTerm uint64
	entries    []*raftpb.Entry
	// bytes is the data of entries.
	bytes uint64
}

// newMemLog makes a log that continues after an index and its term. It takes over entries. hard and conf are what raft
// starts from; nil means empty.
func newMemLog(after proto.Index, afterTerm proto.Term, hard *raftpb.HardState, conf *raftpb.ConfState,
	entries []*raftpb.Entry) *memLog {
	if conf == nil {
		conf = &raftpb.ConfState{}
	}
	l := &memLog{
		hard:       hard,
		conf:       conf,
		offset:     uint64(after),
		offsetTerm: uint64(afterTerm),
		entries:    entries,
	}
	for _, e := range entries {
		l.bytes += entryBytes(e)
	}
	return l
}

// entryBytes is what an entry counts for: its data and about what term, index and type take.
func entryBytes(e *raftpb.Entry) uint64 { return uint64(len(e.Data)) + entryOverheadBytes }

// InitialState is part of raft.Storage.
func (l *memLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, l.conf, nil
}

// Entries is part of raft.Storage.
func (l *memLog) Entries(low, high, bytesMax uint64) ([]*raftpb.Entry, error) {
	if low <= l.offset {
		return nil, raft.ErrCompacted
	}
	if high > l.last()+1 {
		return nil, raft.ErrUnavailable
	}
	found := l.entries[low-l.offset-1 : high-l.offset-1]
	bytes := uint64(0)
	for i, e := range found {
		bytes += entryBytes(e)
		if bytes > bytesMax && i > 0 {
			found = found[:i]
			break
		}
	}
	return found[:len(found):len(found)], nil
}

// Term is part of raft.Storage.
func (l *memLog) Term(index uint64) (uint64, error) {
	switch {
	case index < l.offset:
		return 0, raft.ErrCompacted
	case index == l.offset:
		return l.offsetTerm, nil
	case index > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.entries[index-l.offset-1].GetTerm(), nil
}

// LastIndex is part of raft.Storage.
func (l *memLog) LastIndex() (uint64, error) { return l.last(), nil }

// FirstIndex is part of raft.Storage.
func (l *memLog) FirstIndex() (uint64, error) { return l.offset + 1, nil }

// Snapshot is part of raft.Storage. Snapshots for other members are made from the file at the moment they are sent.
func (l *memLog) Snapshot() (*raftpb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

func (l *memLog) last() uint64 { return l.offset + uint64(len(l.entries)) }

// append puts in entries in the order in which raft hands them out. They follow the last entry or replace a tail.
func (l *memLog) append(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	actors.Must(first > l.offset && first <= l.last()+1,
		"append of entries from %d to a log of %d to %d", first, l.offset+1, l.last())
	if keep := first - l.offset - 1; keep < uint64(len(l.entries)) {
		for _, e := range l.entries[keep:] {
			l.bytes -= entryBytes(e)
		}
		kept := make([]*raftpb.Entry, keep, keep+uint64(len(entries)))
		copy(kept, l.entries)
		l.entries = kept
	}
	for _, e := range entries {
		l.bytes += entryBytes(e)
	}
	l.entries = append(l.entries, entries...)
}

// trim forgets entries at or below applied: all but the newest keep of them, and more when the bytes are above
// bytesMax. It does so only when it pays, so that the copy costs little per entry. Entries that are not applied stay.
func (l *memLog) trim(applied, keep, bytesMax uint64) {
	applied = min(applied, l.last())
	if applied <= l.offset {
		return
	}
	cut := uint64(0)
	if applied > keep {
		cut = applied - keep
	}
	if cut < l.offset+logEntriesSlack {
		cut = l.offset
	}
	if l.bytes > bytesMax {
		cut = max(cut, l.cutForBytes(applied, bytesMax/2))
	}
	if cut <= l.offset {
		return
	}
	gone := l.entries[:cut-l.offset]
	for _, e := range gone {
		l.bytes -= entryBytes(e)
	}
	l.offsetTerm = gone[len(gone)-1].GetTerm()
	rest := l.entries[cut-l.offset:]
	l.entries = append(make([]*raftpb.Entry, 0, len(rest)+logEntriesSlack), rest...)
	l.offset = cut
}

// cutForBytes gives the index up to which entries must go so that at most bytesMax are left, but not beyond applied.
func (l *memLog) cutForBytes(applied, bytesMax uint64) uint64 {
	bytes, cut := l.bytes, l.offset
	for cut < applied && bytes > bytesMax {
		bytes -= entryBytes(l.entries[cut-l.offset])
		cut++
	}
	return cut
}
