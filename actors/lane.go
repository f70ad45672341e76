package actors

import (
	"reflect"
	"sync"
)

// slot is one waiting message and what it counted for when it was admitted.
type slot[M any] struct {
	m    M
	size int64
}

// segment is one piece of queue storage.
type segment[M any] struct {
	slots [segmentMessages]slot[M]
	next  *segment[M]
}

// pools lends queue storage and turn slices to all mailboxes of one message type. A mailbox holds storage only while
// something waits: keeping it would cost each of a million idle actors a kilobyte, and allocating it anew would cost an
// allocation per wake-up.
type pools[M any] struct {
	segments sync.Pool // of *segment[M]
	batches  sync.Pool // of *batch[M]
}

// batch is what one turn hands to Handle. It is lent to a mailbox while its actor is awake.
type batch[M any] struct{ items []M }

// poolsByType is keyed by the message type; Go has no generic package variables.
var poolsByType sync.Map

func poolsOf[M any]() *pools[M] {
	t := reflect.TypeFor[M]()
	if p, ok := poolsByType.Load(t); ok {
		return p.(*pools[M])
	}
	p, _ := poolsByType.LoadOrStore(t, &pools[M]{
		segments: sync.Pool{New: func() any { return new(segment[M]) }},
		batches:  sync.Pool{New: func() any { return &batch[M]{items: make([]M, 0, 1)} }},
	})
	return p.(*pools[M])
}

// lane is one bounded queue. All of it is guarded by the mailbox lock.
//
// It is a list of fixed segments rather than a ring that grows: messages never move while they wait, so that coalescing
// and the resync marker can point at them, growth copies nothing, and an empty lane owns no storage.
type lane[M any] struct {
	head, tail  *segment[M]
	first, free uint32 // next slot to take in head, next slot to fill in tail
	n           int32
	highWater   int32
	bytes       int64
	admitted    uint64 // messages that got a slot of their own
	index       keyIndex[M]
	extra       *laneExtra[M]
}

// laneExtra is what most lanes never need.
type laneExtra[M any] struct {
	rejected, dropped, coalesced, resynced, whispered, aborted uint64

	marker    *slot[M]      // the resync marker while it waits
	room      chan struct{} // made when someone waits in Offer, closed when the lane is half empty
	wait      histogram
	sampleOf  uint64 // ordinal of the message whose waiting is measured; 0: none
	sampledAt int64
}

func (l *lane[M]) more() *laneExtra[M] {
	if l.extra == nil {
		l.extra = new(laneExtra[M])
	}
	return l.extra
}

// full reports whether a message of that size has no room.
func (l *lane[M]) full(b Bound, size int64) bool {
	return int(l.n) >= b.Messages || l.n > 0 && l.bytes+size > b.Bytes
}

// push gives m a slot at the tail.
func (l *lane[M]) push(p *pools[M], m M, size int64) *slot[M] {
	if l.tail == nil || l.free == segmentMessages {
		s := p.segments.Get().(*segment[M])
		if l.tail == nil {
			l.head, l.first = s, 0
		} else {
			l.tail.next = s
		}
		l.tail, l.free = s, 0
	}
	s := &l.tail.slots[l.free]
	s.m, s.size = m, size
	l.free++
	l.n++
	l.bytes += size
	l.admitted++
	l.highWater = max(l.highWater, l.n)
	return s
}

// peekSize is the size of the next message; the lane must not be empty.
func (l *lane[M]) peekSize() int64 { return l.head.slots[l.first].size }

// pop takes the next message; the lane must not be empty. It gives storage back as soon as it is drained.
func (l *lane[M]) pop(lp *lanePolicy[M], p *pools[M]) M {
	s := &l.head.slots[l.first]
	if l.index != nil {
		l.index.forget(s)
	}
	if l.extra != nil && l.extra.marker == s {
		l.extra.marker = nil
	}
	m := s.m
	l.bytes -= s.size
	*s = slot[M]{}
	l.first++
	l.n--
	switch {
	case l.n == 0:
		p.segments.Put(l.head)
		l.head, l.tail, l.first, l.free = nil, nil, 0, 0
		l.dropIndex(lp)
	case l.first == segmentMessages:
		drained := l.head
		l.head, l.first = drained.next, 0
		drained.next = nil
		p.segments.Put(drained)
	}
	return m
}

// dropIndex gives the index of an empty lane back.
func (l *lane[M]) dropIndex(lp *lanePolicy[M]) {
	if l.index != nil && l.index.reusable() {
		lp.indexes.Put(l.index)
	}
	l.index = nil
}

// wakeRoom lets the senders that wait in Offer try again, once there is room for many.
func (l *lane[M]) wakeRoom(b Bound) {
	if l.extra == nil || l.extra.room == nil {
		return
	}
	if int(l.n) <= b.Messages/2 && l.bytes <= b.Bytes/2 {
		close(l.extra.room)
		l.extra.room = nil
	}
}

// sampleAdmit notes the time of every 64th admitted message, unless one is being measured already.
func (l *lane[M]) sampleAdmit(now func() int64) {
	if l.admitted%waitSampleEvery != 0 {
		return
	}
	if x := l.more(); x.sampleOf == 0 {
		x.sampleOf, x.sampledAt = l.admitted, now()
	}
}

// sampleTake records the waiting time once the measured message has been taken.
func (l *lane[M]) sampleTake(now int64) {
	if l.extra == nil || l.extra.sampleOf == 0 || l.admitted-uint64(l.n) < l.extra.sampleOf {
		return
	}
	l.extra.wait.add(now - l.extra.sampledAt)
	l.extra.sampleOf = 0
}
