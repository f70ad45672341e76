package actors

import (
	"context"
	"fmt"
)

// Ref is how one sends to an actor. It is a small value, safe for any goroutine; the zero Ref is an actor that has
// ended.
type Ref[M any] struct{ b *box[M] }

// Tell sends m and never waits. It returns ErrFull when the lane's policy refuses, and ErrStopped when the actor has
// ended or is ending; on error the sender still owns m and has to answer its request itself. On nil the message
// belongs to the actor and will be handled, or aborted if it is an Aborter. Messages of one sender in one lane keep
// their order.
func (r Ref[M]) Tell(lane Lane, m M) error {
	if r.b == nil {
		return ErrStopped
	}
	return r.b.tell(lane, m)
}

// Whisper is Tell for news that can wait: it does not wake an actor that has said, by Self.Listen, that it does not
// listen in that lane. The message then waits for whatever wakes the actor next (a message told, a tick, a timer), or
// until WhispersMax of them or WhisperBytesMax wait, or half of what the lane takes. Order within the lane, bounds and
// errors are Tell's. On a small machine most of what a message costs is the wake-up.
func (r Ref[M]) Whisper(lane Lane, m M) error {
	if r.b == nil {
		return ErrStopped
	}
	return r.b.send(lane, m, true)
}

// Offer sends m and waits for room where Tell would return ErrFull. It returns ErrStopped, or context.Cause(ctx) when
// ctx ends first. It must not be called in an actor's turn: two full actors that wait for each other never move
// again. Waiters are woken together, when the lane is half empty, and compete for the room.
func (r Ref[M]) Offer(ctx context.Context, lane Lane, m M) error {
	if r.b == nil {
		return ErrStopped
	}
	return r.b.offer(ctx, lane, m)
}

// Tick signals the actor. Signals that have not been taken yet are counted, not queued: a late actor gets one message,
// made by Spec.Tick from the count, ahead of the Control lane. It takes no room in the mailbox. After the end it does
// nothing; for an actor without Spec.Tick it panics.
func (r Ref[M]) Tick() {
	if r.b != nil {
		r.b.signal()
	}
}

// Stop lets the actor finish what was admitted, then ends it, and waits for that; late senders get ErrStopped. When ctx
// ends first, the rest of the mailbox is aborted, the actor ends after its present turn, and the error says so. Not for
// use in an actor's turn: see Retire. Under a seeded dispatcher it steps until the actor has ended.
func (r Ref[M]) Stop(ctx context.Context) error {
	if r.b == nil {
		return nil
	}
	return r.b.stop(ctx)
}

// Retire begins the stop and does not wait: what was admitted is still handled, late senders get ErrStopped. Actors may
// call it, on others and on themselves.
func (r Ref[M]) Retire() {
	if r.b != nil {
		r.b.retire()
	}
}

// Depth is the number of messages that wait in the lane.
func (r Ref[M]) Depth(lane Lane) int {
	if r.b == nil {
		return 0
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return int(r.b.at(lane).n)
}

// Valid is false for the zero Ref.
func (r Ref[M]) Valid() bool { return r.b != nil }

// Name is the actor's name, empty for the zero Ref.
func (r Ref[M]) Name() string {
	if r.b == nil {
		return ""
	}
	return r.b.name
}

// stop is Ref.Stop.
func (b *box[M]) stop(ctx context.Context) error {
	done := b.doneChannel()
	b.retire()
	if step := b.sys.step; step != nil {
		for !closed(done) && ctx.Err() == nil {
			Must(step(), "actor %s cannot end: the seeded dispatcher has nothing to run", b.name)
		}
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		b.PostSystemMessage(stopNow)
		return fmt.Errorf("stop %s: %w", b.name, context.Cause(ctx))
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
