package actors

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// OnPanic says what a panic in an actor's turn does.
type OnPanic uint8

const (
	// FailStop ends the process with the stack of the panic. It is for actors whose state others rely on: going on with
	// half-changed state is worse than a restart that reads the log.
	FailStop OnPanic = iota
	// StopActor ends the actor only; Spec.Stopped learns why.
	StopActor
	// RestartActor replaces the behaviour by a fresh one from the factory. What waited is aborted, because it was meant
	// for the state that is gone. After more than 3 panics in 10 s the actor stays down.
	RestartActor
)

// String names the reaction as the debug page shows it.
func (o OnPanic) String() string { return [...]string{"fail-stop", "stop", "restart"}[o] }

// goexit stands in for the reason when a turn was left by runtime.Goexit: a t.Fatal in a behaviour. The library would
// leave the actor wedged without a word.
const goexit = "runtime.Goexit in an actor's turn"

// afterRun is deferred by run; it does nothing after a normal return. A panic outside Handle is one of the runtime,
// of an Abort or of a Goexit in Start: no policy covers those.
func (b *box[M]) afterRun(whole *bool) {
	if *whole {
		return
	}
	reason := orGoexit(recover())
	if b.dies() || b.busySince == 0 {
		b.crash(reason)
	}
	_ = b.failed(reason, debug.Stack()) // Spec.Stopped gets it
	b.loseTurn()
	// The supervisor gets the mailbox in the place of the message: it decides by it, and no content can leak into a log.
	b.invoker.EscalateFailure(reason, b)
	b.dispatcher.Schedule(b.turn) // still awake
}

func orGoexit(reason any) any {
	if reason == nil {
		return goexit
	}
	return reason
}

// dies reports that a panic ends the process here, without a hook.
func (b *box[M]) dies() bool { return b.panics == FailStop && b.sys.fatal == nil }

// crash names the actor in the log and panics again. It runs on top of the stack of the first panic, which the runtime
// therefore prints, and nothing above a dispatcher recovers; of RunTurn's the log line has it.
func (b *box[M]) crash(reason any) {
	b.sys.log.WithLevel(zerolog.FatalLevel).Str("actor", b.name).Str("reason", fmt.Sprint(reason)).
		Bytes("stack", debug.Stack()).Msg("actor panicked; the process ends")
	panic(reason)
}

// failed reports a recovered panic: to the Fatal hook if the actor is fail-stop, else to the log.
func (b *box[M]) failed(reason any, stack []byte) error {
	err := fmt.Errorf("%w: %s: %v", ErrPanicked, b.name, reason)
	b.mu.Lock()
	b.more().err = err
	b.mu.Unlock()
	if b.panics == FailStop {
		b.sys.fatal(b.name, reason, stack)
	} else {
		b.sys.log.Error().Str("actor", b.name).Str("reason", fmt.Sprint(reason)).Bytes("stack", stack).
			Msg("actor panicked")
	}
	return err
}

// loseTurn aborts the messages of the turn that panicked, and everything that waits. It takes both out before it
// answers the first, so that whoever is answered and tries again finds the next behaviour's mailbox or none.
func (b *box[M]) loseTurn() {
	turn := slices.Clone(b.batch.items)
	waiting, timers := b.clear(b.panics != RestartActor)
	for _, m := range turn {
		abort(m, errTurnLost)
	}
	abandon(waiting, timers)
}

// startBehavior makes and starts a behaviour, and turns a panic into an error where the actor may survive one.
func (b *box[M]) startBehavior(factory func() Behavior[M]) (behavior Behavior[M], err error) {
	whole := false
	defer func() {
		if whole {
			return
		}
		reason := orGoexit(recover())
		if b.dies() {
			b.crash(reason)
		}
		err = b.failed(reason, debug.Stack())
	}()
	behavior = factory()
	err = behavior.Start(Self[M]{b, b.generation})
	whole = true
	return behavior, err
}

// stopBehavior stops the behaviour if there is one. A panic in Stop must not keep the actor from ending: the library
// would wait for ever.
func (b *box[M]) stopBehavior() {
	behavior := b.behavior
	if behavior == nil {
		return
	}
	b.mu.Lock()
	b.behavior = nil
	b.began = false
	b.mu.Unlock()
	whole := false
	defer func() {
		if whole {
			return
		}
		reason := orGoexit(recover())
		if b.dies() {
			b.crash(reason)
		}
		_ = b.failed(reason, debug.Stack())
	}()
	behavior.Stop()
	whole = true
}

// supervisor decides for all actors of a system. It is the library's guardian strategy; its own ones count restarts
// by the wall clock, which a simulated run cannot have.
type supervisor struct{ _ int } // not empty: the library uses its address as a key

// restartable is what the supervisor asks of a mailbox.
type restartable interface{ mayRestart() bool }

// HandleFailure is called in the turn that panicked.
func (*supervisor) HandleFailure(_ *actor.ActorSystem, by actor.Supervisor, child *actor.PID,
	_ *actor.RestartStatistics, _, box any,
) {
	if r, ok := box.(restartable); ok && r.mayRestart() {
		by.RestartChildren(child)
		return
	}
	by.StopChildren(child)
}

// mayRestart decides about a restart and counts it.
func (b *box[M]) mayRestart() bool {
	now := b.sys.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.panics != RestartActor {
		b.refused = true
		return false
	}
	x := b.more()
	if x.windowCount == 0 || now-x.windowStart > int64(restartWindow) {
		x.windowStart, x.windowCount = now, 0
	}
	if x.windowCount++; x.windowCount > restartsMax {
		b.refused = true
		return false
	}
	x.restarts++
	x.err = nil
	return true
}
