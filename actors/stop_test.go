package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"troupe/actors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stopPolicies are the policies whose messages can all carry requests.
func stopPolicies(b actors.Bound) map[string]actors.Policy[*note] {
	return map[string]actors.Policy[*note]{
		"reject": actors.Reject[*note](b),
		"block":  actors.Block[*note](b),
		"drop":   actors.Drop[*note](b),
		"batch":  actors.Batch[*note](b, bound(7)),
		"lanes":  actors.Lanes(actors.Reject[*note](b), actors.Batch[*note](b, bound(7))),
	}
}

// ending is a way in which an actor may come to its end under load.
type ending string

const (
	plainStop  ending = "stop"
	hurried    ending = "hurried stop"
	panics     ending = "panic"
	restarts   ending = "restart"
	selfRetire ending = "retire"
)

// troubled makes a behaviour that answers some notes at once, hands some replies on to another place, and does what the
// ending says at note number trouble.
func troubled(how ending, trouble int, handedOn *[]*note) func() actors.Behavior[*note] {
	return func() actors.Behavior[*note] {
		seen := 0
		return &script{handle: func(self actors.Self[*note], batch []*note) {
			for _, n := range batch {
				if seen++; seen == trouble {
					switch how {
					case panics, restarts:
						panic("trouble")
					case selfRetire:
						self.Retire()
					}
				}
				if n.id%5 == 0 {
					*handedOn = append(*handedOn, n) // answered later, by whoever has it
					continue
				}
				n.reply.Send(n.id)
			}
		}}
	}
}

// TestStop_EveryRequestIsAnsweredOnce_Seeded interleaves senders and an end by seed.
func TestStop_EveryRequestIsAnsweredOnce_Seeded(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 5
	}
	for _, how := range []ending{plainStop, hurried, panics, restarts, selfRetire} {
		for name, policy := range stopPolicies(bound(20)) {
			t.Run(string(how)+"/"+name, func(t *testing.T) {
				s := newStage(t, 0)
				for seed := range seeds {
					stopOnce(t, s, seed, how, policy)
				}
			})
		}
	}
}

func stopOnce(t *testing.T, s *stage, seed uint64, how ending, policy actors.Policy[*note]) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	var handedOn []*note
	onPanic := actors.StopActor
	if how == restarts {
		onPanic = actors.RestartActor
	}
	ends := 0
	ref := mustSpawn(t, s.sys, actors.Spec[*note]{
		Name: fmt.Sprintf("%s/%d", t.Name(), seed), Policy: policy, OnPanic: onPanic,
		Behavior: troubled(how, random.IntN(100)+1, &handedOn),
		Stopped:  func(error) { ends++ },
	})
	var sent, refused []*note
	for i := range 200 {
		n := asked(0, i)
		if err := ref.Tell(actors.Lane(random.IntN(2)), n); err != nil {
			refused = append(refused, n)
		} else {
			sent = append(sent, n)
		}
		for range random.IntN(4) {
			s.steps.Step()
		}
		if i == 100 {
			switch how {
			case plainStop:
				ref.Retire()
			case hurried:
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				if err := ref.Stop(ended); !errors.Is(err, context.Canceled) {
					t.Fatalf("a stop without time gave %v", err)
				}
			}
		}
	}
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	s.run()
	for _, n := range handedOn {
		n.reply.Send(n.id) // ignored for those that the lost turn has aborted
	}
	for _, n := range sent {
		if got := n.answers.Load(); got != 1 {
			t.Fatalf("seed %d: request %d was answered %d times", seed, n.id, got)
		}
		if err := n.failed(); err != nil && !errors.Is(err, actors.ErrStopped) && !errors.Is(err, actors.ErrDropped) {
			t.Fatalf("seed %d: request %d failed with %v", seed, n.id, err)
		}
	}
	for _, n := range refused {
		if n.answers.Load() != 0 {
			t.Fatalf("seed %d: request %d was refused and answered", seed, n.id)
		}
	}
	if ends != 1 {
		t.Fatalf("seed %d: the end was told %d times", seed, ends)
	}
	if err := ref.Tell(actors.Normal, asked(0, 0)); !errors.Is(err, actors.ErrStopped) {
		t.Fatalf("seed %d: a late Tell gave %v", seed, err)
	}
}

// TestStop_UnderLoad does the same with real goroutines.
func TestStop_UnderLoad(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 4
	}
	sys := actors.NewSystem(actors.Config{Name: "t"})
	for name, policy := range stopPolicies(bound(16)) {
		for _, pinned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/pinned=%v", name, pinned), func(t *testing.T) {
				for round := range rounds {
					stopUnderLoad(t, sys, policy, pinned, round)
				}
			})
		}
	}
	if left := sys.Snapshot(); len(left) != 0 {
		t.Errorf("%d actors are left", len(left))
	}
}

func stopUnderLoad(t *testing.T, sys *actors.System, policy actors.Policy[*note], pinned bool, round int) {
	t.Helper()
	ref := mustSpawn(t, sys, actors.Spec[*note]{
		Name: fmt.Sprintf("load/%d", round), Kind: "load", Policy: policy, Pinned: pinned,
	})
	var senders sync.WaitGroup
	var begun atomic.Int64
	all := make([][]*note, 4)
	for from := range all {
		senders.Go(func() {
			for i := 0; ; i++ {
				n := asked(from, i)
				err := ref.Tell(actors.Lane(i%2), n)
				if err == nil {
					all[from] = append(all[from], n)
					begun.Add(1)
				}
				switch {
				case errors.Is(err, actors.ErrStopped):
					return
				case err != nil:
					runtime.Gosched() // full: let the actor work
				}
			}
		})
	}
	for begun.Load() < int64(50+round) {
		runtime.Gosched()
	}
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	senders.Wait()
	for _, sent := range all {
		for _, n := range sent {
			if got := n.answers.Load(); got != 1 {
				t.Fatalf("round %d: request %d of %d was answered %d times", round, n.id, n.from, got)
			}
		}
	}
}

func TestStop_FinishesWhatWasAdmitted(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(10)), Behavior: r.behavior})
	for i := range 3 {
		tell(t, ref, actors.Normal, asked(0, i), nil)
	}
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	r.want(t, "0|1|2")
	if err := ref.Stop(soon(t)); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	again := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(10))})
	if again.Name() != ref.Name() {
		t.Error("the name is not free")
	}
}

func TestStop_GivesUpWithItsContext(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	held, release := make(chan struct{}), make(chan struct{})
	ref := mustSpawn(t, sys, actors.Spec[*note]{Policy: actors.Reject[*note](bound(10))})
	blocker := asked(0, 1)
	blocker.do = func(actors.Self[*note]) {
		close(held)
		<-release
	}
	tell(t, ref, actors.Normal, blocker, nil)
	<-held
	waiting := asked(0, 2)
	tell(t, ref, actors.Normal, waiting, nil)
	cause := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := ref.Stop(ctx); !errors.Is(err, cause) {
		t.Fatalf("Stop gave %v", err)
	}
	close(release)
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	if blocker.failed() != nil || !errors.Is(waiting.failed(), actors.ErrStopped) {
		t.Errorf("the running request got %v, the waiting one %v", blocker.failed(), waiting.failed())
	}
}

func TestStop_OfTheZeroRef(t *testing.T) {
	var ref actors.Ref[*note]
	ref.Tick()
	ref.Retire()
	tell(t, ref, actors.Normal, &note{}, actors.ErrStopped)
	if err := ref.Offer(soon(t), actors.Normal, &note{}); !errors.Is(err, actors.ErrStopped) {
		t.Errorf("Offer gave %v", err)
	}
	if ref.Stop(soon(t)) != nil || ref.Depth(actors.Normal) != 0 || ref.Valid() || ref.Name() != "" {
		t.Error("the zero Ref is not a stopped actor")
	}
}

// TestOffer_WaitsForRoom fills a lane, in messages and in bytes, and frees it.
func TestOffer_WaitsForRoom(t *testing.T) {
	for name, b := range map[string]actors.Bound{
		"messages": bound(4), "bytes": {Messages: 1000, Bytes: 40},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, 1)
			ref := s.spawn(actors.Spec[*note]{Policy: actors.Block[*note](b)})
			for i := range 4 {
				tell(t, ref, actors.Normal, asked(0, i), nil)
			}
			const waiters = 10
			results := make(chan error, waiters)
			for i := range waiters {
				go func() { results <- ref.Offer(soon(t), actors.Normal, asked(1, i)) }()
			}
			for statsOf(t, s.sys, "actor").Lanes[0].Rejected < waiters {
				runtime.Gosched() // until every waiter has found the lane full
			}
			for done := 0; done < waiters; {
				s.steps.Step()
				select {
				case err := <-results:
					if err != nil {
						t.Fatal(err)
					}
					done++
				default:
					runtime.Gosched()
				}
			}
		})
	}
}

func TestOffer_EndsWithItsContextOrItsActor(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Block[*note](bound(1))})
	tell(t, ref, actors.Normal, asked(0, 0), nil)
	cause := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := ref.Offer(ctx, actors.Normal, asked(0, 1)); !errors.Is(err, cause) {
		t.Errorf("Offer gave %v, want its context's cause", err)
	}
	result := make(chan error)
	go func() { result <- ref.Offer(soon(t), actors.Normal, asked(0, 2)) }()
	for statsOf(t, s.sys, "actor").Lanes[0].Rejected < 2 {
		runtime.Gosched()
	}
	ref.Retire()
	if err := <-result; !errors.Is(err, actors.ErrStopped) {
		t.Errorf("Offer gave %v, want ErrStopped", err)
	}
}

// TestSpawn_NameTakenLeavesNoGoroutine: TestMain looks for goroutines that are left.
func TestSpawn_NameTakenLeavesNoGoroutine(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	spec := actors.Spec[*note]{
		Name: "a", Pinned: true, Policy: actors.Reject[*note](bound(1)),
		Behavior: func() actors.Behavior[*note] { return &script{} },
	}
	ref := mustSpawn(t, sys, spec)
	if _, err := actors.Spawn(sys, spec); !errors.Is(err, actors.ErrNameTaken) {
		t.Errorf("Spawn gave %v", err)
	}
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
}
