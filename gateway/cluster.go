package gateway

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

func (s *Server) registerCluster() {
	const n = serviceCluster
	s.register(n, []grpc.MethodDesc{
		unary(s, n, "MemberAdd", later[*pb.MemberAddRequest]),
		unary(s, n, "MemberRemove", later[*pb.MemberRemoveRequest]),
		unary(s, n, "MemberUpdate", later[*pb.MemberUpdateRequest]),
		unary(s, n, "MemberPromote", later[*pb.MemberPromoteRequest]),
		unary(s, n, "MemberList", s.memberList),
	})
}

// memberList lists the members, of this member's state or, if asked, of one that holds everything acknowledged. Headers
// of the Cluster service have no revision.
func (s *Server) memberList(ctx context.Context, r *pb.MemberListRequest) (any, error) {
	if r.Linearizable {
		if err := s.linearize(ctx); err != nil {
			return nil, err
		}
	}
	out := &pb.MemberListResponse{Header: s.pbHeader(0)}
	if m := s.cfg.Store.State().Membership; m != nil {
		for i := range m.Members {
			member := &m.Members[i]
			out.Members = append(out.Members, &pb.Member{
				ID:         uint64(member.ID),
				Name:       member.Name,
				PeerURLs:   member.PeerURLs,
				ClientURLs: member.ClientURLs,
				IsLearner:  member.IsLearner,
			})
		}
	}
	return out, nil
}
