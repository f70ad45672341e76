package gateway

import (
	"bytes"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// methodCampaign is the method of the Election service that waits.
const methodCampaign = "Campaign"

func (s *Server) registerElection() {
	const n = serviceElection
	s.register(n, []grpc.MethodDesc{
		unary(s, n, methodCampaign, s.campaign),
		unary(s, n, "Proclaim", s.proclaim),
		unary(s, n, "Leader", s.leaderOf),
		unary(s, n, "Resign", s.resign),
	}, s.streaming(rpcServerStream, n, "Observe", "election-observe", s.observe))
}

// campaign waits until the candidate is elected. A candidate whose lease stands already only changes its value.
func (s *Server) campaign(ctx context.Context, r *proto.CampaignRequest) (any, error) {
	p, err := s.takePlace(ctx, r.Name, r.Lease, r.Value)
	if err != nil {
		return nil, ofServersClient(err)
	}
	if p.found != nil && !bytes.Equal(p.found.Value, r.Value) {
		_, err = s.changeValue(ctx, p.key, p.created, r.Value, p.lease)
	}
	if err == nil {
		_, err = s.awaitTurn(ctx, p)
	}
	if err != nil {
		s.leaveLine(ctx, p)
		if errors.Is(err, errPlaceLost) {
			err = ErrCandidateExpired
		}
		return nil, ofServersClient(err)
	}
	return &proto.CampaignResponse{Header: ownHeader(p.header),
		Leader: &proto.LeaderKey{Name: p.name, Key: p.key, Rev: p.created, Lease: int64(p.lease)}}, nil
}

// proclaim changes the leader's value. A leader that names no lease gets one, as etcd has it.
func (s *Server) proclaim(ctx context.Context, r *proto.ProclaimRequest) (any, error) {
	leader := r.Leader
	if leader == nil {
		return nil, ErrLeaderMissing
	}
	lease, granted := proto.LeaseID(leader.Lease), leader.Lease == 0
	if granted {
		var err error
		if lease, err = s.grantForPlace(ctx); err != nil {
			return nil, ofServersClient(err)
		}
	}
	header, err := s.changeValue(ctx, leader.Key, leader.Rev, r.Value, lease)
	if err != nil {
		if granted && errors.Is(err, ErrElectionNotLeader) {
			s.revoke(ctx, lease)
		}
		return nil, ofServersClient(err)
	}
	return &proto.ProclaimResponse{Header: ownHeader(header)}, nil
}

// changeValue puts a value under a key if it is still the one that was created at a revision, else it fails with
// ErrElectionNotLeader.
func (s *Server) changeValue(ctx context.Context, key []byte, created int64, value []byte, lease proto.LeaseID) (
	*pb.ResponseHeader, error) {
	out := new(pb.TxnResponse)
	err := decoded(out)(s.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(key, created)},
		Success: []*pb.RequestOp{putOp(key, value, lease)},
	}))
	if err != nil {
		return nil, err
	}
	if !out.Succeeded {
		return nil, ErrElectionNotLeader
	}
	return out.Header, nil
}

// resign gives the lead up, or the place of a candidate. Who has lost it already need not.
func (s *Server) resign(ctx context.Context, r *proto.ResignRequest) (any, error) {
	if r.Leader == nil {
		return nil, ErrLeaderMissing
	}
	out, err := s.removePlace(ctx, r.Leader.Key, r.Leader.Rev)
	if err != nil {
		return nil, ofServersClient(err)
	}
	return &proto.ResignResponse{Header: ownHeader(out.Header)}, nil
}

// leaderOf gives the leader of an election.
func (s *Server) leaderOf(ctx context.Context, r *proto.LeaderRequest) (any, error) {
	header, leader, err := s.firstInLine(ctx, lineOf(r.Name))
	switch {
	case err != nil:
		return nil, ofServersClient(err)
	case leader == nil:
		return nil, ErrElectionNoLeader
	}
	return s.leaderAnswer(ctx, header.GetRevision(), leader)
}

// firstInLine gives the key that was created first, nil if there is none.
func (s *Server) firstInLine(ctx context.Context, line []byte) (*pb.ResponseHeader, *mvccpb.KeyValue, error) {
	out := new(pb.RangeResponse)
	err := decoded(out)(s.rangeKeys(ctx, &pb.RangeRequest{Key: line, RangeEnd: endOf(line), Limit: 1,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE}))
	if err != nil || len(out.Kvs) == 0 {
		return out.Header, nil, err
	}
	return out.Header, out.Kvs[0], nil
}

// fieldLeaderKV is the field of LeaderResponse behind its header.
const fieldLeaderKV = 2

// leaderAnswer makes a LeaderResponse. A large one is entered among the answers in flight, where it may have to wait.
func (s *Server) leaderAnswer(ctx context.Context, revision int64, leader *mvccpb.KeyValue) (*answer, error) {
	body := protowire.AppendTag(nil, fieldLeaderKV, protowire.BytesType)
	body = protowire.AppendVarint(body, uint64(protobuf.Size(leader)))
	body, err := protobuf.MarshalOptions{}.MarshalAppend(body, leader)
	if err != nil {
		return nil, err
	}
	out := &answer{header: s.header(proto.Revision(revision)), body: proto.Body{Pieces: [][]byte{body}}}
	if size := int64(len(body)); size >= answerBytesCounted {
		if err := s.answers.enter(ctx, size); err != nil {
			return nil, err
		}
		out.entered = newClaim(ctx, s.answers, size)
	}
	return out, nil
}

// observe sends the leader of an election, each of its values, and each leader after it.
func (s *Server) observe(stream *stream) error {
	r := new(proto.LeaderRequest)
	defer stream.input.leave()
	if err := stream.receive(r); err != nil {
		return err
	}
	o := &observer{server: s, stream: stream, line: lineOf(r.Name)}
	for {
		err := o.term()
		switch cause := context.Cause(stream.ctx); {
		case cause != nil:
			return cause
		case err != nil:
			return ofServersClient(err)
		}
	}
}

// observer is one stream that observes an election.
type observer struct {
	server *Server
	stream *stream
	line   []byte
	// sent is the modification revision of what was sent last. An interrupted watch makes it look at that again.
	sent int64
}

// term observes until there may be another leader.
func (o *observer) term() error {
	header, leader, err := o.server.firstInLine(o.stream.ctx, o.line)
	next := header.GetRevision() + 1
	if err == nil && leader == nil {
		header, leader, err = o.first(next)
		next = leader.GetModRevision() + 1 // the header may be that of later events too
	}
	if err != nil || leader == nil {
		return err
	}
	if err := o.send(header.GetRevision(), leader); err != nil {
		return err
	}
	return o.follow(&pb.WatchCreateRequest{Key: leader.Key, StartRevision: next},
		func(r *pb.WatchResponse) (more bool, err error) {
			for _, e := range r.Events {
				if e.Type == mvccpb.DELETE {
					return false, nil
				}
				if err := o.send(r.Header.GetRevision(), e.Kv); err != nil {
					return false, err
				}
			}
			return true, nil
		})
}

// first waits for the first key in an empty line, from a revision on; nil when it may have been missed.
func (o *observer) first(from int64) (header *pb.ResponseHeader, first *mvccpb.KeyValue, err error) {
	err = o.follow(&pb.WatchCreateRequest{Key: o.line, RangeEnd: endOf(o.line), StartRevision: from,
		Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}},
		func(r *pb.WatchResponse) (more bool, err error) {
			header, first = r.Header, r.Events[0].Kv
			return false, nil
		})
	return header, first, err
}

// follow is Server.follow with the events decoded.
func (o *observer) follow(r *pb.WatchCreateRequest, each func(*pb.WatchResponse) (more bool, err error)) error {
	return o.server.follow(o.stream.ctx, func(frame *WatchFrame) (bool, error) {
		out := new(pb.WatchResponse)
		if err := protobuf.Unmarshal(bytes.Join(frame.Events, nil), out); err != nil {
			return false, err
		}
		out.Header = &pb.ResponseHeader{Revision: int64(frame.Revision)}
		return each(out)
	}, r)
}

func (o *observer) send(revision int64, leader *mvccpb.KeyValue) error {
	if leader.ModRevision == o.sent {
		return nil
	}
	out, err := o.server.leaderAnswer(o.stream.ctx, revision, leader)
	if err != nil {
		return err
	}
	o.sent = leader.ModRevision
	return o.stream.send(out)
}
