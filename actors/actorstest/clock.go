package actorstest

import (
	"container/heap"
	"sync"
	"time"
)

// ManualClock is a clock that stands still until it is told to advance.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	timers alarms
	made   uint64
}

// NewManualClock starts at 2000-01-01 00:00 UTC, so that runs do not depend on the day.
func NewManualClock() *ManualClock {
	return &ManualClock{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// Now is the time the clock stands at.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc arms a timer; it runs in an Advance.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{at: c.now.Add(max(d, 0)), order: c.made, f: f}
	c.made++
	heap.Push(&c.timers, a)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.place < 0 {
			return false
		}
		heap.Remove(&c.timers, a.place)
		return true
	}
}

// Advance moves the clock and runs what becomes due, in order of time and then of arming, each at its own time, on the
// caller's goroutine. Timers armed by those that run count too.
func (c *ManualClock) Advance(d time.Duration) {
	end := c.Now().Add(d)
	for {
		c.mu.Lock()
		if len(c.timers) == 0 || c.timers[0].at.After(end) {
			c.now = end
			c.mu.Unlock()
			return
		}
		a := heap.Pop(&c.timers).(*alarm)
		if a.at.After(c.now) {
			c.now = a.at
		}
		c.mu.Unlock()
		a.f()
	}
}

// Next gives the time of the earliest timer, and false when none is armed.
func (c *ManualClock) Next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) == 0 {
		return time.Time{}, false
	}
	return c.timers[0].at, true
}

// alarm is an armed timer; place is -1 when it is not armed any more.
type alarm struct {
	at    time.Time
	order uint64
	f     func()
	place int
}

// alarms is a heap by time and then order.
type alarms []*alarm

func (a alarms) Len() int { return len(a) }

func (a alarms) Less(i, j int) bool {
	if a[i].at.Equal(a[j].at) {
		return a[i].order < a[j].order
	}
	return a[i].at.Before(a[j].at)
}

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

func (a *alarms) Push(x any) {
	t := x.(*alarm)
	t.place = len(*a)
	*a = append(*a, t)
}

func (a *alarms) Pop() any {
	old := *a
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	t.place = -1
	return t
}
