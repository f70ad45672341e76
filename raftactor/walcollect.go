package raftactor

import (
	"errors"
	"fmt"
	"slices"

	"troupe/proto"

	"go.etcd.io/raft/v3/raftpb"
)

// logCollector makes of a log's records, in order, what a member starts from. It does no I/O.
//
// It keeps the chain of entries behind the newest snapshot record that is known to be valid. A record made by this
// member is at or below the commit index before it, hence valid at once, and the entries up to it are dropped, so
// that memory does not grow with the log. A record of a snapshot that came from the leader is ahead of the commit
// index: it becomes valid when a later hard state reaches it, and then all entries before it are void. If the log
// ends before that, the crash came in between, nobody was told of the record or of what follows, and the reader cuts
// the log off before it: left there, the records of the next life could not be told from those that belong behind it.
//
// The checksum does not cover the type of a record, so the collector also refuses what no raft writes: a term or
// commit index that goes back, an entry at or below the commit index, a commit index beyond the last entry.
type logCollector struct {
	start   SnapshotRecord
	started bool
	// floor is the index before the first that the first segment was to hold. Segments before it may have been purged,
	// and with them the entries behind older snapshot records, so those cannot start this log any more.
	floor proto.Index
	chain entryChain
	// ahead is a record from the leader that is not valid yet, with the entries that may follow it.
	ahead *aheadSnapshot
	state *raftpb.HardState
	// applied is what the file behind the store holds: committed entries up to it may be left out.
	applied proto.Index
}

type aheadSnapshot struct {
	record SnapshotRecord
	// place is where the record lies; before is the chain as it was there.
	place  recordPlace
	before entryChain
	chain  entryChain
	// gap is set when an entry fitted only behind the record: then the record must become valid.
	gap error
	// passed is set when the log went on behind the entries before the record: an etcd restarted without the snapshot.
	// The record still counts once the commit index reaches it, but voids nothing.
	passed bool
}

// recordPlace is a place in the log: a segment by its place in the run, an offset, and the checksum before it.
type recordPlace struct {
	segment int
	offset  int64
	crc     uint32
}

// entryChain is a run of entries behind a known place.
type entryChain struct {
	// base is index and term of what comes before the first entry. The term is 0 while it is not known.
	base     proto.Index
	baseTerm uint64
	entries  []*raftpb.Entry
	// bytes is what the entries count for.
	bytes uint64
}

// newLogCollector makes a collector for a log whose first segment was to begin with the entry at first.
func newLogCollector(first proto.Index) logCollector {
	floor := max(first, 1) - 1
	return logCollector{floor: floor, chain: entryChain{base: floor}}
}

var (
	errEntryCommitted = errors.New("the entry overwrites one that is committed")
	errEntryTerm      = errors.New("the entry's term is lower than that of the entry before it")
	errStateBack      = errors.New("the hard state goes back")
	errCommitBeyond   = errors.New("the hard state's commit index is beyond the last entry")
	errNoSnapshot     = errors.New("no snapshot record at or below the commit index was found")
)

// last is the index of the last entry, or of what comes before the first.
func (c *entryChain) last() proto.Index { return c.base + proto.Index(len(c.entries)) }

// add appends the entry, cutting off what it overwrites.
func (c *entryChain) add(entry *raftpb.Entry) error {
	index := proto.Index(entry.GetIndex())
	if index <= c.base || index > c.last()+1 {
		return fmt.Errorf("the entry at index %d does not follow on index %d", index, c.last())
	}
	keep := index - c.base - 1
	before := c.baseTerm
	if keep > 0 {
		before = c.entries[keep-1].GetTerm()
	}
	if entry.GetTerm() < before {
		return errEntryTerm
	}
	for _, gone := range c.entries[keep:] {
		c.bytes -= entryBytes(gone)
	}
	c.entries = append(c.entries[:keep], entry)
	c.bytes += entryBytes(entry)
	return nil
}

// shed forgets the oldest entries up to the index while their bytes are above the bound, all at once down to half of
// it, so that the copy is paid seldom.
func (c *entryChain) shed(upTo proto.Index, bytesMax uint64) {
	if c.bytes <= bytesMax {
		return
	}
	n := 0
	for ; n < len(c.entries) && c.bytes > bytesMax/2 && c.base+proto.Index(n) < upTo; n++ {
		c.bytes -= entryBytes(c.entries[n])
		c.baseTerm = c.entries[n].GetTerm()
	}
	c.entries = slices.Clone(c.entries[n:])
	c.base += proto.Index(n)
}

// drop forgets the entries up to the record, which lies at or below last.
func (c *entryChain) drop(r SnapshotRecord) {
	if r.Index > c.last() {
		*c = entryChain{base: r.Index}
	} else if r.Index > c.base {
		n := r.Index - c.base
		for _, gone := range c.entries[:n] {
			c.bytes -= entryBytes(gone)
		}
		clear(c.entries[:n])
		c.entries = c.entries[n:]
		c.base = r.Index
	}
	if c.base == r.Index {
		c.baseTerm = uint64(r.Term)
	}
}

// commit is the commit index so far.
func (c *logCollector) commit() proto.Index { return proto.Index(c.state.GetCommit()) }

// entry takes the next entry record.
func (c *logCollector) entry(entry *raftpb.Entry) error {
	index := proto.Index(entry.GetIndex())
	if index <= c.commit() {
		return errEntryCommitted
	}
	if !c.started && index <= c.floor {
		return nil // it overwrote entries of a segment that is gone; the snapshot that let that go is still to come
	}
	err := c.chain.add(entry)
	if c.ahead == nil || c.ahead.passed {
		return err
	}
	if c.ahead.chain.add(entry) != nil {
		c.ahead.passed = true
		return errors.Join(err, c.ahead.gap)
	}
	if c.ahead.gap == nil {
		c.ahead.gap = err
	}
	return nil
}

// hardState takes the next hard state record.
func (c *logCollector) hardState(hs *raftpb.HardState) error {
	if hs.GetTerm() < c.state.GetTerm() || hs.GetCommit() < c.state.GetCommit() {
		return errStateBack
	}
	commit := proto.Index(hs.GetCommit())
	if c.ahead != nil && commit < c.ahead.record.Index {
		c.ahead.passed = true
	}
	if c.ahead != nil && commit >= c.ahead.record.Index {
		c.start, c.started = c.ahead.record, true
		if c.ahead.passed || commit > c.ahead.chain.last() {
			c.chain.drop(c.ahead.record)
		} else {
			c.chain = c.ahead.chain
		}
		c.ahead = nil
	}
	if commit > c.chain.last() {
		return errCommitBeyond
	}
	c.state = hs
	if c.ahead == nil && c.started {
		c.chain.shed(min(c.applied, commit), logBytesMax)
	}
	return nil
}

// snapshot takes the next snapshot record.
func (c *logCollector) snapshot(r SnapshotRecord, place recordPlace) error {
	if r.Index > c.commit() {
		before := c.chain
		before.entries = slices.Clone(before.entries)
		c.ahead = &aheadSnapshot{
			record: r, place: place, before: before,
			chain: entryChain{base: r.Index, baseTerm: uint64(r.Term)},
		}
		return nil
	}
	if c.started && r.Index < c.start.Index {
		return nil
	}
	if r.Index < c.chain.base && r.Index <= min(c.applied, c.commit()) && c.started {
		c.start = r // the entries behind it were left out; the file holds them
		return nil
	}
	if r.Index < c.chain.base {
		return nil // the entries behind it are gone; see floor
	}
	c.start, c.started = r, true
	c.chain.drop(r)
	return nil
}

// cutAt gives the place of a record at the end of the log that never became valid, if there is one in that segment,
// and forgets the record and all behind it.
func (c *logCollector) cutAt(segment int) (recordPlace, bool) {
	if c.ahead == nil || c.ahead.passed || c.ahead.place.segment != segment {
		return recordPlace{}, false
	}
	place := c.ahead.place
	c.chain, c.ahead = c.ahead.before, nil
	return place, true
}

// finish gives what was recovered; where the log ends without what a start needs, the reason.
func (c *logCollector) finish() (*Recovered, error) {
	if c.ahead != nil && c.ahead.gap != nil {
		return nil, c.ahead.gap
	}
	if !c.started {
		return nil, errNoSnapshot
	}
	if c.commit() > c.chain.last() {
		return nil, errCommitBeyond
	}
	return &Recovered{
		Start: c.start, HardState: c.state, Entries: c.chain.entries,
		After: c.chain.base, AfterTerm: proto.Term(c.chain.baseTerm),
	}, nil
}
