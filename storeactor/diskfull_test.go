package storeactor

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// fullDisk is a model file whose disk has no space while full is set.
type fullDisk struct {
	*ModelFile
	full  atomic.Bool
	tries atomic.Int64
}

func newFullDisk(options ModelOptions) *fullDisk {
	d := &fullDisk{}
	options.AtStep = func(s ModelStep) error {
		if s != ModelBeforeWrite || !d.full.Load() {
			return nil
		}
		d.tries.Add(1)
		return fmt.Errorf("%w: %w", ErrDiskFull, syscall.ENOSPC)
	}
	d.ModelFile = NewModelFile(options)
	return d
}

// logLines collects a log.
type logLines struct{ lines chan string }

func (l logLines) Write(b []byte) (int, error) {
	l.lines <- string(b)
	return len(b), nil
}

// TestBackend_FullDiskIsWaitedFor: a commit that finds no space is tried again with growing pauses until there is some;
// what needs a commit is turned away meanwhile; the log gets one line at each end; nothing is lost.
func TestBackend_FullDiskIsWaitedFor(t *testing.T) {
	clock := actorstest.NewManualClock()
	disk := newFullDisk(ModelOptions{})
	log := stillLog{questions: make(chan func(error), 100), views: make(chan FileView, 100)}
	lines := logLines{make(chan string, 100)}
	sys := actors.NewSystem(actors.Config{
		Name: "test", Clock: clock, Fatal: func(_ string, reason any, _ []byte) { t.Error(reason) },
	})
	handle, err := spawnBackend(sys, backendConfig{
		File: disk, Log: log, Store: log, Revision: 1, CheckpointWrites: 1, Logger: zerolog.New(lines),
	})
	if err != nil {
		t.Fatal(err)
	}
	commitEmpty(t, handle, log, 1).Release()
	disk.full.Store(true)
	handle.write(testWrite(2, 0, 100))
	handle.hash(emptyHash(actors.NewReply[HashResult]())) // wakes it; see below for the answer
	receive(t, log.questions)(nil)
	if line := receive(t, lines.lines); !strings.Contains(line, "no space left") || !strings.Contains(line, "error") {
		t.Fatalf("log: %s", line)
	}
	reply := actors.NewReply[HashResult]()
	handle.hash(emptyHash(reply))
	if _, err := reply.Wait(t.Context()); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a hash while the disk is full: %v", err)
	}
	snapshot := &snapshotFile{reply: actors.NewReply[*Snapshot]()}
	handle.snapshot(snapshot)
	if _, err := snapshot.reply.Wait(t.Context()); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a snapshot while the disk is full: %v", err)
	}
	if s := handle.status(); !s.Full() || s.Crowded() || s.Backlog != 100 {
		t.Errorf("status %+v", s)
	}
	handle.write(testWrite(3, 0, diskFullBacklogMax))
	waitUntil(t, "the backlog is published", func() bool { return handle.status().Crowded() })
	for tries := disk.tries.Load(); tries < 6; tries++ {
		waitUntil(t, "it is tried again", func() bool {
			clock.Advance(diskFullRetryMin)
			return disk.tries.Load() > tries
		})
	}
	disk.full.Store(false)
	waitUntil(t, "there is space", func() bool {
		clock.Advance(diskFullRetryMax)
		return !handle.status().Full()
	})
	receive(t, log.views).Release() // index 2
	waitUntil(t, "the log says so", func() bool {
		clock.Advance(diskFullRetryMax)
		return len(lines.lines) > 0
	})
	if line := receive(t, lines.lines); !strings.Contains(line, "there is space again") || len(lines.lines) > 0 {
		t.Errorf("log: %s and %d more lines", line, len(lines.lines))
	}
	receive(t, log.questions)(nil)
	receive(t, log.views).Release()
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	view, err := disk.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	if index, _, err := view.Append(nil, proto.BucketMeta, metaConsistentIndex); err != nil || index[7] != 3 {
		t.Errorf("the file is at %v: %v", index, err)
	}
}

// waitUntil waits for a condition that a goroutine brings about.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestBackend_StopDoesNotWaitForAFullDisk: the log has what stays out of the file.
func TestBackend_StopDoesNotWaitForAFullDisk(t *testing.T) {
	disk := newFullDisk(ModelOptions{})
	log, handle := startStill(t, actorstest.NewManualClock(), disk, func(reason any) { t.Error(reason) })
	disk.full.Store(true)
	handle.write(testWrite(1, 0, 100))
	handle.hash(emptyHash(actors.NewReply[HashResult]()))
	receive(t, log.questions)(nil)
	if err := handle.stop(t.Context()); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("stop: %v", err)
	}
}

// TestBackend_FullDiskTakesNoHandleAway: a commit for which the file would have to be mapped anew cuts all handles off
// first. When it then finds the disk full, there are new ones: reads go on, and copies are not kept waiting.
func TestBackend_FullDiskTakesNoHandleAway(t *testing.T) {
	disk := newFullDisk(ModelOptions{AddressBytes: 1}) // every commit
	clock := actorstest.NewManualClock()
	log, handle := startStill(t, clock, disk, func(reason any) { t.Error(reason) })
	held := commitEmpty(t, handle, log, 1)
	disk.full.Store(true)
	handle.write(testWrite(2, 0, 100))
	handle.hash(emptyHash(actors.NewReply[HashResult]()))
	receive(t, log.questions)(nil)
	fresh := receive(t, log.views)
	if _, _, err := held.Append(nil, proto.BucketMeta, metaConsistentIndex); !errors.Is(err, ErrViewCutOff) {
		t.Fatalf("the handle from before was not cut off: %v", err)
	}
	held.Release()
	if index, _, err := fresh.Append(nil, proto.BucketMeta, metaConsistentIndex); err != nil || index[7] != 1 {
		t.Errorf("the new handle reads index %v: %v", index, err)
	}
	fresh.Release()
	copied := &defragmentFile{reply: actors.NewReply[struct{}]()}
	handle.defragment(copied)
	if _, err := copied.reply.Wait(t.Context()); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a copy that does not fit: %v", err)
	}
	disk.full.Store(false)
	waitUntil(t, "there is space", func() bool {
		clock.Advance(diskFullRetryMax)
		return !handle.status().Full()
	})
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(log.views) > 0 {
		receive(t, log.views).Release()
	}
}

// TestBackend_DefragmentationMakesTheSpaceItself: a full disk does not keep it from running, when the copy still fits.
func TestBackend_DefragmentationMakesTheSpaceItself(t *testing.T) {
	disk := newFullDisk(ModelOptions{})
	log, handle := startStill(t, actorstest.NewManualClock(), disk, func(reason any) { t.Error(reason) })
	disk.full.Store(true)
	handle.write(testWrite(1, 0, 100))
	handle.hash(emptyHash(actors.NewReply[HashResult]()))
	receive(t, log.questions)(nil)
	waitUntil(t, "the disk is full", func() bool { return handle.status().Full() })
	failed := &defragmentFile{reply: actors.NewReply[struct{}]()}
	handle.defragment(failed)
	if _, err := failed.reply.Wait(t.Context()); err != nil && !errors.Is(err, ErrDiskFull) {
		t.Fatalf("a copy that does not fit: %v", err)
	}
	disk.full.Store(false)
	made := &defragmentFile{reply: actors.NewReply[struct{}]()}
	handle.defragment(made)
	if _, err := made.reply.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "there is space", func() bool { return !handle.status().Full() })
	for range 2 { // that of the new file, and that of the commit that waited
		receive(t, log.views).Release()
	}
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestDescribeWriteError_OnlyWhatChangedNothingIsTriedAgain: a sync that fails is fatal, whatever it says.
func TestDescribeWriteError_OnlyWhatChangedNothingIsTriedAgain(t *testing.T) {
	at := func(op string, err error) error { return &os.PathError{Op: op, Path: "db", Err: err} }
	asText := func(what string, err error) error { return errors.New(what + ": " + err.Error()) }
	for name, c := range map[string]struct {
		err  error
		full bool
	}{
		"write":          {at("write", syscall.ENOSPC), true},
		"quota":          {at("write", syscall.EDQUOT), true},
		"wrapped":        {fmt.Errorf("commit: %w", at("truncate", syscall.ENOSPC)), true},
		"longer file":    {asText("file resize error", at("truncate", syscall.ENOSPC)), true},
		"sync":           {at("sync", syscall.ENOSPC), false},
		"fdatasync":      {syscall.ENOSPC, false},
		"sync as text":   {asText("file sync error", at("sync", syscall.ENOSPC)), false},
		"broken disk":    {at("write", syscall.EIO), false},
		"nothing at all": {nil, false},
	} {
		got := describeWriteError(c.err)
		if errors.Is(got, ErrDiskFull) != c.full || (got == nil) != (c.err == nil) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
