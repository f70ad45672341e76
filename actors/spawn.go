package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// Spec describes an actor.
type Spec[M any] struct {
	// Name is the actor's path, unique among the living: "raft", "raft/wal", "watch/stream/17".
	Name string
	// Kind is the metrics label: the path without ids. Empty: Name. The number of kinds must be small.
	Kind string
	// Policy says what senders experience; made by Reject, Block, Drop, Coalesce, Resync, Batch or Lanes. Share one value
	// among the actors of a kind.
	Policy Policy[M]
	// Behavior makes the behaviour, a fresh one per start. It runs in the actor's first turn.
	Behavior func() Behavior[M]
	// OnPanic says what a panic does; the zero value ends the process.
	OnPanic OnPanic
	// Pinned gives the actor a goroutine of its own: for few, busy actors. Ignored with a Dispatcher in Config.
	Pinned bool
	// TakeTurn is offered each wake-up of the actor. It may take the turn, not run it: a goroutine of the client, one
	// that waits for what the actor makes, then runs it with RunTurn, soon and exactly once. A turn that is never run
	// leaves the actor stuck, and whoever waits for its start or end with it; one that is run twice breaks it. TakeTurn
	// is called from any goroutine and must not wait. After false, and without it, the turn gets a goroutine of its own.
	// It is for actors with StopActor, not for pinned ones, and ignored with a Dispatcher in Config.
	TakeTurn func(turn func()) (taken bool)
	// Tick makes the message that stands for count calls of Ref.Tick. It runs under the mailbox lock and only makes the
	// message. nil: Ref.Tick is not used.
	Tick func(count int) M
	// Stopped is called once after the actor ended: nil after a plain stop, else the panic or the error of Start. It runs
	// in the actor's last turn and must only Tell; the name is free already.
	Stopped func(err error)
}

// Spawn starts an actor and waits for its Start, whose error it returns; then the actor is gone and its name is free.
// Messages can be told from the moment Spawn returns. Under a Stepping dispatcher Spawn returns at once, messages
// wait for the start, and only Stopped learns of a failed one.
func Spawn[M any](sys *System, spec Spec[M]) (Ref[M], error) {
	if err := check(sys, &spec); err != nil {
		return Ref[M]{}, err
	}
	if spec.Kind == "" {
		spec.Kind = spec.Name
	}
	b := newBox(sys, &spec)
	d := sys.dispatcher
	var own *pinned
	if spec.Pinned && sys.labelled {
		own = newPinned(b.kind.labels, &sys.crowded)
		b.pinned = true
		d = own
	}
	if spec.TakeTurn != nil && sys.labelled {
		d = offering{spec.TakeTurn}
	}
	first := b.starting
	if err := sys.launch(spec.Name, b, d, d != sys.dispatcher || spec.OnPanic == RestartActor); err != nil {
		if own != nil {
			own.Schedule(own.close)
		}
		if errors.Is(err, actor.ErrNameExists) {
			err = ErrNameTaken
		}
		return Ref[M]{}, fmt.Errorf("spawn %s: %w", spec.Name, err)
	}
	sys.remember(b)
	b.mu.Lock()
	b.open = true
	b.unlockAndWake()
	if first.ready == nil {
		return Ref[M]{b}, nil
	}
	<-first.ready
	if first.err != nil {
		return Ref[M]{}, fmt.Errorf("start %s: %w", spec.Name, first.err)
	}
	return Ref[M]{b}, nil
}

func check[M any](sys *System, spec *Spec[M]) error {
	switch {
	case sys == nil:
		return fmt.Errorf("%w: no system", ErrSpecInvalid)
	case spec.Name == "":
		return fmt.Errorf("%w: no name", ErrSpecInvalid)
	case spec.Behavior == nil:
		return fmt.Errorf("%w: %s has no behaviour", ErrSpecInvalid, spec.Name)
	case spec.TakeTurn != nil && (spec.Pinned || spec.OnPanic != StopActor):
		return fmt.Errorf("%w: turns of %s can be taken: it must stop at panics, unpinned", ErrSpecInvalid, spec.Name)
	case spec.OnPanic > RestartActor:
		return fmt.Errorf("%w: %s has an unknown OnPanic", ErrSpecInvalid, spec.Name)
	}
	if err := spec.Policy.check(); err != nil {
		return fmt.Errorf("spawn %s: %w", spec.Name, err)
	}
	return nil
}

func newBox[M any](sys *System, spec *Spec[M]) *box[M] {
	b := &box[M]{
		sys:      sys,
		kind:     sys.kindOf(spec.Kind),
		policy:   spec.Policy.p,
		name:     spec.Name,
		starting: &starting[M]{factory: spec.Behavior},
		panics:   spec.OnPanic,
	}
	b.turn = b.run
	if sys.step == nil {
		b.starting.ready = make(chan struct{})
	}
	if b.policy.two {
		b.normal = new(lane[M])
	}
	if spec.Tick != nil || spec.Stopped != nil || spec.OnPanic == RestartActor {
		b.extra = &boxExtra[M]{tick: spec.Tick, stopped: spec.Stopped}
		if spec.OnPanic == RestartActor {
			b.extra.factory = spec.Behavior
		}
	}
	return b
}
