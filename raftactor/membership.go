package raftactor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// The pure functions of the membership. Each takes the membership in force and gives the next one, which is a new
// value, and the bucket writes that make the file say the same. They run at apply, on every member, and must give the
// same result on all: etcd 3.7's.

// Keys and values of etcd's buckets that are no ids.
var (
	clusterVersionKey = []byte("clusterVersion")
	downgradeKey      = []byte("downgrade")
	removedValue      = []byte("removed")
)

// memberContext is the context of a conf change that adds, promotes or updates a member: the member as in the members
// bucket, and whether an addition is a promotion.
type memberContext struct {
	proto.Member
	IsPromote bool `json:"isPromote,omitempty"`
}

// downgradeInfo is the value of the downgrade key.
type downgradeInfo struct {
	TargetVersion string `json:"target-version"`
	Enabled       bool   `json:"enabled"`
}

// memberKey is the key of a member in the buckets members and members_removed.
func memberKey(id proto.MemberID) []byte { return []byte(id.String()) }

// encodeMember gives the member as in the members bucket.
func encodeMember(m *proto.Member) []byte {
	data, err := json.Marshal(m)
	actors.Must(err == nil, "a member cannot be encoded: %v", err)
	return data
}

// ConfStateOf gives raft's view of a membership: who votes and who learns, sorted by id. It is never joint, as members
// of etcd use simple changes only.
func ConfStateOf(m *proto.Membership) *raftpb.ConfState {
	cs := &raftpb.ConfState{AutoLeave: new(false)}
	if m == nil {
		return cs
	}
	for i := range m.Members {
		id := uint64(m.Members[i].ID)
		if m.Members[i].IsLearner {
			cs.Learners = append(cs.Learners, id)
		} else {
			cs.Voters = append(cs.Voters, id)
		}
	}
	slices.Sort(cs.Voters)
	slices.Sort(cs.Learners)
	return cs
}

// encodeConfState gives a conf state as in the meta bucket: the fields of raftpb.ConfState under their proto names.
func encodeConfState(cs *raftpb.ConfState) []byte {
	data, err := json.Marshal(&struct {
		Voters         []uint64 `json:"voters,omitempty"`
		Learners       []uint64 `json:"learners,omitempty"`
		VotersOutgoing []uint64 `json:"voters_outgoing,omitempty"`
		LearnersNext   []uint64 `json:"learners_next,omitempty"`
		AutoLeave      bool     `json:"auto_leave"`
	}{cs.Voters, cs.Learners, cs.VotersOutgoing, cs.LearnersNext, cs.GetAutoLeave()})
	actors.Must(err == nil, "a conf state cannot be encoded: %v", err)
	return data
}

// parseConfState reads what encodeConfState wrote.
func parseConfState(data []byte) (*raftpb.ConfState, error) {
	cs := &raftpb.ConfState{}
	if err := json.Unmarshal(data, cs); err != nil {
		return nil, fmt.Errorf("conf state: %w", err)
	}
	if cs.AutoLeave == nil {
		cs.AutoLeave = new(false)
	}
	return cs, nil
}

// clone copies the membership, so that the copy's lists can be changed. Members share their URL lists, which nobody
// writes to.
func clone(m *proto.Membership) *proto.Membership {
	next := *m
	next.Members = slices.Clone(m.Members)
	next.Removed = slices.Clone(m.Removed)
	return &next
}

// isRemoved reports whether the id may never come back.
func isRemoved(m *proto.Membership, id proto.MemberID) bool { return slices.Contains(m.Removed, id) }

// learners is the number of members without a vote.
func learners(m *proto.Membership) int {
	n := 0
	for i := range m.Members {
		if m.Members[i].IsLearner {
			n++
		}
	}
	return n
}

// peerURLTaken reports whether a member other than id has one of the URLs.
func peerURLTaken(m *proto.Membership, urls []string, id proto.MemberID) bool {
	for i := range m.Members {
		other := &m.Members[i]
		if other.ID == id {
			continue
		}
		for _, u := range urls {
			if slices.Contains(other.PeerURLs, u) {
				return true
			}
		}
	}
	return false
}

// validateConfChange checks a conf change against the membership in force, as etcd does at apply. It gives the decoded
// context. An error means that raft gets the change without a node and nothing changes.
func validateConfChange(m *proto.Membership, cc *raftpb.ConfChange, learnersMax int) (memberContext, error) {
	id := proto.MemberID(cc.GetNodeId())
	if isRemoved(m, id) {
		return memberContext{}, ErrMemberRemoved
	}
	switch cc.GetType() {
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		ctx := decodeContext(cc)
		if ctx.IsPromote {
			return ctx, validatePromotion(m, id)
		}
		return ctx, validateAddition(m, &ctx, learnersMax)
	case raftpb.ConfChangeRemoveNode:
		if m.Member(id) == nil {
			return memberContext{}, ErrMemberNotFound
		}
		return memberContext{}, nil
	case raftpb.ConfChangeUpdateNode:
		if m.Member(id) == nil {
			return memberContext{}, ErrMemberNotFound
		}
		ctx := decodeContext(cc)
		if peerURLTaken(m, ctx.PeerURLs, id) {
			return ctx, ErrPeerURLExists
		}
		return ctx, nil
	}
	actors.Must(false, "conf change of unknown type %d", cc.GetType())
	return memberContext{}, nil
}

// decodeContext reads the member in a conf change. A context that cannot be read, or names another member than the
// change, stops every member: the proposer has checked it.
func decodeContext(cc *raftpb.ConfChange) memberContext {
	var ctx memberContext
	err := json.Unmarshal(cc.GetContext(), &ctx)
	actors.Must(err == nil, "the context of a conf change cannot be decoded: %v", err)
	actors.Must(uint64(ctx.ID) == cc.GetNodeId(), "conf change for node %x holds member %v", cc.GetNodeId(), ctx.ID)
	return ctx
}

func validatePromotion(m *proto.Membership, id proto.MemberID) error {
	member := m.Member(id)
	switch {
	case member == nil:
		return ErrMemberNotFound
	case !member.IsLearner:
		return ErrMemberNotLearner
	}
	return nil
}

func validateAddition(m *proto.Membership, ctx *memberContext, learnersMax int) error {
	switch {
	case m.Member(ctx.ID) != nil:
		return ErrMemberExists
	case peerURLTaken(m, ctx.PeerURLs, ctx.ID):
		return ErrPeerURLExists
	case ctx.IsLearner && learners(m) >= learnersMax:
		return ErrTooManyLearners
	}
	return nil
}

// applyConfChange gives the membership after a conf change that validateConfChange found good.
func applyConfChange(m *proto.Membership, cc *raftpb.ConfChange, ctx memberContext) (*proto.Membership,
	[]proto.BucketWrite) {
	next := clone(m)
	id := proto.MemberID(cc.GetNodeId())
	switch {
	case cc.GetType() == raftpb.ConfChangeRemoveNode:
		next.Members = slices.DeleteFunc(next.Members, func(x proto.Member) bool { return x.ID == id })
		next.Removed = append(next.Removed, id)
		slices.Sort(next.Removed)
		return next, []proto.BucketWrite{
			{Bucket: proto.BucketMembers, Key: memberKey(id), Delete: true},
			{Bucket: proto.BucketMembersRemoved, Key: memberKey(id), Value: removedValue},
		}
	case cc.GetType() == raftpb.ConfChangeUpdateNode:
		next.Member(id).PeerURLs = ctx.PeerURLs
	case ctx.IsPromote:
		next.Member(id).IsLearner = false
	default:
		at, _ := slices.BinarySearchFunc(next.Members, id, func(x proto.Member, id proto.MemberID) int {
			return cmpIDs(x.ID, id)
		})
		next.Members = slices.Insert(next.Members, at, ctx.Member)
	}
	return next, []proto.BucketWrite{memberWrite(next.Member(id))}
}

func cmpIDs(a, b proto.MemberID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func memberWrite(m *proto.Member) proto.BucketWrite {
	return proto.BucketWrite{Bucket: proto.BucketMembers, Key: memberKey(m.ID), Value: encodeMember(m)}
}

// applyAttributes gives the membership after a ClusterMemberAttrSet. The attributes of a removed member are ignored; an
// id that never was a member is a broken log, as every member proposes only its own.
func applyAttributes(m *proto.Membership, r *membershippb.ClusterMemberAttrSetRequest) (*proto.Membership,
	[]proto.BucketWrite) {
	id := proto.MemberID(r.GetMember_ID())
	if m.Member(id) == nil {
		actors.Must(isRemoved(m, id), "attributes of member %v, which never was one", id)
		return m, nil
	}
	next := clone(m)
	member := next.Member(id)
	member.Name = r.GetMemberAttributes().GetName()
	member.ClientURLs = r.GetMemberAttributes().GetClientUrls()
	return next, []proto.BucketWrite{memberWrite(member)}
}

// applyClusterVersion gives the membership after a ClusterVersionSet. A version above this program's own stops it: it
// would misread what the others may write from now on.
func applyClusterVersion(m *proto.Membership, r *membershippb.ClusterVersionSetRequest, own string,
	index proto.Index) (*proto.Membership, []proto.BucketWrite) {
	actors.Must(!versionLess(own, r.GetVer()), "the cluster version is set to %s, this member is %s", r.GetVer(), own)
	next := clone(m)
	if m.ClusterVersion != "" && versionLess(r.GetVer(), m.ClusterVersion) {
		next.Lowered = proto.Lowering{At: index, From: m.ClusterVersion}
	}
	next.ClusterVersion = r.GetVer()
	return next, []proto.BucketWrite{
		{Bucket: proto.BucketCluster, Key: clusterVersionKey, Value: []byte(r.GetVer())},
	}
}

// applyDowngrade gives the membership after a DowngradeInfoSet.
func applyDowngrade(m *proto.Membership, r *membershippb.DowngradeInfoSetRequest) (*proto.Membership,
	[]proto.BucketWrite) {
	info := downgradeInfo{Enabled: r.GetEnabled()}
	if info.Enabled {
		info.TargetVersion = r.GetVer()
	}
	next := clone(m)
	next.DowngradeTarget = info.TargetVersion
	data, err := json.Marshal(&info)
	actors.Must(err == nil, "a downgrade cannot be encoded: %v", err)
	return next, []proto.BucketWrite{{Bucket: proto.BucketCluster, Key: downgradeKey, Value: data}}
}

// versionLess compares two versions by major and minor number only, as compatibility does. A version that cannot be
// read is less than all others.
func versionLess(a, b string) bool {
	aMajor, aMinor := majorMinor(a)
	bMajor, bMinor := majorMinor(b)
	return aMajor < bMajor || aMajor == bMajor && aMinor < bMinor
}

func majorMinor(version string) (major, minor int) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return -1, -1
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return -1, -1
	}
	if minor, err = strconv.Atoi(parts[1]); err != nil {
		return -1, -1
	}
	return major, minor
}
