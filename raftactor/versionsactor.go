package raftactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// VersionsConfig says how the versions of the cluster are kept. Membership must be set.
type VersionsConfig struct {
	// Membership is the published one.
	Membership func() *proto.Membership
	// Member is this member's id, Version the version of etcd that it is compatible to.
	Member  proto.MemberID
	Version string
	// ServerVersion asks for the version of another member's program, "" while it is not known; it must not wait. Nil:
	// those of others are not known.
	ServerVersion func(*proto.Member) string
	// EndInterval is --downgrade-check-time: how often the end of a downgrade is looked for. 0 is etcd's default.
	EndInterval time.Duration
	// Raft proposes; nil: the client's own raft.
	Raft   VersionProposer
	Logger zerolog.Logger
}

// VersionProposer is the raft actor as the versions actor needs it; Client implements it.
type VersionProposer interface {
	// ProposeInTerm proposes only while this member leads in that term.
	ProposeInTerm(t proto.Term, r *etcdserverpb.InternalRaftRequest, answer actors.Reply[*proto.Result]) error
	// Status is what raft published last.
	Status() *proto.RaftStatus
}

// Versions is the running actor.
type Versions struct{ ref actors.Ref[versionsMessage] }

// SpawnVersions starts the actor that keeps the versions of the cluster while this member leads. What it decides is
// proposed in the term of the decision, by the leader itself or not at all (rule 4.8).
func (c *Client) SpawnVersions(sys *actors.System, cfg VersionsConfig) (*Versions, error) {
	if cfg.Raft == nil {
		cfg.Raft = c
	}
	return spawnVersions(sys, cfg)
}

func spawnVersions(sys *actors.System, cfg VersionsConfig) (*Versions, error) {
	setDefault(&cfg.EndInterval, downgradeEndIntervalDefault)
	actor := &versionsActor{cfg: cfg, core: versionKeeper{endPause: cfg.EndInterval}}
	ref, err := actors.Spawn(sys, actors.Spec[versionsMessage]{
		Name:     "raft/versions",
		Policy:   actors.Reject[versionsMessage](actors.Bound{Messages: versionsMessagesMax, Bytes: versionsBytesMax}),
		Behavior: func() actors.Behavior[versionsMessage] { return actor },
		OnPanic:  actors.FailStop,
	})
	if err != nil {
		return nil, fmt.Errorf("spawn the keeper of versions: %w", err)
	}
	return &Versions{ref}, nil
}

// Settle waits until the cluster has a version and, if this member leads, the version that it should have.
func (v *Versions) Settle(ctx context.Context) error {
	m := &settleVersions{reply: actors.NewReply[struct{}]()}
	if err := v.ref.Tell(actors.Normal, m); err != nil {
		return domainError(err)
	}
	_, err := actors.Await(ctx, v.ref, m.reply)
	return domainError(err)
}

// Stop ends the actor. What it has proposed goes on.
func (v *Versions) Stop(ctx context.Context) error { return v.ref.Stop(ctx) }

// versionsMessage is anything the versions actor understands. It has one lane.
type versionsMessage interface{ versionsMessage() }

type (
	// versionsDue is the timer, armed at the start and by itself.
	versionsDue struct{}
	// settlingDue is the timer while somebody waits for settled versions.
	settlingDue struct{}
	// versionsProposed is the end of a proposal. Told in raft's or the store's turn.
	versionsProposed struct {
		step versionStep
		err  error
	}
	// settleVersions asks for an answer when the versions are settled. Sent by the start of the member; refused beyond
	// versionsWaitingMax.
	settleVersions struct{ reply actors.Reply[struct{}] }
)

func (versionsDue) versionsMessage()      {}
func (settlingDue) versionsMessage()      {}
func (versionsProposed) versionsMessage() {}
func (*settleVersions) versionsMessage()  {}

// Abort answers who waits when the actor ends first.
func (m *settleVersions) Abort(err error) { m.reply.Fail(domainError(err)) }

// versionsActor is the shell around the keeper.
type versionsActor struct {
	cfg     VersionsConfig
	core    versionKeeper
	began   time.Time // moment 0
	waiting []*settleVersions
	// settling says that a settlingDue is on its way.
	settling bool
}

// Start implements actors.Behavior.
func (a *versionsActor) Start(self actors.Self[versionsMessage]) error {
	a.began = self.Now()
	self.After(versionsInterval, versionsDue{})
	return nil
}

// Stop implements actors.Behavior.
func (a *versionsActor) Stop() {
	for _, m := range a.waiting {
		m.reply.Fail(ErrStopped)
	}
}

// Handle implements actors.Behavior.
func (a *versionsActor) Handle(self actors.Self[versionsMessage], batch []versionsMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case versionsDue:
			self.After(versionsInterval, versionsDue{})
		case settlingDue:
			a.settling = false
		case versionsProposed:
			a.proposed(self, m)
		case *settleVersions:
			if len(a.waiting) >= versionsWaitingMax {
				m.reply.Fail(ErrTooManyRequests)
				continue
			}
			a.waiting = append(a.waiting, m)
		}
	}
	a.look(self)
	if len(a.waiting) > 0 && !a.settling {
		a.settling = true
		self.After(versionsRetryPause, settlingDue{})
	}
}

// look does what there is to do, in the term in which this member leads, and answers who waits when there is nothing.
func (a *versionsActor) look(self actors.Self[versionsMessage]) {
	term := a.cfg.Raft.Status().LeaderTerm
	m := a.cfg.Membership()
	if m == nil {
		return
	}
	facts := versionFactsOf(m, a.serverVersion)
	now := self.Now().Sub(a.began)
	step, request := a.core.look(now, facts, term != 0)
	switch {
	case step == downgradeStuck:
		a.cfg.Logger.Error().Str("downgrade-target", facts.target).Str("cluster-version", facts.cluster).
			Str("minimal-server-version", facts.lowest).Msg("Cannot downgrade from minimal-server-version to " +
			"downgrade-target: cancel the downgrade (etcdctl downgrade cancel)")
	case request != nil:
		a.propose(self, term, step, request)
		return
	}
	if facts.cluster != "" && !a.core.busy(now) {
		for _, w := range a.waiting {
			w.reply.Send(struct{}{})
		}
		a.waiting = nil
	}
}

// serverVersion is the version of a member's program.
func (a *versionsActor) serverVersion(m *proto.Member) string {
	switch {
	case m.ID == a.cfg.Member:
		return a.cfg.Version
	case a.cfg.ServerVersion == nil:
		return ""
	}
	return a.cfg.ServerVersion(m)
}

func (a *versionsActor) propose(self actors.Self[versionsMessage], term proto.Term, step versionStep,
	request *etcdserverpb.InternalRaftRequest) {
	if step == versionSet {
		a.cfg.Logger.Info().Str("to", request.ClusterVersionSet.GetVer()).Uint64("term", uint64(term)).
			Msg("updating cluster version using v3 API")
	} else {
		a.cfg.Logger.Info().Str("cluster-version", a.cfg.Membership().ClusterVersion).
			Msg("the cluster has been downgraded: every member runs the target version, the downgrade ends")
	}
	ref := self.Ref()
	err := a.cfg.Raft.ProposeInTerm(term, request, actors.ReplyTo(func(_ *proto.Result, err error) {
		told := ref.Tell(actors.Control, versionsProposed{step, err})
		actors.Must(told == nil || errors.Is(told, actors.ErrStopped), "the answer to a version's proposal: %v", told)
	}))
	if err != nil {
		a.proposed(self, versionsProposed{step, err})
	}
}

// proposed takes the end of a proposal. Whatever it was, the next look decides anew from what is published then.
func (a *versionsActor) proposed(self actors.Self[versionsMessage], m versionsProposed) {
	if m.err == nil {
		a.core.asked = false
		return
	}
	a.core.failed(self.Now().Sub(a.began))
	if errors.Is(m.err, ErrStopped) {
		return
	}
	what := "the cluster version could not be set, trying again"
	if m.step == downgradeEnd {
		what = "the end of the downgrade could not be set, trying again"
	}
	a.cfg.Logger.Warn().Err(m.err).Msg(what)
}
