package storeactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// errCrash is what a crash in the middle of a commit looks like to the committer.
var errCrash = errors.New("the machine crashed")

// backendWorld is one member's disk through several lives, on one goroutine: a model file, a log that knows what it has
// confirmed, and a backend that is fed from a history.
type backendWorld struct {
	random  *rand.Rand
	history *history
	file    *ModelFile
	options ModelOptions
	// durable is the highest index the log has confirmed: no crash takes that back.
	durable proto.Index
	// lying makes the log answer at once, without making anything durable: the mutation "commit without confirm".
	lying bool
	// told is the highest index that store and raft were told is in the file.
	told proto.Index
	// defragmentations and snapshots count what was finished, fulls how often a commit found the disk full.
	defragmentations, snapshots, fulls int

	stage *backendStage
	life  *backendLife
}

// backendStage is the actor system in which all lives of all seeds are played, one after the other: making one is dear.
// Clock and dispatcher are those of the present life.
type backendStage struct {
	*actorstest.ManualClock
	*actorstest.Stepper
	sys  *actors.System
	died func(reason any)
	// defragmentations, snapshots and fulls are the sums of all worlds'.
	defragmentations, snapshots, fulls int
	// fullOneIn is how rarely a commit finds the disk full; 0 is never.
	fullOneIn int
}

func newBackendStage() *backendStage {
	s := &backendStage{}
	s.reset(0)
	s.sys = actors.NewSystem(actors.Config{
		Name: "test", Clock: s, Dispatcher: s, Fatal: func(_ string, reason any, _ []byte) { s.died(reason) },
	})
	return s
}

func (s *backendStage) reset(seed uint64) {
	s.ManualClock, s.Stepper = actorstest.NewManualClock(), actorstest.NewStepper(seed)
}

// backendLife is one run of the backend between two crashes.
type backendLife struct {
	world     *backendWorld
	handle    backendHandle
	next      proto.Index // the next index to send
	questions []func()
	jobs      []func() // of the workers, not begun
	views     []FileView
	finished  []proto.Revision
	hashes    []*expectedHash
	answered  int // hashes that were compared
	failure   error
	crashed   bool
}

type expectedHash struct {
	reply actors.Reply[HashResult]
	index proto.Index
	rev   proto.Revision
	began int // compactions finished when it was asked
}

func newBackendWorld(stage *backendStage, seed uint64, options ModelOptions) *backendWorld {
	w := &backendWorld{random: rand.New(rand.NewPCG(seed, 1)), options: options, stage: stage}
	w.history = newHistory(w.random, 60)
	w.options.AtStep = func(step ModelStep) error {
		if full := stage.fullOneIn; full > 0 && step == ModelBeforeWrite && w.life != nil && w.random.IntN(full) == 0 {
			w.fulls++
			return ErrDiskFull
		}
		if w.random.IntN(60) == 0 && w.life != nil {
			w.life.crashed = true
			return errCrash
		}
		return nil
	}
	w.file = NewModelFile(w.options)
	return w
}

// start begins a life on the file as it is.
func (w *backendWorld) start(seed uint64) error {
	view, err := w.file.View()
	if err != nil {
		return err
	}
	index, err := w.history.check(view)
	if err != nil {
		return err
	}
	compactions, err := readCompactions(view)
	view.Release()
	if err != nil {
		return err
	}
	life := &backendLife{world: w, next: index + 1}
	w.life = life
	w.stage.reset(seed)
	w.stage.died = life.died
	var term proto.Term
	if index > 0 {
		term = w.history.at(index).write.term
	}
	life.handle, err = spawnBackend(w.stage.sys, backendConfig{
		File: w.file, Log: life, Store: life, Index: index, Term: term, Revision: w.history.at(index).revision,
		Notify:          Notify{Checkpointed: life.notified},
		CompactionBatch: 1 + w.random.IntN(4), CompactionPending: 1, CheckpointWrites: 12,
		Work: func(job func()) { life.jobs = append(life.jobs, job) },
	})
	if err != nil {
		return err
	}
	if compactions.scheduled > compactions.finished {
		life.sendCompaction(compactions.scheduled)
	}
	return nil
}

func (l *backendLife) died(reason any) {
	if err, ok := reason.(error); !ok || !errors.Is(err, errCrash) {
		l.failure = fmt.Errorf("the backend died: %v", reason)
	}
	l.crashed = true
}

// ConfirmCommit implements CommitLog.
func (l *backendLife) ConfirmCommit(index proto.Index, done func(error)) {
	if l.world.lying {
		done(nil)
		return
	}
	l.questions = append(l.questions, func() {
		l.world.durable = max(l.world.durable, index)
		done(nil)
	})
}

func (l *backendLife) checkpointed(c *checkpointed) {
	l.world.told = max(l.world.told, c.index)
	l.views = append(l.views, c.view)
	for _, caller := range c.callers {
		caller.reply.Send(struct{}{})
	}
	index, err := l.world.history.check(c.view)
	if err != nil {
		l.failure = err
	} else if index != c.index || c.revision < l.world.history.at(index).revision {
		l.failure = fmt.Errorf("told of index %d revision %d, the handle is at %d", c.index, c.revision, index)
	}
}

func (l *backendLife) notified(index proto.Index, term proto.Term, conf []byte, _ *proto.Membership) {
	step := l.world.history.at(index)
	if term != step.write.term || string(conf) != step.others["conf"] {
		l.failure = fmt.Errorf("raft was told term %d, conf %s at index %d", term, conf, index)
	}
}

func (l *backendLife) diskFull() {}
func (l *backendLife) compactedPhysically(c *compactedPhysically) {
	l.finished = append(l.finished, c.revision)
}

func (l *backendLife) sendCompaction(rev proto.Revision) {
	l.handle.compact(&compactFile{revision: rev, keep: l.world.history.keep(rev)})
}

// act does one random thing.
func (l *backendLife) act() {
	r := l.world.random
	switch kind := r.IntN(14); {
	case kind >= 12 && len(l.jobs) > 0:
		l.work(r.IntN(len(l.jobs)))
	case kind < 3 && int(l.next) <= len(l.world.history.steps):
		step := l.world.history.at(l.next)
		l.handle.write(step.write)
		l.next++
		if step.compact {
			l.sendCompaction(step.compacted)
		}
	case kind < 4:
		l.world.stage.Advance(time.Duration(r.IntN(60)) * time.Millisecond)
	case kind < 6 && len(l.questions) > 0:
		l.questions[0]()
		l.questions = l.questions[1:]
	case kind < 7 && len(l.views) > 1:
		l.views[0].Release()
		l.views = l.views[1:]
	case kind < 8 && r.IntN(4) == 0:
		l.askHash()
	case kind < 8 && r.IntN(4) == 0:
		l.handle.defragment(&defragmentFile{reply: actors.ReplyTo(l.defragmented)})
	case kind < 8 && r.IntN(4) == 0:
		l.handle.snapshot(&snapshotFile{reply: actors.ReplyTo(l.snapshotMade)})
	default:
		l.world.stage.Step()
	}
	l.checkHashes()
}

// work runs one job that waits for a worker.
func (l *backendLife) work(i int) {
	job := l.jobs[i]
	l.jobs = append(l.jobs[:i:i], l.jobs[i+1:]...)
	job()
}

func (l *backendLife) defragmented(_ struct{}, err error) {
	switch {
	case err == nil:
		l.world.defragmentations++
	case errors.Is(err, errCrash), errors.Is(err, actors.ErrStopped), errors.Is(err, ErrFileClosed):
	case l.world.fulls > 0 && errors.Is(err, ErrDiskFull):
	default:
		l.failure = fmt.Errorf("a defragmentation failed: %w", err)
	}
}

func (l *backendLife) snapshotMade(s *Snapshot, err error) {
	switch {
	case err == nil:
		l.world.snapshots++
		if err := s.Close(); err != nil {
			l.failure = err
		}
	case errors.Is(err, actors.ErrStopped), errors.Is(err, ErrViewCutOff), errors.Is(err, ErrSnapshotsOpen):
	case l.world.fulls > 0 && errors.Is(err, ErrDiskFull):
	default:
		l.failure = fmt.Errorf("a snapshot failed: %w", err)
	}
}

func (l *backendLife) askHash() {
	index := l.next - 1
	step := l.world.history.at(index)
	rev := step.revision - proto.Revision(l.world.random.IntN(3))
	if rev < step.compacted || rev < 1 {
		return
	}
	reply := actors.NewReply[HashResult]()
	l.handle.hash(&hashRequest{revision: rev, state: l.world.history.state(index), reply: reply})
	l.hashes = append(l.hashes, &expectedHash{reply: reply, index: index, rev: rev, began: len(l.finished)})
}

func (l *backendLife) checkHashes() {
	waiting := l.hashes[:0]
	for _, h := range l.hashes {
		got, err, done := h.reply.Poll()
		switch {
		case !done:
			waiting = append(waiting, h)
		case errors.Is(err, ErrViewCutOff), errors.Is(err, actors.ErrStopped), errors.Is(err, ErrHashesWaiting):
		case l.world.fulls > 0 && errors.Is(err, ErrDiskFull):
		case err != nil:
			l.failure = err
		case got.CompactRevision == l.world.history.at(h.index).compacted:
			l.answered++
			if want := l.world.history.wantHash(h.index, h.rev); got.Hash != want {
				l.failure = fmt.Errorf("hash at %d of index %d is %08x, want %08x", h.rev, h.index, got.Hash, want)
			}
		case got.HashRevision != h.rev:
			l.failure = fmt.Errorf("hash %+v, asked for %d", got, h.rev)
		}
	}
	l.hashes = waiting
}

// crash ends a life: at the moment the file has chosen, or now.
func (w *backendWorld) crash() error {
	l := w.life
	w.life = nil
	if l.failure != nil {
		return l.failure
	}
	old := w.file
	w.file = w.file.Crash(func(unsynced int) int { return w.random.IntN(unsynced + 1) })
	// What is left of the old process can do no harm: its file is closed.
	w.stage.died = func(any) {}
	finishJobs := func() {
		for len(l.jobs) > 0 {
			l.work(0)
		}
	}
	finishJobs()
	if err := l.handle.(*backendRef).ref.Stop(context.Background()); err != nil {
		return err
	}
	finishJobs()
	for _, v := range l.views {
		v.Release()
	}
	if l.checkHashes(); len(l.hashes) > 0 && !l.crashed {
		return fmt.Errorf("%d hash requests were never answered", len(l.hashes))
	}
	if n := old.OpenViews(); n > 1 || n > 0 && !l.crashed {
		return fmt.Errorf("%d read handles are left", n)
	}
	view, err := w.file.View()
	if err != nil {
		return err
	}
	defer view.Release()
	index, err := w.history.check(view)
	switch {
	case err != nil:
		return err
	case index > w.durable:
		return fmt.Errorf("the file holds index %d, the log has confirmed %d", index, w.durable)
	case index < w.told:
		return fmt.Errorf("the file holds index %d, store and raft were told of %d", index, w.told)
	}
	return nil
}

// runBackendWorld runs one seed and gives the first broken rule, and how many compactions and hashes there were.
func runBackendWorld(
	stage *backendStage, seed uint64, options ModelOptions, lying bool,
) (compactions, hashes int, err error) {
	w := newBackendWorld(stage, seed, options)
	w.lying = lying
	defer func() {
		stage.defragmentations += w.defragmentations
		stage.snapshots += w.snapshots
		stage.fulls += w.fulls
	}()
	for life := range uint64(4) {
		if err := w.start(seed + life); err != nil {
			return compactions, hashes, err
		}
		l := w.life
		for n := 80 + w.random.IntN(150); n > 0 && !l.crashed && l.failure == nil; n-- {
			l.act()
		}
		err := w.crash()
		compactions += len(l.finished)
		hashes += l.answered
		if err != nil {
			return compactions, hashes, err
		}
	}
	return compactions, hashes, nil
}

// TestBackend_CrashKeepsAnEarlierCommitAndNothingUnconfirmed crashes backends at random moments, between every pair of
// writes of a commit among them: what a start finds is exactly one earlier commit, never newer than the log has
// confirmed, never older than store and raft were told.
func TestBackend_CrashKeepsAnEarlierCommitAndNothingUnconfirmed(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	stage := newBackendStage()
	compactions, hashes := 0, 0
	for seed := range seeds {
		c, h, err := runBackendWorld(stage, seed, ModelOptions{}, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		compactions += c
		hashes += h
	}
	t.Logf("%d seeds, %d finished compactions, %d hashes, %d defragmentations, %d snapshots", seeds, compactions, hashes,
		stage.defragmentations, stage.snapshots)
	if compactions < int(seeds) || hashes < int(seeds) || stage.defragmentations < int(seeds) ||
		stage.snapshots < int(seeds) {
		t.Fatal("too few compactions or hashes to prove anything")
	}
}

// TestBackend_FullDiskLosesNothing adds a disk that is full now and then, for checkpoints, compactions and copies: the
// rules are the same, and work goes on.
func TestBackend_FullDiskLosesNothing(t *testing.T) {
	const seeds = 200
	stage := newBackendStage()
	stage.fullOneIn = 4
	compactions := 0
	for seed := range uint64(seeds) {
		c, _, err := runBackendWorld(stage, seed, ModelOptions{}, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		compactions += c
	}
	t.Logf("%d times full, %d compactions, %d defragmentations, %d snapshots", stage.fulls, compactions,
		stage.defragmentations, stage.snapshots)
	if stage.fulls < seeds || compactions < seeds/4 || stage.defragmentations < seeds/4 || stage.snapshots < seeds/4 {
		t.Fatal("too little happened to prove anything")
	}
}

// TestBackend_MutationsAreCaught breaks the two rules on purpose; the checks above must see each within 200 seeds.
func TestBackend_MutationsAreCaught(t *testing.T) {
	stage := newBackendStage()
	for name, run := range map[string]func(seed uint64) error{
		"commit without confirm": func(seed uint64) error {
			_, _, err := runBackendWorld(stage, seed, ModelOptions{}, true)
			return err
		},
		"commit without sync": func(seed uint64) error {
			_, _, err := runBackendWorld(stage, seed, ModelOptions{NoSync: true}, false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				if err := run(seed); err != nil {
					t.Logf("caught by seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("not caught within 200 seeds")
		})
	}
}

// TestBackend_FileOutgrowsItsAddressSpace: commits that make the file map again go through while the store holds the
// last handle, and it gets new ones.
func TestBackend_FileOutgrowsItsAddressSpace(t *testing.T) {
	file := openTestFile(t, BoltOptions{AddressBytes: 32 << 20, NoSync: true})
	log, handle := startStill(t, nil, file, func(reason any) { t.Error(reason) })
	var held FileView
	cutOff := 0
	for index := proto.Index(1); index <= 10; index++ {
		value := make([]byte, 8<<20)
		key := appendVersionKey(nil, proto.Version{Main: proto.Revision(index)})
		handle.write(&backendWrite{
			index: index, term: 1, bytes: len(value),
			batch: []proto.BucketWrite{{Bucket: proto.BucketKey, Key: key, Value: value}},
		})
		receive(t, log.questions)(nil)
		view := receive(t, log.views)
		if held != nil {
			if _, _, err := held.Append(nil, proto.BucketMeta, metaTerm); err != nil {
				cutOff++
			}
			held.Release()
		}
		held = view
		if _, found, err := held.Append(nil, proto.BucketKey, key); !found || err != nil {
			t.Fatalf("index %d: %v %v", index, found, err)
		}
	}
	held.Release()
	if cutOff == 0 {
		t.Fatal("the file never outgrew its address space")
	}
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestBackend_RealFileHoldsTheHistory brings a history through a backend with goroutines into bbolt, hashes all the
// time, and looks into the file again after it was closed; run with -race.
func TestBackend_RealFileHoldsTheHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	file, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(rand.New(rand.NewPCG(4, 4)), 300)
	writeHistory(t, file, h)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if file, err = OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	view, err := file.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	if index, err := h.check(view); err != nil || int(index) != len(h.steps) {
		t.Fatalf("index %d: %v", index, err)
	}
}
