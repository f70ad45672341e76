package actors_test

import (
	"fmt"
	"sync"
	"testing"

	"troupe/actors"
)

// TestPolicies_RacedByManyProducers drives every policy from many goroutines past its bound. Whatever is admitted
// must be seen once and in the order of its sender and lane.
func TestPolicies_RacedByManyProducers(t *testing.T) {
	const producers, each = 8, 2000
	sys := actors.NewSystem(actors.Config{Name: "t"})
	all := policies(bound(32))
	for name, c := range all {
		for _, pinned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/pinned=%v", name, pinned), func(t *testing.T) {
				raceOne(t, sys, c.policy, pinned, producers, each)
			})
		}
	}
	t.Run("lanes", func(t *testing.T) {
		lanes := actors.Lanes(all["block"].policy, all["batch"].policy)
		raceOne(t, sys, lanes, false, producers, each)
	})
}

// seenBy checks order and counts; its behaviour is its only user until the actor has ended.
type seenBy struct {
	last                [64]int // by producer and lane
	seen, merged, lost  int
	disorder, duplicate int
}

func (s *seenBy) behavior() actors.Behavior[*note] {
	return &script{handle: func(_ actors.Self[*note], batch []*note) {
		for _, n := range batch {
			if n.id < 0 {
				s.lost += n.count
				continue
			}
			s.seen++
			s.merged += n.count
			if s.last[n.from] == n.id {
				s.duplicate++
			}
			if s.last[n.from] > n.id {
				s.disorder++
			}
			s.last[n.from] = n.id
		}
	}}
}

func raceOne(t *testing.T, sys *actors.System, policy actors.Policy[*note], pinned bool, producers, each int) {
	t.Helper()
	var seen seenBy
	ref := mustSpawn(t, sys, actors.Spec[*note]{Policy: policy, Pinned: pinned, Behavior: seen.behavior})
	ctx := soon(t)
	var wait sync.WaitGroup
	for p := range producers {
		wait.Go(func() {
			for i := 1; i <= each; i++ {
				lane := actors.Lane(i % 2)
				n := &note{from: p*2 + int(lane), id: i, size: 8, key: fmt.Sprint(p, lane)}
				if err := ref.Offer(ctx, lane, n); err != nil {
					t.Errorf("Offer: %v", err)
					return
				}
			}
		})
	}
	wait.Wait()
	stats := statsOf(t, sys, "actor")
	if err := ref.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for i := range stats.Lanes {
		dropped += int(stats.Lanes[i].Dropped)
	}
	if got := seen.seen + seen.merged + seen.lost + dropped; got != producers*each {
		t.Errorf("%d seen, %d merged, %d lost, %d dropped: together %d, want %d",
			seen.seen, seen.merged, seen.lost, dropped, got, producers*each)
	}
	if seen.disorder > 0 || seen.duplicate > 0 {
		t.Errorf("%d messages out of order, %d twice", seen.disorder, seen.duplicate)
	}
}

// TestTick_NoneIsLostAmongMany counts signals from many goroutines.
func TestTick_NoneIsLostAmongMany(t *testing.T) {
	const producers, each = 8, 5000
	sys := actors.NewSystem(actors.Config{Name: "t"})
	ticks := 0
	ref := mustSpawn(t, sys, actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(1)),
		Tick:   func(count int) *note { return &note{count: count} },
		Behavior: func() actors.Behavior[*note] {
			return &script{handle: func(_ actors.Self[*note], batch []*note) { ticks += batch[0].count }}
		},
	})
	var wait sync.WaitGroup
	for range producers {
		wait.Go(func() {
			for range each {
				ref.Tick()
			}
		})
	}
	wait.Wait()
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	if ticks != producers*each {
		t.Errorf("%d ticks arrived, want %d", ticks, producers*each)
	}
}
