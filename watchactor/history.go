package watchactor

import (
	"errors"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// historyCore reads the past for every watch that is behind. It is pure: message and position in, effects out; the
// shell reads the pieces it asks for, one at a time.
//
// The naive way, every stream reading for its own watches, reads and encodes the same stretch once per watch, and as
// many at a time as there are streams; a scan of the whole backlog for all of them at once, as etcd has it, costs what
// the furthest watch is behind, not what is delivered. Here a watch says where it is when its client has room. One
// bounded piece is read from there and serves every watch that waits at that place, of the same range or of one inside
// it, encoded once per range and variant. The last pieces are kept for those that come a little later. Ranges take
// turns, and so do the places within a range.
type historyCore struct {
	lines map[Range]*line
	order []*line // by turns
	shelf shelf
	limit int // of one response
	bytes int // of one piece
	pace  pace
	value func(proto.Version) ([]byte, bool)
	alive func(streamID) bool
	// counts are for the metrics; each only grows.
	counts  historyCounts
	waiting int // wants
	used    bool
	effects historyEffects
	answers map[streamID]*served // of this step
}

type historyCounts struct{ pieces, bytes, encoded, served int }

// line is the watches of one range that wait for history.
type line struct {
	keys  Range
	wants []waitingWant
	// passed says that the want at the head was passed over for one before it.
	passed bool
}

type waitingWant struct {
	stream streamAddress
	want
}

// historyRead is one bounded piece to read.
type historyRead struct {
	keys          Range
	from, through proto.Revision
	at            proto.Revision
}

// historyEffects is what the shell does after a step.
type historyEffects struct {
	answers []historyAnswer
	// again asks for a readNext after rest, which may be 0; retry for one after a pause, because history could not be
	// read just now.
	again, retry bool
	rest         time.Duration
}

type historyAnswer struct {
	stream  streamAddress
	message *served
}

func newHistoryCore(
	limit int, b *bounds, value func(proto.Version) ([]byte, bool), alive func(streamID) bool,
) *historyCore {
	return &historyCore{
		lines: make(map[Range]*line), limit: limit, bytes: b.catchupBytes, value: value, alive: alive,
		shelf: shelf{most: b.shelfBytes}, pace: pace{event: b.restPerEvent, mebibyte: b.restPerMebibyte},
		answers: make(map[streamID]*served),
	}
}

func (c *historyCore) begin() {
	clear(c.effects.answers)
	c.effects = historyEffects{answers: c.effects.answers[:0]}
	clear(c.answers)
}

// want queues what a stream asks for. The effects are valid until the next step.
func (c *historyCore) want(m wants) *historyEffects {
	c.begin()
	for _, w := range m.list {
		l := c.lines[w.keys]
		if l == nil {
			l = &line{keys: w.keys}
			c.lines[w.keys] = l
			c.order = append(c.order, l)
		}
		l.wants = append(l.wants, waitingWant{m.stream, w})
		c.waiting++
	}
	c.effects.again = c.waiting > 0
	return &c.effects
}

// next answers from a kept piece, or gives the piece to read and true.
func (c *historyCore) next(now position) (read historyRead, must bool) {
	c.begin()
	c.pace.see(now.revision)
	l := c.head()
	if l == nil {
		return historyRead{}, false
	}
	c.used = true
	first := &l.wants[0]
	if p := c.shelf.find(l.keys, first.from); p != nil {
		c.serve(p, l, false)
		return historyRead{}, false
	}
	from := c.lowest(l)
	keys := c.around(l, from)
	return historyRead{keys: keys, from: from, through: c.shelf.before(keys, from, now.revision), at: now.revision}, true
}

// settled ends a step that read nothing.
func (c *historyCore) settled() *historyEffects {
	c.settle()
	return &c.effects
}

// head gives the line whose turn it is, without the wants of streams that have ended; nil if there is none.
func (c *historyCore) head() *line {
	for len(c.order) > 0 {
		l := c.order[0]
		for len(l.wants) > 0 && !c.alive(l.wants[0].stream.id) {
			c.drop(l)
		}
		if len(l.wants) > 0 {
			return l
		}
		c.shift()
		delete(c.lines, l.keys)
	}
	c.order = nil
	return nil
}

func (c *historyCore) drop(l *line) {
	l.wants[0] = waitingWant{}
	l.wants = l.wants[1:]
	l.passed = false
	c.waiting--
}

func (c *historyCore) shift() {
	c.order[0] = nil
	c.order = c.order[1:]
}

// lowest gives where to read for a line: where its first watch is, or a little before it, so that watches that are
// nearly at the same place come to the same place. The first watch is passed over once at most.
func (c *historyCore) lowest(l *line) proto.Revision {
	first := l.wants[0].from
	low := first
	if l.passed {
		return low
	}
	for i := range l.wants {
		if from := l.wants[i].from; from < low && from+nearRevisions >= first {
			low = from
		}
	}
	l.passed = low < first
	return low
}

// around gives the range to read for a line: its own, widened by those that overlap it and wait at the same place. What
// is widened is the union and nothing between, so that no more is read than is wanted.
func (c *historyCore) around(l *line, from proto.Revision) Range {
	keys := l.keys
	if keys.Point() {
		return keys
	}
	for _, other := range c.order[:min(len(c.order), linesLookedAtMax)] {
		if other == l || other.keys.Point() || keys.covers(other.keys) || !keys.overlaps(other.keys) {
			continue
		}
		for i := range other.wants {
			if other.wants[i].from == from {
				keys = keys.union(other.keys)
				break
			}
		}
	}
	return keys
}

// took takes what was read. now is the store's position after the read: by then the piece may have been compacted.
func (c *historyCore) took(
	r historyRead, events []proto.Event, next proto.Revision, err error, now position,
) *historyEffects {
	l := c.order[0]
	switch {
	case errors.Is(err, ErrCompacted):
		gone := max(now.compacted, r.from+1)
		c.answerAll(l, func(w *want) (servedItem, bool) {
			return servedItem{watch: w.watch, epoch: w.epoch, compacted: gone}, w.from < gone
		})
		c.turn(l)
	case err != nil:
		c.answerAll(l, func(w *want) (servedItem, bool) {
			return servedItem{watch: w.watch, epoch: w.epoch, err: err}, true
		})
	case next == r.from: // not just now
		c.effects.retry = true
	default:
		actors.Must(next > r.from, "history read from revision %d and came to %d", r.from, next)
		p := &piece{
			keys: r.keys, from: r.from, next: min(next, r.through+1), at: r.at, compacted: now.compacted, events: events,
		}
		for i := range events {
			p.bytes += events[i].Size()
		}
		c.counts.pieces++
		c.counts.bytes += p.bytes
		c.shelf.add(p)
		c.serve(p, l, true)
	}
	c.settle()
	return &c.effects
}

// serve answers the wants that a piece holds the next events of: those of the line whose turn it is, and after a read
// those of other ranges inside the piece's.
func (c *historyCore) serve(p *piece, l *line, read bool) {
	before := p.bytes
	left := servedAtOnce{servedPerTurnMax, servedEventsPerTurnMax, servedBytesPerTurnMax}
	c.serveLine(p, l, &left)
	if read {
		for _, other := range c.order[1:min(len(c.order), linesLookedAtMax)] {
			if p.keys.covers(other.keys) {
				c.serveLine(p, other, &left)
			}
		}
	}
	c.shelf.grown(p.bytes - before)
	c.turn(l)
}

// servedAtOnce is what one turn may still deliver.
type servedAtOnce struct{ watches, events, bytes int }

func (s *servedAtOnce) spent() bool { return s.watches <= 0 || s.events <= 0 || s.bytes <= 0 }

func (c *historyCore) serveLine(p *piece, l *line, left *servedAtOnce) {
	c.answerAll(l, func(w *want) (servedItem, bool) {
		if left.spent() || !p.holds(w.keys, w.from) {
			return servedItem{}, false
		}
		left.watches--
		r, fresh := p.run(w, c.value, c.limit)
		if fresh && r != nil {
			c.counts.encoded++
		}
		if r != nil {
			left.events -= len(r.marks)
			left.bytes -= r.bytes
			c.pace.charge(len(r.marks), r.bytes)
		}
		return servedItem{watch: w.watch, epoch: w.epoch, run: r, next: p.next, at: p.at}, true
	})
}

// answerAll answers the wants of a line for which answer gives true, and keeps the others in order.
func (c *historyCore) answerAll(l *line, answer func(*want) (servedItem, bool)) {
	kept := l.wants[:0]
	for i := range l.wants {
		w := &l.wants[i]
		item, yes := answer(&w.want)
		if !yes {
			kept = append(kept, *w)
			continue
		}
		if i == 0 {
			l.passed = false
		}
		m := c.answers[w.stream.id]
		if m == nil {
			m = new(served)
			c.answers[w.stream.id] = m
			c.effects.answers = append(c.effects.answers, historyAnswer{w.stream, m})
		}
		m.items = append(m.items, item)
		c.counts.served++
		c.waiting--
	}
	clear(l.wants[len(kept):])
	l.wants = kept
}

// turn puts the line whose turn it was behind the others.
func (c *historyCore) turn(l *line) {
	c.shift()
	if len(l.wants) > 0 {
		c.order = append(c.order, l)
		return
	}
	delete(c.lines, l.keys)
}

// settle asks for the next turn.
func (c *historyCore) settle() {
	if c.waiting > 0 && !c.effects.retry {
		c.effects.again, c.effects.rest = true, c.pace.rest()
	}
}

// tidy forgets the kept pieces if none was used since the last time, and reports whether it has to come again.
func (c *historyCore) tidy() (again bool) {
	if !c.used {
		c.shelf.clear()
	}
	c.used = false
	return len(c.shelf.pieces) > 0
}

// pace keeps catch-up from taking the machine away from writers. What a served piece costs the machine is little
// reading and much sending, so it is reckoned from what is delivered, and after it the reader rests for as long, while
// somebody writes. Without writers it does not rest.
type pace struct {
	event, mebibyte time.Duration // rest for one delivered event and for one delivered MiB
	debt            time.Duration
	revision        proto.Revision
	still           int // turns since the revision moved
}

// see takes the store's revision of a turn.
func (p *pace) see(r proto.Revision) {
	if r == p.revision {
		p.still = min(p.still+1, stillTurns)
		return
	}
	p.still, p.revision = 0, r
}

func (p *pace) charge(events, bytes int) {
	p.debt += time.Duration(events)*p.event + time.Duration(bytes)*p.mebibyte/(1<<20)
}

// rest gives how long to rest now. Short rests add up to one worth a timer.
func (p *pace) rest() time.Duration {
	if p.still >= stillTurns {
		p.debt = 0
	}
	if p.debt < restMin {
		return 0
	}
	rest := min(p.debt, restMax)
	p.debt -= rest
	return rest
}
