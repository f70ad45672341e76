package storeactor

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// backend is the shell of the actor that owns the file. Nobody else writes it. It does these things, in one order:
//
//   - checkpoints: what the store applied goes into the file in one transaction with its index, after the log has
//     confirmed that index (checkpointer decides, commit executes);
//   - after each commit, the new read handle goes to the store, then raft is told;
//   - compactions: one after the other, in steps with commits of their own (deletion decides);
//   - hashes: ordered behind the writes they were sent after, computed beside the actor over the handle of the commit
//     that holds those writes. Deletions of a later compaction cannot be in that commit, because they start only after
//     the commit that stored its scheduled revision;
//   - snapshots: as hashes, and one defragmentation at a time: a worker copies in rounds beside all of the above, and
//     for the last one alone no commit is made (backenddefragment.go).
//
// A commit that finds the disk full has changed nothing: it is tried again until there is space, and nothing else is
// written before it (backenddisk.go). Any other failed commit ends the process: after a failed fsync nobody knows what
// the file holds.
type backend struct {
	cfg     backendConfig
	metrics *fileMetrics
	self    actors.Self[backendMessage]

	core checkpointer
	// filed is what the file holds; core.position is ahead of it while a commit waits for space.
	filed checkpointPosition
	// stuck is the commit that found the disk full, nil when there is none.
	stuck *fileCommit
	full  diskFull
	// view is the handle of the last commit; backend holds one reference.
	view FileView
	// replaced are handles of earlier commits that readers may still hold, oldest first.
	replaced []replacedView

	checkpointTimer bool // a checkpointDue is on its way
	deaf            bool // what the mailbox knows about whispers

	// scheduled is the newest compaction that an earlier process began; previous is the compact revision before the next.
	scheduled, previous proto.Revision
	compactions         []*deletion
	deletionTimer       bool

	hashes   []waitingHash // wait for a commit
	hashJobs []hashJob     // have their handle, wait for the worker
	hashing  bool          // the worker runs
	stored   storedHashes

	snapshots    []waitingSnapshot // wait for a commit
	snapshotJobs []*snapshotJob    // have their handle, wait for the worker
	snapshotting bool              // the worker runs
	open         atomic.Int64      // snapshots that take a place among SnapshotsOpenMax

	copying *defragmentation  // nil when none is under way
	callers []*defragmentFile // wait for the next one
	// abandon tells the workers to give up, because the member stops.
	abandon *atomic.Bool

	lowering lowering

	agesTimer bool // a viewsDue is on its way
	finishing *finishBackend
}

type replacedView struct {
	view  FileView
	since time.Time
}

// waitingHash waits until the file holds its index.
type waitingHash struct {
	request *hashRequest
	after   proto.Index
}

func newBackend(cfg backendConfig, metrics *fileMetrics) *backend {
	return &backend{cfg: cfg, metrics: metrics, abandon: new(atomic.Bool), core: checkpointer{
		limits: checkpointLimits{
			interval: cfg.CheckpointInterval, writes: cfg.CheckpointWrites, bytes: cfg.CheckpointBytes,
		},
		position: checkpointPosition{index: cfg.Index, term: cfg.Term, revision: cfg.Revision},
	}}
}

// Start implements actors.Behavior.
func (b *backend) Start(self actors.Self[backendMessage]) error {
	b.self = self
	view, err := b.cfg.File.View()
	if err != nil {
		return fmt.Errorf("open the first read handle: %w", err)
	}
	if err := b.readStart(view); err != nil {
		view.Release()
		return err
	}
	b.view, b.filed = view, b.core.position
	b.tellStatus(FileStatus{})
	return nil
}

// readStart reads what the commits and compactions to come go on from.
func (b *backend) readStart(view FileView) error {
	start, err := readCompactions(view)
	if err != nil {
		return err
	}
	b.scheduled, b.previous = start.scheduled, start.finished
	confState, found, err := view.Append(nil, proto.BucketMeta, metaConfState)
	if err != nil {
		return err
	}
	if found {
		b.core.position.confState = confState
	}
	version, _, err := view.Append(nil, proto.BucketMeta, metaStorageVersion)
	if err != nil {
		return err
	}
	b.core.position.storageVersion = string(version)
	return nil
}

// Handle implements actors.Behavior.
func (b *backend) Handle(_ actors.Self[backendMessage], batch []backendMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case *backendWrite:
			b.core.admit(b.self.Now(), m)
		case *compactFile:
			b.admitCompaction(m)
		case *hashRequest:
			b.admitHash(m)
		case *snapshotFile:
			b.admitSnapshot(m)
		case *defragmentFile:
			b.admitDefragment(m)
		case *finishBackend:
			b.core.want()
			b.finishing = m
			b.abandon.Store(true)
		case *commitConfirmed:
			b.confirmed(m)
		case checkpointDue:
			b.checkpointTimer = false
		case deletionDue:
			b.deletionTimer = false
		case hashDone:
			b.hashing = false
		case snapshotDone:
			b.snapshotting = false
		case *roundCopied:
			b.copied(m)
		case diskFullDue:
			b.full.timer = false
			b.retryCommit()
		case viewsDue:
			b.agesTimer = false
		case *snapshotPassed:
			b.lowering.answered(m)
		default:
			actors.Must(false, "backend got a %T", m)
		}
	}
	b.checkpoint()
	b.lowerStorage()
	b.startHash()
	b.startSnapshot()
	b.compact()
	b.startDefragment()
	b.turnAway()
	b.endOldViews(b.self.Now())
	b.finish()
	b.listen()
}

// listen lets writes wake the backend only when nothing else will: while a checkpoint is awaited, its timer or the
// log's answer brings a turn that takes them all. While the disk is full they are counted as they come.
func (b *backend) listen() {
	if deaf := (b.checkpointTimer || b.core.asking != 0) && b.stuck == nil; deaf != b.deaf {
		b.deaf = deaf
		b.self.Listen(actors.Normal, !deaf)
	}
}

// Stop implements actors.Behavior.
func (b *backend) Stop() {
	for _, h := range b.hashes {
		h.request.reply.Fail(actors.ErrStopped)
	}
	for _, j := range b.hashJobs {
		j.view.Release()
		j.request.reply.Fail(actors.ErrStopped)
	}
	b.abandon.Store(true)
	b.failSnapshots(actors.ErrStopped)
	for _, j := range b.snapshotJobs {
		j.view.Release()
		j.leave()
		j.request.fail(actors.ErrStopped)
	}
	if b.copying != nil {
		b.callers = append(b.copying.callers, b.callers...)
	}
	for _, c := range b.callers {
		c.reply.Fail(actors.ErrStopped)
	}
	if b.finishing != nil {
		b.finishing.reply.Fail(actors.ErrStopped)
	}
	b.view.Release()
}

func (b *backend) confirmed(m *commitConfirmed) {
	b.core.answered(b.self.Now(), m.index, m.err)
	if m.err == nil {
		return
	}
	b.cfg.Logger.Warn().Err(m.err).Uint64("index", uint64(m.index)).
		Msg("the log did not confirm a checkpoint; it stays out of the file")
	if b.finishing != nil {
		b.finishing.reply.Fail(fmt.Errorf("checkpoint at index %d: %w", m.index, m.err))
		b.finishing = nil
	}
}

// checkpoint does what the core says until it says wait.
func (b *backend) checkpoint() {
	for !b.held() {
		action, index, wait := b.core.next(b.self.Now())
		switch action {
		case checkpointCommit:
			b.commit(b.core.take())
			continue
		case checkpointAsk:
			b.ask(index)
		case checkpointLater:
			if !b.checkpointTimer {
				b.checkpointTimer = true
				b.self.After(wait, checkpointDue{})
			}
		}
		return
	}
}

func (b *backend) ask(index proto.Index) {
	ref := b.self.Ref()
	b.cfg.Log.ConfirmCommit(index, func(err error) {
		tellSelf(ref, &commitConfirmed{index: index, err: err})
	})
}

// tellSelf brings an answer into the backend's own mailbox. It cannot be full: the backend has two questions and five
// timers out at most, and each worker one report.
func tellSelf(ref actors.Ref[backendMessage], m backendMessage) {
	err := ref.Tell(actors.Control, m)
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "backend's control lane: %v", err)
}

// commit puts a plan into the file. Persist before telling: the store may forget what the file holds, raft may release
// the log below it.
func (b *backend) commit(plan *checkpointPlan) {
	b.try(&fileCommit{
		bytes: int64(plan.bytes),
		write: func(w FileWrite) {
			for _, waiting := range plan.writes {
				apply(w, waiting.batch)
			}
			apply(w, plan.metaWrites())
		},
		done: func() {
			b.filed = plan.position
			b.lowering.refused = false
			b.tellStatus(*b.cfg.status.Load())
			if plan.storageVersionDirty {
				b.sayStorageVersion(plan.position.membership)
			}
			b.tellStore()
			if b.cfg.Notify.Checkpointed != nil {
				p := &plan.position
				b.cfg.Notify.Checkpointed(p.index, p.term, p.confState, p.membership)
			}
		},
	})
}

// begin opens the write transaction. When the commit might not fit the address space of the file it would wait for
// every open handle; those who hold them wait for this commit. So they are cut off first, and find a new one after it.
func (b *backend) begin(bytes int64) FileWrite {
	if bytes > 0 && b.cfg.File.NeedsRemap(bytes) { // an empty commit does not make the file grow
		b.cfg.Logger.Warn().Int64("size", b.cfg.File.Sizes().Total).
			Msg("the database file outgrew its reserved address space; all read handles are cut off")
		b.cfg.File.PrepareRemap()
	}
	w, err := b.cfg.File.Begin()
	mustWrite("begin", err)
	return w
}

func apply(w FileWrite, writes []proto.BucketWrite) {
	for i := range writes {
		if writes[i].Delete {
			mustWrite("delete", w.Delete(writes[i].Bucket, writes[i].Key))
		} else {
			mustWrite("put", w.Put(writes[i].Bucket, writes[i].Key, writes[i].Value))
		}
	}
}

// renewView takes a handle on the last commit.
func (b *backend) renewView() {
	view, err := b.cfg.File.View()
	mustWrite("view", err)
	now := b.self.Now()
	b.replaced = append(b.replaced, replacedView{view: b.view, since: now})
	b.view.Release()
	b.view = view
	b.endOldViews(now)
}

// endOldViews forgets the handles that are given back, and cuts off those that readers hold for too long.
func (b *backend) endOldViews(now time.Time) {
	kept := b.replaced[:0]
	for _, r := range b.replaced {
		v, endable := r.view.(endableView)
		switch {
		case !endable || v.ended():
		case now.Sub(r.since) > viewAgeMax:
			v.cutOff()
			b.metrics.viewsCutOff.Inc()
			b.cfg.Logger.Warn().Str("age", now.Sub(r.since).String()).Msg("a read handle on an old commit was cut off")
		default:
			kept = append(kept, r)
		}
	}
	clear(b.replaced[len(kept):])
	b.replaced = kept
	if len(kept) > 0 && !b.agesTimer {
		// Also when nothing is written: what was replaced by a defragmentation takes disk until its last handle is gone.
		b.agesTimer = true
		b.self.After(viewAgeMax, viewsDue{})
	}
}

// mustWrite is fail-stop: after an error of the file nobody knows what it holds.
func mustWrite(what string, err error) {
	if err != nil {
		panic(fmt.Errorf("database file: %s: %w", what, err))
	}
}

// tellStore hands the newest handle over, with a reference of its own, and the callers whom the store is to answer.
func (b *backend) tellStore(callers ...*defragmentFile) {
	actors.Must(b.view.Retain(), "the handle of the last commit is gone")
	p := &b.filed
	b.cfg.Store.checkpointed(&checkpointed{
		index: p.index, revision: p.revision, view: b.view, sizes: b.cfg.File.Sizes(), callers: callers,
	})
}

// finish answers stop when nothing is left to commit and no worker is at the file.
func (b *backend) finish() {
	switch {
	case b.finishing == nil || b.copying != nil || b.snapshotting:
		return
	case b.stuck != nil:
		b.finishing.reply.Fail(fmt.Errorf("checkpoint at index %d: %w", b.core.position.index, ErrDiskFull))
	case len(b.core.waiting) == 0:
		b.finishing.reply.Send(struct{}{})
	default:
		return
	}
	b.finishing = nil
}
