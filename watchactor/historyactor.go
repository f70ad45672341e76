package watchactor

import (
	"errors"
	"runtime"
	"time"

	"troupe/actors"
)

// historyActor is the shell of the reader of history: the one place of the room where the past is read, one piece at a
// time.
type historyActor struct {
	client *Client
	// restarted says that this is not the first one: what the last one was asked for is lost with it.
	restarted *bool
	core      *historyCore
	// reading says that a readNext waits or is timed.
	reading bool
	tidying bool
	counted historyCounts
}

// tidyShelf is the tick that forgets kept pieces. Told by the reader's timer while it keeps some.
type tidyShelf struct{}

func (tidyShelf) historyMessage() {}

func (h *historyActor) Start(actors.Self[historyMessage]) error {
	c := h.client
	b := *c.cfg.bounds
	processors := time.Duration(runtime.GOMAXPROCS(0))
	b.restPerEvent, b.restPerMebibyte = b.restPerEvent/processors, b.restPerMebibyte/processors
	h.core = newHistoryCore(c.limit, &b, c.cfg.History.Value, func(id streamID) bool { return c.stream(id) != nil })
	if *h.restarted {
		c.failStreams(ErrRestarted)
	}
	*h.restarted = true
	return nil
}

func (h *historyActor) Handle(self actors.Self[historyMessage], batch []historyMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case wants:
			h.execute(self, h.core.want(m))
		case readNext:
			h.reading = false
			h.read(self)
		case tidyShelf:
			h.tidying = false
			if h.core.tidy() {
				h.tidyLater(self)
			}
		default:
			actors.Must(false, "the reader of history got a message of unknown kind %T", m)
		}
	}
	h.count()
}

// read reads one piece, or serves a kept one.
func (h *historyActor) read(self actors.Self[historyMessage]) {
	r, must := h.core.next(h.position())
	if !must {
		h.execute(self, h.core.settled())
		return
	}
	c := h.client
	events, next, err := c.cfg.History.Events(r.keys, r.from, r.through, c.cfg.bounds.catchupBytes)
	if err != nil && !errors.Is(err, ErrCompacted) {
		c.cfg.Log.Error().Err(err).Str("range", r.keys.name()).Int64("revision", int64(r.from)).
			Msg("history cannot be read; the watch streams that need it end, and clients open them again")
	}
	h.execute(self, h.core.took(r, events, next, err, h.position()))
	h.tidyLater(self)
}

func (h *historyActor) position() position {
	revision, compacted := h.client.cfg.History.Position()
	return position{revision, compacted}
}

func (h *historyActor) execute(self actors.Self[historyMessage], e *historyEffects) {
	for _, a := range e.answers {
		_ = a.stream.ref.Tell(actors.Normal, a.message) // resync never refuses; an ended stream needs no answer
	}
	if h.reading || !e.again && !e.retry {
		return
	}
	h.reading = true
	rest := e.rest
	if e.retry {
		rest = catchupRetryDelay
	}
	if rest == 0 {
		if self.Ref().Tell(actors.Normal, readNext{}) == nil {
			return
		}
		rest = restMin // the mailbox is full of wants
	}
	self.After(rest, readNext{})
}

func (h *historyActor) tidyLater(self actors.Self[historyMessage]) {
	if !h.tidying {
		h.tidying = true
		self.After(shelfKept, tidyShelf{})
	}
}

// count brings the counters up to date.
func (h *historyActor) count() {
	m, now := h.client.metrics, h.core.counts
	m.shelf.Store(int64(h.core.shelf.bytes))
	if now == h.counted {
		return
	}
	m.history.Add(float64(now.pieces - h.counted.pieces))
	m.historyBytes.Add(float64(now.bytes - h.counted.bytes))
	m.historyServed.Add(float64(now.served - h.counted.served))
	m.encoded.Add(float64(now.encoded - h.counted.encoded))
	h.counted = now
}

func (h *historyActor) Stop() { h.client.metrics.shelf.Store(0) }
