package storeactor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// fillFile puts records into the key bucket and deletes every second one again, so that a copy is smaller.
func fillFile(t *testing.T, f File, records, bytes int) {
	t.Helper()
	for _, remove := range []bool{false, true} {
		w, err := f.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			key := appendVersionKey(nil, proto.Version{Main: proto.Revision(i + 2)})
			switch {
			case !remove:
				err = w.Put(proto.BucketKey, key, make([]byte, bytes))
			case i%2 == 0:
				err = w.Delete(proto.BucketKey, key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Put(proto.BucketMeta, metaTerm, []byte("12345678")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

func dumpFile(t *testing.T, f File) string {
	t.Helper()
	view, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	text, err := dump(view)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// copyWhole makes a copy that holds what the file holds.
func copyWhole(t *testing.T, f File) FileCopy {
	t.Helper()
	to, err := f.Copy()
	if err != nil {
		t.Fatal(err)
	}
	view, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	c := &copier{to: to, rest: func() error { return nil }}
	if err := c.round(view, nil); err != nil {
		t.Fatal(err)
	}
	return to
}

func filesBeside(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestBoltCopy_TakesThePlaceOfTheFile: smaller, with the same records, locked; what was open before goes on reading the
// old file, and nothing is left beside the new one.
func TestBoltCopy_TakesThePlaceOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	f, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fillFile(t, f, 2000, 2000)
	want, before := dumpFile(t, f), f.Sizes()
	old, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	to := copyWhole(t, f)
	if renamed, err := to.Become(); !renamed || err != nil {
		t.Fatal(renamed, err)
	}
	if after := f.Sizes(); after.Total > before.Total*2/3 || after.InUse > after.Total {
		t.Errorf("sizes %+v, before %+v", after, before)
	}
	if dumpFile(t, f) != want {
		t.Error("the copy has other records")
	}
	fillFile(t, f, 100, 100) // the new file takes writes
	if text, err := dump(old); err != nil || text != want {
		t.Errorf("a handle on the old file: %v, same records: %v", err, text == want)
	}
	old.Release()
	if _, err := OpenBoltFile(path, BoltOptions{}); !errors.Is(err, ErrFileLocked) {
		t.Errorf("the new file is open for others: %v", err)
	}
	if beside := filesBeside(t, path); len(beside) > 0 {
		t.Errorf("left beside the file: %v", beside)
	}
	want = dumpFile(t, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenBoltFile(path, BoltOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if dumpFile(t, f) != want {
		t.Error("the file was opened with other records")
	}
}

// TestBoltCopy_CrashAtEachStepLeavesAGoodDatabase takes an image of the directory at each step, as a crash would leave
// it, and starts from it.
func TestBoltCopy_CrashAtEachStepLeavesAGoodDatabase(t *testing.T) {
	for step := CopyBeforeSync; step <= CopyAfterSync; step++ {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			dir, image := t.TempDir(), t.TempDir()
			f, err := OpenBoltFile(filepath.Join(dir, "db"), BoltOptions{
				AddressBytes: 64 << 20,
				AtCopyStep: func(now CopyStep) error {
					if now == step {
						return os.CopyFS(filepath.Join(image, "crashed"), os.DirFS(dir))
					}
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			fillFile(t, f, 500, 1000)
			want := dumpFile(t, f)
			if renamed, err := copyWhole(t, f).Become(); !renamed || err != nil {
				t.Fatal(renamed, err)
			}
			path := filepath.Join(image, "crashed", "db")
			crashed, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = crashed.Close() }()
			removed, err := RemoveLeftovers(filepath.Dir(path))
			if err != nil || len(removed) == 1 != (step < CopyAfterRename) {
				t.Errorf("removed %v: %v", removed, err)
			}
			if dumpFile(t, crashed) != want {
				t.Error("the database of the crash has other records")
			}
			if beside := filesBeside(t, path); len(beside) > 0 {
				t.Errorf("left beside the file: %v", beside)
			}
		})
	}
}

// TestBoltCopy_ErrorBeforeTheRenameChangesNothing, and the copy can be deleted.
func TestBoltCopy_ErrorBeforeTheRenameChangesNothing(t *testing.T) {
	broken := errors.New("input/output error")
	for step := CopyBeforeSync; step < CopyAfterRename; step++ {
		path := filepath.Join(t.TempDir(), "db")
		f, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20, AtCopyStep: func(now CopyStep) error {
			if now == step {
				return broken
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		fillFile(t, f, 100, 1000)
		want := dumpFile(t, f)
		to := copyWhole(t, f)
		if renamed, err := to.Become(); renamed || !errors.Is(err, broken) {
			t.Fatalf("step %d: renamed %v, %v", step, renamed, err)
		}
		if err := to.Discard(); err != nil {
			t.Fatal(err)
		}
		if beside := filesBeside(t, path); len(beside) > 0 || dumpFile(t, f) != want {
			t.Errorf("step %d: left %v", step, beside)
		}
		fillFile(t, f, 10, 10)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopier_RoundsFollowTheFile brings a copy up to a file that changes between the rounds in every way a file may.
func TestCopier_RoundsFollowTheFile(t *testing.T) {
	f := openTestFile(t, BoltOptions{NoSync: true})
	fillFile(t, f, 300, 100)
	to, err := f.Copy()
	if err != nil {
		t.Fatal(err)
	}
	rests := 0
	c := &copier{to: to, rest: func() error { rests++; return nil }}
	var deleted [][]byte
	for round := range 4 {
		view, err := f.View()
		if err != nil {
			t.Fatal(err)
		}
		want, err := dump(view)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.round(view, deleted); err != nil {
			t.Fatal(err)
		}
		view.Release()
		copied, err := to.View()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := dump(copied); err != nil || got != want {
			t.Fatalf("round %d: the copy has %d bytes of records, the file %d: %v", round, len(got), len(want), err)
		}
		copied.Release()
		deleted = changeFile(t, f, round)
	}
	if err := to.Discard(); err != nil {
		t.Fatal(err)
	}
	if rests == 0 {
		t.Error("it never rested")
	}
}

// changeFile appends revisions, deletes some as a compaction does, and changes, adds and deletes small records.
func changeFile(t *testing.T, f File, round int) (deleted [][]byte) {
	t.Helper()
	w, err := f.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		key := appendVersionKey(nil, proto.Version{Main: proto.Revision(1000*(round+1) + i)})
		lease := fmt.Appendf(nil, "lease%03d", (i*7+round*13)%50)
		errs := []error{
			w.Put(proto.BucketKey, key, make([]byte, 60_000)),
			w.Put(proto.BucketLease, lease, fmt.Append(nil, round, i)),
			w.Delete(proto.BucketLease, fmt.Appendf(nil, "lease%03d", (i*3+round*5)%50)),
			w.Put(proto.BucketMeta, metaConsistentIndex, fmt.Appendf(nil, "%08d", round)),
		}
		if i%3 == 0 {
			gone := appendVersionKey(nil, proto.Version{Main: proto.Revision(2 + 30*round + i)})
			errs = append(errs, w.Delete(proto.BucketKey, gone))
			deleted = append(deleted, gone)
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return deleted
}

// TestBackend_DefragmentationsShareOneRunAndAreBounded: all who ask before it begins share a run; who asks while it is
// under way gets the next one; more than the bound are refused.
func TestBackend_DefragmentationsShareOneRunAndAreBounded(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	jobs := make(chan func(), 10)
	log := stillLog{questions: make(chan func(error), 100), views: make(chan FileView, 100)}
	handle := startWith(t, backendConfig{File: file, Log: log, Store: log, Work: func(job func()) { jobs <- job }})
	ask := func() actors.Reply[struct{}] {
		m := &defragmentFile{reply: actors.NewReply[struct{}]()}
		handle.defragment(m)
		return m.reply
	}
	first := ask()
	begun := receive(t, jobs)
	var waiting []actors.Reply[struct{}]
	for range defragmentationsWaitingMax - 1 {
		waiting = append(waiting, ask())
	}
	if _, err := ask().Wait(t.Context()); !errors.Is(err, ErrDefragmentationsWaiting) {
		t.Fatalf("one more than the bound: %v", err)
	}
	finish := func(round func()) {
		round()            // the first round of a run
		receive(t, jobs)() // a model's round is short, so that the second is the last
		receive(t, log.views).Release()
	}
	finish(begun)
	if _, err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := receive(t, jobs)
	if _, _, done := waiting[0].Poll(); done {
		t.Fatal("answered by a run that began before it asked")
	}
	finish(next)
	for _, reply := range waiting {
		if _, err := reply.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(jobs) > 0 {
		t.Error("a third run began")
	}
}

// startWith starts a backend with a manual clock.
func startWith(t *testing.T, cfg backendConfig) backendHandle {
	t.Helper()
	sys := actors.NewSystem(actors.Config{
		Name: "test", Clock: actorstest.NewManualClock(), Fatal: func(_ string, reason any, _ []byte) { t.Error(reason) },
	})
	cfg.Revision, cfg.CheckpointWrites = 1, 1
	handle, err := spawnBackend(sys, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// TestDefragmentation_CompactionWaitsWhenTooMuchIsRemembered: the keys of deleted records are bounded.
func TestDefragmentation_CompactionWaitsWhenTooMuchIsRemembered(t *testing.T) {
	var none *defragmentation
	if none.full() || none.last() {
		t.Fatal("no run holds a compaction back")
	}
	d := &defragmentation{}
	key := appendVersionKey(nil, proto.Version{Main: 1})
	steps := 0
	for ; !d.full(); steps++ {
		d.forget([]proto.BucketWrite{
			{Bucket: proto.BucketKey, Key: key, Delete: true}, {Bucket: proto.BucketMeta, Key: metaFinished, Value: key},
		})
	}
	if d.deletedBytes < copyDeletionsMax || len(d.deleted) != steps || d.deletedBytes > copyDeletionsMax+len(key) {
		t.Fatalf("%d bytes after %d steps", d.deletedBytes, steps)
	}
}

// TestBackend_DefragmentationThatFailsLeavesNothing: the caller gets the reason, the copy is deleted, and the file goes
// on.
func TestBackend_DefragmentationThatFailsLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	broken := errors.New("input/output error")
	file, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20, NoSync: true, AtCopyStep: func(CopyStep) error {
		return broken
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	log, handle := startStill(t, actorstest.NewManualClock(), file, func(reason any) { t.Error(reason) })
	m := &defragmentFile{reply: actors.NewReply[struct{}]()}
	handle.defragment(m)
	if _, err := m.reply.Wait(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "as it was") {
		t.Fatalf("answer: %v", err)
	}
	if beside := filesBeside(t, path); len(beside) > 0 {
		t.Errorf("left beside the file: %v", beside)
	}
	commitEmpty(t, handle, log, 1).Release()
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestBackend_StopEndsADefragmentation: a member that stops does not wait for a copy.
func TestBackend_StopEndsADefragmentation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	file, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	fillFile(t, file, 200, 100_000)
	resting, proceed := make(chan struct{}), make(chan struct{})
	log := stillLog{questions: make(chan func(error), 100), views: make(chan FileView, 100)}
	handle := startWith(t, backendConfig{File: file, Log: log, Store: log, Rest: func(time.Duration) {
		select {
		case resting <- struct{}{}:
		case <-proceed:
		}
		<-proceed
	}})
	m := &defragmentFile{reply: actors.NewReply[struct{}]()}
	handle.defragment(m)
	receive(t, resting)
	stopped := make(chan error, 1)
	go func() { stopped <- handle.stop(context.Background()) }()
	var late []actors.Reply[struct{}]
	waitUntil(t, "the backend turns callers away", func() bool {
		m := &defragmentFile{reply: actors.NewReply[struct{}]()}
		late = append(late, m.reply)
		handle.defragment(m)
		return slices.ContainsFunc(late, func(reply actors.Reply[struct{}]) bool {
			_, err, done := reply.Poll()
			return done && errors.Is(err, actors.ErrStopped)
		})
	})
	close(proceed)
	if err := receive(t, stopped); err != nil {
		t.Fatal(err)
	}
	if _, err := m.reply.Wait(t.Context()); !errors.Is(err, actors.ErrStopped) {
		t.Errorf("the caller got %v", err)
	}
	if beside := filesBeside(t, path); len(beside) > 0 {
		t.Errorf("left beside the file: %v", beside)
	}
}

// TestBackend_SnapshotsAreBoundedAndGivenBack: more than the bound are refused, and a closed one makes room; a caller
// that has gone takes none.
func TestBackend_SnapshotsAreBoundedAndGivenBack(t *testing.T) {
	file := openTestFile(t, BoltOptions{NoSync: true})
	fillFile(t, file, 100, 1000)
	log, handle := startStill(t, actorstest.NewManualClock(), file, func(reason any) { t.Error(reason) })
	ask := func() *snapshotFile {
		m := &snapshotFile{reply: actors.NewReply[*Snapshot]()}
		handle.snapshot(m)
		return m
	}
	var open []*Snapshot
	for range SnapshotsOpenMax {
		s, err := ask().reply.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	if _, err := ask().reply.Wait(t.Context()); !errors.Is(err, ErrSnapshotsOpen) {
		t.Fatalf("one more than the bound: %v", err)
	}
	commitEmpty(t, handle, log, 1).Release() // an open snapshot holds nothing but disk
	if n := file.OpenViews(); n > 1 {
		t.Errorf("%d handles are open besides the backend's", n-1)
	}
	want := dumpFile(t, openCopy(t, open[0]))
	if want == "" || !strings.Contains(want, "key ") {
		t.Errorf("the snapshot holds %q", want)
	}
	for _, s := range open {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * SnapshotsOpenMax {
		gone := &snapshotFile{reply: actors.NewReply[*Snapshot]()}
		gone.abandon()
		handle.snapshot(gone)
		if _, err := gone.reply.Wait(t.Context()); !errors.Is(err, errSnapshotAbandoned) {
			t.Fatalf("a caller that has gone got %v", err)
		}
	}
	s, err := ask().reply.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), handle.stop(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// openCopy opens a snapshot as a database.
func openCopy(t *testing.T, s *Snapshot) File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, io.NewSectionReader(s, 0, s.Size())); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := OpenBoltFile(path, BoltOptions{AddressBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestDeletion_LargeRecordsMakeSmallSteps: a step ends after so many bytes, and the steps together see every record.
func TestDeletion_LargeRecordsMakeSmallSteps(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	const records, each = 12, compactionBatchBytes / 3
	w, err := file.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := w.Put(proto.BucketKey, appendVersionKey(nil, proto.Version{Main: proto.Revision(i + 1)}),
			make([]byte, each)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	view, err := file.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	all := func([]byte, proto.Version) bool { return false }
	d := newDeletion(&compactFile{revision: records, keep: all}, -1, 0, compactionBatchDefault)
	steps := 0
	for done := false; !done; steps++ {
		step, err := d.step(view)
		if err != nil || step.deletes > 4 {
			t.Fatalf("step %d deletes %d: %v", steps, step.deletes, err)
		}
		done = step.done
	}
	if steps < 3 || d.deleted != records {
		t.Errorf("%d records were deleted in %d steps", d.deleted, steps)
	}
}

// TestRestingView_RestsAndStops: a hash of a large file lets others through, and ends when the member stops.
func TestRestingView_RestsAndStops(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	fillFile(t, file, 100, hashBatchBytes/10)
	view, err := file.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	rests := 0
	abandon := new(atomic.Bool)
	resting := &restingView{FileView: view, rest: newRest(abandon, time.Now, func(time.Duration) { rests++ })}
	if _, err := hashWholeFile(resting); err != nil || rests < 3 {
		t.Fatalf("%d rests: %v", rests, err)
	}
	abandon.Store(true)
	if _, err := hashWholeFile(resting); !errors.Is(err, actors.ErrStopped) {
		t.Fatalf("after the stop: %v", err)
	}
}
