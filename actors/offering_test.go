package actors_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"troupe/actors"
)

// taker takes turns while it waits, as a client does that has nothing to do until the actor has made something.
type taker struct {
	waits atomic.Bool
	turns chan func()
}

func newTaker() *taker { return &taker{turns: make(chan func(), 1)} }

func (k *taker) take(turn func()) bool {
	if !k.waits.CompareAndSwap(true, false) {
		return false
	}
	k.turns <- turn
	return true
}

// wake tells the actor notes until a turn is taken, and gives the id of the last. A turn that is not quite over handles
// the next note, too.
func (k *taker) wake(t *testing.T, ref actors.Ref[*note], handled <-chan int) (turn func(), id int) {
	for id = 2; ; id++ {
		k.waits.Store(true)
		tell(t, ref, actors.Normal, &note{id: id}, nil)
		select {
		case turn = <-k.turns:
			return turn, id
		case <-handled:
		}
	}
}

// reporting makes a behaviour that gives the id of the first note of each turn.
func reporting(handled chan<- int) func() actors.Behavior[*note] {
	return func() actors.Behavior[*note] {
		return &script{handle: func(_ actors.Self[*note], batch []*note) { handled <- batch[0].id }}
	}
}

// TestTakeTurn_ATurnRunsWhereItWasTaken: the message is handled in RunTurn, not before and not elsewhere. While nobody
// takes turns they run all the same.
func TestTakeTurn_ATurnRunsWhereItWasTaken(t *testing.T) {
	k, handled := newTaker(), make(chan int, 10)
	ref := mustSpawn(t, actors.NewSystem(actors.Config{Name: "t"}), actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(10)), OnPanic: actors.StopActor, TakeTurn: k.take,
		Behavior: reporting(handled),
	})
	tell(t, ref, actors.Normal, &note{id: 1}, nil)
	if id := <-handled; id != 1 {
		t.Fatalf("%d was handled first", id)
	}
	turn, id := k.wake(t, ref, handled)
	for range 100 {
		runtime.Gosched()
	}
	if len(handled) > 0 {
		t.Fatalf("%d was handled, though its turn was taken and not run", <-handled)
	}
	actors.RunTurn(turn)
	if len(handled) != 1 {
		t.Fatalf("RunTurn handled %d messages, want 1", len(handled))
	}
	if got := <-handled; got != id {
		t.Fatalf("RunTurn handled %d, want %d", got, id)
	}
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// TestTakeTurn_APanicStopsTheActorNotTheTaker: the taker goes on, the actor ends as its policy says.
func TestTakeTurn_APanicStopsTheActorNotTheTaker(t *testing.T) {
	k, handled, stopped := newTaker(), make(chan int, 10), make(chan error, 1)
	var explodes atomic.Bool
	ref := mustSpawn(t, actors.NewSystem(actors.Config{Name: "t"}), actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(10)), OnPanic: actors.StopActor, TakeTurn: k.take,
		Behavior: func() actors.Behavior[*note] {
			return &script{handle: func(_ actors.Self[*note], batch []*note) {
				if explodes.Load() {
					panic("boom")
				}
				handled <- batch[0].id
			}}
		},
		Stopped: func(err error) { stopped <- err },
	})
	turn, _ := k.wake(t, ref, handled)
	explodes.Store(true)
	actors.RunTurn(turn)
	if err := <-stopped; !errors.Is(err, actors.ErrPanicked) {
		t.Errorf("the actor ended with %v", err)
	}
}

// TestTakeTurn_APanicOfTheSystemIsNotTheTakersToRecover runs itself as another process.
func TestTakeTurn_APanicOfTheSystemIsNotTheTakersToRecover(t *testing.T) {
	const mark = "ACTORS_TEST_DIE_TAKEN"
	if os.Getenv(mark) != "" {
		k, handled := newTaker(), make(chan int, 10)
		ref := mustSpawn(t, actors.NewSystem(actors.Config{Name: "t", Log: zerolog.New(os.Stderr)}), actors.Spec[*note]{
			Policy: actors.Reject[*note](bound(1)), OnPanic: actors.StopActor, TakeTurn: k.take, Behavior: reporting(handled),
			Stopped: func(error) { panic("boom") }, // outside of Handle: no policy covers it
		})
		turn, _ := k.wake(t, ref, handled)
		ref.Retire()
		defer func() { _ = recover(); os.Exit(0) }()
		actors.RunTurn(turn)
		t.Fatal("nothing panicked")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), mark+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("the process ended with %v", err)
	}
	for _, want := range []string{"panic: boom", "created by troupe/actors.RunTurn"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}
