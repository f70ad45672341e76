package gateway

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/proto"
	"troupe/raftactor"
)

func (s *Server) registerCluster() {
	const n = serviceCluster
	s.register(n, []grpc.MethodDesc{
		unary(s, n, "MemberAdd", s.memberAdd),
		unary(s, n, "MemberRemove", s.memberRemove),
		unary(s, n, "MemberUpdate", s.memberUpdate),
		unary(s, n, "MemberPromote", s.memberPromote),
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
	return &pb.MemberListResponse{Header: s.pbHeader(0), Members: membersOf(s.cfg.Store.State().Membership)}, nil
}

// membersOf gives the members as in answers.
func membersOf(m *proto.Membership) (out []*pb.Member) {
	if m == nil {
		return nil
	}
	for i := range m.Members {
		member := &m.Members[i]
		out = append(out, &pb.Member{
			ID:         uint64(member.ID),
			Name:       member.Name,
			PeerURLs:   member.PeerURLs,
			ClientURLs: member.ClientURLs,
			IsLearner:  member.IsLearner,
		})
	}
	return out
}

// memberAdd adds a member. It has no name until it has started and told it.
func (s *Server) memberAdd(ctx context.Context, r *pb.MemberAddRequest) (any, error) {
	urls, err := checkPeerURLs(r.PeerURLs)
	if err != nil {
		return nil, err
	}
	added := proto.Member{ID: newMemberID(s.cfg.Store.State().Membership, urls), PeerURLs: urls, IsLearner: r.IsLearner}
	m, err := s.cfg.Raft.ChangeMembers(ctx, raftactor.AddMember, added)
	if err != nil {
		return nil, err
	}
	member := &pb.Member{ID: uint64(added.ID), PeerURLs: urls, IsLearner: added.IsLearner}
	return &pb.MemberAddResponse{Header: s.pbHeader(0), Member: member, Members: membersOf(m)}, nil
}

// newMemberID gives a member the id that etcd gives it, which is made of its URLs and the second. A member that was
// removed in this second has that id for good; then the next second's is taken, where etcd says that there is no such
// member.
func newMemberID(m *proto.Membership, urls []string) proto.MemberID {
	now := time.Now()
	id := raftactor.AddedMemberID(urls, now)
	for m != nil && (m.Member(id) != nil || slices.Contains(m.Removed, id)) {
		now = now.Add(time.Second)
		id = raftactor.AddedMemberID(urls, now)
	}
	return id
}

func (s *Server) memberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (any, error) {
	m, err := s.cfg.Raft.ChangeMembers(ctx, raftactor.RemoveMember, proto.Member{ID: proto.MemberID(r.ID)})
	if err != nil {
		return nil, err
	}
	return &pb.MemberRemoveResponse{Header: s.pbHeader(0), Members: membersOf(m)}, nil
}

// memberUpdate replaces the peer URLs of a member. etcd takes whatever the client sends, and members of etcd end over a
// URL that they cannot read, at every start again: so what is new here must be a URL of members, too.
func (s *Server) memberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (any, error) {
	if _, err := checkPeerURLs(r.PeerURLs); err != nil {
		return nil, err
	}
	updated := proto.Member{ID: proto.MemberID(r.ID), PeerURLs: r.PeerURLs}
	m, err := s.cfg.Raft.ChangeMembers(ctx, raftactor.UpdateMember, updated)
	if err != nil {
		return nil, err
	}
	return &pb.MemberUpdateResponse{Header: s.pbHeader(0), Members: membersOf(m)}, nil
}

func (s *Server) memberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (any, error) {
	m, err := s.cfg.Raft.ChangeMembers(ctx, raftactor.PromoteMember, proto.Member{ID: proto.MemberID(r.ID)})
	if err != nil {
		return nil, err
	}
	return &pb.MemberPromoteResponse{Header: s.pbHeader(0), Members: membersOf(m)}, nil
}

// moveLeader hands leadership over. Its answer has no header.
func (s *Server) moveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (any, error) {
	if err := s.cfg.Raft.MoveLeader(ctx, proto.MemberID(r.TargetID)); err != nil {
		return nil, err
	}
	return &pb.MoveLeaderResponse{}, nil
}

// checkPeerURLs gives the peer URLs of a new member in order, or ErrMemberURLs: there must be some, of a scheme that
// members speak, with a port and without a path.
func checkPeerURLs(urls []string) ([]string, error) {
	if len(urls) == 0 {
		return nil, fmt.Errorf("%w: none is given", ErrMemberURLs)
	}
	out := make([]string, len(urls))
	for i, text := range urls {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMemberURLs, err)
		}
		switch u.Scheme {
		case "http", "https":
			if _, _, err := net.SplitHostPort(u.Host); err != nil {
				return nil, fmt.Errorf("%w: %q: %w", ErrMemberURLs, text, err)
			}
			if u.Path != "" {
				return nil, fmt.Errorf("%w: %q has a path", ErrMemberURLs, text)
			}
		case "unix", "unixs":
		default:
			return nil, fmt.Errorf("%w: the scheme of %q is not http, https, unix or unixs", ErrMemberURLs, text)
		}
		out[i] = u.String()
	}
	slices.Sort(out)
	return out, nil
}
