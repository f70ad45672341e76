package watchactor

import (
	"troupe/actors"
	"troupe/proto"
)

// groupKind says which batches a group is told of and how it finds the watches they concern.
type groupKind uint8

const (
	// groupRange has the watches of one interval; the hub tells it which events are in it.
	groupRange groupKind = iota
	// groupPoints has all watches of single keys; it sees every batch and looks each key up.
	groupPoints
	// groupOverflow has the intervals that got no group of their own; it sees every batch.
	groupOverflow
)

// groupSpec is what a group is made from.
type groupSpec struct {
	id   groupID
	kind groupKind
	keys Range // groupRange only
	// at is the hub's revision when the group was made: the group has seen nothing up to there and misses nothing after.
	at proto.Revision
}

// name is the group's place in the tree of actors.
func (s groupSpec) name() string {
	switch s.kind {
	case groupPoints:
		return "watch/group/points"
	case groupOverflow:
		return "watch/group/overflow"
	default:
		return "watch/group/" + s.keys.name()
	}
}

// hubEffect is one thing the hub's shell does, in the order given.
type hubEffect interface{ hubEffect() }

type (
	// makeGroup spawns a group.
	makeGroup struct{ spec groupSpec }
	// tellGroup hands a message to a group.
	tellGroup struct {
		group   groupID
		message groupMessage
	}
	// endGroup lets a group without watches end.
	endGroup struct{ group groupID }
	// failStream ends a stream with ErrRestarted.
	failStream struct{ stream streamID }
)

func (makeGroup) hubEffect()  {}
func (tellGroup) hubEffect()  {}
func (endGroup) hubEffect()   {}
func (failStream) hubEffect() {}

// hubGroup is what the hub knows about a group.
type hubGroup struct {
	spec  groupSpec
	users int     // watches, admitted or on their way
	picks []int32 // of the batch being routed
}

// usage is how many watches of a stream use a group. Most streams use one group, so a short list beats a map.
type usage struct {
	group   *hubGroup
	watches int
}

// hubCore routes batches to groups and keeps count of who uses which. It is pure: message in, effects out.
type hubCore struct {
	// revision is that of the last batch routed: every group has been told everything up to it.
	revision proto.Revision
	groups   map[groupID]*hubGroup
	ranges   matchIndex[*hubGroup]
	points   *hubGroup
	overflow *hubGroup
	// overflowUsers counts the watches of each interval in the overflow group, so that an interval stays where it is.
	overflowUsers map[Range]int
	streams       map[streamID][]usage
	waiting       []askProgress
	touched       []*hubGroup
	groupsMax     int
	lastGroup     groupID
	effects       []hubEffect
}

func newHubCore(at proto.Revision, groupsMax int, lastGroup groupID) *hubCore {
	return &hubCore{
		revision: at, groupsMax: groupsMax, lastGroup: lastGroup,
		groups: make(map[groupID]*hubGroup), streams: make(map[streamID][]usage), overflowUsers: make(map[Range]int),
	}
}

// step handles one message and gives the effects, which are valid until the next step.
func (c *hubCore) step(m hubMessage) []hubEffect {
	clear(c.effects)
	c.effects = c.effects[:0]
	c.handle(m)
	return c.effects
}

func (c *hubCore) handle(m hubMessage) {
	switch m := m.(type) {
	case published:
		c.route(m.batch)
	case lostBatches:
		c.lose(m)
	case join:
		c.join(m)
	case leave:
		c.leave(m)
	case streamGone:
		c.dropStream(m.stream)
	case askProgress:
		c.waiting = append(c.waiting, m)
		c.answerProgress()
	case groupFailed:
		c.failGroup(m.group)
	case *replayHub:
		for _, one := range m.messages {
			c.handle(one)
		}
	default:
		actors.Must(false, "hub got a message of unknown kind %T", m)
	}
}

func (c *hubCore) emit(e hubEffect) { c.effects = append(c.effects, e) }

func (c *hubCore) tell(g *hubGroup, m groupMessage) { c.emit(tellGroup{g.spec.id, m}) }

// route hands a batch to every group with events in it. One that is not ahead of the hub is part of the state that the
// hub has looked at after it was idle.
func (c *hubCore) route(b *proto.EventBatch) {
	if b.Revision <= c.revision {
		return
	}
	if len(b.Events) > 0 {
		if c.ranges.size() > 0 {
			c.pick(b)
		}
		if c.points != nil {
			c.tell(c.points, routed{batch: b})
		}
		if c.overflow != nil {
			c.tell(c.overflow, routed{batch: b})
		}
	}
	c.reach(b.Revision)
}

func (c *hubCore) pick(b *proto.EventBatch) {
	for i := range b.Events {
		c.ranges.match(b.Events[i].Key, func(g *hubGroup) {
			if g.picks == nil {
				c.touched = append(c.touched, g)
			}
			g.picks = append(g.picks, int32(i))
		})
	}
	for i, g := range c.touched {
		c.tell(g, routed{batch: b, picks: g.picks})
		g.picks = nil // the message owns it now
		c.touched[i] = nil
	}
	c.touched = c.touched[:0]
}

// reach moves the revision on and answers who waited for it.
func (c *hubCore) reach(r proto.Revision) {
	c.revision = max(c.revision, r)
	if len(c.waiting) > 0 {
		c.answerProgress()
	}
}

// lose tells every group that it is behind. After a replaced state nobody knows what came first: it is whatever follows
// the last batch.
func (c *hubCore) lose(m lostBatches) {
	m.first = max(m.first, c.revision+1)
	m.through = max(m.through, c.revision)
	for _, g := range c.sorted() {
		c.tell(g, m)
	}
	c.reach(m.through)
}

// answerProgress passes on the questions whose revision has been routed. A stream reads the store's published state,
// which is ahead of the hub for a moment; an answer below what a client has seen there would be true and useless.
func (c *hubCore) answerProgress() {
	kept := c.waiting[:0]
	for _, ask := range c.waiting {
		switch uses := c.streams[ask.stream.id]; {
		case len(uses) == 0: // the stream's watches have all gone meanwhile
		case ask.through > c.revision:
			kept = append(kept, ask)
		default:
			for _, u := range uses {
				c.tell(u.group, probe{stream: ask.stream, at: c.revision, groups: len(uses)})
			}
		}
	}
	clear(c.waiting[len(kept):])
	c.waiting = kept
}

// join finds or makes the group of a watch.
func (c *hubCore) join(m join) {
	g := c.groupOf(m.keys)
	if m.first {
		if g == nil {
			g = c.newGroup(m.keys)
		}
		g.users++
		if g.spec.kind == groupOverflow {
			c.overflowUsers[m.keys]++
		}
		c.use(m.stream.id, g, 1)
	}
	if g != nil { // nil: the group failed, and the stream is being ended for it
		c.tell(g, m)
	}
}

func (c *hubCore) leave(m leave) {
	g := c.groupOf(m.keys)
	if g == nil {
		return
	}
	c.tell(g, m)
	if m.final && c.use(m.stream, g, -1) {
		if g.spec.kind == groupOverflow {
			if c.overflowUsers[m.keys]--; c.overflowUsers[m.keys] == 0 {
				delete(c.overflowUsers, m.keys)
			}
		}
		c.release(g, 1)
	}
}

// use changes how many watches of the stream use the group, false if it uses none.
func (c *hubCore) use(id streamID, g *hubGroup, change int) bool {
	uses := c.streams[id]
	for i := range uses {
		if uses[i].group != g {
			continue
		}
		if uses[i].watches += change; uses[i].watches == 0 {
			uses[i] = uses[len(uses)-1]
			uses[len(uses)-1] = usage{}
			uses = uses[:len(uses)-1]
		}
		if len(uses) == 0 {
			delete(c.streams, id)
		} else {
			c.streams[id] = uses
		}
		return true
	}
	if change > 0 {
		c.streams[id] = append(uses, usage{g, change})
	}
	return change > 0
}

func (c *hubCore) dropStream(id streamID) {
	uses := c.streams[id]
	delete(c.streams, id)
	for _, u := range uses {
		if c.groups[u.group.spec.id] == nil {
			continue // failed
		}
		c.tell(u.group, dropStream{id})
		c.release(u.group, u.watches)
	}
}

// release takes users off a group, which ends with the last.
func (c *hubCore) release(g *hubGroup, users int) {
	g.users -= users
	actors.Must(g.users >= 0, "group %s has %d users", g.spec.name(), g.users)
	if g.users == 0 {
		c.forget(g)
		c.emit(endGroup{g.spec.id})
	}
}

func (c *hubCore) forget(g *hubGroup) {
	delete(c.groups, g.spec.id)
	switch g.spec.kind {
	case groupPoints:
		c.points = nil
	case groupOverflow:
		c.overflow = nil
		clear(c.overflowUsers)
	default:
		c.ranges.remove(g.spec.keys)
	}
}

// failGroup ends every stream with a watch in a group that panicked. Their ends come back as streamGone.
func (c *hubCore) failGroup(id groupID) {
	g := c.groups[id]
	if g == nil {
		return // it ended before it failed
	}
	c.forget(g)
	c.emit(endGroup{id}) // it has ended; this lets the shell forget it too
	for _, stream := range sortedKeys(c.streams) {
		for _, u := range c.streams[stream] {
			if u.group == g {
				c.emit(failStream{stream})
				break
			}
		}
	}
}

// groupOf finds the group that has, or would have, the watches of a range; nil if there is none yet.
func (c *hubCore) groupOf(keys Range) *hubGroup {
	if keys.Point() {
		return c.points
	}
	if g, ok := c.ranges.get(keys); ok {
		return g
	}
	if c.overflowUsers[keys] > 0 || c.ranges.size() >= c.groupsMax {
		return c.overflow
	}
	return nil
}

func (c *hubCore) newGroup(keys Range) *hubGroup {
	c.lastGroup++
	g := &hubGroup{spec: groupSpec{id: c.lastGroup, at: c.revision}}
	c.groups[g.spec.id] = g
	switch {
	case keys.Point():
		g.spec.kind, c.points = groupPoints, g
	case c.ranges.size() >= c.groupsMax:
		g.spec.kind, c.overflow = groupOverflow, g
	default:
		g.spec.keys = keys
		c.ranges.put(keys, g)
	}
	c.emit(makeGroup{g.spec})
	return g
}

// sorted gives the groups in a fixed order, so that a seeded run repeats.
func (c *hubCore) sorted() []*hubGroup {
	list := make([]*hubGroup, 0, len(c.groups))
	for _, id := range sortedKeys(c.groups) {
		list = append(list, c.groups[id])
	}
	return list
}
