package raftactor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
)

// Reasons why a member cannot be made the only one of its cluster.
var (
	// ErrLearnerAlone says that it is a learner.
	ErrLearnerAlone = errors.New("raftactor: this member is a learner, which may lack what the others acknowledged")
	// ErrRemovedAlone says that the others have removed it, or that its log does not reach to where it was added.
	ErrRemovedAlone = errors.New("raftactor: this member is not among the members that its own log has committed")
)

// CommittedMembers gives the ids of the members of the newest committed configuration, and whether each is a learner:
// the members of the file, which holds everything up to applied, changed by what the log has committed after it.
func CommittedMembers(r *Recovered, applied proto.Index, m *proto.Membership) (map[proto.MemberID]bool, error) {
	members := map[proto.MemberID]bool{}
	if m != nil {
		for i := range m.Members {
			members[m.Members[i].ID] = m.Members[i].IsLearner
		}
	}
	for _, e := range r.Entries {
		index := e.GetIndex()
		if index <= uint64(applied) || index > r.HardState.GetCommit() || e.GetType() == raftpb.EntryNormal {
			continue
		}
		var cc raftpb.ConfChange
		if e.GetType() != raftpb.EntryConfChange || pb.Unmarshal(e.GetData(), &cc) != nil {
			return nil, fmt.Errorf("%w: entry %d is a conf change of a kind that etcd does not write", ErrLogDamaged, index)
		}
		id := proto.MemberID(cc.GetNodeId())
		switch cc.GetType() {
		case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
			members[id] = cc.GetType() == raftpb.ConfChangeAddLearnerNode
		case raftpb.ConfChangeRemoveNode:
			delete(members, id)
		}
	}
	return members, nil
}

// ForceAlone makes this member the only one of its cluster, as etcd's --force-new-cluster does: what is not committed
// is dropped, and the removal of every other member is appended and counted as committed, although no quorum has
// agreed. It is for a cluster whose quorum is lost for good; the others must never run again. The log is synced, and r
// is what the member then starts from. It gives the ids of the removed, and changes nothing when there is nobody else.
func ForceAlone(l *Log, r *Recovered, applied proto.Index, m *proto.Membership) ([]proto.MemberID, error) {
	members, err := CommittedMembers(r, applied, m)
	if err != nil {
		return nil, err
	}
	switch learner, known := members[r.Meta.Member]; {
	case !known:
		return nil, fmt.Errorf("%w (member %v, the members are %d)", ErrRemovedAlone, r.Meta.Member, len(members))
	case learner:
		return nil, fmt.Errorf("%w (member %v of %d)", ErrLearnerAlone, r.Meta.Member, len(members))
	}
	delete(members, r.Meta.Member)
	removed := slices.Sorted(maps.Keys(members))
	if len(removed) == 0 {
		return nil, nil
	}
	commit, term := r.HardState.GetCommit(), r.HardState.GetTerm()
	entries := make([]*raftpb.Entry, len(removed))
	for i, id := range removed {
		data, err := pb.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(id))})
		actors.Must(err == nil, "a conf change cannot be encoded: %v", err)
		entries[i] = &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: new(term),
			Index: new(commit + 1 + uint64(i)), Data: data}
	}
	hard := &raftpb.HardState{Term: new(term), Vote: new(r.HardState.GetVote()),
		Commit: new(commit + uint64(len(removed)))}
	if err := l.Append(hard, entries); err != nil {
		return nil, fmt.Errorf("append the removal of the other members: %w", err)
	}
	if err := l.Sync(); err != nil {
		return nil, fmt.Errorf("sync the removal of the other members: %w", err)
	}
	kept := r.Entries[:min(uint64(len(r.Entries)), commit-min(commit, uint64(r.After)))]
	r.Entries, r.HardState = append(slices.Clip(kept), entries...), hard
	return removed, nil
}
