package actors

import (
	"sync"
	"time"
)

// Clock is where time comes from. A simulated run passes its own.
type Clock interface {
	// Now is the present time.
	Now() time.Time
	// AfterFunc calls f once when d has passed, on any goroutine but never before AfterFunc has returned and never while
	// it holds a lock of its own. stop reports whether it kept f from running.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// wallClock is the real time.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// timer is one armed Self.After. The mailbox lock guards it.
type timer[M any] struct {
	b          *box[M]
	m          M
	cancel     func() bool
	prev, next *timer[M]
	armed      bool
}

// After tells m to the actor itself on the Control lane when d has passed. The message is admitted to a full lane
// too: an actor bounds what it arms itself. It goes through Coalesce. A restart or the end of the actor disarms the
// timer (an Aborter is aborted with ErrStopped). stop disarms it and leaves m to the caller; a message that waits
// already still arrives, so a message that may be outdated carries a generation.
func (s Self[M]) After(d time.Duration, m M) (stop func()) {
	b := s.b
	t := &timer[M]{b: b, m: m}
	b.mu.Lock()
	if b.generation != s.generation {
		b.mu.Unlock()
		abort(m, ErrStopped)
		return func() {}
	}
	x := b.more()
	t.armed = true
	if t.next = x.timers; t.next != nil {
		t.next.prev = t
	}
	x.timers = t
	t.cancel = b.sys.clock.AfterFunc(d, t.fire)
	b.mu.Unlock()
	return t.disarm
}

// fire runs when the time has come.
func (t *timer[M]) fire() {
	b := t.b
	size := sizeOf(&b.policy.traits, t.m)
	b.mu.Lock()
	if t.unlink() {
		b.admit(Control, t.m, size, true)
	}
	b.unlockAndWake()
}

func (t *timer[M]) disarm() {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.unlink() {
		t.cancel()
	}
}

// unlink takes the timer off its actor's list; false if it was not on it any more. The lock is held.
func (t *timer[M]) unlink() bool {
	if !t.armed {
		return false
	}
	t.armed = false
	if t.prev == nil {
		t.b.extra.timers = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	return true
}

// takeTimers disarms all timers and gives them as a list. The lock is held.
func (b *box[M]) takeTimers() *timer[M] {
	if b.extra == nil {
		return nil
	}
	first := b.extra.timers
	b.extra.timers = nil
	for t := first; t != nil; t = t.next {
		t.armed = false
	}
	return first
}

// Every calls tick each time d has passed, until stop. tick must not wait; Ref.Tick is the usual argument. Calls that
// would have been due while the process did not run are left out: Ref.Tick counts what an actor was late for, and
// what the whole process was late for is nobody's business.
func (s *System) Every(d time.Duration, tick func()) (stop func()) {
	Must(d > 0, "Every needs a positive interval, got %v", d)
	e := &every{clock: s.clock, interval: d, tick: tick, due: s.clock.Now()}
	e.mu.Lock()
	e.arm()
	e.mu.Unlock()
	return e.stop
}

// every is one System.Every.
type every struct {
	mu       sync.Mutex
	clock    Clock
	interval time.Duration
	tick     func()
	due      time.Time
	cancel   func() bool
	stopped  bool
}

// arm plans the next call at a multiple of the interval, so that lateness does not add up. The lock is held.
func (e *every) arm() {
	now := e.clock.Now()
	if e.due = e.due.Add(e.interval); e.due.Before(now) {
		e.due = now.Add(e.interval)
	}
	e.cancel = e.clock.AfterFunc(e.due.Sub(now), e.fire)
}

func (e *every) fire() {
	e.mu.Lock()
	if e.stopped {
		e.mu.Unlock()
		return
	}
	e.arm()
	e.mu.Unlock()
	e.tick()
}

func (e *every) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	e.cancel()
}
