package leaseactor

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

var errNotLeader = errors.New("model: not leader in that term")

// model is a lease table and a raft that applies what it is asked in order, after any delay.
type model struct {
	table    map[proto.LeaseID]proto.Lease
	status   proto.RaftStatus
	queue    []proposal
	stalled  bool
	revokes  int
	most     int    // in flight
	twice    string // what was proposed again although it is in flight
	confirms []func(error)
	// applied is called for each revocation that takes effect.
	applied func(proto.LeaseID)
	notify  func([]proto.LeaseChange)
}

type proposal struct {
	term   proto.Term
	id     proto.LeaseID
	answer actors.Reply[*proto.Result]
}

func newModel() *model {
	return &model{table: map[proto.LeaseID]proto.Lease{}, applied: func(proto.LeaseID) {}}
}

func (m *model) Lease(id proto.LeaseID) (proto.Lease, bool) {
	l, ok := m.table[id]
	return l, ok
}

func (m *model) All(f func(proto.Lease)) {
	for _, l := range m.table {
		f(l)
	}
}

// KeyCount gives some leases more keys than may be deleted together, most none.
func (m *model) KeyCount(id proto.LeaseID, most int) int {
	if id%5 != 0 {
		return 0
	}
	return min(int(id%7)*1000, most)
}

func (m *model) Status() *proto.RaftStatus {
	s := m.status
	return &s
}

func (m *model) ProposeInTerm(t proto.Term, r *etcdserverpb.InternalRaftRequest, a actors.Reply[*proto.Result]) error {
	if r.LeaseRevoke == nil {
		return nil // a checkpoint
	}
	if t != m.status.LeaderTerm || m.stalled {
		return errNotLeader
	}
	id := proto.LeaseID(r.LeaseRevoke.ID)
	for _, p := range m.queue {
		if p.id == id && p.term == t {
			m.twice = fmt.Sprintf("lease %d in term %d", id, t)
		}
	}
	m.queue = append(m.queue, proposal{t, id, a})
	m.most = max(m.most, len(m.queue))
	return nil
}

// apply takes the oldest proposal, if there is one: it is applied, or lost when its term is over.
func (m *model) apply() {
	if len(m.queue) == 0 {
		return
	}
	p := m.queue[0]
	m.queue = m.queue[1:]
	if p.term != m.status.LeaderTerm {
		p.answer.Fail(errNotLeader)
		return
	}
	if !m.revoke(p.id) {
		p.answer.Fail(errors.New("model: lease not found"))
		return
	}
	m.revokes++
	p.answer.Send(&proto.Result{})
}

func (m *model) revoke(id proto.LeaseID) bool {
	l, ok := m.table[id]
	if !ok {
		return false
	}
	m.applied(id)
	delete(m.table, id)
	m.notify([]proto.LeaseChange{{Kind: proto.LeaseRevoked, Lease: l}})
	return true
}

func (m *model) grant(l proto.Lease) {
	m.table[l.ID] = l
	m.notify([]proto.LeaseChange{{Kind: proto.LeaseGranted, Lease: l}})
}

func (m *model) confirm(done func(error)) { m.confirms = append(m.confirms, done) }

// answerConfirm answers the oldest question by who leads now.
func (m *model) answerConfirm() {
	if len(m.confirms) == 0 {
		return
	}
	done := m.confirms[0]
	m.confirms = m.confirms[1:]
	if m.status.LeaderTerm == 0 {
		done(errNotLeader)
		return
	}
	done(nil)
}
