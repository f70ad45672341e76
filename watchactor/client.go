package watchactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"troupe/actors"
	ids "troupe/proto"
)

// Config is what the room needs. Zero values mean the defaults.
type Config struct {
	// History is the store's published state. Required.
	History History
	// MaxRequestBytes is --max-request-bytes; responses stay 512 KiB above it, where revisions allow.
	MaxRequestBytes int
	// ProgressInterval is the time between progress notifications, at least 100 ms. Default 10 minutes.
	ProgressInterval time.Duration
	// Permit checks a create request before it is handed on: the context is the one given to Request, the result is the
	// cancel reason, empty when it is permitted. It runs in the caller's goroutine and may wait. nil permits everything.
	Permit func(ctx context.Context, r *etcdserverpb.WatchCreateRequest) (refusal string)
	// OutboxBytes bounds what one stream buffers for its client. OutboxTotalBytes bounds what all together buffer before
	// each is held to a small minimum; at twice that, each holds one response, at outboxWall times nothing more is added.
	OutboxBytes      int
	OutboxTotalBytes int64
	// Groups is how many ranges get a group of their own.
	Groups int
	// Random gives numbers in [0, 1) for the jitter of progress notifications. nil: the runtime's.
	Random func() float64
	// Metrics gets the room's collectors; nil: none.
	Metrics prometheus.Registerer
	// Log gets failures. The zero Logger discards.
	Log zerolog.Logger

	bounds *bounds // lowered by tests
}

func (c *Config) complete() error {
	if c.History == nil {
		return errors.New("watchactor: no History")
	}
	setDefault(&c.MaxRequestBytes, requestBytesDefault)
	setDefault(&c.ProgressInterval, progressIntervalDefault)
	c.ProgressInterval = max(c.ProgressInterval, progressIntervalMin)
	setDefault(&c.OutboxBytes, outboxBytesDefault)
	setDefault(&c.OutboxTotalBytes, outboxTotalDefault)
	setDefault(&c.Groups, groupsDefault)
	setDefault(&c.bounds, &boundsDefault)
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// Client is how the rest of the process uses the room. Safe for any goroutine.
type Client struct {
	sys     *actors.System
	cfg     Config
	limit   int
	budget  budget
	transit transit
	metrics *metrics
	// sendPace is shared by the readers of all streams.
	sendPace sendPace
	hub      actors.Ref[hubMessage]
	history  actors.Ref[historyMessage]
	// unwatched is the hub's word that it needs no batches; hubActor.Handle says why that loses none.
	unwatched atomic.Bool
	// Policies are shared by the actors of a kind.
	groupPolicy  actors.Policy[groupMessage]
	streamPolicy actors.Policy[streamMessage]

	mu      sync.Mutex
	streams map[streamID]*Stream
	groups  map[groupID]actors.Ref[groupMessage] // those that have not ended
	last    streamID
	stopped bool
}

// Spawn starts the hub and the reader of history. Groups and streams are made on demand.
func Spawn(sys *actors.System, cfg Config) (*Client, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Client{
		sys: sys, cfg: cfg, limit: responseLimit(cfg.MaxRequestBytes),
		groupPolicy: groupPolicy(cfg.bounds.group), streamPolicy: streamPolicy(cfg.bounds.stream),
		streams: make(map[streamID]*Stream), groups: make(map[groupID]actors.Ref[groupMessage]),
	}
	c.budget.total, c.transit.most = cfg.OutboxTotalBytes, cfg.bounds.transitBytes
	c.sendPace.mebibyte = cfg.bounds.restPerMebibyte / time.Duration(runtime.GOMAXPROCS(0))
	c.metrics = newMetrics(&c.budget, &c.transit)
	if err := c.metrics.register(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("watchactor: %w", err)
	}
	var err error
	if c.history, err = c.spawnHistory(); err != nil {
		return nil, err
	}
	carried := &hubCarried{}
	hub, err := actors.Spawn(sys, actors.Spec[hubMessage]{
		Name: "watch/hub", Policy: hubPolicy(cfg.bounds.hub), OnPanic: actors.RestartActor,
		Behavior: func() actors.Behavior[hubMessage] { return &hubActor{client: c, carried: carried} },
		Stopped: func(err error) {
			if err != nil {
				c.stopStreams(ErrStopped) // it panicked too often; nothing would ever be delivered
			}
		},
	})
	if err != nil {
		c.history.Retire()
		return nil, err
	}
	c.hub = hub
	return c, nil
}

// spawnHistory starts the reader of history.
func (c *Client) spawnHistory() (actors.Ref[historyMessage], error) {
	restarted := false
	return actors.Spawn(c.sys, actors.Spec[historyMessage]{
		Name: "watch/history", Policy: actors.Reject[historyMessage](c.cfg.bounds.history), OnPanic: actors.RestartActor,
		Behavior: func() actors.Behavior[historyMessage] { return &historyActor{client: c, restarted: &restarted} },
		Stopped: func(err error) {
			if err != nil {
				c.stopStreams(ErrStopped) // as for the hub
			}
		},
	})
}

// Publish tells the hub of a batch. It is for the store's turn, after its state was published and before its waiters
// are answered, and never waits: past the hub's bound the batch is left to history. While nobody watches it does
// nothing. The batch is shared from then on.
func (c *Client) Publish(b *ids.EventBatch) {
	if c.unwatched.Load() {
		return
	}
	_ = c.hub.Tell(actors.Normal, published{b}) // resync never refuses; a stopped hub has nobody to tell
}

// Lost says that the store's state has been replaced as a whole (a snapshot was installed) and is now at revision
// through: every watch goes on from history where it was. It never waits.
func (c *Client) Lost(through ids.Revision) {
	_ = c.hub.Tell(actors.Normal, lostBatches{through: through})
}

// Open makes a stream for an owner, or with nil for one of its own. Who opens it must Close it.
func (c *Client) Open(owner *Owner) (*Stream, error) {
	if owner == nil {
		owner = new(Owner)
	}
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil, ErrStopped
	}
	c.last++
	s := &Stream{client: c, id: c.last}
	s.outbox.bytesMax, s.outbox.budget, s.outbox.metrics = c.cfg.OutboxBytes, &c.budget, c.metrics
	s.outbox.owner = owner
	s.outbox.aheadMax = min(c.cfg.OutboxBytes, c.cfg.bounds.aheadBytes)
	s.outbox.joinMax = min(joinedFrameBytesMax, c.limit)
	c.streams[s.id] = s
	c.mu.Unlock()
	c.metrics.streams.Inc()
	ref, err := actors.Spawn(c.sys, actors.Spec[streamMessage]{
		Name: fmt.Sprintf("watch/stream/%d", s.id), Kind: "watch/stream", Policy: c.streamPolicy,
		OnPanic:  actors.StopActor,
		TakeTurn: s.outbox.takeTurn, // one wake-up for a delivery
		Behavior: func() actors.Behavior[streamMessage] { return &streamActor{stream: s} },
		Stopped:  s.stopped,
	})
	if err != nil {
		if c.stream(s.id) != nil {
			s.stopped(err)
		}
		return nil, err
	}
	s.setRef(ref)
	if s.outbox.reason() != nil {
		ref.Retire() // ended by a stop or restart that came while it was made
	}
	return s, nil
}

// Stop ends all streams, the groups and the hub, and waits for them. Open streams return ErrStopped.
func (c *Client) Stop(ctx context.Context) error {
	var all []error
	for _, s := range c.stopStreams(ErrStopped) {
		all = append(all, s.getRef().Stop(ctx))
	}
	all = append(all, c.history.Stop(ctx), c.hub.Stop(ctx))
	c.mu.Lock()
	groups := make([]actors.Ref[groupMessage], 0, len(c.groups))
	for _, id := range sortedKeys(c.groups) {
		groups = append(groups, c.groups[id])
	}
	c.mu.Unlock()
	for _, g := range groups {
		all = append(all, g.Stop(ctx))
	}
	return errors.Join(all...)
}

// stopStreams ends all streams for good.
func (c *Client) stopStreams(reason error) []*Stream {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	return c.failStreams(reason)
}

// failStreams ends all streams there are.
func (c *Client) failStreams(reason error) []*Stream {
	c.mu.Lock()
	list := make([]*Stream, 0, len(c.streams))
	for _, id := range sortedKeys(c.streams) {
		list = append(list, c.streams[id])
	}
	c.mu.Unlock()
	for _, s := range list {
		s.fail(reason)
	}
	return list
}

// Full reports whether so much waits for clients that a stream holds no more than one response, what is only reserved
// not counted. A client that does not read what it has been sent should be cut off then: it keeps others waiting.
func (c *Client) Full() bool { return c.budget.there() >= 2*c.budget.total }

func (c *Client) stream(id streamID) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// Stream is one client's watch stream. Request and Next may be called from one goroutine each; Close from any.
type Stream struct {
	client *Client
	id     streamID
	outbox outbox

	mu  sync.Mutex
	ref actors.Ref[streamMessage]

	// hooked is the context whose end wakes the reader; unhook ends that. Both, and sending, belong to the reader.
	hooked  context.Context
	unhook  func() bool
	sending sending

	shown shown

	// watches and slow are what the stream has added to the gauges. Touched in its turns and at its end only.
	watches, slow int
}

func (s *Stream) setRef(r actors.Ref[streamMessage]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ref = r
}

func (s *Stream) getRef() actors.Ref[streamMessage] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ref
}

// Request hands over one request of the client, which belongs to the stream from then on. It waits while too many
// requests are unhandled or unanswered, because the client does not read; that is how a stream's requests are no
// longer read. It returns why the stream has ended, or context.Cause(ctx). A create that is not permitted is no
// error: it is answered.
func (s *Stream) Request(ctx context.Context, r *etcdserverpb.WatchRequest) error {
	m := request{message: r, bytes: proto.Size(r)}
	if create := r.GetCreateRequest(); create != nil && s.client.cfg.Permit != nil {
		m.refusal = s.client.cfg.Permit(ctx, create)
	}
	if err := s.outbox.acquire(ctx, m.bytes); err != nil {
		return err
	}
	if err := s.getRef().Offer(ctx, actors.Control, m); err != nil {
		s.outbox.handled(m.bytes)
		s.outbox.put(nil, 1)
		if ended := s.outbox.reason(); ended != nil {
			return ended
		}
		return err
	}
	return nil
}

// Next waits for the next frame. It returns why the stream has ended (ErrRestarted and ErrStreamFailed are
// retriable), or context.Cause(ctx). While it waits it may run turns of the stream's actor, which do not wait either;
// the caller's profile labels are gone afterwards. Frames that wait in the outbox when the stream ends are dropped;
// the few that the reader has taken out already are still given.
func (s *Stream) Next(ctx context.Context) (Frame, error) {
	now := s.sending.done(s.client.metrics)
	for {
		f, found, err := s.poll()
		if found {
			if s.pace(ctx, &f) {
				now = time.Time{}
			}
			s.sending.begin(&f, now)
		}
		if found || err != nil {
			return f, err
		}
		if ctx.Err() != nil {
			return Frame{}, context.Cause(ctx)
		}
		s.hook(ctx)
		if filled := s.outbox.await(); filled != nil {
			if ctx.Err() != nil {
				s.outbox.nudge() // the hook may have run before the outbox knew that somebody waits
			}
			if turn := <-filled; turn != nil {
				actors.RunTurn(turn)
			}
			now = time.Time{}
		}
	}
}

// hook has the end of a context wake the reader. A select on both would cost every frame more than the frame.
func (s *Stream) hook(ctx context.Context) {
	if s.hooked == ctx || ctx.Done() == nil {
		return
	}
	if s.unhook != nil {
		s.unhook()
	}
	s.hooked, s.unhook = ctx, context.AfterFunc(ctx, s.outbox.nudge)
}

// poll gives the next frame if there is one.
func (s *Stream) poll() (Frame, bool, error) {
	f, found, feed, err := s.outbox.take()
	if feed {
		_ = s.getRef().Tell(actors.Control, drained{}) // the lane has room for it beside all requests
	}
	return f, found, err
}

// Lend says that the transport holds so many bytes of a frame that Next gave, until as many were given back. They count
// for what all streams may hold. For the reader.
func (s *Stream) Lend(bytes int) { s.outbox.lend(bytes) }

// GiveBack says that the transport has sent, or dropped, bytes that were lent. For any goroutine, also after Close.
func (s *Stream) GiveBack(bytes int) { s.outbox.giveBack(bytes) }

// Close frees everything the stream holds. It does not wait, and may be called twice.
func (s *Stream) Close() { s.fail(ErrClosed) }

// fail ends the stream with a reason.
func (s *Stream) fail(reason error) {
	s.outbox.end(reason)
	s.getRef().Retire()
}

// stopped runs in the actor's last turn.
func (s *Stream) stopped(err error) {
	c := s.client
	if err != nil {
		s.outbox.end(ErrStreamFailed)
	}
	s.outbox.end(ErrClosed)
	c.metrics.streams.Dec()
	c.metrics.watches.Sub(float64(s.watches))
	c.metrics.slow.Sub(float64(s.slow))
	c.mu.Lock()
	delete(c.streams, s.id)
	c.mu.Unlock()
	_ = c.hub.Tell(actors.Normal, streamGone{s.id}) // a stopped hub has forgotten it
}
