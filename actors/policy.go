package actors

import (
	"fmt"
	"sync"
)

// Bound limits a lane, or what one turn takes from it, in messages and in bytes. Both must be positive. An empty lane
// admits one message of any size, because a message larger than the bound could otherwise never be sent; a lane
// therefore holds at most Bytes plus one message.
type Bound struct {
	Messages int
	Bytes    int64
}

// mode is what a full lane does.
type mode uint8

const (
	modeReject mode = iota
	modeBlock
	modeDrop
	modeCoalesce
	modeResync
	modeBatch
)

func (m mode) String() string {
	return [...]string{"reject", "block", "drop", "coalesce", "resync", "batch"}[m]
}

// lanePolicy is the policy of one lane.
type lanePolicy[M any] struct {
	mode    mode
	bound   Bound
	turn    Bound // Batch only
	merge   func(waiting, fresh M) M
	indexes *sync.Pool // of keyIndex[M]; Coalesce only
	lost    func(first M) M
	more    func(marker, m M) M
}

// policy is everything that all actors with the same Policy value share.
type policy[M any] struct {
	lanes   [2]lanePolicy[M]
	two     bool
	invalid string
	traits  traits
	pools   *pools[M]
}

// Policy says what the sender experiences when a mailbox is full. Make it once and share it among the actors of a kind:
// a Policy is a pointer, and each constructor call allocates.
type Policy[M any] struct{ p *policy[M] }

func single[M any](l lanePolicy[M]) Policy[M] {
	p := &policy[M]{traits: traitsOf[M](), pools: poolsOf[M]()}
	p.lanes[0] = l
	return Policy[M]{p}
}

// Reject refuses what does not fit: Tell returns ErrFull at once.
func Reject[M any](b Bound) Policy[M] {
	return single(lanePolicy[M]{mode: modeReject, bound: b})
}

// Block makes the sender wait: Offer waits for room, Tell returns ErrFull. Only goroutines that are not actors may
// Offer.
func Block[M any](b Bound) Policy[M] {
	return single(lanePolicy[M]{mode: modeBlock, bound: b})
}

// Drop discards what does not fit and counts it; Tell returns nil. A discarded Aborter is aborted with ErrDropped.
func Drop[M any](b Bound) Policy[M] {
	return single(lanePolicy[M]{mode: modeDrop, bound: b})
}

// Coalesce merges a message whose key already waits into the waiting one, which keeps its place; a message with a new
// key or with none (false) that does not fit is rejected. Merging is possible at the bound too.
//
// merge owns both messages and returns the one that waits on; it must keep the key, must not grow without a bound of
// its own, and if both carry replies must keep both. key and merge run in the sender's goroutine under the mailbox
// lock: they compute and nothing else.
func Coalesce[M any, K comparable](b Bound, key func(M) (K, bool), merge func(waiting, fresh M) M) Policy[M] {
	l := lanePolicy[M]{mode: modeCoalesce, bound: b, merge: merge}
	if key != nil {
		l.indexes = &sync.Pool{New: func() any { return keyIndex[M](newKeyMap(key)) }}
	}
	p := single(l)
	if key == nil || merge == nil {
		p.p.invalid = "coalesce needs key and merge"
	}
	return p
}

// Resync replaces what does not fit by one marker at the tail, made by lost from the first message that did not fit.
// Until the actor has taken the marker every later message goes into it by more, even when there is room again: the
// receiver has to re-read from the marker on anyway, and so order is kept and one marker is enough. Tell returns nil.
//
// lost and more own the messages they are given (one that carries a reply has no place in such a lane). They run in the
// sender's goroutine under the mailbox lock: they compute and nothing else.
func Resync[M any](b Bound, lost func(first M) M, more func(marker, m M) M) Policy[M] {
	p := single(lanePolicy[M]{mode: modeResync, bound: b, lost: lost, more: more})
	if lost == nil || more == nil {
		p.p.invalid = "resync needs lost and more"
	}
	return p
}

// Batch is Reject for the sender; a turn takes all that waits, up to turn and at least one message.
func Batch[M any](b, turn Bound) Policy[M] {
	return single(lanePolicy[M]{mode: modeBatch, bound: b, turn: turn})
}

// Lanes gives an actor two lanes, each with its own policy. Control is taken before Normal, for at most 64 turns in a
// row while Normal waits. A turn takes from one lane, except when both are Batch: then it takes control messages up to
// control's turn bound, followed by normal messages up to normal's, in one slice.
func Lanes[M any](control, normal Policy[M]) Policy[M] {
	p := &policy[M]{traits: traitsOf[M](), pools: poolsOf[M](), two: true}
	for i, half := range [...]Policy[M]{control, normal} {
		switch {
		case half.p == nil:
			p.invalid = "lanes need two policies"
		case half.p.two:
			p.invalid = "lanes cannot be nested"
		default:
			p.lanes[i] = half.p.lanes[0]
			if half.p.invalid != "" {
				p.invalid = half.p.invalid
			}
		}
	}
	return Policy[M]{p}
}

// check reports why a policy cannot be used, or nil.
func (p Policy[M]) check() error {
	if p.p == nil {
		return fmt.Errorf("%w: no policy", ErrSpecInvalid)
	}
	if p.p.invalid != "" {
		return fmt.Errorf("%w: %s", ErrSpecInvalid, p.p.invalid)
	}
	count := 1
	if p.p.two {
		count = 2
	}
	for i := range count {
		l := &p.p.lanes[i]
		if l.bound.Messages <= 0 || l.bound.Bytes <= 0 {
			return fmt.Errorf("%w: %s lane needs a positive bound in messages and in bytes, has %+v",
				ErrSpecInvalid, l.mode, l.bound)
		}
		if l.mode == modeBatch && (l.turn.Messages <= 0 || l.turn.Bytes <= 0) {
			return fmt.Errorf("%w: batch lane needs a positive turn bound, has %+v", ErrSpecInvalid, l.turn)
		}
	}
	return nil
}
