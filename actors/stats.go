package actors

import (
	"reflect"
	"time"
)

// Stats is a picture of one actor.
type Stats struct {
	Name, Kind string
	// Pinned and OnPanic are as in the Spec.
	Pinned  bool
	OnPanic OnPanic
	// Lanes has one element, or two with Lanes: Control first.
	Lanes []LaneStats
	// Handled counts messages given to Handle, Turns its calls, Restarts the fresh behaviours after a panic.
	Handled, Turns, Restarts uint64
	// Ticks is the number of signals not taken yet.
	Ticks int
	// Work holds the durations of turns; those of the first 32 are left out, to keep idle actors small.
	Work Histogram
	// BusySince is when the present turn began; zero between turns. BusyWith is the type of its first message.
	BusySince time.Time
	BusyWith  string
	// Retiring says that the actor is being stopped.
	Retiring bool
}

// LaneStats is a picture of one lane.
type LaneStats struct {
	// Lane is Normal for the only lane of an actor.
	Lane   Lane
	Policy string
	Bound  Bound
	// Depth and Bytes are what waits; HighWater is the greatest depth since the start.
	Depth     int
	Bytes     int64
	HighWater int
	// Admitted counts messages that got a place of their own (a resync marker too), Rejected those refused with ErrFull
	// (each try of an Offer counts), Dropped those a Drop lane discarded, Coalesced those merged into a waiting one,
	// Resynced those that went into a marker, Whispered those admitted that woke nobody, Aborted those admitted and then
	// abandoned.
	Admitted, Rejected, Dropped, Coalesced, Resynced, Whispered, Aborted uint64
	// Wait holds the time from admission to the turn, of every 64th message.
	Wait Histogram
}

// Depth sums the lanes.
func (s *Stats) Depth() int {
	n := 0
	for i := range s.Lanes {
		n += s.Lanes[i].Depth
	}
	return n
}

// Fill is the greatest share of a bound that is taken in any lane; 1 is a full lane.
func (s *Stats) Fill() float64 {
	f := 0.0
	for i := range s.Lanes {
		f = max(f, s.Lanes[i].Fill())
	}
	return f
}

// Condition says how urgently an operator should look at the actor.
func (s *Stats) Condition(now time.Time) Condition {
	busy := time.Duration(0)
	if !s.BusySince.IsZero() {
		busy = now.Sub(s.BusySince)
	}
	return conditionOf(s.Fill(), busy)
}

// Fill is the share of the lane's bound that is taken, in messages or in bytes, whichever is more.
func (l *LaneStats) Fill() float64 { return fillOf(l.Depth, l.Bytes, l.Bound) }

func fillOf(messages int, bytes int64, b Bound) float64 {
	if b.Messages <= 0 || b.Bytes <= 0 {
		return 0
	}
	return max(float64(messages)/float64(b.Messages), float64(bytes)/float64(b.Bytes))
}

// stats takes the picture. Whoever works with the mailbox waits for the copying only: storage is made before, text
// after.
func (b *box[M]) stats() Stats {
	s := Stats{Name: b.name, Kind: b.kind.name, Pinned: b.pinned, OnPanic: b.panics, Lanes: make([]LaneStats, 1, 2)}
	s.Lanes[0].Lane = Normal
	if b.normal != nil {
		s.Lanes = s.Lanes[:2]
		s.Lanes[0].Lane, s.Lanes[1].Lane = Control, Normal
	}
	for i := range s.Lanes {
		rule := &b.policy.lanes[i]
		s.Lanes[i].Policy, s.Lanes[i].Bound = rule.mode.String(), rule.bound
	}
	busySince, busyWith := b.copyStats(&s)
	if busySince != 0 {
		s.BusySince = b.sys.base.Add(time.Duration(busySince))
		s.BusyWith = b.typeName(busyWith)
	}
	return s
}

// copyStats takes what the lock guards.
func (b *box[M]) copyStats(s *Stats) (busySince int64, busyWith reflect.Type) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Retiring, s.Handled, s.Turns, s.Ticks = b.retiring, b.handled, b.turns, int(b.ticks)
	if b.work != nil {
		s.Work.merge(b.work)
	}
	if b.extra != nil {
		s.Restarts = b.extra.restarts
	}
	b.only.stats(&s.Lanes[0])
	if b.normal != nil {
		b.normal.stats(&s.Lanes[1])
	}
	return b.busySince, reflect.TypeOf(b.busyWith)
}

// typeName names the message type of a turn; nil is a message of the actor's own type.
func (b *box[M]) typeName(t reflect.Type) string {
	if t == nil {
		return b.policy.traits.name
	}
	return t.String()
}

func (b *box[M]) place() *int32 { return &b.slot }

func (b *box[M]) family() *kind { return b.kind }

// stats takes the picture of a lane. The mailbox lock is held.
func (l *lane[M]) stats(s *LaneStats) {
	s.Depth, s.Bytes, s.HighWater, s.Admitted = int(l.n), l.bytes, int(l.highWater), l.admitted
	if x := l.extra; x != nil {
		s.Rejected, s.Dropped, s.Aborted = x.rejected, x.dropped, x.aborted
		s.Coalesced, s.Resynced, s.Whispered = x.coalesced, x.resynced, x.whispered
		s.Wait.merge(&x.wait)
	}
}
