package differential

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Members have other ids on each server, and the servers other URLs. Scripts call the server itself member 1 and those
// that were added 2, 3 and so on; selfPeer and selfClient stand for the server's own URLs.
const (
	selfPeer   = "http://self:1"
	selfClient = "http://self:2"
)

// memberFields are the fields that hold the id of a member that is there, or was.
var memberFields = map[protoreflect.FullName]bool{
	"etcdserverpb.Member.ID": true, "etcdserverpb.MemberRemoveRequest.ID": true,
	"etcdserverpb.MemberUpdateRequest.ID": true, "etcdserverpb.MemberPromoteRequest.ID": true,
	"etcdserverpb.MoveLeaderRequest.targetID": true,
}

// outbound is a request as this server understands it.
func (s *side) outbound(request proto.Message) proto.Message {
	out := proto.Clone(request)
	renameMembers(out, func(id uint64) uint64 {
		if id >= 1 && id <= uint64(len(s.members)) {
			return s.members[id-1]
		}
		return id
	})
	replaceURLs(out, selfPeer, s.server.PeerURL)
	return out
}

// inbound brings a reply to the words of scripts, and learns the id of a member that was added.
func (s *side) inbound(reply proto.Message) {
	if r, ok := reply.(*pb.MemberAddResponse); ok {
		s.members = append(s.members, r.Member.ID)
	}
	renameMembers(reply, func(id uint64) uint64 { return uint64(slices.Index(s.members, id) + 1) })
	replaceURLs(reply, s.server.PeerURL, selfPeer)
	replaceURLs(reply, s.server.URL, selfClient)
	if r, ok := reply.(interface{ GetMembers() []*pb.Member }); ok {
		slices.SortFunc(r.GetMembers(), func(a, b *pb.Member) int { return cmp.Compare(a.ID, b.ID) })
	}
}

func renameMembers(m proto.Message, rename func(uint64) uint64) {
	visit(m.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, v protoreflect.Value) {
		if memberFields[field.FullName()] {
			m.Set(field, protoreflect.ValueOfUint64(rename(v.Uint())))
		}
	})
}

// replaceURLs replaces a URL wherever a message about members has it.
func replaceURLs(m proto.Message, old, by string) {
	replace := func(urls []string) {
		for i := range urls {
			urls[i] = strings.ReplaceAll(urls[i], old, by)
		}
	}
	if r, ok := m.(interface{ GetPeerURLs() []string }); ok {
		replace(r.GetPeerURLs())
	}
	members, _ := m.(interface{ GetMembers() []*pb.Member })
	if members == nil {
		return
	}
	for _, member := range members.GetMembers() {
		replace(member.PeerURLs)
		replace(member.ClientURLs)
	}
}

// awaitNextID waits until a member with these URLs gets another id than before: ids are made of the URLs and the
// second, and whether two additions fall into one is not the servers' to decide. What it gives runs after the addition.
func (w *world) awaitNextID(r *pb.MemberAddRequest) (done func()) {
	urls := make([]string, len(r.PeerURLs))
	for i, u := range r.PeerURLs {
		urls[i] = strings.TrimSpace(u)
	}
	slices.Sort(urls)
	key := strings.Join(urls, " ")
	for time.Now().Unix() <= w.added[key] {
		<-time.After(time.Until(time.Unix(w.added[key]+1, 0)))
	}
	return func() { w.added[key] = time.Now().Unix() }
}

// leftUpdates is a fault of etcd's: when it starts again it takes from its log, in memory, updates of members that it
// had refused, so that two members have one URL. Troupe keeps what it has said.
const leftUpdates = "URLs of members after a start, where an update was refused before: etcd takes it then"

// membersBefore remembers who is in the cluster before a restart, if an update has been refused in this script.
func (w *world) membersBefore() (all [sides][]*pb.Member) {
	if !w.updateRefused {
		return all
	}
	return both(w, func(s *side) []*pb.Member {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		r, err := pb.NewClusterClient(s.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		if err != nil {
			return nil
		}
		return r.Members
	})
}

// membersAgain gives the members, on both sides, the URLs that they had before a restart. First each gets one that no
// script names: another member may have what it had, and which one is changed first depends on the ids.
func (w *world) membersAgain(before [sides][]*pb.Member) {
	const firstFreePort = 60001
	for i, members := range before {
		for n, m := range members {
			w.use(leftUpdates)
			w.updateMember(i, m.ID, []string{fmt.Sprint("http://127.0.0.1:", firstFreePort+n)})
		}
		for _, m := range members {
			w.updateMember(i, m.ID, m.PeerURLs)
		}
	}
}

func (w *world) updateMember(side int, id uint64, urls []string) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	update := &pb.MemberUpdateRequest{ID: id, PeerURLs: urls}
	if _, err := pb.NewClusterClient(w.sides[side].conn).MemberUpdate(ctx, update); err != nil {
		w.t.Errorf("update of a member to what it was: %v", err)
	}
}

// cleanMembers removes the members that a script has added, and gives the server its URL back.
func (s *side) cleanMembers(ctx context.Context) error {
	cluster := pb.NewClusterClient(s.conn)
	all, err := cluster.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	if err != nil {
		return err
	}
	for _, m := range all.Members {
		if m.ID != s.members[0] {
			_, err = cluster.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: m.ID})
		} else if !slices.Equal(m.PeerURLs, []string{s.server.PeerURL}) {
			_, err = cluster.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: m.ID, PeerURLs: []string{s.server.PeerURL}})
		}
		if err != nil {
			return err
		}
	}
	s.members = s.members[:1]
	return nil
}

// badURLs are no URLs of members.
var badURLs = []string{"zzz", "", "http://127.0.0.1", "http://127.0.0.1:1001/path", "ftp://127.0.0.1:1001",
	"http://127.0.0.1:x", "127.0.0.1:1001", "http://[::1:7"}

// peerURLs draws URLs of a member from few, so that they collide.
func (d dice) peerURLs() (urls []string) {
	for range 1 + d.below(2)*d.below(2) {
		switch {
		case d.rare(4):
			urls = append(urls, pick(d, selfPeer, "unix://socket:7", "https://b.example:1001", "http://:1001",
				" http://127.0.0.1:1002 ", "http://[::1]:1001", "http://127.0.0.1:1001?q"))
		case d.rare(5):
			urls = append(urls, pick(d, badURLs...))
		default:
			urls = append(urls, pick(d, "http://127.0.0.1:1001", "http://127.0.0.1:1002", "http://127.0.0.1:1003"))
		}
	}
	if d.rare(6) {
		return nil
	}
	return urls
}

// member draws a member: one that is there or was, the server itself, one that never was.
func (d dice) member() uint64 {
	added := d.w.membersAdded()
	if added == 0 || d.rare(2) {
		return pick[uint64](d, 1, 2, 0, 999_999, 1<<63)
	}
	return uint64(1 + added - d.below(min(added, 3)))
}

// membersAdded is how many members this script has added, those that it has removed included.
func (w *world) membersAdded() int {
	if s := w.sides[etcdSide]; s != nil {
		return max(len(s.members)-1, 0)
	}
	return 0
}

// membership draws a change of the members that leaves the server its quorum: those that are added are learners, unless
// the addition is refused in any case.
func (d dice) membership() step {
	switch d.below(8) {
	case 0, 1, 2:
		return call("MemberAdd", &pb.MemberAddRequest{PeerURLs: d.peerURLs(), IsLearner: true})
	case 3, 4:
		return call("MemberRemove", &pb.MemberRemoveRequest{ID: d.member()})
	case 5:
		return call("MemberUpdate", &pb.MemberUpdateRequest{ID: d.member(), PeerURLs: d.peerURLs()})
	case 6:
		return call("MemberPromote", &pb.MemberPromoteRequest{ID: d.member()})
	}
	if d.rare(1) {
		return call("MemberAdd", &pb.MemberAddRequest{PeerURLs: pick(d, []string{pick(d, badURLs...)}, nil)})
	}
	return call("MoveLeader", &pb.MoveLeaderRequest{TargetID: d.member()})
}

// hasBadURLs reports whether an update would give a member URLs that no member can read.
func hasBadURLs(m proto.Message) bool {
	r, ok := m.(*pb.MemberUpdateRequest)
	return ok && (len(r.PeerURLs) == 0 || slices.ContainsFunc(r.PeerURLs, func(u string) bool {
		return slices.Contains(badURLs, strings.TrimSpace(u))
	}))
}
