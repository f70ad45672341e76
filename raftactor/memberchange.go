package raftactor

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
)

// memberChange is what a proposed conf change does, as far as raft's turn has to know.
type memberChange struct {
	kind raftpb.ConfChangeType
	id   proto.MemberID
	// promotes says that an addition gives a learner a vote.
	promotes bool
	// entry is the conf change itself.
	entry *raftpb.ConfChange
}

// votes reports whether the change adds a member that votes at once.
func (ch *memberChange) votes() bool { return ch.kind == raftpb.ConfChangeAddNode && !ch.promotes }

// AddedMemberID computes the id of a member that is added to a running cluster, as etcd does: like NewMemberID, with
// the second of the addition in the place of the token, so that what was removed can be added again.
func AddedMemberID(peerURLs []string, now time.Time) proto.MemberID {
	return NewMemberID(peerURLs, strconv.FormatInt(now.Unix(), 10))
}

// MemberVerb says what a change does to a member.
type MemberVerb int

// The changes, with what they need of the member.
const (
	// AddMember adds a member, all of it, as a learner if it says so.
	AddMember MemberVerb = iota
	// RemoveMember removes the member with an id, which can never come back.
	RemoveMember
	// UpdateMember replaces the peer URLs of the member with an id.
	UpdateMember
	// PromoteMember gives the learner with an id a vote. Only the leader can tell whether it has caught up.
	PromoteMember
)

// ChangeMembers changes the membership through the log and gives the one right after it. It answers when raft may be
// given the next change. Beside the errors of Propose: ErrNotEnoughStarted, ErrUnhealthy, ErrLearnerNotReady, and for
// promotions ErrNotLeader and ErrNoLeader, after which nothing was proposed; ErrMemberExists, ErrMemberNotFound,
// ErrMemberRemoved, ErrPeerURLExists, ErrMemberNotLearner and ErrTooManyLearners, most of them found at apply.
func (c *Client) ChangeMembers(ctx context.Context, verb MemberVerb, m proto.Member) (*proto.Membership, error) {
	result, err := c.changeMembers(ctx, verb, m)
	if verb == PromoteMember {
		c.metrics.promoted(err)
	}
	return result, err
}

func (c *Client) changeMembers(ctx context.Context, verb MemberVerb, m proto.Member) (*proto.Membership, error) {
	id, ch := c.ids.next(), memberChange{id: m.ID}
	var member []byte
	switch verb {
	case AddMember:
		ch.kind, member = raftpb.ConfChangeAddNode, encodeMember(&m)
		if m.IsLearner {
			ch.kind = raftpb.ConfChangeAddLearnerNode
		}
	case RemoveMember:
		ch.kind = raftpb.ConfChangeRemoveNode
	case UpdateMember:
		ch.kind, member = raftpb.ConfChangeUpdateNode, encodeMember(&proto.Member{ID: m.ID, PeerURLs: m.PeerURLs})
	case PromoteMember:
		ch.kind, ch.promotes, member = raftpb.ConfChangeAddNode, true, encodePromotion(m.ID)
	}
	ch.entry = &raftpb.ConfChange{Id: &id, Type: ch.kind.Enum(), NodeId: new(uint64(ch.id)), Context: member}
	data, err := pb.Marshal(ch.entry)
	actors.Must(err == nil, "a conf change cannot be encoded: %v", err)
	if len(data) > c.requestBytesMax {
		return nil, ErrRequestTooLarge
	}
	reply := actors.NewReply[*proto.Result]()
	entry := &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Data: data}
	if err := c.ref.Tell(actors.Normal, &propose{id: id, entry: entry, answer: reply, change: &ch}); err != nil {
		return nil, domainError(err)
	}
	result, err := reply.Wait(ctx)
	if err != nil {
		return nil, domainError(err)
	}
	return result.Membership, nil
}

// encodePromotion gives the context of a promotion.
func encodePromotion(id proto.MemberID) []byte {
	data, err := json.Marshal(&memberContext{Member: proto.Member{ID: id}, IsPromote: true})
	actors.Must(err == nil, "a promotion cannot be encoded: %v", err)
	return data
}

// MoveLeader hands leadership over to a voter and waits until it leads. ErrNotLeader, ErrBadTransferee: nothing was
// begun; ErrTransferTimeout: it has not come to lead within the request timeout.
func (c *Client) MoveLeader(ctx context.Context, to proto.MemberID) error {
	reply := actors.NewReply[struct{}]()
	if err := c.ref.Tell(actors.Normal, &transfer{to: to, answer: reply}); err != nil {
		return domainError(err)
	}
	_, err := reply.Wait(ctx)
	return domainError(err)
}
