package storeactor

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

var (
	careSeed = flag.Uint64("care.seed", 0, "run this seed of the caretaker's test only")
	careRuns = flag.Int("care.runs", 60, "number of seeds of the caretaker's test")
)

// TestCaretaker_CompactsInTimeAndNeverTooMuch runs random writes, elections, lost and refused proposals and sleeping
// machines in virtual time. Nothing that is to be kept is compacted, only the leader compacts, one at a time, and while
// one member leads and proposals succeed the history does not grow beyond what is to be kept by much.
func TestCaretaker_CompactsInTimeAndNeverTooMuch(t *testing.T) {
	first, last := uint64(1), uint64(*careRuns)
	if *careSeed != 0 {
		first, last = *careSeed, *careSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newCareWorld(t, seed).run() })
	}
}

// careWorld is a caretaker between a store and a log that are made up.
type careWorld struct {
	t        *testing.T
	seed     uint64
	random   *rand.Rand
	steps    *actorstest.Stepper
	clock    *actorstest.ManualClock
	client   *Client
	keep     Retention
	interval time.Duration // of the notes
	state    State
	term     proto.Term
	began    time.Time
	// history is which revision was current when; calmSince is when this member began to lead without a refusal.
	history     []careMoment
	calmSince   time.Time
	answer      actors.Reply[*proto.Result]
	asked       proto.Revision
	compactions int
}

type careMoment struct {
	at       time.Time
	revision proto.Revision
}

func newCareWorld(t *testing.T, seed uint64) *careWorld {
	w := &careWorld{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 5)), steps: actorstest.NewStepper(seed),
		clock: actorstest.NewManualClock(), client: &Client{out: &published{}}, term: 1}
	periods := []time.Duration{10 * time.Second, 30 * time.Minute, 3 * time.Hour}
	w.keep.Period = periods[w.random.IntN(len(periods))]
	if w.random.IntN(3) == 0 {
		w.keep = Retention{Revisions: 1 + w.random.Int64N(500)}
	}
	w.interval = newAutoCompactor(w.keep, 1).interval
	w.state.Compacted, w.began = -1, w.clock.Now()
	w.calmSince = w.began
	w.write(1)
	_, err := w.client.SpawnCaretaker(actors.NewSystem(actors.Config{Name: "care", Clock: w.clock, Dispatcher: w.steps}),
		CareConfig{Retention: w.keep, Proposer: w, QuotaBytes: -1, LeaderTerm: func() proto.Term { return w.term }})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *careWorld) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d (go test ./storeactor -run CompactsInTime -care.seed=%d), %v, keeps %+v: %s", w.seed, w.seed,
		w.clock.Now().Sub(w.began), w.keep, fmt.Sprintf(format, args...))
}

func (w *careWorld) write(revisions int64) {
	w.state.Revision += proto.Revision(revisions)
	published := w.state
	w.client.out.state.Store(&published)
	w.history = append(w.history, careMoment{w.clock.Now(), w.state.Revision})
}

// currentAt gives the revision that was current at a time.
func (w *careWorld) currentAt(at time.Time) proto.Revision {
	revision := proto.Revision(0)
	for _, m := range w.history {
		if m.at.After(at) {
			break
		}
		revision = m.revision
	}
	return revision
}

func (w *careWorld) run() {
	for range 400 {
		switch n := w.random.IntN(100); {
		case n < 60:
			w.write(w.random.Int64N(20))
		case n < 62 && w.term != 0:
			w.term = 0
		case n < 64 && w.term == 0:
			w.term, w.calmSince = proto.Term(w.random.Int64N(100)+1), w.clock.Now()
		case n < 66:
			w.sleep()
		case n < 90:
			w.settle()
		}
		for range 1 + w.random.IntN(10) {
			w.clock.Advance(w.interval / 10)
			w.steps.Run(100)
		}
		w.inspect()
	}
	if w.compactions == 0 {
		w.failf("nothing was ever compacted")
	}
}

// sleep is a machine that stood still.
func (w *careWorld) sleep() {
	w.clock.Advance(time.Duration(w.random.Int64N(int64(5 * w.interval))))
	w.calmSince = w.clock.Now()
}

// settle answers a proposal.
func (w *careWorld) settle() {
	if w.asked == 0 {
		return
	}
	upTo := w.asked
	w.asked = 0
	switch n := w.random.IntN(10); {
	case n < 7:
		w.state.Compacted = max(w.state.Compacted, upTo)
		w.compactions++
		w.answer.Send(&proto.Result{})
	case n < 8:
		w.state.Compacted = max(w.state.Compacted, upTo) // somebody else was faster
		w.answer.Fail(ErrCompacted)
	default:
		w.calmSince = w.clock.Now()
		w.answer.Fail(errors.New("refused"))
	}
	w.write(0)
}

// ProposeInTerm is part of Proposer.
func (w *careWorld) ProposeInTerm(term proto.Term, r *pb.InternalRaftRequest,
	answer actors.Reply[*proto.Result]) error {
	upTo := proto.Revision(r.Compaction.Revision)
	switch {
	case term == 0 || term != w.term:
		w.failf("a compaction is proposed in term %d, the member leads in %d", term, w.term)
	case w.asked != 0:
		w.failf("a compaction is proposed while one is under way")
	case w.keep.Revisions > 0 && upTo > w.state.Revision-proto.Revision(w.keep.Revisions):
		w.failf("%d is to be compacted at revision %d", upTo, w.state.Revision)
	case w.keep.Period > 0 && upTo > w.currentAt(w.clock.Now().Add(-w.keep.Period)):
		w.failf("%d is to be compacted, but was current less than the period ago", upTo)
	}
	if w.random.IntN(10) == 0 {
		w.calmSince = w.clock.Now()
		return errors.New("too many requests")
	}
	w.asked, w.answer = upTo, answer
	return nil
}

// ProposeTo is part of Proposer.
func (w *careWorld) ProposeTo(*pb.InternalRaftRequest, actors.Reply[*proto.Result]) error {
	w.failf("there is no alarm")
	return nil
}

// inspect checks that the history is not longer than it may be, once this member could do something about it.
func (w *careWorld) inspect() {
	now := w.clock.Now()
	if w.term == 0 || w.asked != 0 {
		w.calmSince = now // an answer that does not come keeps it from going on
		return
	}
	every := revisionCompactionInterval
	if w.keep.Period > 0 {
		every = min(w.keep.Period, periodicCompactionIntervalMax)
	}
	patience := every + 3*w.interval
	if now.Sub(w.calmSince) <= patience || now.Sub(w.began) <= w.keep.Period+patience {
		return
	}
	due := w.currentAt(now.Add(-patience))
	if due -= proto.Revision(w.keep.Revisions); w.keep.Period > 0 {
		due = w.currentAt(now.Add(-w.keep.Period - patience))
	}
	if w.state.Compacted < due {
		w.failf("compacted is %d, at least %d is due", w.state.Compacted, due)
	}
}

// TestAutoCompactor_NotesAreBounded however long the period is, and the oldest go first.
func TestAutoCompactor_NotesAreBounded(t *testing.T) {
	a := newAutoCompactor(Retention{Period: 200 * 365 * 24 * time.Hour}, 1)
	for i := range notesMax + 10 {
		a.look(time.Duration(i+1)*a.interval, proto.Revision(i+2), true)
	}
	if len(a.notes) != notesMax+1 || a.notes[0] != 11 {
		t.Errorf("%d notes, the oldest is %d", len(a.notes), a.notes[0])
	}
}

// TestCaretaker_MailboxIsBounded: what does not fit is rejected at once.
func TestCaretaker_MailboxIsBounded(t *testing.T) {
	steps := actorstest.NewStepper(1)
	client := &Client{out: &published{}}
	client.out.state.Store(&State{Revision: 1})
	sys := actors.NewSystem(actors.Config{Name: "care", Clock: actorstest.NewManualClock(), Dispatcher: steps})
	c, err := client.SpawnCaretaker(sys, CareConfig{QuotaBytes: -1, LeaderTerm: func() proto.Term { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	steps.Run(100)
	for i := range caretakerMessagesMax {
		if err := c.ref.Tell(actors.Control, quotaTried{}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := c.ref.Tell(actors.Control, quotaTried{}); !errors.Is(err, actors.ErrFull) {
		t.Errorf("a message too many: %v", err)
	}
}
