package raftactor

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/proto"
)

// Config is what a member's raft starts from. Zero values of the numbers mean etcd's defaults where there are any.
type Config struct {
	// Meta is the identity of member and cluster; it must be the log's.
	Meta LogMeta
	// Disk, Log, SnapDir: where the log and the .snap files are. Log is open and belongs to the wal actor from Spawn on,
	// which closes it; if Spawn fails it is still the caller's.
	Disk    Disk
	Log     *Log
	SnapDir string
	// Recovered is what OpenLog read; nil for a log that was just created.
	Recovered *Recovered
	// Bootstrap are the members of a new cluster, this one among them, all of which begin with the same list. Used only
	// when the log has not been begun.
	Bootstrap []proto.Member
	// AppliedAtStart is the file's consistent index: entries at or below it are not applied again.
	AppliedAtStart proto.Index
	// Membership is the file's; nil is an empty one. raft's configuration at start comes from it.
	Membership *proto.Membership

	// ElectionTicks and HeartbeatTicks are raft's timeouts; ElectionTicks must be the greater one.
	ElectionTicks, HeartbeatTicks int
	// TickInterval is the length of a tick: --heartbeat-interval.
	TickInterval time.Duration
	// NoPreVote leaves out the question, before an election, whether it could be won.
	NoPreVote bool
	// Patient lets the only voter wait for an election timeout after a start instead of campaigning at once.
	Patient bool
	// SnapshotCount is the number of entries between snapshots, CatchUpEntries how many applied ones stay in memory for
	// slow followers.
	SnapshotCount, CatchUpEntries uint64
	// SegmentsKept and SnapFilesKept are how many log segments and .snap files a snapshot leaves; 0 means etcd's default
	// of 5, a negative number keeps all.
	SegmentsKept, SnapFilesKept int
	// RequestTimeout is when a proposal or a read without an answer is given up. Default: 5 s and two election timeouts.
	RequestTimeout time.Duration
	// MaxRequestBytes bounds an encoded request.
	MaxRequestBytes int
	// MaxLearners is --max-learners, equal on all members; negative means none.
	MaxLearners int
	// PriorityRequest is etcd's feature gate: requests to revoke a lease are still taken when others are refused because
	// apply is behind, up to twice as far.
	PriorityRequest bool
	// Version is the version of etcd that this program is compatible to, for the check of cluster versions.
	Version string

	// Machine executes what is committed.
	Machine Machine
	// NoStrictReconfig takes changes of the membership that could cost the quorum, too.
	NoStrictReconfig bool
	// Peers is where messages to other members go; nil drops them.
	Peers Peers
	// Bind, if set, is called once in Spawn with the client, before anything happens that could make the machine call
	// it. It is for a machine that was started before.
	Bind func(*Client)

	Logger zerolog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer

	// startWAL replaces the wal actor in tests.
	startWAL func(owner walOwner) (walLink, error)
}

// walLink is the raft actor's way to the wal actor.
type walLink interface {
	// tell gives the wal actor a message and never waits. actors.ErrFull: the message is still the sender's.
	tell(m walMessage) error
	// stop writes and syncs what was told and closes the log.
	stop(ctx context.Context) error
}

// complete fills in defaults and checks the rest.
func (cfg *Config) complete() error {
	setDefault(&cfg.ElectionTicks, 10)
	setDefault(&cfg.HeartbeatTicks, 1)
	setDefault(&cfg.TickInterval, 100*time.Millisecond)
	setDefault(&cfg.SnapshotCount, snapshotCountDefault)
	setDefault(&cfg.CatchUpEntries, catchUpEntriesDefault)
	setDefault(&cfg.MaxRequestBytes, maxRequestBytesDefault)
	setDefault(&cfg.MaxLearners, maxLearnersDefault)
	setDefault(&cfg.Version, "3.7.3")
	setDefault(&cfg.RequestTimeout, 5*time.Second+2*time.Duration(cfg.ElectionTicks)*cfg.TickInterval)
	if cfg.Membership == nil {
		cfg.Membership = &proto.Membership{ClusterID: cfg.Meta.Cluster}
	}
	switch {
	case cfg.Meta.Member == 0:
		return fmt.Errorf("%w: no member id", ErrConfig)
	case cfg.Machine == nil:
		return fmt.Errorf("%w: no machine", ErrConfig)
	case cfg.Log == nil && cfg.startWAL == nil:
		return fmt.Errorf("%w: no log", ErrConfig)
	case cfg.Recovered != nil && cfg.Recovered.Meta != cfg.Meta:
		return fmt.Errorf("%w: the log belongs to member %v of cluster %v, this is member %v of cluster %v", ErrConfig,
			cfg.Recovered.Meta.Member, cfg.Recovered.Meta.Cluster, cfg.Meta.Member, cfg.Meta.Cluster)
	case cfg.ElectionTicks <= cfg.HeartbeatTicks:
		return fmt.Errorf("%w: %d election ticks are not more than %d heartbeat ticks", ErrConfig, cfg.ElectionTicks,
			cfg.HeartbeatTicks)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// confState is raft's configuration at start: that of the members in the file, at AppliedAtStart. Before the first
// members are in the file it is empty, and the entries that add them give it to raft.
func (cfg *Config) confState() *raftpb.ConfState { return ConfStateOf(cfg.Membership) }

// requestTicks is the request timeout in ticks, at least one, rounded up.
func (cfg *Config) requestTicks() int { return cfg.ticks(cfg.RequestTimeout) }

// ticks is a time in ticks, at least one, rounded up.
func (cfg *Config) ticks(d time.Duration) int {
	return max(1, int((d+cfg.TickInterval-1)/cfg.TickInterval))
}

// reached asks the links for how many ticks a member has been reached; nil when there are no links.
func (cfg *Config) reached() func(proto.MemberID) (int, bool) {
	if cfg.Peers == nil {
		return nil
	}
	return func(id proto.MemberID) (int, bool) {
		since, now := cfg.Peers.Reached(id)
		return int(since / cfg.TickInterval), now
	}
}

// room is what the log takes before the wal actor has said more, without a limit when there is no log.
func (cfg *Config) room() logRoom {
	if cfg.Log == nil {
		return logRoom{}
	}
	return cfg.Log.room(false)
}
