package leaseactor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// Table is the store's published lease table. Its methods never wait and may be called from any turn.
type Table interface {
	// Lease gives a lease, false when there is none with that id.
	Lease(id proto.LeaseID) (proto.Lease, bool)
	// All calls f for each lease of one published state, in any order.
	All(f func(proto.Lease))
	// KeyCount counts the keys attached to a lease, up to `most`.
	KeyCount(id proto.LeaseID, most int) int
}

// Proposer is raft, as far as this room needs it.
type Proposer interface {
	// ProposeInTerm proposes while this member leads in the term, else refuses. It never waits. When it returns an error
	// it has not kept the answer; else the answer comes once, whatever happens.
	ProposeInTerm(t proto.Term, r *etcdserverpb.InternalRaftRequest, answer actors.Reply[*proto.Result]) error
}

// Config is what the room needs. Zero durations mean the defaults.
type Config struct {
	// Table and Proposer are required.
	Table    Table
	Proposer Proposer
	// Status gives raft's last published status, never nil. When set it decides who is primary, and Led and Deposed only
	// hurry; when nil they decide.
	Status func() *proto.RaftStatus
	// ConfirmLeader asks in a round of ReadIndex whether this member still leads. done is called once, from any goroutine;
	// it only tells. nil: leadership is taken from Status alone.
	ConfirmLeader func(done func(error))
	// WaitApplied waits until the published state holds an index. Called in the caller's goroutine when a lease is
	// unknown. nil: an unknown lease is unknown.
	WaitApplied func(ctx context.Context, index proto.Index) error
	// WaitOnRenew makes every renewal wait until the entries that are committed are applied, as etcd before 3.7 and 3.7
	// with its gate FastLeaseKeepAlive off. A renewal is right without it: an unknown lease is waited for in any case.
	WaitOnRenew bool
	// ElectionTimeout is added to every expiry when this member becomes primary. HeartbeatInterval is a third of how long
	// leadership is believed without a turn of the clock.
	ElectionTimeout   time.Duration
	HeartbeatInterval time.Duration
	// TickInterval is the precision of expiry; it must divide one second.
	TickInterval time.Duration
	// Checkpoint sends checkpoints of remaining times. Only when every member clears them on renewal; see checkpoint.go.
	Checkpoint         bool
	CheckpointInterval time.Duration
	// Metrics gets the room's collectors; nil: none.
	Metrics prometheus.Registerer
	// Log gets what operators should know. The zero Logger discards.
	Log zerolog.Logger

	control, requests actors.Bound // lowered by tests
}

func (c *Config) complete() error {
	if c.Table == nil || c.Proposer == nil {
		return fmt.Errorf("%w: Table and Proposer are required", ErrConfigInvalid)
	}
	for field, value := range map[*time.Duration]time.Duration{
		&c.ElectionTimeout: electionDefault, &c.HeartbeatInterval: heartbeatDefault, &c.TickInterval: tickDefault,
		&c.CheckpointInterval: checkpointIntervalDefault,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if c.TickInterval < 0 || c.TickInterval > tickMax || tickMax%c.TickInterval != 0 {
		return fmt.Errorf("%w: a tick of %v does not divide a second", ErrConfigInvalid, c.TickInterval)
	}
	if c.control == (actors.Bound{}) {
		c.control = actors.Bound{Messages: changesMessages, Bytes: changesBytes}
	}
	if c.requests == (actors.Bound{}) {
		c.requests = actors.Bound{Messages: inboxMessages, Bytes: inboxBytes}
	}
	return nil
}

func (c *Config) settings() settings {
	s := settings{
		ticksPerSecond: tick(time.Second / c.TickInterval),
		electionTicks:  tick((c.ElectionTimeout + c.TickInterval - 1) / c.TickInterval),
		keysOf:         c.Table.KeyCount,
	}
	if c.Checkpoint {
		s.checkpointTicks = max(tick(c.CheckpointInterval/c.TickInterval), 1)
	}
	return s
}

// Client is how the rest of the process uses the room. Safe for any goroutine.
type Client struct {
	cfg   Config
	ref   actors.Ref[message]
	stop  func()
	clock actors.Clock
	began time.Time
	shown atomic.Pointer[inspection]
}

// Spawn starts the actor. Stop ends it.
func Spawn(sys *actors.System, cfg Config) (*Client, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, clock: sys.Clock(), began: sys.Clock().Now()}
	c.shown.Store(&inspection{})
	m := newMetrics(c.Inspect)
	if err := m.register(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("leaseactor: %w", err)
	}
	ref, err := actors.Spawn(sys, actors.Spec[message]{
		Name: "lease", Policy: policy(cfg.control, cfg.requests),
		Behavior: func() actors.Behavior[message] {
			return &leaseActor{cfg: &c.cfg, metrics: m, began: c.began, shown: &c.shown}
		},
		Tick: func(int) message { return ticked{} },
	})
	if err != nil {
		return nil, err
	}
	c.ref = ref
	c.stop = sys.Every(cfg.TickInterval, ref.Tick)
	return c, nil
}

// Changed tells what a batch did to the lease table. It is for the store's turn, after its state was published and
// before the batch's waiters are answered, and never waits. The slice is shared from then on.
func (c *Client) Changed(changes []proto.LeaseChange) {
	if len(changes) > 0 {
		_ = c.ref.Tell(actors.Control, changed{changes}) // resync never refuses; a stopped actor needs no notice
	}
}

// Led says that this member leads in a term and has applied its first entry. It never waits.
func (c *Client) Led(term proto.Term) { _ = c.ref.Tell(actors.Control, led{term}) }

// Deposed says that this member does not lead any more. It never waits.
func (c *Client) Deposed() { _ = c.ref.Tell(actors.Control, led{}) }

// Renew extends a lease and gives its granted time to live in seconds, 0 when there is no such lease. A positive
// answer means that the lease was there when it left and has all its time again. It waits for the revocation of a
// lease that has expired, for a confirmation of leadership, and for the entries committed when it came if the lease
// is unknown. Errors: ErrNotPrimary, ErrBusy, ErrStopped, context.Cause(ctx), or with WaitOnRenew ErrApplyLate.
func (c *Client) Renew(ctx context.Context, id proto.LeaseID) (int64, error) {
	committed := c.committed()
	if c.cfg.WaitOnRenew && c.behind(committed) && c.waitApplied(ctx, committed) != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 0, ErrApplyLate
	}
	ttl, err := c.renew(ctx, id)
	if err != nil || ttl > 0 || !c.catchUp(ctx, committed) {
		return ttl, err
	}
	return c.renew(ctx, id)
}

func (c *Client) renew(ctx context.Context, id proto.LeaseID) (int64, error) {
	reply := actors.NewReply[int64]()
	if err := c.ref.Offer(ctx, actors.Normal, &renew{id, []actors.Reply[int64]{reply}}); err != nil {
		return 0, own(err)
	}
	ttl, err := actors.Await(ctx, c.ref, reply)
	return ttl, own(err)
}

// Remaining gives the seconds a lease has left, truncated and 0 or less when it has expired and is about to be
// revoked, and the granted ones; ok is false when there is no such lease. Errors as for Renew.
func (c *Client) Remaining(ctx context.Context, id proto.LeaseID) (seconds, granted int64, ok bool, err error) {
	committed := c.committed()
	r, err := c.remaining(ctx, id)
	if err == nil && !r.Found && c.catchUp(ctx, committed) {
		r, err = c.remaining(ctx, id)
	}
	return r.Seconds, r.Granted, r.Found, err
}

func (c *Client) remaining(ctx context.Context, id proto.LeaseID) (Remaining, error) {
	reply := actors.NewReply[Remaining]()
	if err := c.ref.Offer(ctx, actors.Normal, &remaining{id, reply}); err != nil {
		return Remaining{}, own(err)
	}
	r, err := actors.Await(ctx, c.ref, reply)
	return r, own(err)
}

// Inspect gives what an operator should see of the leases, as of the actor's last turn, and how late the latest expiry
// is by now. It never waits, whatever the actor does.
func (c *Client) Inspect() Inspection {
	i := *c.shown.Load()
	if i.oldest != 0 {
		i.OldestOverdue = max(c.clock.Now().Sub(c.began)-time.Duration(i.oldest), 0)
	}
	return i.Inspection
}

// committed is the commit index now: a grant that was acknowledged anywhere is at or below it.
func (c *Client) committed() proto.Index {
	if c.cfg.Status == nil {
		return 0
	}
	return c.cfg.Status().Commit
}

// behind reports whether there is something to wait for.
func (c *Client) behind(committed proto.Index) bool {
	return c.cfg.WaitApplied != nil && c.cfg.Status != nil && c.cfg.Status().Applied < committed
}

// catchUp waits until the published state holds what was committed, true if that was news.
func (c *Client) catchUp(ctx context.Context, committed proto.Index) bool {
	return c.behind(committed) && c.waitApplied(ctx, committed) == nil
}

func (c *Client) waitApplied(ctx context.Context, committed proto.Index) error {
	ctx, cancel := context.WithTimeout(ctx, appliedWait)
	defer cancel()
	return c.cfg.WaitApplied(ctx, committed)
}

// own puts this room's error in the place of the runtime's.
func own(err error) error {
	if errors.Is(err, actors.ErrStopped) {
		return ErrStopped
	}
	return err
}

// Stop ends the actor. Requests that wait are answered with ErrStopped.
func (c *Client) Stop(ctx context.Context) error {
	c.stop()
	return c.ref.Stop(ctx)
}
