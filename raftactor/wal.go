package raftactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
	"troupe/raftactor/disk"
)

// walName is the wal actor's place in the tree.
const walName = "raft/wal"

// walPolicy is group commit: while one fsync runs, appends gather in the mailbox, and the next turn takes them all.
// The batch is as large as the disk is slow, without a timer. A sender sees a full mailbox as actors.ErrFull.
var walPolicy = actors.Batch[walMessage](
	actors.Bound{Messages: walInboxMessagesMax, Bytes: walInboxBytesMax},
	actors.Bound{Messages: walInboxMessagesMax, Bytes: walTurnBytesMax},
)

// walConfig is what the wal actor works with. It owns the log from spawnWAL on, and closes it.
type walConfig struct {
	log     *Log
	disk    Disk
	snapDir string
	// owner is told of completions, in the wal actor's turns.
	owner walOwner
	// segmentsKept and snapFilesKept are how much a snapshot leaves; 0 means the defaults, negative all.
	segmentsKept, snapFilesKept int
	// metrics may be nil.
	metrics *LogMetrics
	logger  zerolog.Logger
	// order has the next segment prepared beside the actor; nil: the log does it itself when it needs one.
	order func(spareOrder)
}

// walClient is how the rest of the package reaches the wal actor.
type walClient struct {
	ref    actors.Ref[walMessage]
	spares actors.Ref[spareMessage]
}

// tell never waits. actors.ErrFull when the mailbox has no room: the caller keeps the message, and must not let a
// later one overtake it.
func (c walClient) tell(m walMessage) error { return c.ref.Tell(actors.Normal, m) }

// stop writes and syncs what was told, answers it, and closes the log.
func (c walClient) stop(ctx context.Context) error {
	return errors.Join(c.ref.Stop(ctx), c.spares.Stop(ctx))
}

// spawnWAL starts the wal actor. It has a goroutine of its own, because its turns wait for the disk.
func spawnWAL(sys *actors.System, cfg walConfig) (walClient, error) {
	if cfg.segmentsKept == 0 {
		cfg.segmentsKept = segmentsKept
	}
	if cfg.snapFilesKept == 0 {
		cfg.snapFilesKept = snapFilesKept
	}
	if cfg.metrics != nil {
		cfg.log.meter = &logMeter{metrics: cfg.metrics, now: sys.Clock().Now}
	}
	spares, err := spawnSpares(sys, cfg.disk)
	if err != nil {
		return walClient{}, fmt.Errorf("raftactor: %w", err)
	}
	cfg.log.supplied = true
	cfg.order = func(o spareOrder) {
		// The helper stops after the actor, or beside it when a stalled disk has used up the time of a shutdown.
		err := spares.Tell(actors.Normal, o)
		actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "an order for a segment was refused: %v", err)
	}
	ref, err := actors.Spawn(sys, actors.Spec[walMessage]{
		Name:   walName,
		Policy: walPolicy,
		Pinned: true,
		Behavior: func() actors.Behavior[walMessage] {
			commit := proto.Index(cfg.log.state.commit)
			return &walActor{cfg: cfg, core: walCore{written: commit, synced: commit}}
		},
	})
	if err != nil {
		cfg.log.supplied = false
		return walClient{}, errors.Join(fmt.Errorf("raftactor: %w", err), spares.Stop(context.Background()))
	}
	return walClient{ref, spares}, nil
}

// walActor is the shell of the wal actor. A failed write or fsync ends the process: what is on disk is unknown then,
// and an fsync that is tried again may report success for pages the kernel has dropped. The next start reads what is
// there.
//
// A full disk is not that: all is written into space that was reserved before. See walkeeper.go.
type walActor struct {
	cfg    walConfig
	core   walCore
	spares spareKeeper
	ref    actors.Ref[walMessage]
	after  func(time.Duration, walMessage)
	// seq is the last append that raft was told of, told the room that it was told with it.
	seq  uint64
	told logRoom
	// snapFails is set while snapshots find no room.
	snapFails bool
}

// Start is part of actors.Behavior.
func (a *walActor) Start(self actors.Self[walMessage]) error {
	a.ref = self.Ref()
	a.after = func(d time.Duration, m walMessage) { self.After(d, m) }
	a.firstSpare()
	a.told = a.room()
	return nil
}

// Handle is part of actors.Behavior.
func (a *walActor) Handle(_ actors.Self[walMessage], batch []walMessage) {
	for _, effect := range a.core.plan(batch) {
		switch e := effect.(type) {
		case writeLog:
			a.write(e)
		case tellPersisted:
			a.tellPersisted(e.seq)
		case tellConfirmed:
			e.confirm.done(nil)
		case storeSnapshot:
			a.storeSnapshot(e)
		case takeSpare:
			a.onSpare(e.spare)
		case orderAgain:
			a.onRetry(e.retry)
		default:
			actors.Must(false, "wal has no way to execute a %T", e)
		}
	}
	a.tellRoom()
	a.mindSpare()
}

// Stop is part of actors.Behavior. What was admitted is written; confirmations that nothing can give any more fail.
func (a *walActor) Stop() {
	for _, w := range a.core.waiting {
		w.done(actors.ErrStopped)
	}
	a.core.waiting = nil
	if err := a.cfg.log.Close(); err != nil {
		a.cfg.logger.Error().Err(err).Msg("the log could not be closed cleanly")
	}
}

func (a *walActor) write(e writeLog) {
	log := a.cfg.log
	for _, m := range e.appends {
		err := log.Append(nil, m.entries)
		actors.Must(err == nil, "wal append: %v", err)
	}
	err := log.Append(e.hardState, nil)
	actors.Must(err == nil, "wal append: %v", err)
	switch {
	case e.confirming:
		err = log.sync(disk.Confirm)
	case e.sync:
		err = log.Sync()
	default:
		err = log.Flush()
	}
	actors.Must(err == nil, "the log's disk failed: %v", err)
}

// storeSnapshot keeps the order that walSnapshot promises. Without room for the file there is no snapshot, and all that
// a start needs stays as it is.
func (a *walActor) storeSnapshot(e storeSnapshot) {
	record := e.snapshot.record
	saved := a.cfg.log.meter.startSnapSave()
	err := a.saveSnapFile(e.snapshot)
	if disk.Full(err) && a.freeSpace() {
		err = a.saveSnapFile(e.snapshot)
	}
	if disk.Full(err) {
		a.snapshotFailed(e.snapshot, err)
		return
	}
	actors.Must(err == nil, "the disk of the snapshot files failed: %v", err)
	err = a.cfg.log.appendSnapshot(record, e.snapshot.hardState)
	actors.Must(err == nil, "the log's disk failed: %v", err)
	saved()
	a.snapFails = false
	a.purge(record.Index)
	a.cfg.owner.snapshotSaved(record.Index)
}

// saveSnapFile writes the .snap file.
func (a *walActor) saveSnapFile(s *walSnapshot) error {
	encoded := a.cfg.log.meter.startSnapMarshal()
	frame, err := encodeSnapFile(s.file())
	if err != nil {
		return err
	}
	encoded()
	done := a.cfg.log.meter.startSnapSync()
	if err := writeSnapFile(a.cfg.disk, a.cfg.snapDir, snapFileName(s.record.Term, s.record.Index), frame); err != nil {
		return err
	}
	done()
	return nil
}

// snapshotFailed does without the snapshot. The core counts on the sync that comes with one, and on the hard state of
// one that came from the leader, which would be durable with the record only: rule 4.5 does not hold without it.
func (a *walActor) snapshotFailed(s *walSnapshot, cause error) {
	index := s.record.Index
	actors.Must(s.hardState == nil, "no room for the file of the leader's snapshot at %d: %v", index, cause)
	err := a.cfg.log.sync(disk.SnapRecord)
	actors.Must(err == nil, "the log's disk failed: %v", err)
	if !a.snapFails {
		a.cfg.logger.Warn().Err(cause).Uint64("snapshot-index", uint64(index)).
			Msg("no room for a snapshot file, older segments of the log stay; it is tried again")
	}
	a.snapFails = true
	a.cfg.owner.snapshotFailed(index)
}

// purge gives back what a start at the snapshot does not need. Its failure costs space, not truth.
func (a *walActor) purge(upTo proto.Index) {
	if err := a.cfg.log.Release(upTo); err != nil {
		a.cfg.logger.Warn().Err(err).Msg("a released segment could not be closed")
	}
	if keep := a.cfg.segmentsKept; keep > 0 {
		if a.spares.full() {
			keep = 1 // nobody needs those that are released; their space is what is missing
		}
		before := len(a.cfg.log.released)
		if err := a.cfg.log.Purge(keep); err != nil {
			a.cfg.logger.Warn().Err(err).Msg("old segments could not be deleted")
		}
		if len(a.cfg.log.released) < before {
			a.spares.again()
		}
	}
	if keep := a.cfg.snapFilesKept; keep > 0 {
		if err := PurgeSnapFiles(a.cfg.disk, a.cfg.snapDir, keep); err != nil {
			a.cfg.logger.Warn().Err(err).Msg("old snapshot files could not be deleted")
		}
	}
}

// file is the snapshot as the .snap file holds it.
func (s *walSnapshot) file() *raftpb.Snapshot {
	index, term := uint64(s.record.Index), uint64(s.record.Term)
	return &raftpb.Snapshot{
		Data:     s.data,
		Metadata: &raftpb.SnapshotMetadata{ConfState: s.record.ConfState, Index: &index, Term: &term},
	}
}
