package leaseactor

// tick counts the ticks since the actor began.
type tick int64

// moment is the time since the actor began, in nanoseconds, as the shell last read it. Leases end by ticks; moments are
// for how long raft takes.
type moment int64

const momentsPerSecond moment = 1e9

const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelMask   = wheelSlots - 1
	wheelLevels = 7 // 64^7 ticks of 100 ms are 13,000 years; the longest lease has 285
)

// wheel is a hierarchical timer wheel. Arming, disarming and firing cost a constant, however many timers there are; a
// heap would pay the logarithm of a million for each renewal, and a scan of all leases, as simple as it is, would pay
// for every lease on every tick. Timers further away than a level reaches wait in a coarser one and move down when it
// turns.
type wheel struct {
	now   tick
	slots [wheelLevels][wheelSlots]timer // list heads
}

// timer is one entry, embedded where it belongs; a zero timer is not armed.
type timer struct {
	at         tick
	lease      *lease
	prev, next *timer
}

func (t *timer) armed() bool { return t.next != nil }

func (t *timer) disarm() {
	if t.next != nil {
		t.prev.next, t.next.prev = t.next, t.prev
		t.prev, t.next = nil, nil
	}
}

// arm sets the timer to a tick; one that is not in the future fires with the next tick.
func (w *wheel) arm(t *timer, at tick) {
	t.disarm()
	t.at = max(at, w.now+1)
	w.place(t)
}

func (w *wheel) place(t *timer) {
	level := 0
	for level < wheelLevels-1 && (t.at-w.now)>>(wheelBits*(level+1)) != 0 {
		level++
	}
	head := &w.slots[level][(t.at>>(wheelBits*level))&wheelMask]
	if head.next == nil {
		head.next, head.prev = head, head
	}
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
}

// advance moves on to a tick and calls fire for each timer on its way, in order of time and then of arming. fire may
// arm and disarm any timer.
func (w *wheel) advance(to tick, fire func(*lease, *timer)) {
	for w.now < to {
		w.now++
		for level := 1; level < wheelLevels && w.now&(1<<(wheelBits*level)-1) == 0; level++ {
			w.drain(&w.slots[level][(w.now>>(wheelBits*level))&wheelMask], w.place)
		}
		w.drain(&w.slots[0][w.now&wheelMask], func(t *timer) { fire(t.lease, t) })
	}
}

// drain takes out what is in a slot now and gives it to f, first come, first served.
func (w *wheel) drain(head *timer, f func(*timer)) {
	if head.next == nil || head.next == head {
		return
	}
	var list timer
	list.next, list.prev = head.next, head.prev
	list.next.prev, list.prev.next = &list, &list
	head.next, head.prev = head, head
	for list.next != &list {
		t := list.next
		t.disarm()
		f(t)
	}
}
