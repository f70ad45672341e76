package watchactor

import (
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// watchState says where a watch gets its events from.
type watchState uint8

const (
	// watchBehind has to read history from sent+1 on.
	watchBehind watchState = iota
	// watchReading has asked for a piece of history and waits for it.
	watchReading
	// watchJoining has asked its group and waits for the answer.
	watchJoining
	// watchJoined gets what its group delivers.
	watchJoined
)

// watch is one watch of a stream. Everything up to sent has been put into the outbox: this is its place, which it never
// loses, whatever happens to buffers.
type watch struct {
	id      int64
	keys    Range
	sent    proto.Revision
	start   proto.Revision // as asked for, 0: from now on
	through proto.Revision // history has to reach this before joining makes sense
	group   groupID        // valid once joined
	epoch   epoch
	state   watchState
	as      variant

	fragment   bool
	notify     bool // wants periodic progress
	quiet      bool // nothing was sent since the last tick
	due        bool // waits for a periodic progress frame
	subscribed bool // the hub counts it as a user of its group
	queued     bool // is in streamCore.behind
}

// position is a published state of the store.
type position struct{ revision, compacted proto.Revision }

// streamEffects is what the shell does after a step: frames first, then what goes to the hub, in order, then what goes
// to the reader of history.
type streamEffects struct {
	frames []Frame
	hub    []hubMessage
	wants  []want
	// credits is how many requests turned out to have no answer.
	credits int
	// retry asks for an advance message after a pause, drain for drained once the client has made room.
	retry, drain bool
	// arm starts the timer for the next progressDue.
	arm bool
	// failed ends the stream.
	failed error
}

// streamCore is one client's watch stream. It is pure: message, the store's position and the room in the outbox go in,
// effects come out.
type streamCore struct {
	address    streamAddress
	heldBytes  int // most that progress holds back
	pieceBytes int // of history
	watches    map[int64]*watch
	nextID     int64
	epoch      epoch // of the last join or want; counted per stream, because ids may come back
	joined     int   // watches in state watchJoined
	notified   int   // watches that want periodic progress
	reading    int   // wants without an answer
	behind     []*watch
	place      proto.Revision // of the watch that read history last
	retired    []int64
	now        position
	room       space
	header     proto.Revision // the highest revision a frame with events carried
	armed      bool
	resyncs    int // times a joined watch had to go back to history, for the counter
	progress   progressState
	effects    streamEffects
}

func newStreamCore(address streamAddress, heldBytes, pieceBytes int) *streamCore {
	return &streamCore{
		address: address, heldBytes: heldBytes, pieceBytes: pieceBytes, watches: make(map[int64]*watch),
	}
}

// step handles one message. r is how many bytes the outbox still takes. The effects are valid until the next step.
func (c *streamCore) step(m streamMessage, now position, r space) *streamEffects {
	c.begin(now, r)
	c.handle(m)
	c.askProgress()
	c.ask()
	return &c.effects
}

func (c *streamCore) begin(now position, r space) {
	clear(c.effects.frames)
	clear(c.effects.hub)
	clear(c.effects.wants)
	c.effects = streamEffects{
		frames: c.effects.frames[:0], hub: c.effects.hub[:0], wants: c.effects.wants[:0],
	}
	c.now, c.room = now, r
}

func (c *streamCore) handle(m streamMessage) {
	if c.hold(m) {
		return
	}
	switch m := m.(type) {
	case request:
		c.request(m)
	case drained, advance:
		// step asks for history where it is needed
	case progressDue:
		c.markDue()
	case *delivered:
		c.deliver(m)
	case *served:
		c.take(m)
	case admitted:
		c.admit(m)
	case readOn:
		if w := c.watches[m.watch]; w != nil && w.epoch == m.epoch && w.state == watchJoining {
			w.through = m.through
			c.fallBehind(w)
		}
	case behind:
		c.loseGroup(m.group, m.first, false)
	case lostDeliveries:
		c.loseGroup(m.group, m.first, true)
	case probed:
		c.answered(m)
	case *replayStream:
		for _, one := range m.messages {
			c.handle(one)
		}
	default:
		actors.Must(false, "stream %d got a message of unknown kind %T", c.address.id, m)
	}
}

func (c *streamCore) request(m request) {
	switch r := m.message.GetRequestUnion().(type) {
	case *etcdserverpb.WatchRequest_CreateRequest:
		if r.CreateRequest != nil {
			c.create(r.CreateRequest, m.refusal)
			return
		}
	case *etcdserverpb.WatchRequest_CancelRequest:
		if r.CancelRequest != nil && c.cancel(r.CancelRequest.WatchId) {
			return
		}
	case *etcdserverpb.WatchRequest_ProgressRequest:
		if c.wantProgress() {
			return
		}
	}
	c.effects.credits++ // no answer: nothing that etcd would answer either
}

// answer emits the answer to a request.
func (c *streamCore) answer(f Frame) {
	f.control = true
	c.effects.frames = append(c.effects.frames, f)
}

// create opens a watch or refuses it. The order of the checks is etcd's (api.md 3.1).
func (c *streamCore) create(r *etcdserverpb.WatchCreateRequest, refusal string) {
	keys := rangeOf(r.Key, r.RangeEnd)
	switch {
	case refusal != "":
	case r.StartRevision < 0:
		refusal = reasonCompacted
	case keys.empty():
		refusal = reasonEmptyRange
	case r.WatchId != 0 && c.used(r.WatchId):
		refusal = reasonDuplicateID
	}
	if refusal != "" {
		c.answer(Frame{
			WatchID: watchIDNone, HeaderRevision: c.now.revision, Created: true, Canceled: true, CancelReason: refusal,
		})
		return
	}
	w := &watch{
		id: r.WatchId, keys: keys, as: variantOf(r), start: proto.Revision(r.StartRevision), sent: c.now.revision,
		fragment: r.Fragment, notify: r.ProgressNotify, quiet: true,
	}
	if w.id == 0 {
		w.id = c.freeID()
	}
	if w.start > 0 {
		w.sent = w.start - 1
	}
	c.watches[w.id] = w
	if w.notify {
		c.notified++
		if !c.armed {
			c.armed, c.effects.arm = true, true
		}
	}
	c.answer(Frame{WatchID: w.id, HeaderRevision: c.now.revision, Created: true})
	if w.sent >= c.now.revision {
		c.join(w)
	} else {
		c.fallBehind(w)
	}
}

func (c *streamCore) used(id int64) bool {
	return c.watches[id] != nil || slices.Contains(c.retired, id)
}

// freeID gives the next id, counting from 0 and skipping those in use.
func (c *streamCore) freeID() int64 {
	for c.used(c.nextID) {
		c.nextID++
	}
	c.nextID++
	return c.nextID - 1
}

// cancel ends a watch at the client's wish, false if there is none with that id.
func (c *streamCore) cancel(id int64) bool {
	if w := c.watches[id]; w != nil {
		c.end(w)
	} else if i := slices.Index(c.retired, id); i >= 0 {
		c.retired = slices.Delete(c.retired, i, i+1)
	} else {
		return false
	}
	c.answer(Frame{WatchID: id, HeaderRevision: c.now.revision, Canceled: true})
	return true
}

// compacted ends a watch whose next events are gone. The frame carries no header revision and no reason (api.md 3.3).
// The id stays taken until the client cancels it, as in etcd, but no longer keeps the stream from answering progress
// requests, as it does there.
func (c *streamCore) compacted(w *watch, at proto.Revision) {
	c.end(w)
	if len(c.retired) == retiredIDsMax {
		c.retired = slices.Delete(c.retired, 0, 1)
	}
	c.retired = append(c.retired, w.id)
	c.effects.frames = append(c.effects.frames, Frame{WatchID: w.id, Canceled: true, CompactRevision: at})
}

// end takes a watch out of everything.
func (c *streamCore) end(w *watch) {
	if w.state == watchJoined {
		c.joined--
	}
	if w.notify {
		c.notified--
	}
	delete(c.watches, w.id)
	if len(c.watches) == 0 {
		c.effects.credits += c.progress.wanted
		c.progress.wanted = 0
	}
	if w.subscribed {
		c.effects.hub = append(c.effects.hub, leave{c.address.id, w.id, w.keys, true})
	}
}

// join asks the watch's group to admit it.
func (c *streamCore) join(w *watch) {
	w.state = watchJoining
	c.epoch++
	w.epoch = c.epoch
	c.effects.hub = append(c.effects.hub, join{
		stream: c.address, watch: w.id, epoch: w.epoch, from: w.sent + 1, keys: w.keys, as: w.as, first: !w.subscribed,
	})
	w.subscribed = true
}

// fallBehind has the watch go on from history.
func (c *streamCore) fallBehind(w *watch) {
	if w.state == watchJoined {
		c.joined--
		c.resyncs++
	}
	w.state = watchBehind
	if !w.queued {
		w.queued = true
		c.behind = append(c.behind, w)
	}
}

func (c *streamCore) admit(m admitted) {
	if w := c.watches[m.watch]; w != nil && w.epoch == m.epoch && w.state == watchJoining {
		w.state, w.group = watchJoined, m.group
		c.joined++
	}
}

// deliver passes events on, or lets the watch fall behind when the client has not made room: the buffer is lost, the
// place is not.
func (c *streamCore) deliver(m *delivered) {
	for i := range m.items {
		one := &m.items[i]
		w := c.watches[one.watch]
		if w == nil || w.epoch != one.epoch || w.state != watchJoined {
			continue // cancelled, or told before the watch went back to history
		}
		if c.room.bytes <= 0 {
			w.sent = max(w.sent, one.run.first-1)
			c.fallBehind(w)
			c.pause(w)
			continue
		}
		if one.run.first <= w.sent {
			actors.Must(false, "watch %d has sent %d and gets %d", w.id, w.sent, one.run.first)
		}
		c.send(w, one.run, m.position)
		w.sent = max(w.sent, m.position)
	}
}

// pause tells the group not to deliver to a watch that will come back.
func (c *streamCore) pause(w *watch) {
	c.effects.hub = append(c.effects.hub, leave{c.address.id, w.id, w.keys, false})
}

// send emits a run to one watch. The header's revision never goes back on a stream, though history may have been read
// at a later state than the one a batch left.
func (c *streamCore) send(w *watch, r *run, header proto.Revision) {
	c.header = max(c.header, header)
	w.quiet, w.due = false, false
	divided := false
	r.responses(w.fragment, func(one response) {
		c.effects.frames = append(c.effects.frames, Frame{
			WatchID: w.id, HeaderRevision: c.header, Fragment: one.fragment, Events: one.pieces,
			bytes: one.bytes, events: one.events, last: divided && !one.fragment,
		})
		divided = one.fragment
		c.room.bytes -= one.bytes + frameBytes
		c.room.ahead -= one.bytes + frameBytes
	})
}

// loseGroup sends the joined watches of a group back to history. Everything before first has been delivered to them.
func (c *streamCore) loseGroup(g groupID, first proto.Revision, admitted bool) {
	for _, id := range sortedKeys(c.watches) {
		w := c.watches[id]
		if w.state != watchJoined || w.group != g {
			continue
		}
		w.sent = max(w.sent, first-1)
		c.fallBehind(w)
		if admitted {
			c.pause(w)
		}
	}
}
