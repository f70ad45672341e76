package raftactor

import (
	"fmt"
	"slices"
	"time"

	"troupe/proto"
)

// The crash simulation on a disk that fills up and is freed. Here the test plays raft's part of the contract too: it
// hands over only what fits into the room that it was told of. Then nothing that it hands over may be lost, and the
// actor must not end, whatever the disk has no room for.

// crashSpace is the state of that.
type crashSpace struct {
	room logRoom
	// used is what was handed over since the room was told.
	used int64
	// orders wait for the helper, spares and retries for the actor's next turn.
	orders  []spareOrder
	spares  []*walSpare
	retries []*walRetry
	before  raftSide
	counts  crashCounts
}

// crashCounts says how much of it happened: completions on a full disk, messages that did not fit, snapshots without
// room, spares that came, and ends of a full disk.
type crashCounts struct{ full, refused, unsaved, ready, recovered int }

// add sums up the counts of several runs.
func (s *crashSpace) add(o *crashSpace) {
	s.counts.full += o.counts.full
	s.counts.refused += o.counts.refused
	s.counts.unsaved += o.counts.unsaved
	s.counts.ready += o.counts.ready
	s.counts.recovered += o.counts.recovered
}

// raftSide is what a message changes in raft, to be taken back when it is refused.
type raftSide struct{ term, vote, commit, last, seq uint64 }

func (c *crashRun) side() raftSide { return raftSide{c.term, c.vote, c.commit, c.last, c.seq} }

// supply gives the actor of a new life what spawnWAL would.
func (c *crashRun) supply(log *Log) {
	if c.space == nil {
		return
	}
	s := c.space
	s.orders, s.spares, s.retries, s.room = nil, nil, nil, logRoom{}
	log.supplied = true
	c.actor.cfg.order = func(o spareOrder) { s.orders = append(s.orders, o) }
	c.actor.after = func(_ time.Duration, m walMessage) { s.retries = append(s.retries, m.(*walRetry)) }
	c.takeRoom(c.actor.room())
	s.before = c.side()
}

// takeRoom notes what fits. The simulated segments are so small that raft would not be held to it on a disk that is not
// full; here it is.
func (c *crashRun) takeRoom(room logRoom) {
	if c.space == nil {
		return
	}
	room.limited, room.segment = true, 1<<40 // and not let off because a message is longer than such a segment
	if c.space.room.full && !room.full {
		c.space.counts.recovered++
	}
	c.space.room, c.space.used = room, 0
	if room.full {
		c.space.counts.full++
	}
}

// fillBeforeStart lets some starts happen on a full disk. It reports whether the start must succeed: the last segment
// has its space, so there is nothing that a start needs.
func (c *crashRun) fillBeforeStart() (mustOpen bool) {
	if c.space == nil || c.random.IntN(3) > 0 {
		c.disk.SetSpace(-1)
		return true
	}
	c.disk.SetSpace(int64(c.random.IntN(600)))
	exists, err := LogExists(c.disk, crashWALDir)
	if err != nil || !exists {
		return false
	}
	_, tail, err := c.readTail()
	return err == nil && int64(len(tail)) >= c.disk.SegmentBytes()
}

// fillOrFree changes the space between two turns.
func (c *crashRun) fillOrFree() {
	if c.space == nil {
		return
	}
	switch c.random.IntN(8) {
	case 0, 1:
		c.disk.SetSpace(int64(c.random.IntN(40)))
	case 2:
		c.disk.SetSpace(int64(c.random.IntN(600)))
	case 3:
		c.disk.SetSpace(c.random.Int64N(3 * c.disk.SegmentBytes()))
	case 4:
		c.disk.SetSpace(-1)
	}
}

// deliveries lets the helper work, and gives what arrives with the next turn.
func (c *crashRun) deliveries() []walMessage {
	if c.space == nil {
		return nil
	}
	s := c.space
	if len(s.orders) > 0 && c.random.IntN(3) > 0 {
		o := s.orders[0]
		s.orders = s.orders[1:]
		file, err := prepareSegment(c.disk, o.path, o.bytes)
		if err == nil {
			s.counts.ready++
		}
		s.spares = append(s.spares, &walSpare{disk: c.disk, path: o.path, generation: o.generation, file: file, err: err})
	}
	var batch []walMessage
	if len(s.spares) > 0 && c.random.IntN(3) > 0 {
		batch = append(batch, s.spares[0])
		s.spares = s.spares[1:]
	}
	if len(s.retries) > 0 && c.random.IntN(2) == 0 {
		batch = append(batch, s.retries[0])
		s.retries = s.retries[1:]
	}
	return batch
}

// admit says whether raft hands the message over; what it had changed is taken back if not. What raft writes of its own
// accord, hard states and snapshot records, goes into the reserve, until that is used up: then a real member would
// stop.
func (c *crashRun) admit(m walMessage) bool {
	s := c.space
	if s == nil {
		return true
	}
	before := s.before
	bytes, fits := int64(0), true
	switch m := m.(type) {
	case *walAppend:
		bytes = entryOverheadBytes
		for _, e := range m.entries {
			bytes += int64(entryBytes(e))
		}
		if fits = s.used+bytes <= s.room.bytes; len(m.entries) > 0 {
			fits = s.room.fits(s.used, bytes, useOwn)
		}
	case *walSnapshot:
		bytes = 2 * entryOverheadBytes
		fits = s.used+bytes <= s.room.bytes
	}
	if !fits {
		s.counts.refused++
		c.term, c.vote, c.commit, c.last, c.seq = before.term, before.vote, before.commit, before.last, before.seq
		return false
	}
	s.used += bytes
	s.before = c.side()
	return true
}

// snapshotFailed takes the snapshot's record out of what the log should hold.
func (c *crashRun) snapshotFailed(index proto.Index) {
	end := c.snapEnds[0]
	c.snapEnds = c.snapEnds[1:]
	if c.space == nil {
		panic("no room on a disk without an end")
	}
	c.space.counts.unsaved++
	for i, history := range c.histories {
		at := slices.IndexFunc(history[min(c.durable, len(history)):], func(l logged) bool {
			return l.snapshot != nil && l.snapshot.Index == index
		})
		if at < 0 {
			panic(fmt.Sprintf("snapshot %d was never asked for", index))
		}
		c.histories[i] = slices.Delete(history, c.durable+at, c.durable+at+1)
	}
	for seq, n := range c.runEnds {
		if n >= end {
			c.runEnds[seq] = n - 1
		}
	}
	for i := range c.snapEnds {
		c.snapEnds[i]--
	}
}
