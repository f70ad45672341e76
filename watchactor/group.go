package watchactor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// sortedKeys gives the keys of a map in order, so that effects do not depend on the order of iteration.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// groupEffect is one message of a group to a stream, in the order given.
type groupEffect struct {
	stream  streamAddress
	message streamMessage
}

// watcher is one admitted watch, as its group sees it. Idle watches cost what is in here and in the stream's watch.
type watcher struct {
	member *member
	ranged *ranged
	id     int64
	from   proto.Revision // events below are none of its business
	epoch  epoch
	place  int32 // in ranged.watchers
	as     variant
}

// member is a stream with watches in the group.
type member struct {
	stream  streamAddress
	watches map[int64]*watcher
	pending []item // of the batch being encoded
}

// ranged is a range with admitted watches.
type ranged struct {
	keys     Range
	watchers []*watcher
	picks    []int32 // of the batch being encoded
}

// shared is the encodings of one batch for one range.
type shared struct {
	runs     [variants]*run
	made     [variants]bool
	contents contents
}

// groupCore is the watchers of one range, or of all single keys, or of the intervals without a group of their own. It
// encodes each batch once per range and variant, and decides who may join. It is pure: message in, effects out; the
// only thing it reads is values that events refer to.
//
// Joining: a stream has sent everything below `from`, and the group has been told everything up to revision. If the
// watch needs nothing at or below revision the group admits it: every later batch it will see. Otherwise there may be
// a gap, and the stream has to read on. Either answer is given in the group's own turn, so that no batch can slip
// between the question and the answer. Reading on is rare: a stream reads the published state, which is ahead of the
// hub, and its question keeps its place among the batches; it takes a batch that comes between the reading and the
// asking.
type groupCore struct {
	spec     groupSpec
	single   *ranged // groupRange: its only range
	many     matchIndex[*ranged]
	members  map[streamID]*member
	revision proto.Revision // the last it was told of
	limit    int            // of one response
	watchers int
	value    func(proto.Version) ([]byte, bool)
	encoded  int    // runs made, for the counter
	made     int    // bytes of the runs made in this step
	shared   shared // of the range being encoded
	touched  []*ranged
	senders  []*member
	items    []item // room for what the streams are told of this batch
	effects  []groupEffect
	gather   gather
}

func newGroupCore(
	spec groupSpec, limit int, restPerDelivery time.Duration, value func(proto.Version) ([]byte, bool),
) *groupCore {
	return &groupCore{
		spec: spec, limit: limit, value: value, members: make(map[streamID]*member), revision: spec.at,
		gather: gather{per: restPerDelivery},
	}
}

// step handles one message and gives the effects, which are valid until the next step.
func (c *groupCore) step(m groupMessage) []groupEffect {
	clear(c.effects)
	c.effects, c.made = c.effects[:0], 0
	c.handle(m)
	return c.effects
}

func (c *groupCore) handle(m groupMessage) {
	if r, is := m.(routed); is {
		if !c.gather.add(r) {
			c.flush()
			c.publish(r)
		}
		return
	}
	if _, is := m.(restOver); is {
		c.gather.resting = false
	}
	c.flush() // whatever is asked comes behind what was told before
	switch m := m.(type) {
	case restOver:
	case lostBatches:
		c.lose(m)
	case join:
		c.join(m)
	case leave:
		if member := c.members[m.stream]; member != nil {
			if w := member.watches[m.watch]; w != nil {
				c.remove(w)
			}
		}
	case dropStream:
		c.drop(m.stream)
	case probe:
		c.revision = max(c.revision, m.at)
		c.tell(m.stream, probed{c.spec.id, m.at, m.groups})
	case *replayGroup:
		for _, one := range m.messages {
			c.handle(one)
		}
	default:
		actors.Must(false, "group %s got a message of unknown kind %T", c.spec.name(), m)
	}
}

func (c *groupCore) tell(to streamAddress, m streamMessage) {
	c.effects = append(c.effects, groupEffect{to, m})
}

// join admits the watch or has it read on.
func (c *groupCore) join(m join) {
	if m.from <= c.revision {
		c.tell(m.stream, readOn{group: c.spec.id, watch: m.watch, epoch: m.epoch, through: c.revision})
		return
	}
	c.add(m)
	c.tell(m.stream, admitted{c.spec.id, m.watch, m.epoch})
}

func (c *groupCore) add(m join) {
	mem := c.members[m.stream.id]
	if mem == nil {
		mem = &member{stream: m.stream, watches: make(map[int64]*watcher, 1)}
		c.members[m.stream.id] = mem
	}
	if w := mem.watches[m.watch]; w != nil {
		c.remove(w)
		c.members[m.stream.id] = mem // remove forgets a member without watches
	}
	e := c.rangeFor(m.keys)
	w := &watcher{
		member: mem, ranged: e, id: m.watch, epoch: m.epoch, from: m.from, as: m.as, place: int32(len(e.watchers)),
	}
	e.watchers = append(e.watchers, w)
	mem.watches[m.watch] = w
	c.watchers++
}

func (c *groupCore) rangeFor(keys Range) *ranged {
	if c.spec.kind == groupRange {
		if c.single == nil {
			c.single = &ranged{keys: keys}
		}
		return c.single
	}
	if e, ok := c.many.get(keys); ok {
		return e
	}
	e := &ranged{keys: keys}
	c.many.put(keys, e)
	return e
}

func (c *groupCore) remove(w *watcher) {
	e := w.ranged
	last := len(e.watchers) - 1
	moved := e.watchers[last]
	e.watchers[w.place], moved.place = moved, w.place
	e.watchers[last] = nil
	if e.watchers = e.watchers[:last]; last == 0 {
		e.watchers = nil
		if e == c.single {
			c.single = nil
		} else {
			c.many.remove(e.keys)
		}
	}
	delete(w.member.watches, w.id)
	if len(w.member.watches) == 0 {
		delete(c.members, w.member.stream.id)
	}
	c.watchers--
}

func (c *groupCore) drop(id streamID) {
	if m := c.members[id]; m != nil {
		for _, watch := range sortedKeys(m.watches) {
			c.remove(m.watches[watch])
		}
	}
}

// lose lets all watches go: they read history and come back.
func (c *groupCore) lose(m lostBatches) {
	for _, id := range sortedKeys(c.members) {
		c.tell(c.members[id].stream, behind{c.spec.id, m.first})
	}
	clear(c.members)
	c.single, c.many, c.watchers = nil, matchIndex[*ranged]{}, 0
	c.revision = max(c.revision, m.through)
}

// publish encodes a batch for the ranges it concerns and tells the streams.
func (c *groupCore) publish(m routed) {
	c.revision = max(c.revision, m.batch.Revision)
	if c.watchers == 0 {
		return
	}
	if c.spec.kind == groupRange {
		c.single.picks = m.picks
		c.touched = append(c.touched, c.single)
	} else {
		c.pick(m.batch)
	}
	for i, e := range c.touched {
		c.encode(e, m.batch)
		c.touched[i] = nil
	}
	c.touched = c.touched[:0]
	told, items := make([]delivered, len(c.senders)), 0
	for i, to := range c.senders {
		told[i] = delivered{group: c.spec.id, position: m.batch.Revision, items: to.pending}
		c.tell(to.stream, &told[i])
		items += len(to.pending)
		to.pending, c.senders[i] = nil, nil
	}
	c.senders, c.items = c.senders[:0], nil
	c.gather.delivered(items)
}

// flush publishes what was gathered.
func (c *groupCore) flush() {
	if m, some := c.gather.take(); some {
		c.publish(m)
	}
}

// space gives an empty list for what a member's stream will be told of this batch. The lists of all members come from
// one piece of memory, which saves an allocation per stream.
func (c *groupCore) space(m *member) []item {
	n := len(m.watches)
	if c.spec.kind != groupRange {
		n = min(n, itemsExpected)
	}
	if len(c.items)+n > cap(c.items) {
		c.items = make([]item, 0, max(n, min(c.watchers, itemsAtOnce)))
	}
	at := len(c.items)
	c.items = c.items[:at+n]
	return c.items[at : at : at+n]
}

func (c *groupCore) pick(b *proto.EventBatch) {
	for i := range b.Events {
		c.many.match(b.Events[i].Key, func(e *ranged) {
			if len(e.picks) == 0 {
				c.touched = append(c.touched, e)
			}
			e.picks = append(e.picks, int32(i))
		})
	}
}

// encode adds the batch to what each watcher's stream will be told.
func (c *groupCore) encode(e *ranged, b *proto.EventBatch) {
	s := selection{b.Events, e.picks}
	for i := range s.len() {
		c.shared.contents.add(s.at(i))
	}
	for _, w := range e.watchers {
		if w.from > b.Revision {
			continue
		}
		r := c.share(s, w.as)
		if r != nil && w.from > r.first {
			r = r.since(w.from, c.limit) // it has read ahead of the group
		}
		if r == nil {
			continue
		}
		if w.member.pending == nil {
			c.senders = append(c.senders, w.member)
			w.member.pending = c.space(w.member)
		}
		w.member.pending = append(w.member.pending, item{w.id, w.epoch, r})
	}
	c.shared = shared{}
	if c.spec.kind == groupRange || cap(e.picks) > picksKept {
		e.picks = nil // the message's own, or a peak
	} else {
		e.picks = e.picks[:0]
	}
}

// share gives the encoding of the range's events for a variant, made on first use.
func (c *groupCore) share(s selection, v variant) *run {
	v, some := c.shared.contents.reduce(v)
	if !some {
		return nil
	}
	if !c.shared.made[v] {
		c.shared.made[v] = true
		r := encodeRun(s, v, c.previous, c.limit)
		if r != nil {
			c.made += r.bytes
		}
		c.shared.runs[v] = r
		c.encoded++
	}
	return c.shared.runs[v]
}

// previous gives the value an event replaced; nil when it has been compacted away.
func (c *groupCore) previous(e *proto.Event) []byte {
	if e.PreviousKeyValue != nil {
		return e.PreviousKeyValue
	}
	if kv, ok := c.value(e.Previous); ok {
		return kv
	}
	return nil
}
