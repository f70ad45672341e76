package raftactor

import (
	"encoding/json"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// StartedMembers gives the ids of the members that have told their name, which a member does when it starts: those with
// a name in the file, which holds everything up to applied, and those that the log names after it. There the members of
// a new cluster come with their name, and others tell it in a ClusterMemberAttrSet of their own. It need not be
// committed to count: that it was proposed shows that its member runs, and the commit index of etcd's log lags behind.
func StartedMembers(r *Recovered, applied proto.Index, m *proto.Membership) map[proto.MemberID]bool {
	started := map[proto.MemberID]bool{}
	if m != nil {
		for i := range m.Members {
			if m.Members[i].Name != "" {
				started[m.Members[i].ID] = true
			}
		}
	}
	for _, e := range r.Entries {
		if e.GetIndex() <= uint64(applied) {
			continue
		}
		if id, name := nameIn(e); name != "" {
			started[id] = true
		}
	}
	return started
}

// nameIn gives the member that the entry names, and its name; the name is "" for all other entries. What cannot be read
// names nobody: to refuse it is the business of apply.
func nameIn(e *raftpb.Entry) (proto.MemberID, string) {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		var cc raftpb.ConfChange
		var ctx memberContext
		if pb.Unmarshal(e.GetData(), &cc) == nil && json.Unmarshal(cc.GetContext(), &ctx) == nil {
			return proto.MemberID(cc.GetNodeId()), ctx.Name
		}
	case raftpb.EntryNormal:
		var request etcdserverpb.InternalRaftRequest
		if pb.Unmarshal(e.GetData(), &request) == nil {
			set := request.GetClusterMemberAttrSet()
			return proto.MemberID(set.GetMember_ID()), set.GetMemberAttributes().GetName()
		}
	}
	return 0, ""
}
