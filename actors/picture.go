package actors

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Condition says how urgently an operator should look at an actor. Greater is more urgent.
type Condition uint8

const (
	// Calm is the normal state.
	Calm Condition = iota
	// Strained has a lane that is half full, or a turn that takes long.
	Strained
	// Stuck has been in one turn for longer than any turn should take.
	Stuck
	// Full has a lane at its bound: senders experience its policy. It may be stuck too.
	Full
)

// String names the condition as the debug page shows it.
func (c Condition) String() string { return [...]string{"calm", "strained", "stuck", "full"}[c] }

func conditionOf(fill float64, busy time.Duration) Condition {
	switch {
	case fill >= 1:
		return Full
	case busy >= stuckAfter:
		return Stuck
	case fill >= strainedFill || busy >= strainedAfter:
		return Strained
	default:
		return Calm
	}
}

// Picture is the whole troupe at one moment, as far as somebody can look at it: every kind with its sums, and of each
// kind the few actors that matter most. Its size does not depend on how many actors there are.
type Picture struct {
	// At is when it was taken, by the system's clock; Took is how long that took by the real one.
	At   time.Time
	Took time.Duration
	// Kinds are sorted by name. A kind stays when its last actor has ended.
	Kinds []KindStats
	// Actors begin with the one that needs a look most; those without need are sorted by name.
	Actors []Stats
}

// KindStats is the sum over the actors of one kind. Counters include those that have ended.
type KindStats struct {
	Kind string
	// Pinned and OnPanic are those of an actor of the kind.
	Pinned  bool
	OnPanic OnPanic
	// Living is how many there are; Busy how many of them take a turn now, Full how many have a lane at its bound.
	Living, Busy, Full int
	// Worst is the greatest condition among them.
	Worst Condition
	// Lanes has one element, or two: Control first. None if no actor of the kind has ever been counted.
	Lanes []LaneSums
	// Handled, Turns, Restarts and Work are as in Stats.
	Handled, Turns, Restarts uint64
	Work                     Histogram
	// BusySince and BusyWith are those of the oldest turn that is running; zero when there is none.
	BusySince time.Time
	BusyWith  string
}

// LaneSums adds up lanes of one kind; HighWater and Bound are the greatest of one mailbox.
type LaneSums struct {
	LaneStats
	// DepthMax, BytesMax and FillMax are what waits in the fullest mailbox, each for itself.
	DepthMax int
	BytesMax int64
	FillMax  float64
}

// lane finds the sums of a lane, making them on first use.
func (k *KindStats) lane(as Lane) *LaneSums {
	for i := range k.Lanes {
		if k.Lanes[i].Lane == as {
			return &k.Lanes[i]
		}
	}
	k.Lanes = append(k.Lanes, LaneSums{LaneStats: LaneStats{Lane: as}})
	slices.SortFunc(k.Lanes, func(a, b LaneSums) int { return cmp.Compare(a.Lane, b.Lane) })
	return k.lane(as)
}

// rule notes the policy of one more mailbox.
func (l *LaneSums) rule(policy string, b Bound) {
	l.Policy = policy
	l.Bound = Bound{Messages: max(l.Bound.Messages, b.Messages), Bytes: max(l.Bound.Bytes, b.Bytes)}
}

// retain adds what stays of an actor that has ended: its counters.
func (k *KindStats) retain(s *Stats) {
	k.Pinned, k.OnPanic = s.Pinned, s.OnPanic
	k.Handled += s.Handled
	k.Turns += s.Turns
	k.Restarts += s.Restarts
	k.Work.add(&s.Work)
	for i := range s.Lanes {
		l := &s.Lanes[i]
		sum := k.lane(l.Lane)
		sum.rule(l.Policy, l.Bound)
		sum.HighWater = max(sum.HighWater, l.HighWater)
		sum.Admitted += l.Admitted
		sum.Rejected += l.Rejected
		sum.Dropped += l.Dropped
		sum.Coalesced += l.Coalesced
		sum.Resynced += l.Resynced
		sum.Whispered += l.Whispered
		sum.Aborted += l.Aborted
		sum.Wait.add(&l.Wait)
	}
}

// urgency orders the actors of a kind by how much an operator wants to see them.
type urgency struct {
	condition Condition
	busy      int64 // nanoseconds of the present turn
	fill      float64
	depth     int
	handled   uint64
}

// compare puts the most urgent first.
func (u urgency) compare(o urgency) int {
	return cmp.Or(cmp.Compare(o.condition, u.condition), cmp.Compare(o.busy, u.busy), cmp.Compare(o.fill, u.fill),
		cmp.Compare(o.depth, u.depth), cmp.Compare(o.handled, u.handled))
}

// tally adds the actor to the sums of its kind. It allocates nothing and copies only what an idle actor does not have:
// there may be a million of them.
func (b *box[M]) tally(k *KindStats, now int64) urgency {
	k.Living++
	k.Pinned, k.OnPanic = b.pinned, b.panics
	var u urgency
	var busySince int64
	var busyWith reflect.Type
	b.mu.Lock()
	u.handled = b.handled
	k.Handled += b.handled
	k.Turns += b.turns
	if b.work != nil {
		k.Work.merge(b.work)
	}
	if b.extra != nil {
		k.Restarts += b.extra.restarts
	}
	if b.normal == nil {
		u.fill, u.depth = b.only.tally(k.lane(Normal), &b.policy.lanes[0])
	} else {
		u.fill, u.depth = b.only.tally(k.lane(Control), &b.policy.lanes[0])
		fill, depth := b.normal.tally(k.lane(Normal), &b.policy.lanes[1])
		u.fill, u.depth = max(u.fill, fill), u.depth+depth
	}
	if busySince = b.busySince; busySince != 0 {
		busyWith = reflect.TypeOf(b.busyWith)
	}
	b.mu.Unlock()
	if busySince != 0 {
		k.Busy++
		u.busy = max(now-busySince, 0)
		if since := b.sys.base.Add(time.Duration(busySince)); k.BusySince.IsZero() || since.Before(k.BusySince) {
			k.BusySince, k.BusyWith = since, b.typeName(busyWith)
		}
	}
	u.condition = conditionOf(u.fill, time.Duration(u.busy))
	if u.fill >= 1 {
		k.Full++
	}
	k.Worst = max(k.Worst, u.condition)
	return u
}

// tally adds the lane to the sums. The mailbox lock is held.
func (l *lane[M]) tally(sum *LaneSums, rule *lanePolicy[M]) (fill float64, depth int) {
	depth = int(l.n)
	if depth > 0 {
		fill = fillOf(depth, l.bytes, rule.bound)
	}
	if sum.Bound != rule.bound || sum.Policy == "" {
		sum.rule(rule.mode.String(), rule.bound)
	}
	sum.Depth += depth
	sum.Bytes += l.bytes
	sum.DepthMax, sum.BytesMax = max(sum.DepthMax, depth), max(sum.BytesMax, l.bytes)
	sum.FillMax = max(sum.FillMax, fill)
	sum.HighWater = max(sum.HighWater, int(l.highWater))
	sum.Admitted += l.admitted
	if x := l.extra; x != nil {
		sum.Rejected += x.rejected
		sum.Dropped += x.dropped
		sum.Coalesced += x.coalesced
		sum.Resynced += x.resynced
		sum.Whispered += x.whispered
		sum.Aborted += x.aborted
		sum.Wait.merge(&x.wait)
	}
	return fill, depth
}

// group is one kind while a picture is taken: its sums, and its most urgent actors so far, the most urgent first.
type group struct {
	sums KindStats
	top  []urgentMember
}

type urgentMember struct {
	member  member
	urgency urgency
}

// offer keeps an actor if it is among the most urgent.
func (g *group) offer(m member, u urgency, most int) {
	if len(g.top) == most && (most == 0 || u.compare(g.top[most-1].urgency) >= 0) {
		return
	}
	at, _ := slices.BinarySearchFunc(g.top, u, func(e urgentMember, u urgency) int {
		return cmp.Or(e.urgency.compare(u), -1) // behind its equals
	})
	g.top = slices.Insert(g.top, at, urgentMember{m, u})
	g.top = g.top[:min(len(g.top), most)]
}

// Picture looks at every actor once and takes the sums of each kind and the most urgent actors of each, at most
// perKind. Each mailbox is locked for a moment, one after the other; nothing waits for the whole. With 100,000 idle
// actors, most of them not in the processor's caches, it takes about 200 ns for each (BenchmarkPicture): whoever shows
// pictures to many shares them.
func (s *System) Picture(perKind int) *Picture {
	began := time.Now()
	members, groups := s.cut()
	p := &Picture{At: s.clock.Now()}
	now := s.now()
	var of *kind
	var g *group
	for _, m := range members {
		if k := m.family(); k != of {
			of, g = k, groups[k]
		}
		g.offer(m, m.tally(&g.sums, now), perKind)
	}
	for _, g := range groups {
		p.Kinds = append(p.Kinds, g.sums)
		for _, t := range g.top {
			p.Actors = append(p.Actors, t.member.stats())
		}
	}
	slices.SortFunc(p.Kinds, func(a, b KindStats) int { return cmp.Compare(a.Kind, b.Kind) })
	p.sortActors()
	p.Took = time.Since(began)
	return p
}

// sortActors puts those in need first. Calm ones keep their places from picture to picture.
func (p *Picture) sortActors() {
	slices.SortFunc(p.Actors, func(a, b Stats) int {
		worse := cmp.Compare(b.Condition(p.At), a.Condition(p.At))
		if worse != 0 || a.Condition(p.At) == Calm {
			return cmp.Or(worse, cmp.Compare(a.Name, b.Name))
		}
		return cmp.Or(busyOrder(a.BusySince, b.BusySince), cmp.Compare(b.Fill(), a.Fill()), cmp.Compare(a.Name, b.Name))
	})
}

// busyOrder puts the older turn first, and any turn before none.
func busyOrder(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	default:
		return a.Compare(b)
	}
}
