package actors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"troupe/actors"
)

// gossip runs four actors that tell each other, with timers and ticks, and gives the order of all turns.
func gossip(t *testing.T, seed uint64) string {
	s := newStage(t, seed)
	var trace strings.Builder
	refs := make([]actors.Ref[*note], 4)
	for i := range refs {
		refs[i] = mustSpawn(t, s.sys, actors.Spec[*note]{
			Name: fmt.Sprint(i), Pinned: i == 0, // ignored here
			Policy: actors.Lanes(actors.Drop[*note](bound(3)), actors.Batch[*note](bound(5), bound(2))),
			Tick:   func(count int) *note { return &note{count: count} },
			Behavior: func() actors.Behavior[*note] {
				return &script{handle: func(self actors.Self[*note], batch []*note) {
					for _, n := range batch {
						fmt.Fprintf(&trace, "%s:%d.%d ", self.Name(), n.id, n.count)
						if n.id > 0 {
							_ = refs[(i+n.id)%4].Tell(actors.Normal, &note{id: n.id - 1})
							_ = refs[(i+1)%4].Tell(actors.Control, &note{id: n.id / 2})
							self.After(time.Duration(n.id)*time.Millisecond, &note{id: 0})
						}
					}
				}}
			},
		})
		_ = refs[i].Tell(actors.Normal, &note{id: 10 + i})
		s.sys.Every(time.Duration(i+1)*10*time.Millisecond, refs[i].Tick)
	}
	for range 20 {
		s.run()
		s.clock.Advance(5 * time.Millisecond)
	}
	return trace.String()
}

func TestStepper_SameSeedSameInterleaving(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(10) {
		trace := gossip(t, seed)
		if again := gossip(t, seed); again != trace {
			t.Fatalf("seed %d gave two interleavings:\n%s\n%s", seed, trace, again)
		}
		if len(trace) < 200 {
			t.Fatalf("the run is too short to prove anything: %q", trace)
		}
		seen[trace] = seed
	}
	if len(seen) < 9 {
		t.Errorf("ten seeds gave only %d interleavings", len(seen))
	}
}

func TestStepper_OneTurnPerStep(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	ref := mustSpawn(t, s.sys, actors.Spec[*note]{Policy: actors.Reject[*note](bound(5)), Behavior: r.behavior})
	for i := range 3 {
		tell(t, ref, actors.Normal, &note{id: i}, nil) // told before the start
	}
	r.want(t, "")
	s.steps.Step() // Start
	r.want(t, "")
	for i := range 3 {
		s.steps.Step()
		r.want(t, fmt.Sprint(i))
	}
	s.run()
	if s.steps.Step() {
		t.Error("an idle system has something to run")
	}
}

func TestStepper_AnActorThatWaitsIsFound(t *testing.T) {
	s := newStage(t, 1)
	policy := actors.Reject[*note](bound(5))
	other := s.spawn(actors.Spec[*note]{Name: "other", Policy: policy})
	ref := s.spawn(actors.Spec[*note]{Name: "waiter", Policy: policy})
	tell(t, ref, actors.Normal, &note{do: func(actors.Self[*note]) { _ = other.Stop(soon(t)) }}, nil)
	s.run()
	if len(s.fatal) != 1 || !strings.Contains(s.fatal[0], "an actor waits for an actor") {
		t.Errorf("the Fatal hook got %q", s.fatal)
	}
}
