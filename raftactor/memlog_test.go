package raftactor

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

func plainEntries(from, to, term uint64) []*raftpb.Entry {
	var entries []*raftpb.Entry
	for i := from; i <= to; i++ {
		entries = append(entries, &raftpb.Entry{Index: new(i), Term: new(term), Data: []byte("12345678")})
	}
	return entries
}

func TestMemLog_ReplacingATailLeavesGivenSlicesAlone(t *testing.T) {
	l := newMemLog(10, 1, nil, nil, plainEntries(11, 20, 1))
	given, err := l.Entries(15, 21, 1<<30)
	if err != nil || len(given) != 6 {
		t.Fatalf("%d entries, %v", len(given), err)
	}
	l.append(plainEntries(16, 17, 2))
	if given[1].GetTerm() != 1 {
		t.Fatal("a slice that was given out changed")
	}
	if term, _ := l.Term(16); term != 2 || l.last() != 17 {
		t.Fatalf("term %d, last %d", term, l.last())
	}
	if l.bytes != 7*entryBytes(given[0]) {
		t.Fatalf("%d bytes counted", l.bytes)
	}
	mustPanic(t, "a gap", func() { l.append(plainEntries(19, 19, 2)) })
}

func TestMemLog_Bounds(t *testing.T) {
	l := newMemLog(10, 3, nil, nil, plainEntries(11, 20, 4))
	if _, err := l.Entries(10, 12, 100); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("below the offset: %v", err)
	}
	if _, err := l.Entries(19, 22, 100); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("beyond the end: %v", err)
	}
	if one, err := l.Entries(11, 21, 1); err != nil || len(one) != 1 {
		t.Errorf("at least one entry: %d, %v", len(one), err)
	}
	for index, want := range map[uint64]uint64{10: 3, 11: 4, 20: 4} {
		if term, err := l.Term(index); err != nil || term != want {
			t.Errorf("term of %d: %d, %v", index, term, err)
		}
	}
	if _, err := l.Term(9); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("term below: %v", err)
	}
	if _, err := l.Term(21); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("term beyond: %v", err)
	}
}

func TestMemLog_TrimByCountAndByBytes(t *testing.T) {
	l := newMemLog(0, 0, nil, nil, plainEntries(1, 5000, 1))
	l.trim(4000, 3500, 1<<40)
	if l.offset != 0 {
		t.Fatal("trimmed for a few entries")
	}
	l.trim(4000, 100, 1<<40)
	if l.offset != 3900 || l.last() != 5000 {
		t.Fatalf("offset %d, last %d", l.offset, l.last())
	}
	if term, err := l.Term(3900); err != nil || term != 1 {
		t.Fatalf("the term before the first entry: %d, %v", term, err)
	}
	each := entryBytes(l.entries[0])
	if l.bytes != 1100*each {
		t.Fatalf("%d bytes counted", l.bytes)
	}
	l.trim(4000, 1000, 1090*each)
	if l.offset != 4000 || l.bytes != 1000*each {
		t.Fatalf("by bytes: offset %d; what is not applied must stay", l.offset)
	}
}
