package node

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/gateway"
	"troupe/proto"
	"troupe/raftactor"
)

// timer times the proposals that the member makes itself, from the proposal to its answer, like those of clients.
type timer struct {
	clock actors.Clock
	times *gateway.RequestTimes
}

// start begins; the result ends it with the answer's error.
func (t timer) start(r *pb.InternalRaftRequest) (end func(err error)) {
	began := t.clock.Now()
	return func(err error) { t.times.Proposed(r, t.clock.Now().Sub(began), err) }
}

// timedRaft is raft for an actor whose proposals are timed.
type timedRaft struct {
	*raftactor.Client
	timer timer
}

// ProposeInTerm is raftactor.Client's, timed.
func (r timedRaft) ProposeInTerm(t proto.Term, request *pb.InternalRaftRequest,
	answer actors.Reply[*proto.Result]) error {
	return r.Client.ProposeInTerm(t, request, r.timer.answered(request, answer))
}

// answered gives a reply that ends the time of a proposal and passes the answer on.
func (t timer) answered(r *pb.InternalRaftRequest, answer actors.Reply[*proto.Result]) actors.Reply[*proto.Result] {
	end := t.start(r)
	return actors.ReplyTo(func(result *proto.Result, err error) {
		end(err)
		if err != nil {
			answer.Fail(err)
			return
		}
		answer.Send(result)
	})
}
