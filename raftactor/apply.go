package raftactor

import (
	"errors"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/proto"
)

// Machine is the state machine: the store. It executes batches in the order in which it gets them, publishes the state
// after each, tells Client.Applied, and answers the commands' waiters.
type Machine interface {
	// Apply takes over the batch and never waits. It cannot be refused for want of room: at most batchesOutstandingMax
	// batches, of at most committedBytesMax and one entry, are not published. After an error the batch is still the
	// caller's.
	Apply(b *proto.Batch) error
}

// applyActor is the shell of the apply actor.
type applyActor struct {
	core    applyCore
	machine Machine
	log     zerolog.Logger
	// tell gives raft a conf change, or a membership.
	tell func(message)
}

// Start is part of actors.Behavior.
func (a *applyActor) Start(actors.Self[*applyWork]) error { return nil }

// Handle applies works in order. Conf changes are told to raft before the batch they are in is handed on, because the
// store's word that the batch is published lets raft's applied index move.
func (a *applyActor) Handle(_ actors.Self[*applyWork], works []*applyWork) {
	for _, w := range works {
		before := a.core.membership
		batch, changes := a.core.apply(w)
		a.sayVersions(before, a.core.membership)
		for _, c := range changes {
			a.tell(c)
		}
		if a.core.membership != before {
			a.tell(&membersChanged{a.core.membership})
		}
		if err := a.machine.Apply(batch); err != nil {
			actors.Must(errors.Is(err, actors.ErrStopped) || errors.Is(err, ErrStopped),
				"the state machine refused a batch within its credit: %v", err)
			w.Abort(err)
		}
	}
}

// Stop is part of actors.Behavior.
func (a *applyActor) Stop() {}

// sayVersions writes the lines about what has happened to the versions of the cluster.
func (a *applyActor) sayVersions(before, now *proto.Membership) {
	if before == now {
		return
	}
	switch {
	case before.ClusterVersion == now.ClusterVersion:
	case before.ClusterVersion == "":
		a.log.Info().Str("cluster-version", now.ClusterVersion).Msg("set initial cluster version")
	default:
		a.log.Info().Str("from", before.ClusterVersion).Str("to", now.ClusterVersion).Msg("updated cluster version")
	}
	switch {
	case before.DowngradeTarget == now.DowngradeTarget:
	case now.DowngradeTarget != "":
		a.log.Info().Str("target-version", now.DowngradeTarget).Str("cluster-version", now.ClusterVersion).
			Msg("a downgrade of the cluster is enabled: do not replace a member before it says that it is ready to downgrade")
	case versionLess(before.DowngradeTarget, a.core.version):
		a.log.Info().Str("target-version", before.DowngradeTarget).Str("cluster-version", now.ClusterVersion).
			Msg("the downgrade of the cluster is cancelled: no member may be replaced by one of the target version any more")
	default:
		a.log.Info().Str("target-version", before.DowngradeTarget).Str("cluster-version", now.ClusterVersion).
			Msg("the downgrade of the cluster is over")
	}
}

// applyPolicy refuses what is beyond the credit, which cannot happen.
var applyPolicy = actors.Batch[*applyWork](
	actors.Bound{Messages: applyInboxMessagesMax, Bytes: applyInboxBytesMax},
	actors.Bound{Messages: 1, Bytes: applyInboxBytesMax},
)

// spawnApply starts the apply actor.
func spawnApply(sys *actors.System, core applyCore, cfg *Config, tell func(message)) (
	actors.Ref[*applyWork], error) {
	machine, log := cfg.Machine, cfg.Logger
	return actors.Spawn(sys, actors.Spec[*applyWork]{
		Name:   "raft/apply",
		Policy: applyPolicy,
		Behavior: func() actors.Behavior[*applyWork] {
			return &applyActor{core: core, machine: machine, log: log, tell: tell}
		},
		OnPanic: actors.FailStop,
		Pinned:  true,
	})
}
