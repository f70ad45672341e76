package storeactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// Config is what a store needs. File, Restored and Log must be set.
type Config struct {
	// File is the file behind the store; nobody else writes it while the store runs. Stop does not close it.
	File File
	// Restored is what Restore read from it. The store takes it over.
	Restored *Restored
	// Log confirms what may be committed to the file.
	Log CommitLog
	// Notify is whom to tell.
	Notify Notify
	// LeaseTTLMin is the least time to live granted, in seconds: ceil(3/2 x election ticks x tick) in etcd.
	LeaseTTLMin int64
	// QuotaBytes is the size of the file above which writes are answered with ErrNoSpace; 0 is QuotaBytesDefault, a
	// negative number is no quota.
	QuotaBytes int64
	// SlowApply is --warning-apply-duration: an entry that takes longer is counted and logged, a read counted; zero is
	// the default.
	SlowApply time.Duration
	// CheckpointInterval, CheckpointWrites and CheckpointBytes bound what may stay out of the file; zero is the default.
	CheckpointInterval                time.Duration
	CheckpointWrites, CheckpointBytes int
	// CompactionBatch is how many revisions one step of a physical compaction looks at, CompactionPause the pause
	// between two steps; zero is the default.
	CompactionBatch int
	CompactionPause time.Duration
	// Work runs a hash job beside the actors; nil: in a goroutine of its own.
	Work func(job func())
	// Metrics is where the metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Logger  zerolog.Logger
}

// Client is how everybody speaks to the store and the backend. Its methods may be called from any goroutine; those
// with a context wait, and must not be called from an actor's turn.
type Client struct {
	ref     actors.Ref[storeMessage]
	backend backendHandle
	out     *published
	metrics *storeMetrics
	// slowApply is the time above which an entry or a read is slow.
	slowApply time.Duration
	// raises are the requests with which this member's quota has raised its alarm.
	raises quotaRaises
}

// Spawn starts the store and the backend. The restored state is published before it returns; a compaction that an
// earlier process did not finish goes on.
func Spawn(sys *actors.System, cfg Config) (*Client, error) {
	if cfg.File == nil || cfg.Restored == nil || cfg.Log == nil {
		return nil, errors.New("storeactor: File, Restored and Log are needed")
	}
	out := &published{}
	m := newMachine(&cfg)
	out.state.Store(m.state())
	if k := cfg.Restored.Keys; k.unknownLeases > 0 || k.damaged > 0 {
		cfg.Logger.Error().Int("keys-with-unknown-lease", k.unknownLeases).Int("damaged-values", k.damaged).
			Msg("the restored keys are not all sound")
	}
	metrics, err := newStoreMetrics(cfg.Metrics, out.state.Load)
	if err != nil {
		return nil, err
	}
	link := &storeLink{}
	backend, err := spawnBackend(sys, backendConfig{
		File: cfg.File, Log: cfg.Log, Store: link, Notify: cfg.Notify,
		Index: m.applied, Term: m.term, Revision: m.revision, Metrics: cfg.Metrics, Logger: cfg.Logger,
		CheckpointInterval: cfg.CheckpointInterval, CheckpointWrites: cfg.CheckpointWrites,
		CheckpointBytes: cfg.CheckpointBytes, CompactionBatch: cfg.CompactionBatch,
		CompactionPause: cfg.CompactionPause, Work: cfg.Work, jobs: &out.jobs,
	})
	if err != nil {
		return nil, fmt.Errorf("spawn backend: %w", err)
	}
	sayReady(cfg.Logger, m.membership, backend.status().StorageVersion)
	c := &Client{backend: backend, out: out, metrics: metrics, slowApply: cmp.Or(cfg.SlowApply, slowApplyDefault)}
	if err := c.spawn(sys, &cfg, m, link); err != nil {
		_ = backend.stop(context.Background())
		return nil, err
	}
	return c, nil
}

// spawn starts the store's actor for a client that has everything else.
func (c *Client) spawn(sys *actors.System, cfg *Config, m *machine, link *storeLink) error {
	s := &store{
		machine: m, slowApply: c.slowApply, backend: c.backend, notify: cfg.Notify, out: c.out,
		metrics: c.metrics, log: cfg.Logger, file: cfg.File,
	}
	ref, err := actors.Spawn(sys, actors.Spec[storeMessage]{
		Name: "store",
		Policy: actors.Lanes(
			actors.Batch[storeMessage](
				actors.Bound{Messages: storeControlMessages, Bytes: storeControlBytes},
				actors.Bound{Messages: storeTurnMessages, Bytes: storeTurnBytes}),
			actors.Batch[storeMessage](
				actors.Bound{Messages: storeMessagesMax, Bytes: storeBytesMax},
				actors.Bound{Messages: storeTurnMessages, Bytes: storeTurnBytes})),
		Behavior: func() actors.Behavior[storeMessage] { return s },
		OnPanic:  actors.FailStop,
		Pinned:   true, // on the path of every write
		Tick:     func(int) storeMessage { return workDue{} },
	})
	if err != nil {
		return fmt.Errorf("spawn store: %w", err)
	}
	link.bind(ref)
	c.ref = ref
	return nil
}

// newMachine makes the state machine from what was restored.
func newMachine(cfg *Config) *machine {
	r := cfg.Restored
	m := &machine{
		reader: reader{
			tree: r.Keys.tree, dead: r.Keys.dead, cache: r.Keys.cache, file: r.View,
			revision: max(r.Keys.revision, r.Scheduled, r.Finished, 1), compacted: max(r.Finished, r.Scheduled),
		},
		leases: r.Keys.leases, alarms: nil, keys: r.Keys.keys,
		applied: r.Index, term: r.Term, membership: r.Membership,
		authEnabled: r.AuthEnabled, authRevision: r.AuthRevision, sizes: r.Sizes,
		leaseTTLMin: cfg.LeaseTTLMin, quota: cfg.QuotaBytes,
	}
	if r.Membership != nil {
		m.clusterVersion = r.Membership.ClusterVersion
	}
	if m.quota == 0 {
		m.quota = QuotaBytesDefault
	}
	alarms := append([]Alarm(nil), r.Alarms...)
	sortAlarms(alarms)
	m.setAlarms(alarms)
	for _, l := range r.Leases { // a longer minimum than the one they were granted under holds for them too
		if l.TTL < m.leaseTTLMin {
			l.TTL = m.leaseTTLMin
			m.leases.table.Set(l)
		}
	}
	if r.Scheduled > r.Finished {
		m.schedule(r.Scheduled)
	}
	return m
}

// storeLink is the backend's way to the store, which is spawned after it. What the backend reports before that waits:
// it goes on with a compaction that an earlier process left unfinished as soon as it starts.
type storeLink struct {
	mu    sync.Mutex
	ref   actors.Ref[storeMessage]
	early []storeMessage
}

// bind connects the store and hands over what was reported before.
func (l *storeLink) bind(ref actors.Ref[storeMessage]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ref = ref
	for _, m := range l.early {
		l.pass(m)
	}
	l.early = nil
}

func (l *storeLink) checkpointed(c *checkpointed) {
	if !l.tell(c) {
		c.Abort(ErrStopped)
	}
}

func (l *storeLink) compactedPhysically(c *compactedPhysically) { l.tell(c) }

// diskFull wakes the store. Before it is there it has no work that could wait.
func (l *storeLink) diskFull() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ref.Valid() {
		l.ref.Tick()
	}
}

func (l *storeLink) tell(m storeMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ref.Valid() {
		l.early = append(l.early, m)
		return true
	}
	return l.pass(m)
}

// pass hands a report to the store; false when the store has ended.
func (l *storeLink) pass(m storeMessage) bool {
	err := l.ref.Tell(actors.Control, m)
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "store refused a %T: %v", m, err)
	return err == nil
}

// Apply hands over the next committed entries. It never waits; apply's own bound on what is outstanding keeps the
// mailbox from filling, and after an error the batch is still the caller's.
func (c *Client) Apply(b *proto.Batch) error { return c.ref.Tell(actors.Normal, &applyBatch{b}) }

// State gives the published state. It is immutable; the next one replaces it at any moment.
func (c *Client) State() *State { return c.out.state.Load() }

// WaitApplied waits until the published state includes the entry. Errors: the context's cause, ErrStopped.
func (c *Client) WaitApplied(ctx context.Context, index proto.Index) error {
	if c.State().Applied >= index {
		return nil
	}
	return c.out.waiters.wait(ctx, index, func() bool { return c.State().Applied >= index })
}

// View gives a view of the published state. The caller releases it soon.
func (c *Client) View() *View { return newView(c.retained()) }

// retained gives the published state, with one reference on its handle.
func (c *Client) retained() *State {
	for {
		s := c.State()
		if s.file.Retain() {
			return s
		}
		// The state has just been replaced: its handle is released only after that.
	}
}

// Range executes a range on the published state, as View.Range does, and begins again when the owner of the file
// takes the handle away.
func (c *Client) Range(ctx context.Context, q *pb.RangeRequest) (*proto.Result, error) {
	c.metrics.ranges.Inc()
	return c.read(ctx, func(v *View) (*proto.Result, error) { return v.Range(q) })
}

// Txn executes a txn for which TxnReadOnly holds on the published state.
func (c *Client) Txn(ctx context.Context, t *pb.TxnRequest) (*proto.Result, error) {
	reads := 0
	result, err := c.read(ctx, func(v *View) (*proto.Result, error) {
		reads = 0
		return v.readOnlyTxn(t, &reads)
	})
	var counted tally
	counted.read(reads)
	c.metrics.add(&counted)
	return result, err
}

// NoteRange counts a range that was read in pieces. Range and Txn count themselves.
func (c *Client) NoteRange() { c.metrics.ranges.Inc() }

// NoteRead counts a read as slow if it took longer than an entry should.
func (c *Client) NoteRead(took time.Duration) {
	if took > c.slowApply {
		c.metrics.slowApplies.Inc()
	}
}

// read runs f on a view that f must not keep.
func (c *Client) read(ctx context.Context, f func(v *View) (*proto.Result, error)) (*proto.Result, error) {
	v := views.Get().(*View)
	defer func() {
		*v = View{} // an idle view must not hold a state
		views.Put(v)
	}()
	for {
		v.show(c.retained())
		result, err := f(v)
		v.Release()
		if !errors.Is(err, ErrViewCutOff) {
			return result, err
		}
		select {
		case <-time.After(cutOffRetry):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// HashKV gives the hash of all keys and values up to a revision, 0 meaning the current one. Errors: ErrCompacted,
// ErrFutureRevision, the context's cause, ErrHashesWaiting, ErrDiskFull, actors.ErrStopped.
func (c *Client) HashKV(ctx context.Context, revision proto.Revision) (HashResult, error) {
	return c.hash(ctx, revision, false)
}

// Hash gives the hash of everything in the file but what differs between equal members, once it holds what was applied
// before the call. Errors: the context's cause, ErrHashesWaiting, ErrDiskFull, actors.ErrStopped.
func (c *Client) Hash(ctx context.Context) (HashResult, error) { return c.hash(ctx, 0, true) }

func (c *Client) hash(ctx context.Context, revision proto.Revision, whole bool) (HashResult, error) {
	for {
		r := &hashRequest{whole: whole, revision: revision, reply: actors.NewReply[HashResult]()}
		if err := c.ref.Tell(actors.Normal, r); err != nil {
			return HashResult{}, err
		}
		result, err := actors.Await(ctx, c.ref, r.reply)
		if !errors.Is(err, ErrViewCutOff) || ctx.Err() != nil {
			return result, err
		}
		// The owner of the file took the handle away; the next one comes with the commit that this request asks for.
	}
}

// Defragment copies the file into a smaller one and puts that in its place, beside all other work. It is done when the
// answer comes; a caller that leaves does not end it. Several callers at a time share one run that begins after their
// calls. Errors, after which the file is as before: ErrDiskFull, ErrDefragmentationsWaiting, ErrViewCutOff (the file
// had to grow beyond its address space; try again), the context's cause, actors.ErrStopped.
func (c *Client) Defragment(ctx context.Context) error {
	m := &defragmentFile{reply: actors.NewReply[struct{}]()}
	if err := c.ref.Tell(actors.Normal, m); err != nil {
		return err
	}
	_, err := actors.Await(ctx, c.ref, m.reply)
	return err
}

// Snapshot gives a copy of the whole file that holds at least everything applied before the call. The caller closes it.
// Errors: ErrSnapshotsOpen, ErrDiskFull, ErrViewCutOff (as for Defragment), the context's cause, actors.ErrStopped.
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error) {
	m := &snapshotFile{reply: actors.NewReply[*Snapshot]()}
	if err := c.ref.Tell(actors.Normal, m); err != nil {
		return nil, err
	}
	s, err := actors.Await(ctx, c.ref, m.reply)
	if ctx.Err() == nil || s != nil || m.abandon() {
		return s, err
	}
	// The answer came at the same time. It is there, or about to be.
	if s, late := actors.Await(context.WithoutCancel(ctx), c.ref, m.reply); late == nil {
		return nil, errors.Join(err, s.Close())
	}
	return nil, err
}

// FileStatus tells whether the disk of the file has space. It is published by the backend and does not wait.
func (c *Client) FileStatus() FileStatus { return c.backend.status() }

// Tidying reports whether housekeeping is under way: a compaction, a defragmentation, a snapshot or a hash. It does not
// wait.
func (c *Client) Tidying() bool { return c.out.compacting.Load() || c.out.jobs.Load() > 0 }

// Sizes gives the sizes of the file at the last checkpoint.
func (c *Client) Sizes() FileSizes { return c.State().Sizes }

// Stop ends the store after what was admitted, then lets the backend write all of it and ends that too. What apply
// sends later gets actors.ErrStopped. The published state stays readable until the file is closed.
func (c *Client) Stop(ctx context.Context) error {
	return errors.Join(c.ref.Stop(ctx), c.backend.stop(ctx))
}
