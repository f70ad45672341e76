package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/gateway"
	"troupe/leaseactor"
	"troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
	"troupe/watchactor"
)

// Troupe is the actors of one member, wired together and running, without the gateway in front of them. A simulation
// drives it directly; Run puts the gateway on top.
type Troupe struct {
	System   *actors.System
	Raft     *raftactor.Client
	Store    *storeactor.Client
	Watch    *watchactor.Client
	Leases   *leaseactor.Client
	Care     *storeactor.Caretaker
	Versions *raftactor.Versions
	Registry *prometheus.Registry
	// Meta is the identity of member and cluster.
	Meta raftactor.LogMeta

	cfg   Config
	log   zerolog.Logger
	file  storeactor.File
	timer timer
}

// Assemble opens the data directory and starts the actors. The order of starting is the reverse of who tells whom: the
// store before raft, which makes it move; hub and lease before raft too, because the store tells them from its first
// turn on. On an error everything that was started has been stopped and the directory is closed.
func Assemble(cfg Config, seams Seams) (*Troupe, error) {
	seams = seams.withDefaults(&cfg)
	f, err := openFiles(&cfg, seams)
	if err != nil {
		return nil, err
	}
	t := &Troupe{
		System: seams.system(cfg.Name), Registry: seams.Registry, Meta: f.meta, cfg: cfg, log: seams.Log, file: f.file,
	}
	l := &links{}
	l.alarms = &alarmRaiser{member: f.meta.Member, raft: l.bound, timer: &t.timer,
		note: func(id proto.RequestID) { t.Store.NoteQuotaRaise(id) }}
	if err := t.spawn(f, l, seams); err != nil {
		l.abandon()
		return nil, errors.Join(err, t.stopActors(context.Background()), f.close())
	}
	return t, nil
}

func (t *Troupe) spawn(f *files, l *links, seams Seams) error {
	cfg := &t.cfg
	times, err := gateway.NewRequestTimes(t.Registry)
	if err != nil {
		return err
	}
	t.timer = timer{t.System.Clock(), times}
	t.Store, err = storeactor.Spawn(t.System, storeactor.Config{
		File: f.file, Restored: f.restored, Log: seams.CommitLog(l), Notify: l.notify(),
		LeaseTTLMin: cfg.leaseTTLMin(), QuotaBytes: cfg.QuotaBytes, SlowApply: cfg.WarningApplyDuration,
		CheckpointInterval: cfg.BatchInterval, CheckpointWrites: cfg.BatchLimit,
		CompactionBatch: cfg.CompactionBatchLimit, CompactionPause: cfg.CompactionSleep,
		Work: seams.Work, Metrics: t.Registry, Logger: t.log,
	})
	if err != nil {
		return fmt.Errorf("start the store: %w", err)
	}
	f.restored.View = nil // the store's now
	t.Watch, err = watchactor.Spawn(t.System, watchactor.Config{
		History: history{t.Store}, MaxRequestBytes: cfg.MaxRequestBytes, ProgressInterval: cfg.WatchProgressInterval,
		Random: seams.Random, Metrics: t.Registry, Log: t.log,
	})
	if err != nil {
		return fmt.Errorf("start the watch hub: %w", err)
	}
	l.hub = t.Watch
	if err := t.spawnLeases(l); err != nil {
		return err
	}
	if err := t.spawnRaft(f, l, seams); err != nil {
		return err
	}
	if err := t.spawnCaretaker(); err != nil {
		return err
	}
	t.Versions, err = t.Raft.SpawnVersions(t.System, raftactor.VersionsConfig{
		Membership: t.Membership, Member: t.Meta.Member, Version: CompatibleVersion,
		EndInterval: cfg.DowngradeCheckTime, Raft: timedRaft{t.Raft, t.timer}, Logger: t.log,
	})
	return err
}

func (t *Troupe) spawnRaft(f *files, l *links, seams Seams) error {
	cfg := &t.cfg
	var err error
	t.Raft, err = raftactor.Spawn(t.System, raftactor.Config{
		Meta: f.meta, Disk: seams.Disk, Log: f.log, SnapDir: f.snapDir, Recovered: f.recovered, Bootstrap: f.bootstrap,
		AppliedAtStart: f.restored.Index, Membership: f.restored.Membership,
		ElectionTicks: cfg.electionTicks(), HeartbeatTicks: 1, TickInterval: cfg.Heartbeat,
		NoPreVote: !cfg.PreVote, Patient: !cfg.ElectionTickAdvance, MaxLearners: noneIsNegative(cfg.MaxLearners),
		NoStrictReconfig: !cfg.StrictReconfigCheck,
		SnapshotCount:    cfg.SnapshotCount, CatchUpEntries: cfg.CatchUpEntries, RequestTimeout: cfg.requestTimeout(),
		SegmentsKept: kept(cfg.MaxWALs), SnapFilesKept: kept(cfg.MaxSnapshots),
		MaxRequestBytes: cfg.MaxRequestBytes, Version: CompatibleVersion, PriorityRequest: cfg.PriorityRequest,
		Machine: seams.Machine(t.Store), Bind: l.bind, Logger: t.log, Metrics: t.Registry,
	})
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	f.log = nil // the wal actor's now
	return nil
}

// Membership is the published membership.
func (t *Troupe) Membership() *proto.Membership { return t.Store.State().Membership }

// Stop stops the actors in order and closes the file. The order and its reasons are in phases.go.
func (t *Troupe) Stop(ctx context.Context) error {
	return errors.Join(t.stopActors(ctx), t.file.Close())
}

func (t *Troupe) stopActors(ctx context.Context) error {
	return actors.StopInOrder(ctx, t.phases(), t.log)
}

// noneIsNegative turns a flag's "0 means none" into raftactor's negative number.
func noneIsNegative(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// kept turns the flags' "0 keeps all" into raftactor's negative number.
func kept(files int) int { return noneIsNegative(files) }
