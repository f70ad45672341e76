package leaseactor

import (
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// leaseActor is the shell: it turns the clock into ticks, raft's status into terms of leadership, and effects into
// calls.
type leaseActor struct {
	cfg     *Config
	metrics *metrics
	core    *core
	began   time.Time // moment 0
	// told is the term of the last led message; it decides where there is no Status.
	told proto.Term
	// turned is when the clock last turned: while it does not, nothing can be said about leadership.
	turned time.Time
	self   actors.Self[message]
	shown  *atomic.Pointer[inspection]
}

func (a *leaseActor) Start(self actors.Self[message]) error {
	a.core = newCore(a.cfg.settings())
	a.self = self
	a.turned = a.began
	return nil
}

func (a *leaseActor) Handle(_ actors.Self[message], batch []message) {
	for _, m := range batch {
		a.lead()
		a.advance()
		a.handle(m)
		a.execute()
	}
	a.publish()
}

// advance takes the time to the core. Only a primary's leases run out.
func (a *leaseActor) advance() {
	now := moment(a.self.Now().Sub(a.began))
	if a.core.primary() {
		a.core.advance(now)
	} else {
		a.core.set(now)
	}
}

// publish shows what the core has now, if it is something else than before.
func (a *leaseActor) publish() {
	if i := a.core.inspect(); i != *a.shown.Load() {
		a.shown.Store(&i)
	}
}

// lead follows raft's published status, before anything is decided in a turn.
func (a *leaseActor) lead() {
	term := a.told
	if a.cfg.Status != nil {
		term = a.cfg.Status().LeaderTerm
	}
	if term == a.core.term {
		return
	}
	if term == 0 {
		a.core.lead(0, nil)
		return
	}
	a.core.lead(0, nil)
	a.core.set(moment(a.self.Now().Sub(a.began))) // an empty wheel need not turn
	a.core.lead(term, a.table())
	a.cfg.Log.Info().Uint64("term", uint64(term)).Int("leases", len(a.core.leases)).Msg("primary for leases")
}

func (a *leaseActor) table() []proto.Lease {
	var all []proto.Lease
	a.cfg.Table.All(func(l proto.Lease) { all = append(all, l) })
	return all
}

func (a *leaseActor) handle(m message) {
	switch m := m.(type) {
	case ticked:
		a.turned = a.self.Now()
	case changed:
		a.count(m.changes)
		a.core.change(m.changes)
	case reload:
		if a.core.primary() {
			a.core.reload(a.table())
		}
	case led:
		a.told = m.term
		a.lead()
	case revokeAnswered:
		if m.err != nil {
			a.metrics.refused.Inc()
		}
		_, there := a.cfg.Table.Lease(m.id)
		a.core.revoked(m.id, m.term, m.at, m.err == nil, !there)
		a.learn(m.id)
	case confirmed:
		a.core.confirmed(m.round, m.err)
	case *renew:
		a.learn(m.id)
		a.core.renew(m.id, m.replies, a.fresh())
	case *remaining:
		a.learn(m.id)
		a.core.left(m.id, m.reply, a.fresh())
	case *listEnds:
		m.reply.Send(a.core.ends())
	case *replay:
		for _, one := range m.messages {
			a.handle(one)
		}
	default:
		actors.Must(false, "lease got a message of unknown kind %T", m)
	}
}

// learn looks up a lease that the core has not been told of: its notice may still be in the mailbox.
func (a *leaseActor) learn(id proto.LeaseID) {
	if !a.core.primary() || a.core.leases[id] != nil {
		return
	}
	if l, ok := a.cfg.Table.Lease(id); ok {
		a.core.learn(l)
	}
}

// report lets the answer to a question for what is left go, with a last look into the published table as in answer.
func (a *leaseActor) report(e report) {
	switch _, there := a.cfg.Table.Lease(e.id); {
	case e.err != nil:
		e.reply.Fail(e.err)
	case there:
		e.reply.Send(a.core.remainingOf(e.id))
	default:
		e.reply.Send(Remaining{})
	}
}

// fresh reports whether leadership can be taken for granted: this process has not been stopped for longer than a new
// leader needs, and its disk answers.
func (a *leaseActor) fresh() bool {
	if a.cfg.ConfirmLeader == nil {
		return true
	}
	if a.cfg.Status != nil && a.cfg.Status().DiskStalledTicks > 0 {
		return false
	}
	return a.self.Now().Sub(a.turned) <= freshHeartbeats*a.cfg.HeartbeatInterval
}

func (a *leaseActor) count(changes []proto.LeaseChange) {
	for i := range changes {
		switch changes[i].Kind {
		case proto.LeaseGranted:
			a.metrics.granted.Inc()
			a.metrics.ttl.Observe(float64(changes[i].Lease.TTL))
		case proto.LeaseRevoked:
			a.metrics.revoked.Inc()
		}
	}
}

// execute runs what the core decided, in its order. Effects of effects are appended to the same list.
func (a *leaseActor) execute() {
	for effects := a.core.take(); len(effects) > 0; effects = a.core.take() {
		for _, e := range append([]effect(nil), effects...) {
			a.do(e)
		}
	}
}

func (a *leaseActor) do(e effect) {
	switch e := e.(type) {
	case answer:
		a.answer(e)
	case report:
		a.report(e)
	case propose:
		a.metrics.expired.Inc()
		a.revoke(e)
	case ended:
		a.metrics.lateness.Observe(time.Duration(e.late).Seconds())
	case confirm:
		a.metrics.asked.Inc()
		ref := a.self.Ref()
		a.cfg.ConfirmLeader(func(err error) { _ = ref.Tell(actors.Control, confirmed{e.round, err}) })
	case saveRemaining:
		r := &etcdserverpb.LeaseCheckpointRequest{}
		for _, l := range e.leases {
			r.Checkpoints = append(r.Checkpoints, &etcdserverpb.LeaseCheckpoint{ID: int64(l.ID), Remaining_TTL: l.Remaining})
		}
		// A checkpoint that is refused is made good by the next one.
		_ = a.cfg.Proposer.ProposeInTerm(e.term, &etcdserverpb.InternalRaftRequest{LeaseCheckpoint: r},
			actors.Reply[*proto.Result]{})
	}
}

// answer lets renewals go. The last look into the published table is what makes a positive TTL mean that the keys are
// there: a revocation by a client may have been applied whose notice has not been handled yet.
func (a *leaseActor) answer(e answer) {
	if e.err != nil {
		for _, r := range e.replies {
			r.Fail(e.err)
		}
		return
	}
	if e.ttl > 0 {
		if _, there := a.cfg.Table.Lease(e.id); !there {
			e.ttl = 0
		} else {
			a.metrics.renewed.Add(float64(len(e.replies)))
		}
	}
	for _, r := range e.replies {
		r.Send(e.ttl)
	}
}

// revoke proposes in the term of the decision, so that what a deposed leader decided is void.
func (a *leaseActor) revoke(e propose) {
	ref := a.self.Ref()
	request := &etcdserverpb.InternalRaftRequest{LeaseRevoke: &etcdserverpb.LeaseRevokeRequest{ID: int64(e.id)}}
	err := a.cfg.Proposer.ProposeInTerm(e.term, request, actors.ReplyTo(func(_ *proto.Result, err error) {
		_ = ref.Tell(actors.Control, revokeAnswered{e.id, e.term, e.at, err})
	}))
	if err != nil {
		a.metrics.refused.Inc()
		_, there := a.cfg.Table.Lease(e.id)
		a.core.revoked(e.id, e.term, e.at, false, !there)
	}
}

// Stop answers who waits.
func (a *leaseActor) Stop() {
	a.core.resign()
	for _, e := range a.core.take() {
		switch one := e.(type) {
		case answer:
			one.err = ErrStopped
			a.answer(one)
		case report:
			one.err = ErrStopped
			a.report(one)
		}
	}
}
