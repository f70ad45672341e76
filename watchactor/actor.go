package watchactor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"troupe/actors"
)

// hubCarried is what outlives a restart of the hub.
type hubCarried struct {
	started bool
	last    groupID
}

// hubActor is the shell of the hub.
type hubActor struct {
	client  *Client
	carried *hubCarried
	core    *hubCore
	// idle is what the client's unwatched says: nobody watches, and the store tells the hub nothing.
	idle   bool
	groups map[groupID]actors.Ref[groupMessage]
}

// Start makes an empty hub at the store's revision. After a panic nobody knows what the old hub had told which group,
// so all streams are ended and the clients open them again.
func (h *hubActor) Start(actors.Self[hubMessage]) error {
	h.client.unwatched.Store(false)
	revision, _ := h.client.cfg.History.Position()
	h.core = newHubCore(revision, h.client.cfg.Groups, h.carried.last)
	h.groups = make(map[groupID]actors.Ref[groupMessage])
	if h.carried.started {
		h.client.failStreams(ErrRestarted)
	}
	h.carried.started = true
	return nil
}

// Handle routes. While nobody watches, the store tells the hub nothing: it would cost a wake-up for each batch, or keep
// batches for nobody. When somebody comes, the hub asks for batches again and *then* looks where the store is: what was
// published before is history, for which the watch is told to read on; what is published after is told.
func (h *hubActor) Handle(_ actors.Self[hubMessage], batch []hubMessage) {
	if h.idle {
		h.idle = false
		h.client.unwatched.Store(false)
		revision, _ := h.client.cfg.History.Position()
		h.core.reach(revision)
	}
	for _, m := range batch {
		effects := h.core.step(m)
		h.send(effects)
		h.carried.last = h.core.lastGroup // before a group is made: a panic from here on must not lead to a second of its id
		for _, e := range effects {
			h.execute(e)
		}
	}
	if len(h.groups) == 0 {
		h.idle = true
		h.client.unwatched.Store(true)
	}
}

func (h *hubActor) execute(e hubEffect) {
	switch e := e.(type) {
	case tellGroup:
		// Resync never refuses; a failed group reports itself. The zero Ref is one that has ended.
		if err := h.groups[e.group].Tell(actors.Normal, e.message); err != nil {
			if m, is := e.message.(routed); is {
				m.passage.done()
			}
		}
	case makeGroup:
		h.spawn(e.spec)
	case endGroup:
		if ref, ok := h.groups[e.group]; ok {
			delete(h.groups, e.group)
			ref.Retire()
		}
	case failStream:
		if s := h.client.stream(e.stream); s != nil {
			s.fail(ErrRestarted)
		}
	}
}

func (h *hubActor) spawn(spec groupSpec) {
	c := h.client
	as := actors.Spec[groupMessage]{
		Name: spec.name(), Kind: "watch/group", Policy: c.groupPolicy, OnPanic: actors.StopActor,
		Behavior: func() actors.Behavior[groupMessage] { return &groupActor{client: c, spec: spec} },
		Stopped: func(err error) {
			c.metrics.groups.Dec() // first: Client.Stop waits for those that are in groups
			c.mu.Lock()
			delete(c.groups, spec.id)
			c.mu.Unlock()
			if err != nil {
				_ = c.hub.Tell(actors.Normal, groupFailed{spec.id}) // a stopped hub has no streams left
			}
		},
	}
	c.metrics.groups.Inc()
	c.mu.Lock() // a group that ends at once is taken out after it was entered
	defer c.mu.Unlock()
	ref, err := actors.Spawn(c.sys, as)
	if errors.Is(err, actors.ErrNameTaken) { // by a predecessor that is still ending
		as.Name = fmt.Sprintf("%s~%d", as.Name, spec.id)
		ref, err = actors.Spawn(c.sys, as)
	}
	actors.Must(err == nil, "group %s cannot start: %v", spec.name(), err)
	h.groups[spec.id] = ref
	c.groups[spec.id] = ref
}

// Stop lets the groups go. After a panic their streams end too.
func (h *hubActor) Stop() {
	for _, id := range sortedKeys(h.groups) {
		h.groups[id].Retire()
	}
}

// groupActor is the shell of a group.
type groupActor struct {
	client  *Client
	spec    groupSpec
	core    *groupCore
	counted int
}

func (g *groupActor) Start(actors.Self[groupMessage]) error {
	rest := g.client.cfg.bounds.restPerDelivery / time.Duration(runtime.GOMAXPROCS(0))
	g.core = newGroupCore(g.spec, g.client.limit, rest, g.client.cfg.History.Value)
	return nil
}

func (g *groupActor) Handle(self actors.Self[groupMessage], batch []groupMessage) {
	for _, m := range batch {
		effects := g.core.step(m)
		g.send(effects)
		if r, is := m.(routed); is {
			r.passage.done() // what waits in the core is little: gatheredBytesMax
		}
		for _, e := range effects {
			// Resync never refuses; the end of a stream comes as dropStream.
			if err := e.stream.ref.Tell(actors.Normal, e.message); err != nil {
				if d, is := e.message.(*delivered); is {
					d.passage.done()
				}
			}
		}
	}
	if rest := g.core.gather.rest; rest > 0 {
		g.core.gather.rest = 0
		self.After(rest, restOver{})
	}
	if n := g.core.encoded - g.counted; n > 0 {
		g.client.metrics.encoded.Add(float64(n))
		g.counted = g.core.encoded
	}
}

func (*groupActor) Stop() {}

// streamActor is the shell of a stream.
type streamActor struct {
	stream *Stream
	core   *streamCore
	// advancing says that an advance waits in the mailbox or is timed.
	advancing bool
	reading   int
	resyncs   int
}

func (a *streamActor) Start(self actors.Self[streamMessage]) error {
	c := a.stream.client
	a.core = newStreamCore(streamAddress{a.stream.id, self.Ref()}, c.cfg.bounds.heldBytes, c.cfg.bounds.catchupBytes)
	return nil
}

func (a *streamActor) Handle(self actors.Self[streamMessage], batch []streamMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case advance:
			a.advancing = false
		case inspect:
			m.answer(a.core.inspect(m.watchesMax))
			continue
		}
		a.execute(self, a.core.step(m, a.position(), a.stream.outbox.room()))
		switch m := m.(type) {
		case request:
			a.stream.outbox.handled(m.bytes)
		case *delivered:
			m.passage.done() // what is held back is little: heldBytesMax
		}
	}
	a.count()
}

func (a *streamActor) position() position {
	revision, compacted := a.stream.client.cfg.History.Position()
	return position{revision, compacted}
}

func (a *streamActor) execute(self actors.Self[streamMessage], e *streamEffects) {
	s := a.stream
	s.outbox.put(e.frames, e.credits)
	events := 0
	for i := range e.frames {
		events += e.frames[i].events
	}
	clear(e.frames) // an idle stream holds nothing that its client has got
	if events > 0 {
		s.client.metrics.events.Add(float64(events))
	}
	for _, m := range e.hub {
		_ = s.client.hub.Tell(actors.Normal, m) // resync never refuses; a stopped hub ends this stream
	}
	if e.failed != nil {
		s.fail(ErrStreamFailed) // the reader of history has logged why
		return
	}
	if e.arm {
		self.After(a.interval(), progressDue{})
	}
	if e.retry {
		a.advance(self, catchupRetryDelay)
	}
	if e.drain {
		if again, pause := s.outbox.starve(); again {
			a.advance(self, pause)
		}
	}
	a.want(self, e.wants)
}

// want asks the reader of history.
func (a *streamActor) want(self actors.Self[streamMessage], list []want) {
	if len(list) == 0 {
		return
	}
	m := wants{a.core.address, slices.Clone(list)}
	if err := a.stream.client.history.Tell(actors.Normal, m); err != nil {
		a.execute(self, a.core.refused(list, a.position(), a.stream.outbox.room()))
	}
}

// advance has the stream look again, at once or after a pause.
func (a *streamActor) advance(self actors.Self[streamMessage], after time.Duration) {
	if a.advancing {
		return
	}
	a.advancing = true
	if after > 0 || self.Ref().Tell(actors.Control, advance{}) != nil {
		self.After(max(after, catchupRetryDelay), advance{})
	}
}

// interval is the time to the next progress notification, longer at random so that streams do not all send at once.
func (a *streamActor) interval() time.Duration {
	c := a.stream.client
	return time.Duration(float64(c.cfg.ProgressInterval) * (1 + progressJitter*c.cfg.Random()))
}

// count brings the gauges up to date, and what the stream shows.
func (a *streamActor) count() {
	s, m := a.stream, a.stream.client.metrics
	watches := len(a.core.watches)
	slow := watches - a.core.joined
	if watches != s.watches {
		m.watches.Add(float64(watches - s.watches))
		s.watches = watches
		s.shown.watches.Store(int64(watches))
	}
	if slow != s.slow {
		m.slow.Add(float64(slow - s.slow))
		s.slow = slow
		s.shown.slow.Store(int64(slow))
	}
	if reading := a.core.reading; reading != a.reading {
		s.outbox.reserve(reading * a.core.pieceBytes)
		a.reading = reading
	}
	if slow > 0 {
		s.shown.place.Store(int64(a.core.place))
	}
	if n := a.core.resyncs - a.resyncs; n > 0 {
		m.lost.Add(float64(n))
		a.resyncs = a.core.resyncs
		s.shown.resyncs.Store(uint64(a.resyncs))
	}
}

func (*streamActor) Stop() {}
