package storeactor

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/proto"
)

// backendMessage is anything the backend understands. backendWrite, compactFile, hashRequest, snapshotFile and
// defragmentFile come from store on the Normal lane and are taken in the order in which they were sent; the rest are
// the backend's own timers, the reports of its workers and the answers to its own questions, on the Control lane.
type backendMessage interface{ backendMessage() }

func (*backendWrite) backendMessage()   {}
func (*compactFile) backendMessage()    {}
func (*hashRequest) backendMessage()    {}
func (*snapshotFile) backendMessage()   {}
func (*defragmentFile) backendMessage() {}

// commitConfirmed is the log's answer to ConfirmCommit. Told by the log's actor.
type commitConfirmed struct {
	index proto.Index
	err   error
}

// checkpointDue is the timer of the oldest write that is not in the file.
type checkpointDue struct{}

// deletionDue is the timer of the pause between two steps of a compaction.
type deletionDue struct{}

// hashDone says that the hash worker has ended; it has answered already.
type hashDone struct{}

// snapshotDone says that the snapshot worker has ended; it has answered already.
type snapshotDone struct{}

// diskFullDue is the timer of the next try of a commit that found the disk full.
type diskFullDue struct{}

// viewsDue is the timer of the handles on earlier commits.
type viewsDue struct{}

// finishBackend asks for a last commit of everything admitted. Told by stop, behind everything else on the Normal lane.
// Answered when the file holds it, or with the log's error when the log refused to confirm.
type finishBackend struct {
	reply actors.Reply[struct{}]
}

// Abort answers it when the backend has ended already.
func (f *finishBackend) Abort(err error) { f.reply.Fail(err) }

func (*commitConfirmed) backendMessage() {}
func (checkpointDue) backendMessage()    {}
func (deletionDue) backendMessage()      {}
func (hashDone) backendMessage()         {}
func (snapshotDone) backendMessage()     {}
func (*roundCopied) backendMessage()     {}
func (diskFullDue) backendMessage()      {}
func (viewsDue) backendMessage()         {}
func (*finishBackend) backendMessage()   {}

// backendConfig is what a backend needs. File, Log, Store must be set; zero numbers mean the defaults.
type backendConfig struct {
	// File is written by nobody else while the backend runs. The backend does not close it.
	File File
	// Log confirms what may be committed.
	Log CommitLog
	// Store is told of every commit and every finished compaction.
	Store storeSink
	// Notify.Checkpointed tells raft of every commit.
	Notify Notify
	// Index and Term are those of the file at start.
	Index proto.Index
	Term  proto.Term
	// Revision is the store's revision at start.
	Revision proto.Revision
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Logger  zerolog.Logger
	// CheckpointInterval, CheckpointWrites and CheckpointBytes bound what may stay out of the file.
	CheckpointInterval                time.Duration
	CheckpointWrites, CheckpointBytes int
	// CompactionBatch is how many revisions one step of a compaction looks at, CompactionPause the pause between two.
	CompactionBatch int
	CompactionPause time.Duration
	// CompactionPending is how much of the file a compaction may leave pending at its end.
	CompactionPending int64
	// Work runs a hash, a snapshot or a round of a defragmentation beside the actor; nil: in a goroutine. A seeded run
	// passes one that runs it at once.
	Work func(job func())
	// jobs counts those under way.
	jobs *atomic.Int32
	// Rest is how the workers that copy let the others through; nil: they sleep.
	Rest func(time.Duration)
	// status is where the backend publishes what it knows of the disk.
	status *atomic.Pointer[FileStatus]
}

func (cfg *backendConfig) fillIn() {
	if cfg.CheckpointInterval <= 0 {
		cfg.CheckpointInterval = checkpointIntervalDefault
	}
	if cfg.CheckpointWrites <= 0 {
		cfg.CheckpointWrites = checkpointWritesDefault
	}
	if cfg.CheckpointBytes <= 0 {
		cfg.CheckpointBytes = checkpointBytesMax
	}
	if cfg.CompactionBatch <= 0 {
		cfg.CompactionBatch = compactionBatchDefault
	}
	if cfg.CompactionPause <= 0 {
		cfg.CompactionPause = compactionPauseDefault
	}
	if cfg.CompactionPending <= 0 {
		cfg.CompactionPending = compactionPendingMax
	}
	if cfg.Rest == nil {
		cfg.Rest = time.Sleep
		if cfg.Work != nil {
			cfg.Rest = func(time.Duration) {} // the worker is the actor's own turn
		}
	}
	if cfg.Work == nil {
		cfg.Work = func(job func()) { go job() }
	}
	if cfg.jobs == nil {
		cfg.jobs = new(atomic.Int32)
	}
	work, jobs := cfg.Work, cfg.jobs
	cfg.Work = func(job func()) {
		jobs.Add(1)
		work(func() {
			defer jobs.Add(-1)
			job()
		})
	}
	if cfg.status == nil {
		cfg.status = new(atomic.Pointer[FileStatus])
	}
	cfg.status.Store(&FileStatus{})
}
