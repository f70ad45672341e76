package storeactor

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// Snapshot is a copy of the whole file, as etcd and its tools open it, in a file without a name: who reads it, however
// slowly, costs disk and nothing else. Its owner must Close it.
type Snapshot struct {
	size    int64
	scratch Scratch
	close   func()
	once    sync.Once
}

// Size is its length in bytes.
func (s *Snapshot) Size() int64 { return s.size }

// ReadAt implements io.ReaderAt.
func (s *Snapshot) ReadAt(b []byte, offset int64) (int, error) { return s.scratch.ReadAt(b, offset) }

// Close gives the disk back. A second call does nothing.
func (s *Snapshot) Close() error {
	var err error
	s.once.Do(func() {
		err = s.scratch.Close()
		s.close()
	})
	return err
}

// Who has the right to the answer of a snapshot request: the worker that has one, or the caller that has gone.
const (
	claimOpen int32 = iota
	claimAnswered
	claimAbandoned
)

// abandon takes the right to the answer away; false when the answer is there already.
func (m *snapshotFile) abandon() bool { return m.claim.CompareAndSwap(claimOpen, claimAbandoned) }

// abandoned reports whether nobody waits any more.
func (m *snapshotFile) abandoned() bool { return m.claim.Load() == claimAbandoned }

// deliver answers with a snapshot, or closes it when nobody wants it.
func (m *snapshotFile) deliver(s *Snapshot) {
	if m.claim.CompareAndSwap(claimOpen, claimAnswered) {
		m.reply.Send(s)
		return
	}
	m.reply.Fail(errors.Join(errSnapshotAbandoned, s.Close()))
}

// fail answers with an error.
func (m *snapshotFile) fail(err error) {
	m.claim.CompareAndSwap(claimOpen, claimAnswered)
	m.reply.Fail(err)
}

// errSnapshotAbandoned ends the work for a caller that has gone; nobody sees it.
var errSnapshotAbandoned = errors.New("storeactor: nobody waits for the snapshot")

// waitingSnapshot waits until the file holds its index.
type waitingSnapshot struct {
	request *snapshotFile
	after   proto.Index
	leave   func() // gives its place among SnapshotsOpenMax back
}

// admitSnapshot queues a snapshot behind the commit of everything sent before it.
func (b *backend) admitSnapshot(m *snapshotFile) {
	if b.finishing != nil {
		m.fail(actors.ErrStopped)
		return
	}
	if b.open.Add(1) > SnapshotsOpenMax {
		b.open.Add(-1)
		m.fail(ErrSnapshotsOpen)
		return
	}
	open, gauge := &b.open, b.metrics.snapshotsOpen
	gauge.Inc()
	leave := func() {
		open.Add(-1)
		gauge.Dec()
	}
	m.began = b.self.Now()
	b.snapshots = append(b.snapshots, waitingSnapshot{request: m, after: b.core.want(), leave: leave})
}

// failSnapshots answers those that wait for a commit.
func (b *backend) failSnapshots(err error) {
	for _, s := range b.snapshots {
		s.leave()
		s.request.fail(err)
	}
	b.snapshots = nil
}

// startSnapshot gives every snapshot whose writes are in the file a handle, and the first of them to the worker.
func (b *backend) startSnapshot() {
	for len(b.snapshots) > 0 && b.filed.index >= b.snapshots[0].after && !b.viewEnded() {
		view, err := b.cfg.File.View() // its own: a large copy may take longer than a reader may
		mustWrite("view", err)
		b.snapshotJobs = append(b.snapshotJobs, &snapshotJob{
			waitingSnapshot: b.snapshots[0], view: view, file: b.cfg.File, now: b.self.Now,
			rest: newRest(b.abandon, b.self.Now, b.cfg.Rest), metrics: b.metrics,
		})
		b.snapshots = b.snapshots[1:]
	}
	if b.snapshotting || len(b.snapshotJobs) == 0 {
		return
	}
	b.snapshotting = true
	job, ref := b.snapshotJobs[0], b.self.Ref()
	b.snapshotJobs = b.snapshotJobs[1:]
	b.cfg.Work(func() {
		job.run()
		tellSelf(ref, snapshotDone{})
	})
}

// snapshotJob is all a snapshot worker needs.
type snapshotJob struct {
	waitingSnapshot
	view    FileView // one reference
	file    File
	now     func() time.Time
	rest    *rest
	metrics *fileMetrics
}

func (j *snapshotJob) run() {
	snapshot, err := j.copy()
	j.view.Release()
	if err != nil {
		j.leave()
		j.request.fail(err)
		return
	}
	j.request.deliver(snapshot)
}

// copy makes the snapshot. On an error nothing of it is left, except its place among those that are open.
func (j *snapshotJob) copy() (*Snapshot, error) {
	whole, ok := j.view.(wholeView)
	actors.Must(ok, "a handle of %T cannot be copied", j.view)
	scratch, err := j.file.Scratch()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	n, err := whole.WriteTo(&restingWriter{to: scratch, job: j})
	if err == nil && n != whole.Size() {
		err = fmt.Errorf("%d bytes copied of %d", n, whole.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot: %w", err), scratch.Close())
	}
	return &Snapshot{size: n, scratch: scratch, close: func() {
		j.metrics.snapshot.Observe(j.now().Sub(j.request.began).Seconds())
		j.leave()
	}}, nil
}

// restingWriter brings what it writes to the disk in pieces, and rests after each, so that the log gets its turn.
type restingWriter struct {
	to      Scratch
	job     *snapshotJob
	pending int
}

// Write implements io.Writer.
func (w *restingWriter) Write(b []byte) (int, error) {
	if w.job.request.abandoned() {
		return 0, errSnapshotAbandoned
	}
	n, err := w.to.Write(b)
	if w.pending += n; err != nil || w.pending < snapshotBatchBytes {
		return n, err
	}
	w.pending = 0
	if err := w.to.Flush(); err != nil {
		return n, err
	}
	return n, w.job.rest.rest()
}

var _ io.ReaderAt = (*Snapshot)(nil)
