package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Behavior is what an actor does. Its calls never overlap, and it owns whatever it holds.
type Behavior[M any] interface {
	// Start runs before the first message. An error (or a panic under StopActor and RestartActor) ends the actor: Spawn
	// returns it, Stop is not called.
	Start(self Self[M]) error
	// Handle gets one message, or several where the policy is Batch. The slice is valid for this turn only; the messages
	// belong to the behaviour. It must not wait for another actor.
	Handle(self Self[M], batch []M)
	// Stop runs once after the last message of a behaviour whose Start succeeded, also before a restart and after a panic,
	// so that it can give resources back. It may find half-changed state then.
	Stop()
}

// Self is what a behaviour knows about its own actor. It is a small value, valid as long as the behaviour lives.
type Self[M any] struct {
	b          *box[M]
	generation uint32
}

// Ref gives the actor's own Ref.
func (s Self[M]) Ref() Ref[M] { return Ref[M]{s.b} }

// Name gives the actor's name.
func (s Self[M]) Name() string { return s.b.name }

// Now reads the system's clock.
func (s Self[M]) Now() time.Time { return s.b.sys.clock.Now() }

// Retire makes the actor end after it has handled what was admitted.
func (s Self[M]) Retire() { s.b.retire() }

// Listen says whether whispers in a lane wake the actor from now on; at first, and after a restart, they do. It is for
// the actor's own turn. An actor that does not listen must make sure that something else will wake it: a tick, a timer,
// or a message it is waiting for.
func (s Self[M]) Listen(lane Lane, on bool) {
	s.b.mu.Lock()
	s.b.deaf[s.b.number(lane)] = !on
	s.b.mu.Unlock()
}

// Crowded says whether many senders are at work at the same time, as an actor at the head of a chain can tell from what
// it has not answered yet. While they are, the pinned actors of the system let others speak before their turns, which
// makes their batches larger; with one sender at a time that would only cost another wake-up.
func (s Self[M]) Crowded(on bool) {
	if c := &s.b.sys.crowded; c.Load() != on {
		c.Store(on)
	}
}

// starting carries a first start to the goroutine that waits in Spawn.
type starting[M any] struct {
	factory func() Behavior[M]
	ready   chan struct{} // closed after a successful Start, or at the end
	err     error
}

// Receive adapts the library's lifecycle to Behavior. It runs in the actor's turn.
func (b *box[M]) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *batch[M]:
		b.behavior.Handle(Self[M]{b, b.generation}, m.items)
	case *actor.Started:
		if !b.start() {
			ctx.Stop(ctx.Self())
		}
	case *actor.Restarting:
		b.stopBehavior()
	case *actor.Stopping:
		// Here and not at Stopped: until now the library keeps the name, so that a successor cannot start before this
		// behaviour has given its resources back.
		abandon(b.clear(true))
		b.stopBehavior()
	case *actor.Stopped:
		b.finish()
	}
}

// start makes a behaviour and starts it; false when it failed.
func (b *box[M]) start() bool {
	first := b.starting
	var factory func() Behavior[M]
	if first != nil {
		factory = first.factory
	} else {
		factory = b.extra.factory
	}
	behavior, err := b.startBehavior(factory)
	b.mu.Lock()
	if err != nil {
		b.more().err = err
		b.refused = true
		b.mu.Unlock()
		if first == nil {
			b.sys.log.Error().Str("actor", b.name).Err(err).Msg("actor could not be restarted")
		}
		return false
	}
	b.behavior = behavior
	b.began = true
	b.starting = nil
	b.mu.Unlock()
	if first != nil && first.ready != nil {
		close(first.ready)
	}
	return true
}

// clear takes out everything that waits and disarms the timers. With refuse nothing is admitted from then on.
func (b *box[M]) clear(refuse bool) (waiting []M, timers *timer[M]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = b.refused || refuse
	b.generation++ // what the old behaviour arms from now on has nowhere to go
	b.ticks = 0
	b.deaf = [2]bool{} // the next one has not said yet what will wake it
	timers = b.takeTimers()
	waiting = b.empty(Control, nil)
	if b.normal != nil {
		waiting = b.empty(Normal, waiting)
	}
	return waiting, timers
}

// abandon answers what clear took out.
func abandon[M any](waiting []M, timers *timer[M]) {
	for _, m := range waiting {
		abort(m, ErrStopped)
	}
	for t := timers; t != nil; t = t.next {
		t.cancel()
		abort(t.m, ErrStopped)
	}
}

// empty takes everything out of a lane. The lock is held.
func (b *box[M]) empty(at Lane, into []M) []M {
	l, rule := b.at(at), b.rule(at)
	if l.n > 0 {
		l.more().aborted += uint64(l.n)
	}
	for l.n > 0 {
		into = append(into, l.pop(rule, b.policy.pools))
	}
	if l.extra != nil {
		l.extra.sampleOf = 0
		if l.extra.room != nil {
			close(l.extra.room)
			l.extra.room = nil
		}
	}
	return into
}

// finish is the actor's last act: late messages have been refused since abandon, nothing waits, nothing runs after it.
func (b *box[M]) finish() {
	b.mu.Lock()
	b.ended = true
	b.behavior = nil
	first := b.starting
	b.starting = nil
	var err error
	var stopped func(error)
	if b.extra != nil {
		err, stopped = b.extra.err, b.extra.stopped
	}
	b.mu.Unlock()
	b.sys.forget(b)
	if stopped != nil {
		stopped(err)
	}
	if first != nil && first.ready != nil {
		if first.err = err; err == nil {
			first.err = ErrStopped // stopped before it had started
		}
		close(first.ready)
	}
	b.mu.Lock()
	b.gone = true
	if b.extra != nil && b.extra.done != nil {
		close(b.extra.done)
	}
	b.mu.Unlock()
	if p, ok := b.dispatcher.(*pinned); ok {
		p.close()
	}
}

// doneChannel is closed when the actor has ended.
func (b *box[M]) doneChannel() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.more()
	if x.done == nil {
		x.done = make(chan struct{})
		if b.gone {
			close(x.done)
		}
	}
	return x.done
}

// retire is Ref.Retire.
func (b *box[M]) retire() {
	b.mu.Lock()
	b.refused, b.retiring = true, true
	b.wakeWaiters()
	b.unlockAndWake()
}

// wakeWaiters lets senders that wait for room find out that there will be none. The lock is held.
func (b *box[M]) wakeWaiters() {
	for _, l := range [...]*lane[M]{&b.only, b.normal} {
		if l != nil && l.extra != nil && l.extra.room != nil {
			close(l.extra.room)
			l.extra.room = nil
		}
	}
}
