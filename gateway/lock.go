package gateway

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/proto"
)

// methodLock is the method of the Lock service that waits.
const methodLock = "Lock"

func (s *Server) registerLock() {
	const n = serviceLock
	s.register(n, []grpc.MethodDesc{
		unary(s, n, methodLock, s.lock),
		unary(s, n, "Unlock", s.unlock),
	})
}

// lock waits for a lock. Whoever has it under the same lease gets it again at once.
func (s *Server) lock(ctx context.Context, r *proto.LockRequest) (any, error) {
	p, err := s.takePlace(ctx, r.Name, r.Lease, nil)
	if err != nil {
		return nil, ofServersClient(err)
	}
	header, err := s.awaitTurn(ctx, p)
	if err != nil {
		s.leaveLine(ctx, p)
		if errors.Is(err, errPlaceLost) {
			err = ErrLockExpired
		}
		return nil, ofServersClient(err)
	}
	return &proto.LockResponse{Header: ownHeader(header), Key: p.key}, nil
}

// unlock deletes a key, whoever asks: that is all etcd does.
func (s *Server) unlock(ctx context.Context, r *proto.UnlockRequest) (any, error) {
	out := new(pb.DeleteRangeResponse)
	if err := decoded(out)(s.deleteRange(ctx, &pb.DeleteRangeRequest{Key: r.Key})); err != nil {
		return nil, ofServersClient(err)
	}
	return &proto.UnlockResponse{Header: ownHeader(out.Header)}, nil
}

// ownHeader is a header as a message of ours.
func ownHeader(h *pb.ResponseHeader) *proto.ResponseHeader {
	return &proto.ResponseHeader{ClusterId: h.GetClusterId(), MemberId: h.GetMemberId(), Revision: h.GetRevision(),
		RaftTerm: h.GetRaftTerm()}
}
