package raftactor

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"troupe/proto"
)

// collectorStep is an entry, a hard state, or, with neither, a snapshot record.
type collectorStep struct {
	entry    uint64
	term     uint64
	commit   uint64
	snapshot proto.Index
}

func feed(t *testing.T, first proto.Index, steps []collectorStep) (*Recovered, bool, error) {
	t.Helper()
	c := newLogCollector(first)
	for i, s := range steps {
		var err error
		term := max(s.term, 1)
		switch {
		case s.entry != 0:
			err = c.entry(logEntry(term, s.entry, nil))
		case s.commit != 0:
			err = c.hardState(logState(term, 1, s.commit))
		default:
			record := SnapshotRecord{Index: s.snapshot, Term: 1, ConfState: &raftpb.ConfState{}}
			err = c.snapshot(record, recordPlace{offset: int64(i)})
		}
		if err != nil {
			return nil, false, err
		}
	}
	_, cut := c.cutAt(0)
	r, err := c.finish()
	return r, cut, err
}

// Where a start begins and what follows, for the ways in which etcd and we leave snapshot records behind.
func TestLogCollector_SnapshotRecords(t *testing.T) {
	for _, test := range []struct {
		name        string
		first       proto.Index
		steps       []collectorStep
		start, last proto.Index
		cut         bool
	}{
		{name: "the last one at or below the commit index", steps: []collectorStep{
			{}, {entry: 1}, {entry: 2}, {entry: 3}, {commit: 2}, {snapshot: 1}, {snapshot: 2}}, start: 2, last: 3},
		{name: "one from the leader voids what was before", steps: []collectorStep{
			{}, {entry: 1}, {entry: 2}, {entry: 3}, {snapshot: 2}, {commit: 2}}, start: 2, last: 2},
		{name: "entries of the same batch, written before the hard state", steps: []collectorStep{
			{}, {entry: 1}, {snapshot: 10}, {entry: 11}, {entry: 12}, {commit: 11}}, start: 10, last: 12},
		{name: "one from the leader that the log ends with is cut off", steps: []collectorStep{
			{}, {entry: 1}, {commit: 1}, {snapshot: 10}}, start: 0, last: 1, cut: true},
		{name: "with the entries behind it", steps: []collectorStep{
			{}, {entry: 1}, {entry: 2}, {snapshot: 2}, {entry: 3}}, start: 0, last: 2, cut: true},
		{name: "an etcd that restarted without it and went on", steps: []collectorStep{
			{}, {entry: 1}, {entry: 2}, {snapshot: 2}, {entry: 2, term: 2}, {entry: 3, term: 2}, {commit: 3, term: 2}},
			start: 2, last: 3},
		{name: "which then committed what it had", steps: []collectorStep{
			{}, {entry: 1}, {entry: 2}, {entry: 3}, {snapshot: 2}, {commit: 1, term: 2}, {commit: 3, term: 2}},
			start: 2, last: 3},
		{name: "a log whose first segments are gone", first: 8, steps: []collectorStep{
			{commit: 5}, {snapshot: 5}, {entry: 8}, {entry: 9}, {commit: 9}, {snapshot: 8}}, start: 8, last: 9},
		{name: "where entries of a segment that is gone were overwritten", first: 8, steps: []collectorStep{
			{commit: 5}, {entry: 6, term: 2}, {entry: 7, term: 2}, {entry: 8, term: 2}, {commit: 8, term: 2}, {snapshot: 8}},
			start: 8, last: 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, cut, err := feed(t, test.first, test.steps)
			if err != nil {
				t.Fatal(err)
			}
			if r.Start.Index != test.start || r.Last() != test.last || cut != test.cut {
				t.Errorf("start %d, last %d, cut %v", r.Start.Index, r.Last(), cut)
			}
		})
	}
}

// A log of large entries that the file holds already is not read into memory whole; what the file lacks is.
func TestLogCollector_LeavesOutOldEntriesThatTheFileHolds(t *testing.T) {
	const entries, applied, size = 300, 250, 1 << 20
	c := newLogCollector(0)
	c.applied = applied
	if err := c.snapshot(SnapshotRecord{ConfState: &raftpb.ConfState{}}, recordPlace{}); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	most := uint64(0)
	for i := uint64(1); i <= entries; i++ {
		if err := c.entry(logEntry(3, i, data)); err != nil {
			t.Fatal(err)
		}
		if err := c.hardState(logState(3, 1, i)); err != nil {
			t.Fatal(err)
		}
		if i == 100 { // a snapshot record below what was left out is no reason to begin again
			if err := c.snapshot(SnapshotRecord{Index: 20, Term: 3, ConfState: &raftpb.ConfState{}}, recordPlace{}); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, c.chain.bytes)
	}
	r, err := c.finish()
	if err != nil {
		t.Fatal(err)
	}
	if most > logBytesMax+(entries-applied+1)*(size+entryOverheadBytes) {
		t.Errorf("held up to %d bytes", most)
	}
	if r.Start.Index != 20 || r.Last() != entries || r.After > applied || r.AfterTerm != 3 {
		t.Errorf("starts at %d, after %d of term %d, ends at %d", r.Start.Index, r.After, r.AfterTerm, r.Last())
	}
	for i, e := range r.Entries {
		if want := uint64(r.After) + uint64(i) + 1; e.GetIndex() != want {
			t.Fatalf("entry %d has index %d", want, e.GetIndex())
		}
	}
}
