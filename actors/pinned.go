package actors

import (
	"context"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
)

// Dispatcher decides where and when turns run. The default starts a goroutine per wake-up, which costs nothing while an
// actor sleeps.
type Dispatcher interface {
	// Schedule arranges for turn to run once, later. It must not run it before it returns.
	Schedule(turn func())
	// Throughput is how many turns an actor may take before it is scheduled anew.
	Throughput() int
}

// Stepping is implemented by a Dispatcher that runs turns only when told to, on the goroutine that tells it.
type Stepping interface {
	Dispatcher
	// Step runs one scheduled turn and reports whether there was one.
	Step() bool
}

// goroutines is the default dispatcher.
type goroutines struct{}

func (goroutines) Schedule(turn func()) { go turn() }
func (goroutines) Throughput() int      { return turnsPerRun }

// pinned runs the turns of one actor on one long-lived goroutine: no goroutine start and no stack growth per wake-up.
//
// LockOSThread would not help an actor that fsyncs (the scheduler hands its processor over anyway) and makes wake-ups
// dearer.
type pinned struct {
	work    chan func()
	crowded *atomic.Bool // the system's, see Self.Crowded
	ended   bool         // owned by the goroutine
}

func newPinned(labels context.Context, crowded *atomic.Bool) *pinned {
	// One turn is outstanding at most, so a capacity of one never blocks the sender.
	p := &pinned{work: make(chan func(), 1), crowded: crowded}
	go p.loop(labels)
	return p
}

func (p *pinned) loop(labels context.Context) {
	defer func() {
		if !p.ended {
			go p.loop(labels) // a turn left by runtime.Goexit took the goroutine with it
		}
	}()
	if labels != nil {
		pprof.SetGoroutineLabels(labels)
	}
	for !p.ended {
		turn := <-p.work
		if p.crowded.Load() {
			// The scheduler runs a goroutine that was just woken ahead of all others that can run. Stepping back lets those
			// speak first that are about to speak to this actor: its turn finds a larger batch.
			runtime.Gosched()
		}
		turn()
	}
}

// Schedule hands the turn to the goroutine.
func (p *pinned) Schedule(turn func()) { p.work <- turn }

// Throughput is how many turns run before the loop is entered again.
func (p *pinned) Throughput() int { return turnsPerRun }

// close ends the goroutine after the present turn, which is the actor's last: nothing is scheduled after it.
func (p *pinned) close() { p.ended = true }
