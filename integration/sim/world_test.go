package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"troupe/actors/actorstest"
	"troupe/cmd/node"
	"troupe/proto"
	"troupe/raftactor/disktest"
	"troupe/storeactor"
)

// dataDir is where the member lives on the simulated disk.
const (
	dataDir = "/sim"
	walDir  = dataDir + "/member/wal"
	snapDir = dataDir + "/member/snap"
)

// world is one run: a disk, what clients know, and one life of the member after the other.
type world struct {
	seed   uint64
	random *rand.Rand
	disk   *disktest.Disk
	file   *storeactor.ModelFile
	trace  *trace
	broken breakage
	cfg    node.Config
	// failure is the first thing that was wrong; the run ends with it.
	failure error

	history    *history
	clients    *clients
	watchers   []*watcher
	hashes     map[hashedAt]uint32
	tally      tally
	fileEvents *ofLife
	// quiet keeps clients from proposing.
	quiet bool
	// began is the virtual time at which the next life starts.
	began time.Duration

	// The present life.

	life    int
	events  *events
	stepper *actorstest.Stepper
	machine *actorstest.Member
	clock   *actorstest.ManualClock
	troupe  *node.Troupe
	shown   *storeactor.State
	ready   bool
	// inherited is the last index that an earlier life has applied.
	inherited proto.Index
	readyAt   int // event
	// primarySince is when this life's member became primary for leases.
	primarySince time.Time
}

// ofLife leads from the database file, which outlives its lives, to the events of the present one.
type ofLife struct{ now *events }

// tally counts what a run did.
type tally struct {
	lives, rounds, answers, events, cancels, snapshots, cuts, releases, expired, hashes int
}

func (t *tally) add(o tally) {
	t.lives += o.lives
	t.rounds += o.rounds
	t.answers += o.answers
	t.events += o.events
	t.cancels += o.cancels
	t.snapshots += o.snapshots
	t.cuts += o.cuts
	t.releases += o.releases
	t.expired += o.expired
	t.hashes += o.hashes
}

func newWorld(seed uint64, broken breakage) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewPCG(seed, 0x51)), disk: disktest.New(seed), trace: newTrace(), broken: broken,
		history: newHistory(), hashes: map[hashedAt]uint32{},
	}
	w.fileEvents = &ofLife{}
	w.clients = &clients{world: w}
	w.clients.forget()
	for _, r := range [][2]string{{"\x00", "\x00"}, {"a", ""}, {"b", "d"}} {
		w.watchers = append(w.watchers, &watcher{world: w, key: r[0], end: r[1], next: 1})
	}
	w.file = storeactor.NewModelFile(storeactor.ModelOptions{
		NoSync: broken.fileSync,
		AtStep: func(s storeactor.ModelStep) error { return w.fileEvents.now.atStep(s) },
	})
	for _, p := range broken.syncs {
		w.disk.Break(p)
	}
	w.disk.SetSegmentBytes(int64(1024 << w.random.IntN(4)))
	w.cfg = node.Default()
	w.cfg.DataDir = dataDir
	w.cfg.MaxWALs, w.cfg.MaxSnapshots = 1+w.random.IntN(3), 1+w.random.IntN(2)
	w.cfg.SnapshotCount, w.cfg.CatchUpEntries = uint64(3+w.random.IntN(12)), 3
	w.cfg.BatchInterval = time.Duration(1+w.random.IntN(100)) * time.Millisecond
	w.cfg.BatchLimit = 1 + w.random.IntN(1+w.random.IntN(20))
	w.cfg.CompactionBatchLimit = 1 + w.random.IntN(4)
	w.cfg.WatchProgressInterval = time.Second
	return w
}

// fail notes what is wrong. The first one counts.
func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("life %d: "+format, append([]any{w.life}, args...)...)
	}
}

// over reports whether the present life has ended.
func (w *world) over() bool { return w.failure != nil || w.events.dead }

// begin opens the directory and starts the actors. A crash may come already here.
func (w *world) begin(stop moment) {
	w.life++
	w.tally.lives++
	w.stepper = actorstest.NewStepper(w.random.Uint64())
	w.machine = actorstest.NewMember(w.stepper)
	w.events = &events{stop: stop, labels: map[string]int{}, hash: w.trace, died: w.machine.Crash}
	w.fileEvents.now = w.events
	w.clock = actorstest.NewManualClock()
	w.clock.Advance(w.began)
	w.shown, w.ready, w.primarySince = nil, false, time.Time{}
	w.inherited = w.history.last()
	clear(w.history.extended)
	w.trace.add("life", w.life, w.began)
	t, err := w.assemble()
	w.troupe = t
	if err != nil && !w.events.dead {
		w.fail("the member does not start: %w", err)
	}
}

func (w *world) assemble() (*node.Troupe, error) {
	defer w.survive()
	return node.Assemble(w.cfg, node.Seams{
		Log: zerolog.Nop(), Clock: w.clock, Dispatcher: w.machine, Registry: prometheus.NewRegistry(),
		Disk:      &eventDisk{w.disk, w.events},
		OpenFile:  func(string) (storeactor.File, error) { return w.file, nil },
		Fatal:     w.died,
		Random:    w.random.Float64,
		Work:      func(job func()) { job() },
		Machine:   w.history.machine(w),
		CommitLog: w.broken.commitLog(),
	})
}

// survive ends a panic that says no more than that actors of a machine that has stopped do not answer.
func (w *world) survive() {
	if !w.events.dead {
		return
	}
	if reason := recover(); reason != nil {
		w.trace.add("gone")
	}
}

// died is the end of the process in an actor's panic.
func (w *world) died(actor string, reason any, stack []byte) {
	if !w.events.dead {
		w.fail("%s panicked: %v\n%s", actor, reason, stack)
	}
	w.events.die()
}

// step gives one actor a turn and looks at what is published.
func (w *world) step() bool {
	if w.over() || !w.stepper.Step() {
		return false
	}
	if !w.over() {
		w.look()
	}
	return true
}

// rest steps until nothing goes on by itself.
func (w *world) rest() {
	for n := 0; w.step(); n++ {
		if n > 200_000 {
			w.fail("the actors do not come to rest")
		}
	}
}

// serve steps until the member says that it is ready, and checks what it has then.
func (w *world) serve() {
	for n := 0; !w.over() && !w.ready; n++ {
		switch w.random.IntN(40) {
		case 0, 1:
			w.clients.read()
		case 2, 3:
			if !w.quiet {
				w.clients.propose() // taken as soon as the member leads
			}
		}
		if !w.step() || w.random.IntN(50) == 0 {
			w.pause(10 * time.Millisecond)
		}
		if n > 20_000 {
			w.fail("the member does not serve: %+v", w.troupe.Raft.Status())
		}
	}
}

// look checks the published state and status after a step.
func (w *world) look() {
	if w.troupe == nil {
		return
	}
	if s := w.troupe.Store.State(); s != w.shown {
		w.history.checkState(w, s)
		if w.shown != nil && s.Applied < w.shown.Applied {
			w.fail("the applied index went from %d to %d", w.shown.Applied, s.Applied)
		}
		w.shown = s
	}
	status := w.troupe.Raft.Status()
	if w.primarySince.IsZero() && status.LeaderTerm != 0 {
		w.primarySince = w.clock.Now()
	}
	if !w.ready && status.Ready {
		w.ready, w.readyAt = true, w.events.count
		if applied := w.shown.Applied; applied < w.inherited {
			w.fail("ready with index %d applied; an earlier life had applied %d", applied, w.inherited)
		}
		w.compare("when ready")
	}
}

// pause lets virtual time pass.
func (w *world) pause(d time.Duration) {
	if !w.over() {
		w.clock.Advance(d)
	}
}

// crash ends the life: the process is gone, and with the power also what was volatile.
func (w *world) crash(power bool) {
	w.events.die()
	w.tally.cuts += w.events.labels["rename to segment"]
	w.tally.releases += w.events.labels["remove segment"]
	w.troupe = nil
	w.clients.forget()
	for _, v := range w.watchers {
		v.stream = nil
	}
	w.began = w.nextStart()
	if power {
		w.disk.Crash(w.random.Uint64())
		w.file = w.file.Crash(func(unsynced int) int { return w.random.IntN(unsynced + 1) })
	} else {
		w.disk.Kill()
		w.file = w.file.Kill()
	}
	w.trace.add("crash", power)
	if w.failure == nil {
		w.checkImage()
	}
}

// nextStart is the time of the next start: usually the present one; but a clock may be set back, as far as to the very
// moment at which this life began.
func (w *world) nextStart() time.Duration {
	now := w.clock.Now().Sub(actorstest.NewManualClock().Now())
	switch w.random.IntN(8) {
	case 0:
		return max(0, now-time.Duration(w.random.IntN(60_000))*time.Millisecond)
	case 1:
		return w.began
	}
	return now
}

// stop ends the life as SIGTERM does. Then the file must hold everything.
func (w *world) stop() {
	err := w.stopTroupe()
	if w.over() {
		return // a crash came in between
	}
	if err != nil {
		w.fail("stop: %w", err)
	}
	applied := w.troupe.Store.State().Applied
	w.crash(w.random.IntN(2) == 0)
	if held := w.held(); w.failure == nil && held != applied {
		w.fail("after a clean stop the file holds index %d of %d", held, applied)
	}
}

func (w *world) stopTroupe() error {
	defer w.survive()
	return w.troupe.Stop(context.Background())
}

// held is the index that the database file holds.
func (w *world) held() proto.Index {
	index, err := fileIndex(w.file)
	if err != nil {
		w.fail("read the file: %w", err)
	}
	return index
}
