package actors

import (
	"context"
	"errors"
)

// verdict is what became of an offered message.
type verdict uint8

const (
	admitted verdict = iota
	rejected
	discarded
	late
)

// tell is Ref.Tell.
func (b *box[M]) tell(at Lane, m M) error { return b.send(at, m, false) }

// send is Ref.Tell, and Ref.Whisper when quiet.
func (b *box[M]) send(at Lane, m M, quiet bool) error {
	size := sizeOf(&b.policy.traits, m)
	b.mu.Lock()
	v := late
	if !b.refused {
		v = b.admit(at, m, size, false)
	}
	if quiet = quiet && v == admitted && b.unheard(at); quiet {
		b.at(at).more().whispered++
	}
	b.unlock(quiet)
	switch v {
	case rejected:
		return ErrFull
	case late:
		return ErrStopped
	case discarded:
		abort(m, ErrDropped)
	}
	return nil
}

// admit applies the lane's policy. A forced message (a timer's) is admitted to a full lane too. The lock is held.
func (b *box[M]) admit(at Lane, m M, size int64, forced bool) verdict {
	l, rule := b.at(at), b.rule(at)
	switch rule.mode {
	case modeCoalesce:
		if b.coalesce(l, rule, m) {
			return admitted
		}
	case modeResync:
		if !forced && b.resync(l, rule, m, size) {
			return admitted
		}
	}
	if !forced && l.full(rule.bound, size) {
		if rule.mode == modeDrop {
			l.more().dropped++
			return discarded
		}
		l.more().rejected++
		return rejected
	}
	s := l.push(b.policy.pools, m, size)
	if l.index != nil {
		l.index.note(s)
	}
	l.sampleAdmit(b.sys.now)
	return admitted
}

// coalesce merges m into the waiting message with its key. The lock is held; a panic in the user's functions gives it
// back, so that a sender that survives its own panics cannot wedge the actor.
func (b *box[M]) coalesce(l *lane[M], rule *lanePolicy[M], m M) bool {
	whole := false
	defer b.unlockIfPanicked(&whole)
	if l.index == nil {
		l.index = rule.indexes.Get().(keyIndex[M])
	}
	s := l.index.find(m)
	if s != nil {
		s.m = rule.merge(s.m, m)
		if !l.index.holds(s) {
			Must(false, "merge changed the key of a waiting message of %s", b.name)
		}
		size := sizeOf(&b.policy.traits, s.m)
		l.bytes += size - s.size
		s.size = size
		l.more().coalesced++
	}
	whole = true
	return s != nil
}

// resync puts m into the marker if one waits or has to be made now. The lock is held.
func (b *box[M]) resync(l *lane[M], rule *lanePolicy[M], m M, size int64) bool {
	whole := false
	defer b.unlockIfPanicked(&whole)
	switch x := l.extra; {
	case x != nil && x.marker != nil:
		s := x.marker
		s.m = rule.more(s.m, m)
		grown := sizeOf(&b.policy.traits, s.m)
		l.bytes += grown - s.size
		s.size = grown
		x.resynced++
	case l.full(rule.bound, size):
		marker := rule.lost(m)
		l.more().marker = l.push(b.policy.pools, marker, sizeOf(&b.policy.traits, marker))
		l.extra.resynced++
	default:
		whole = true
		return false
	}
	whole = true
	return true
}

func (b *box[M]) unlockIfPanicked(whole *bool) {
	if !*whole {
		b.mu.Unlock()
	}
}

// offer is Ref.Offer.
func (b *box[M]) offer(ctx context.Context, at Lane, m M) error {
	for {
		err := b.tell(at, m)
		if !errors.Is(err, ErrFull) {
			return err
		}
		room := b.roomChannel(at, sizeOf(&b.policy.traits, m))
		if room == nil {
			continue // changed in between
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// roomChannel gives what to wait on, or nil when it is worth trying again at once.
func (b *box[M]) roomChannel(at Lane, size int64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.at(at)
	if b.refused || !l.full(b.rule(at).bound, size) {
		return nil
	}
	x := l.more()
	if x.room == nil {
		x.room = make(chan struct{})
	}
	return x.room
}

// signal is Ref.Tick.
func (b *box[M]) signal() {
	b.mu.Lock()
	able := b.extra != nil && b.extra.tick != nil
	if able && !b.refused {
		b.ticks++
	}
	b.unlockAndWake()
	if !able {
		Must(false, "actor %s has no Spec.Tick", b.name)
	}
}
