package raftactor

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"troupe/proto"
)

// replayingCore is the core of a sole voter that starts with a log of count committed entries of that many bytes, of
// which its file holds none.
func replayingCore(t *testing.T, count uint64, bytes int) *core {
	t.Helper()
	var entries []*raftpb.Entry
	term := uint64(1)
	for i := uint64(1); i <= count; i++ {
		entries = append(entries, &raftpb.Entry{Index: new(i), Term: &term, Data: encodedPut(0xf000+i, "k", bytes)})
	}
	hard := &raftpb.HardState{Term: &term, Vote: new(uint64(1)), Commit: &count}
	id := uint64(1000)
	c, err := newCore(coreConfig{
		member: 1, electionTicks: 10, heartbeatTicks: 1, requestTicks: 70, snapshotCount: 10_000, catchUpEntries: 5,
		log:    newMemLog(0, 0, hard, &raftpb.ConfState{Voters: []uint64{1}}, entries),
		logger: quietLogger{}, nextID: func() uint64 { id++; return id },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A publication that raft does not hear costs up to a tick. A restart has one for every few MiB of its log, so it must
// hear them all: the log of a member that was killed may be long.
func TestCore_HearsEveryPublicationUntilTheLogIsApplied(t *testing.T) {
	c := replayingCore(t, 9, committedBytesMax/2)
	c.advance()
	turns := 0
	for c.applies.released < 9 {
		if !c.awaitsPublished() {
			t.Fatalf("raft does not listen with %d of 9 entries applied and %d given out", c.applies.released,
				c.applies.given)
		}
		if turns++; turns > 9 {
			t.Fatal("the log is not given out")
		}
		c.handle(&published{proto.Index(c.applies.given)})
		c.advance()
	}
	if turns < 3 {
		t.Fatalf("the log was given out in %d turns: too small a log for this test", turns)
	}
	if c.campaign {
		t.Fatal("the log is applied and the member does not campaign")
	}
}

// leadingCore is a sole voter that leads, has applied all that is committed, and is idle but for one publication.
func leadingCore(t *testing.T) *core {
	t.Helper()
	c := replayingCore(t, 1, 1)
	c.advance()
	c.handle(&published{1})
	c.advance() // campaigns
	for i := 0; i < 5 && c.hard.GetCommit() < 2; i++ {
		c.handle(&persisted{upTo: c.appends.last})
		c.advance()
	}
	if !c.leads() || c.hard.GetCommit() != 2 {
		t.Fatalf("no leader: %+v", c.view.status)
	}
	return c
}

// proposeMany has the core take and commit proposals of that many bytes.
func proposeMany(c *core, count, bytes int) {
	for range count {
		id := c.cfg.nextID()
		c.handle(&propose{id: id, entry: &raftpb.Entry{Data: encodedPut(id, "k", bytes)}, answer: discard{}})
	}
	c.advance()
	c.handle(&persisted{upTo: c.appends.last})
	c.advance()
}

// Raft gives out no further entries while too many bytes of them are not applied. Who proposed them must not wait for
// the next tick.
func TestCore_HearsPublicationsWhileRaftHoldsEntriesBack(t *testing.T) {
	c := leadingCore(t)
	c.handle(&published{2})
	c.advance()
	proposeMany(c, 9, committedBytesMax/2)
	if c.applies.given >= c.hard.GetCommit() {
		t.Fatalf("raft has given out all %d entries: too little for this test", c.applies.given)
	}
	for range 9 {
		if c.applies.given < c.hard.GetCommit() && !c.awaitsPublished() {
			t.Fatalf("raft does not listen with %d of %d entries given out", c.applies.given, c.hard.GetCommit())
		}
		c.handle(&published{proto.Index(c.applies.given)})
		c.advance()
	}
	if c.applies.released != 11 || c.awaitsPublished() {
		t.Fatalf("applied %d, listens %v", c.applies.released, c.awaitsPublished())
	}
}

// Proposals are refused by the published status, before they come to raft. So raft must not let that status grow old
// while the gap that it shows is near the one at which proposals are refused.
func TestCore_HearsPublicationsWhileTheGapIsLarge(t *testing.T) {
	c := leadingCore(t)
	c.handle(&published{proto.Index(c.applies.given)})
	c.advance()
	if c.awaitsPublished() {
		t.Fatalf("an idle leader listens: %+v", c.view.status)
	}
	proposeMany(c, 2*applyGapMax/3, 0)
	if c.gap() <= applyGapMax/2 || len(c.applies.held) > 0 {
		t.Fatalf("the gap is %d, %d works are held", c.gap(), len(c.applies.held))
	}
	if !c.awaitsPublished() {
		t.Fatalf("raft does not listen with a gap of %d", c.gap())
	}
}

// Proposals of a member that is alone wait for the log, which brings a turn that takes them all. When the log owes no
// answer nothing would bring one but the next tick, and other members want entries at once, to write them meanwhile.
func TestCore_HearsProposalsUnlessTheLogWillWakeItAlone(t *testing.T) {
	c := leadingCore(t)
	if c.awaitsLog() {
		t.Fatalf("%d appends wait on an idle log", len(c.appends.waiting))
	}
	id := c.cfg.nextID()
	c.handle(&propose{id: id, entry: &raftpb.Entry{Data: encodedPut(id, "k", 1)}, answer: discard{}})
	c.advance()
	if !c.awaitsLog() {
		t.Fatal("the log is being written, and raft would be woken for each proposal")
	}
	for _, conf := range []*raftpb.ConfState{
		{Voters: []uint64{1, 2, 3}},
		{Voters: []uint64{1}, Learners: []uint64{2}},
		{Voters: []uint64{1}, VotersOutgoing: []uint64{1, 2}},
	} {
		alone := c.conf
		if c.conf = conf; c.awaitsLog() {
			t.Errorf("with %v proposals wait for this member's disk", conf)
		}
		c.conf = alone
	}
	for range c.cfg.electionTicks {
		c.handle(&tick{1})
		c.advance()
	}
	if !c.stalled() || c.awaitsLog() {
		t.Errorf("stalled %v: proposals wait for a disk that does not answer", c.stalled())
	}
	c.handle(&persisted{upTo: c.appends.last})
	c.advance()
	if c.awaitsLog() {
		t.Error("the log has answered, and raft would not be woken for the next proposal")
	}
}

type discard struct{}

func (discard) Send(*proto.Result) {}
func (discard) Fail(error)         {}
