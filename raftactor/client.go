package raftactor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
)

// Client is the only way to the raft, wal and apply actors of a member. It is safe for concurrent use.
type Client struct {
	ref     actors.Ref[message]
	apply   actors.Ref[*applyWork]
	wal     walLink
	ids     *requestIDs
	view    atomic.Pointer[view]
	metrics *metrics
	// requestBytesMax is MaxRequestBytes.
	requestBytesMax int
	// priority is PriorityRequest.
	priority  bool
	stopTicks func()
	// applied is what Applied was told last, of which raft hears only in its next turn.
	applied atomic.Uint64
	// durableCommit is, after Stop, the commit index that the log durably holds.
	durableCommit atomic.Uint64
}

// Spawn starts the three actors. A new cluster's first entries are durable when it returns. The member then campaigns
// at once if it is the only voter, unless Config.Patient.
func Spawn(sys *actors.System, cfg Config) (*Client, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	r, err := recovered(&cfg)
	if err != nil {
		return nil, err
	}
	if err := checkRecovered(r, cfg.AppliedAtStart, cfg.Membership); err != nil {
		return nil, err
	}
	if r.Uncopied {
		cfg.Logger.Warn().Msg("the torn end of the log was cut off without a copy, the disk is full")
	}
	if m := cfg.Membership; m.DowngradeTarget != "" {
		cfg.Logger.Info().Str("target-cluster-version", m.DowngradeTarget).Str("cluster-version", m.ClusterVersion).
			Str("current-server-version", cfg.Version).Msg("cluster is downgrading to target version")
	}
	c := &Client{
		ids:             newRequestIDs(cfg.Meta.Member, sys.Clock().Now(), r.Entries),
		requestBytesMax: cfg.MaxRequestBytes,
		priority:        cfg.PriorityRequest,
	}
	c.view.Store(&view{status: &proto.RaftStatus{Member: cfg.Meta.Member, Applied: cfg.AppliedAtStart}})
	if c.metrics, err = newMetrics(cfg.Metrics, cfg.Meta.Member, c.Status, c.appliedNow); err != nil {
		return nil, err
	}
	core, err := newCore(coreConfig{
		member:          cfg.Meta.Member,
		electionTicks:   cfg.ElectionTicks,
		heartbeatTicks:  cfg.HeartbeatTicks,
		requestTicks:    cfg.requestTicks(),
		appliedAtStart:  cfg.AppliedAtStart,
		snapshotCount:   cfg.SnapshotCount,
		catchUpEntries:  cfg.CatchUpEntries,
		snapshotAtStart: r.Start.Index,
		log:             newMemLog(r.After, r.AfterTerm, r.HardState, cfg.confState(), r.Entries),
		room:            cfg.room(),
		members:         cfg.Membership,
		strict:          !cfg.NoStrictReconfig,
		reached:         cfg.reached(),
		peerless:        cfg.Peers == nil,
		healthTicks:     cfg.ticks(healthyTime),
		learnersMax:     max(0, cfg.MaxLearners),
		priority:        cfg.PriorityRequest,
		noPreVote:       cfg.NoPreVote,
		patient:         cfg.Patient,
		logger:          raftLogger{cfg.Logger},
		nextID:          c.ids.next,
	})
	if err != nil {
		return nil, err
	}
	if err := c.spawn(sys, &cfg, core); err != nil {
		return nil, err
	}
	return c, nil
}

// spawn starts the actors: those that raft tells before raft. They learn raft's address when raft starts, which is
// before raft gives them anything. After an error none of them is left.
func (c *Client) spawn(sys *actors.System, cfg *Config, core *core) (err error) {
	own := &owner{}
	if c.wal, err = startWAL(sys, cfg, own); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if c.apply.Valid() {
			_ = c.apply.Stop(context.Background()) // it has nothing to do
		}
		_ = c.wal.stop(context.Background()) // nothing was appended; its error would hide the cause
	}()
	applies := applyCore{
		membership:  cfg.Membership,
		learnersMax: max(0, cfg.MaxLearners),
		version:     cfg.Version,
	}
	c.apply, err = spawnApply(sys, applies, cfg, own.tell)
	if err != nil {
		return err
	}
	shell := &raftActor{
		core:    core,
		view:    &c.view,
		wal:     c.wal,
		apply:   c.apply,
		peers:   cfg.Peers,
		metrics: c.metrics,
		log:     cfg.Logger,
		started: func(self actors.Self[message]) {
			own.ref, c.ref = self.Ref(), self.Ref()
			if cfg.Bind != nil {
				cfg.Bind(c)
			}
		},
	}
	ref, err := actors.Spawn(sys, actors.Spec[message]{
		Name:     "raft",
		Policy:   raftPolicy,
		Behavior: func() actors.Behavior[message] { return shell },
		OnPanic:  actors.FailStop,
		Pinned:   true,
		Tick:     func(count int) message { return &tick{count} },
	})
	if err != nil {
		return err
	}
	if !c.ref.Valid() {
		c.ref = ref // under a seeded dispatcher raft has not started yet
	}
	c.stopTicks = sys.Every(cfg.TickInterval, ref.Tick)
	return nil
}

// NextRequestID gives an id that no other request of the cluster has, for requests that are built elsewhere.
func (c *Client) NextRequestID() proto.RequestID { return proto.RequestID(c.ids.next()) }

// Propose makes a request an entry and waits for its result. It fills in the header's id; the request then belongs to
// the members of the cluster and must not be changed. ErrRequestTooLarge, ErrInvalidRequest, ErrTooManyRequests,
// ErrDiskStalled, ErrNoSpace, ErrNeverProposed: nothing was proposed. ErrTimeout (also when ctx's deadline passes),
// ErrTimeoutLeaderFail, ErrStopped, or the cause of ctx when it was cancelled: the request may still be applied. All
// other errors are the state machine's.
func (c *Client) Propose(ctx context.Context, r *etcdserverpb.InternalRaftRequest) (*proto.Result, error) {
	if s := c.Status(); s.Commit > s.Applied+proto.Index(gapMax(r, c.priority)) {
		c.metrics.failed.Inc()
		return nil, ErrTooManyRequests
	}
	p, err := c.prepare(r)
	if err != nil {
		return nil, err
	}
	reply := p.slot.Reply()
	p.message.answer = reply
	if err := c.ref.Whisper(actors.Normal, &p.message); err != nil {
		c.metrics.failed.Inc()
		return nil, domainError(err)
	}
	result, err := reply.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		c.metrics.failed.Inc()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ErrTimeout // the outcome is as unknown as after the member's own timeout
		}
	}
	return result, domainError(err)
}

// ProposeInTerm is Propose for actors: it never waits, and proposes only while this member leads in that term, checked
// in the turn in which raft takes the request (rule 4.8), else the answer is ErrNotLeader. The answer is given through
// answer unless ProposeInTerm itself returns an error. It does not share a bound with Propose: leases end however much
// clients propose.
func (c *Client) ProposeInTerm(t proto.Term, r *etcdserverpb.InternalRaftRequest,
	answer actors.Reply[*proto.Result]) error {
	if t == 0 {
		return ErrNotLeader
	}
	p, err := c.prepare(r)
	if err != nil {
		return err
	}
	p.message.answer, p.message.term = answer, t
	if c.ref.Depth(actors.Control) > inboxOwnControlMax {
		return ErrTooManyRequests
	}
	return domainError(c.ref.Tell(actors.Control, &p.message))
}

// ProposeTo is Propose for actors: it never waits. It is for what does not depend on who leads, such as this member's
// own alarms. The answer is given through answer unless ProposeTo itself returns an error.
func (c *Client) ProposeTo(r *etcdserverpb.InternalRaftRequest, answer actors.Reply[*proto.Result]) error {
	p, err := c.prepare(r)
	if err != nil {
		return err
	}
	p.message.answer = answer
	if err := c.ref.Whisper(actors.Normal, &p.message); err != nil {
		c.metrics.failed.Inc()
		return domainError(err)
	}
	return nil
}

// proposal is a propose and what most need beside it, in one piece: a header for a request without one, and the slot of
// an answer that is waited for. The entry is not part of it: raft may keep that for longer.
type proposal struct {
	message propose
	header  etcdserverpb.RequestHeader
	slot    actors.ReplySlot[*proto.Result]
}

// prepare checks and encodes a request, all that can be done outside of raft's turn. Nothing gets past it that a member
// could fail to decode (rule 4.6).
func (c *Client) prepare(r *etcdserverpb.InternalRaftRequest) (*proposal, error) {
	if err := ValidateRequest(r); err != nil {
		return nil, err
	}
	p := new(proposal)
	if r.Header == nil {
		r.Header = &p.header
	}
	r.Header.ID = c.ids.next()
	r.ID = 0
	data, err := pb.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	if len(data) > c.requestBytesMax {
		return nil, ErrRequestTooLarge
	}
	p.message.id, p.message.request, p.message.entry = r.Header.ID, r, &raftpb.Entry{Data: data}
	return p, nil
}

// ReadIndex gives an index at which a read that starts now is linearizable: the reader waits until the store has
// published that index and reads what is published *then*, not what was published at that index: a sole voter's index
// may be lower than that of a write that was acknowledged, because the store publishes before raft hears of it. Reads
// that arrive while one round to the other members is out share the next one. ErrTimeout, ErrTimeoutLeaderFail,
// ErrDiskStalled, ErrTooManyRequests, ErrStopped, or the cause of ctx.
func (c *Client) ReadIndex(ctx context.Context) (proto.Index, error) {
	if v := c.view.Load(); v.readable {
		return v.status.Applied, nil
	}
	reply := actors.NewReply[proto.Index]()
	if err := c.ref.Tell(actors.Normal, &read{answer: reply}); err != nil {
		c.metrics.failedReads.Inc()
		return 0, domainError(err)
	}
	index, err := reply.Wait(ctx)
	return index, domainError(err)
}

// ReadIndexTo is ReadIndex for actors: it never waits. The index is given through answer unless ReadIndexTo itself
// returns an error.
func (c *Client) ReadIndexTo(answer actors.Reply[proto.Index]) error {
	if v := c.view.Load(); v.readable {
		answer.Send(v.status.Applied)
		return nil
	}
	err := c.ref.Tell(actors.Normal, &read{answer: answer})
	if err != nil {
		c.metrics.failedReads.Inc()
	}
	return domainError(err)
}

// Status is what raft published last. It may be old by a turn; it never goes back.
func (c *Client) Status() *proto.RaftStatus { return c.view.Load().status }

// Applied says that the store has published everything through index. For the store's turn; it never waits. Raft hears
// of it in its next turn, and has one for it only when something depends on it.
func (c *Client) Applied(index proto.Index) {
	c.applied.Store(uint64(index))
	err := c.ref.Whisper(actors.Control, &published{index})
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "raft lost a publication: %v", err)
}

// appliedNow is the applied index as the store has it.
func (c *Client) appliedNow() proto.Index {
	return max(proto.Index(c.applied.Load()), c.Status().Applied)
}

// Checkpointed says that the file durably holds everything through index. conf is the JSON of its conf state, empty
// when it has none. For backend's turn; it never waits.
func (c *Client) Checkpointed(index proto.Index, term proto.Term, conf []byte, m *proto.Membership) {
	c.complete(&checkpointed{index: index, term: term, confState: conf, membership: m})
}

// complete tells raft something that must not be lost. A raft that has ended needs it no more.
func (c *Client) complete(m message) {
	err := c.ref.Tell(actors.Control, m)
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "raft lost a completion: %v", err)
}

// ConfirmCommit has done run once the log durably holds a hard state with commit >= index (rule 4.5). done runs once,
// in another actor's turn or in this call, and must only tell; its error means that nothing is confirmed. It works
// during and after Stop for what was committed before.
func (c *Client) ConfirmCommit(index proto.Index, done func(error)) {
	if err := c.ref.Tell(actors.Control, &confirmCommit{index, done}); err == nil {
		return
	}
	if c.wal.tell(&walConfirm{index: index, done: done}) == nil {
		return
	}
	if proto.Index(c.durableCommit.Load()) >= index {
		done(nil)
		return
	}
	done(ErrStopped)
}

// SnapshotPast has done run once a snapshot at or above index is durable, so that no start reads the log up to index
// any more; one is taken as soon as the file holds the index. done runs once, in raft's turn or in this call, and must
// only tell; its error says that the member stops.
func (c *Client) SnapshotPast(index proto.Index, done func(error)) {
	if err := c.ref.Tell(actors.Control, &passSnapshot{index, done}); err != nil {
		done(domainError(err))
	}
}

// Receive hands raft a message of another member. It never waits and may drop the message.
func (c *Client) Receive(m *raftpb.Message) {
	lane := actors.Normal
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgProp, raftpb.MsgReadIndex, raftpb.MsgSnap:
	default:
		// Completions have no other lane, so members may fill only a part of it.
		if lane = actors.Control; c.ref.Depth(lane) > inboxPeerControlMax {
			return
		}
	}
	_ = c.ref.Tell(lane, &receive{m}) // raft sends again
}

// Stop ends the three actors in order: raft, which answers all that waits and makes its commit index durable; apply,
// which hands the machine what it has; wal, which closes the log. The machine must be stopped after it, so that it can
// publish and checkpoint what it was given.
func (c *Client) Stop(ctx context.Context) error {
	c.stopTicks()
	raftErr := c.ref.Stop(ctx)
	applyErr := c.apply.Stop(ctx)
	commit := c.Status().Commit
	_ = c.wal.tell(&walConfirm{index: commit, done: func(err error) {
		if err == nil {
			c.durableCommit.Store(uint64(commit))
		}
	}})
	return errors.Join(raftErr, applyErr, c.wal.stop(ctx))
}
