package raftactor

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor/disktest"
)

// emptyEntry is an entry of a term without content.
func emptyEntry(term, index uint64) *raftpb.Entry {
	return &raftpb.Entry{Term: new(term), Index: new(index), Type: raftpb.EntryNormal.Enum()}
}

// lostCluster writes the log of a member of three: their conf changes, one committed entry, and two that are not.
func lostCluster(t *testing.T, d *disktest.Disk, dir string) proto.Membership {
	t.Helper()
	var m proto.Membership
	for id := proto.MemberID(1); id <= 3; id++ {
		m.Members = append(m.Members, proto.Member{ID: id, PeerURLs: []string{"http://127.0.0.1:1"}})
	}
	log, err := CreateLog(d, dir, LogMeta{Member: 2, Cluster: 9})
	if err != nil {
		t.Fatal(err)
	}
	entries := append(bootstrapEntries(m.Members), emptyEntry(4, 4), emptyEntry(5, 5), emptyEntry(5, 6))
	hard := &raftpb.HardState{Term: new(uint64(7)), Vote: new(uint64(2)), Commit: new(uint64(4))}
	if err := errors.Join(log.Append(hard, entries), log.Close()); err != nil {
		t.Fatal(err)
	}
	return m
}

// What is not committed goes, what is stays, the others are removed in order, and the log says so after a crash too.
func TestForceAlone_DropsWhatIsNotCommittedAndRemovesTheOthers(t *testing.T) {
	for _, applied := range []proto.Index{0, 3, 4} {
		d, dir := disktest.New(1), "/member/wal"
		if err := d.MakeDir("/member"); err != nil {
			t.Fatal(err)
		}
		m := lostCluster(t, d, dir)
		log, r, err := OpenLogBehind(d, dir, applied)
		if err != nil {
			t.Fatal(err)
		}
		if applied == 0 {
			m.Members = nil // only the log knows them
		}
		removed, err := ForceAlone(log, r, applied, &m)
		if err != nil || len(removed) != 2 || removed[0] != 1 || removed[1] != 3 {
			t.Fatalf("applied %d: removed %v, %v", applied, removed, err)
		}
		d.Crash(uint64(applied)) // without Close
		again, read, err := OpenLogBehind(d, dir, applied)
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]*Recovered{"given": r, "read again": read} {
			if got.HardState.GetCommit() != 6 || got.HardState.GetTerm() != 7 || got.Last() != 6 {
				t.Errorf("applied %d, %s: hard state %v, last %d", applied, name, got.HardState, got.Last())
			}
			tail := got.Entries[len(got.Entries)-2:]
			for i, want := range removed {
				var cc raftpb.ConfChange
				if err := pb.Unmarshal(tail[i].GetData(), &cc); err != nil || cc.GetNodeId() != uint64(want) ||
					cc.GetType() != raftpb.ConfChangeRemoveNode || tail[i].GetTerm() != 7 {
					t.Errorf("applied %d, %s: entry %d is %v", applied, name, i, tail[i])
				}
			}
		}
		if removed, err := ForceAlone(again, read, applied, &m); err != nil || len(removed) > 0 {
			t.Errorf("applied %d: a second time it removes %v, %v", applied, removed, err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestForceAlone_RefusesALearner(t *testing.T) {
	r := &Recovered{Meta: LogMeta{Member: 2}, HardState: &raftpb.HardState{}}
	m := &proto.Membership{Members: []proto.Member{{ID: 1}, {ID: 2, IsLearner: true}}}
	if _, err := ForceAlone(nil, r, 0, m); !errors.Is(err, ErrLearnerAlone) {
		t.Errorf("a learner: %v", err)
	}
}

func TestForceAlone_RefusesAMemberThatWasRemoved(t *testing.T) {
	r := &Recovered{Meta: LogMeta{Member: 2}, HardState: &raftpb.HardState{}}
	m := &proto.Membership{Members: []proto.Member{{ID: 1}, {ID: 3}}}
	if _, err := ForceAlone(nil, r, 0, m); !errors.Is(err, ErrRemovedAlone) || errors.Is(err, ErrLearnerAlone) {
		t.Errorf("a removed member: %v", err)
	}
}
