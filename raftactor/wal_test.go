package raftactor

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
)

// completions records what the wal actor tells raft.
type completions struct {
	mu        sync.Mutex
	persists  []uint64
	snapshots []proto.Index
	failures  []proto.Index
	room      logRoom
}

func (c *completions) persisted(upTo uint64, room logRoom) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.persists = append(c.persists, upTo)
	c.room = room
}

func (c *completions) snapshotFailed(index proto.Index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, index)
}

func (c *completions) snapshotSaved(index proto.Index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshots = append(c.snapshots, index)
}

// last gives the newest persisted number, and whether the numbers rose.
func (c *completions) last() (seq uint64, ordered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.persists) > 0 {
		seq = c.persists[len(c.persists)-1]
	}
	return seq, slices.IsSorted(c.persists)
}

// walFixture is a wal actor on a simulated disk.
type walFixture struct {
	disk    *disktest.Disk
	client  walClient
	owner   *completions
	metrics *LogMetrics
}

func spawnTestWAL(t *testing.T, cfg actors.Config) *walFixture {
	t.Helper()
	f := &walFixture{disk: disktest.New(1), owner: &completions{}}
	f.disk.SetSegmentBytes(1 << 20)
	if err := f.disk.MakeDir(crashSnapDir); err != nil {
		t.Fatal(err)
	}
	log, err := CreateLog(f.disk, crashWALDir, readMeta)
	if err != nil {
		t.Fatal(err)
	}
	if f.metrics, err = NewLogMetrics(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	cfg.Log = zerolog.Nop()
	f.client, err = spawnWAL(actors.NewSystem(cfg), walConfig{
		log: log, disk: f.disk, snapDir: crashSnapDir, owner: f.owner, metrics: f.metrics, logger: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func entryAppend(seq uint64) *walAppend {
	return &walAppend{
		hardState: logState(1, 1, seq), entries: []*raftpb.Entry{logEntry(1, seq, []byte("data"))}, mustSync: true, seq: seq,
	}
}

func TestWAL_WhatArrivedDuringAnFsyncIsOneWriteAndOneFsync(t *testing.T) {
	stepper := actorstest.NewStepper(1)
	f := spawnTestWAL(t, actors.Config{Name: "wal", Dispatcher: stepper})
	stepper.Run(10)
	const appends = 100
	before := f.disk.Operations()
	for seq := uint64(1); seq <= appends; seq++ {
		if err := f.client.tell(entryAppend(seq)); err != nil {
			t.Fatal(err)
		}
	}
	stepper.Run(10)
	if seq, _ := f.owner.last(); seq != appends {
		t.Errorf("persisted up to %d", seq)
	}
	if n := f.disk.Syncs(disk.Append); n != 1 {
		t.Errorf("%d fsyncs for %d appends", n, appends)
	}
	if n := f.disk.Operations() - before; n != 2 {
		t.Errorf("%d operations, want a write and a sync", n)
	}
}

func TestWAL_AFullMailboxRefusesAndLosesNothing(t *testing.T) {
	stepper := actorstest.NewStepper(1)
	f := spawnTestWAL(t, actors.Config{Name: "wal", Dispatcher: stepper})
	stepper.Run(10)
	seq := uint64(0)
	for {
		err := f.client.tell(entryAppend(seq + 1))
		if errors.Is(err, actors.ErrFull) {
			break
		}
		if err != nil || seq > walInboxMessagesMax {
			t.Fatalf("after %d appends: %v", seq, err)
		}
		seq++
	}
	if seq != walInboxMessagesMax {
		t.Errorf("full at %d", seq)
	}
	stepper.Run(100)
	if err := f.client.tell(entryAppend(seq + 1)); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
	stepper.Run(100)
	if got, ordered := f.owner.last(); got != seq+1 || !ordered {
		t.Errorf("persisted up to %d of %d, in order: %v", got, seq+1, ordered)
	}
}

func TestWAL_StopsUnderLoadAfterWritingWhatWasAdmitted(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := spawnTestWAL(t, actors.Config{Name: "wal"})
	confirmed := make(chan error, 1)
	if err := f.client.tell(&walConfirm{index: 1 << 40, done: func(err error) { confirmed <- err }}); err != nil {
		t.Fatal(err)
	}
	admitted := make(chan uint64, 1)
	go func() {
		for seq := uint64(1); ; seq++ {
			if err := f.client.tell(entryAppend(seq)); err != nil {
				if errors.Is(err, actors.ErrFull) {
					seq--
					continue
				}
				admitted <- seq - 1
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for seq, _ := f.owner.last(); seq < 200 && ctx.Err() == nil; seq, _ = f.owner.last() {
		runtime.Gosched()
	}
	if err := f.client.stop(ctx); err != nil {
		t.Fatal(err)
	}
	want := <-admitted
	if got, ordered := f.owner.last(); got != want || !ordered {
		t.Errorf("persisted up to %d, %d were admitted, in order: %v", got, want, ordered)
	}
	if err := <-confirmed; !errors.Is(err, actors.ErrStopped) {
		t.Errorf("the confirmation nothing can give got %v", err)
	}
	f.disk.Crash(9)
	_, r, err := OpenLog(f.disk, crashWALDir)
	if err != nil || uint64(r.Last()) != want {
		t.Errorf("the log holds %v of %d (%v)", r, want, err)
	}
}

func TestWAL_AFailedFsyncEndsTheProcess(t *testing.T) {
	stepper := actorstest.NewStepper(1)
	var fatal []any
	f := spawnTestWAL(t, actors.Config{
		Name: "wal", Dispatcher: stepper,
		Fatal: func(_ string, reason any, _ []byte) { fatal = append(fatal, reason) },
	})
	f.disk.FailSync(disk.Append, 1)
	if err := f.client.tell(entryAppend(1)); err != nil {
		t.Fatal(err)
	}
	stepper.Run(100)
	if len(fatal) != 1 {
		t.Errorf("fatal was called with %v", fatal)
	}
	if n := f.disk.Syncs(disk.Append); n != 1 {
		t.Errorf("the fsync was tried %d times", n)
	}
	if seq, _ := f.owner.last(); seq != 0 {
		t.Errorf("append %d was reported durable", seq)
	}
}

func TestWAL_SnapshotsReleaseOlderSegments(t *testing.T) {
	stepper := actorstest.NewStepper(1)
	f := spawnTestWAL(t, actors.Config{Name: "wal", Dispatcher: stepper})
	f.disk.SetSegmentBytes(1 << 20)
	seq := uint64(0)
	for snapshot := range 12 {
		for range 4 {
			seq++
			a := entryAppend(seq)
			a.entries[0].Data = make([]byte, 300<<10)
			if err := f.client.tell(a); err != nil {
				t.Fatal(err)
			}
			stepper.Run(100)
		}
		m := &walSnapshot{
			record: SnapshotRecord{Index: proto.Index(seq), Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{1}}},
			data:   []byte("{}"),
		}
		if err := f.client.tell(m); err != nil {
			t.Fatal(err)
		}
		stepper.Run(100)
		if len(f.owner.snapshots) != snapshot+1 {
			t.Fatalf("saved %v", f.owner.snapshots)
		}
	}
	segments, err := listSegments(f.disk, crashWALDir)
	if err != nil || len(segments) != segmentsKept {
		t.Errorf("%d segments are left (%v)", len(segments), err)
	}
	files, err := ListSnapFiles(f.disk, crashSnapDir)
	if err != nil || len(files) != snapFilesKept {
		t.Errorf("%d snapshot files are left (%v)", len(files), err)
	}
	f.disk.Crash(1)
	_, r, err := OpenLog(f.disk, crashWALDir)
	if err != nil || uint64(r.Start.Index) != seq {
		t.Errorf("the log starts at %+v (%v)", r, err)
	}
}

// The first completion of a start says whether the disk is full, so that the first request is not refused as overload.
func TestWAL_TheFirstCompletionOfAStartKnowsAFullDisk(t *testing.T) {
	used := make([]byte, creditSegmentBytesMin/2)
	for seed := range uint64(10) {
		d, log := spareLog(t, creditSegmentBytesMin)
		if err := log.Append(logState(1, 1, 1), []*raftpb.Entry{logEntry(1, 1, used)}); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		full := seed%2 == 0
		if full {
			d.SetSpace(0)
		}
		log, _, err := OpenLog(d, readDir)
		if err != nil {
			t.Fatal(err)
		}
		stepper, owner := actorstest.NewStepper(seed), &completions{}
		client, err := spawnWAL(actors.NewSystem(actors.Config{Name: "wal", Dispatcher: stepper, Log: zerolog.Nop()}),
			walConfig{log: log, disk: d, snapDir: readDir, owner: owner, logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.tell(&walAppend{entries: []*raftpb.Entry{logEntry(1, 2, nil)}, mustSync: true, seq: 1}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if len(owner.persists) == 0 {
				stepper.Step()
			}
		}
		if len(owner.persists) != 1 || owner.room.full != full {
			t.Errorf("seed %d, disk full %v: completions %v with %+v", seed, full, owner.persists, owner.room)
		}
	}
}
