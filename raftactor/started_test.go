package raftactor

import (
	"maps"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/proto"
)

// toldName is the entry with which a member tells its name.
func toldName(t *testing.T, index, id uint64, name string) *raftpb.Entry {
	t.Helper()
	e := emptyEntry(1, index)
	e.Data = encoded(t, &etcdserverpb.InternalRaftRequest{
		Header: &etcdserverpb.RequestHeader{ID: 1},
		ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: id,
			MemberAttributes: &membershippb.Attributes{Name: name}},
	})
	return e
}

// addedVoter is the entry with which a member is added while the cluster runs: it has no name yet.
func addedVoter(t *testing.T, index, id uint64) *raftpb.Entry {
	t.Helper()
	e := emptyEntry(1, index)
	e.Type = raftpb.EntryConfChange.Enum()
	e.Data = encoded(t, &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id),
		Context: encodeMember(&proto.Member{ID: proto.MemberID(id), PeerURLs: []string{"http://127.0.0.1:1"}})})
	return e
}

// Who has started must be seen wherever its name is, or its cluster is taken for one of a single member.
func TestStartedMembers_ANameCountsInTheFileAndInTheLog(t *testing.T) {
	bootstrap := bootstrapEntries([]proto.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}})
	broken := emptyEntry(1, 3)
	broken.Data = []byte("nonsense")
	brokenChange := addedVoter(t, 4, 9)
	brokenChange.Data = []byte("nonsense")
	file := &proto.Membership{Members: []proto.Member{{ID: 1, Name: "a"}, {ID: 3}}}
	for name, c := range map[string]struct {
		file    *proto.Membership
		applied proto.Index
		commit  uint64
		entries []*raftpb.Entry
		want    []proto.MemberID
	}{
		"the file only":                    {file, 9, 9, nil, []proto.MemberID{1}},
		"a new cluster, nothing in a file": {nil, 0, 2, bootstrap, []proto.MemberID{1, 2}},
		"added, never started":             {file, 2, 3, []*raftpb.Entry{addedVoter(t, 3, 4)}, []proto.MemberID{1}},
		"added and started": {file, 2, 4,
			[]*raftpb.Entry{addedVoter(t, 3, 4), toldName(t, 4, 4, "d")}, []proto.MemberID{1, 4}},
		"the name is not committed": {file, 2, 3,
			[]*raftpb.Entry{addedVoter(t, 3, 4), toldName(t, 4, 4, "d")}, []proto.MemberID{1, 4}},
		"in the file without a name": {file, 2, 3, []*raftpb.Entry{toldName(t, 3, 3, "c")}, []proto.MemberID{1, 3}},
		"what the file holds is not read again": {file, 3, 3,
			[]*raftpb.Entry{toldName(t, 3, 3, "c")}, []proto.MemberID{1}},
		"entries that cannot be read": {file, 2, 4, []*raftpb.Entry{broken, brokenChange}, []proto.MemberID{1}},
	} {
		r := &Recovered{HardState: &raftpb.HardState{Commit: new(c.commit)}, Entries: c.entries}
		if got := slices.Sorted(maps.Keys(StartedMembers(r, c.applied, c.file))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
