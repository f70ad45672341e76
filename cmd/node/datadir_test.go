package node

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	troupe "troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
)

// logEntry is an entry of a log with the message as its data.
func logEntry(t *testing.T, index uint64, kind raftpb.EntryType, m proto.Message) *raftpb.Entry {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &raftpb.Entry{Term: new(uint64(1)), Index: new(index), Type: kind.Enum(), Data: data}
}

// added is the entry that adds a voter, told the one with which it tells its name.
func added(t *testing.T, index uint64, member string) *raftpb.Entry {
	t.Helper()
	return logEntry(t, index, raftpb.EntryConfChange, &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(),
		NodeId: new(uint64(2)), Context: []byte(member)})
}

func told(t *testing.T, index uint64) *raftpb.Entry {
	t.Helper()
	return logEntry(t, index, raftpb.EntryNormal, &etcdserverpb.InternalRaftRequest{
		ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: 2,
			MemberAttributes: &membershippb.Attributes{Name: "b"}}})
}

// The directory of a member among others that run is refused wherever it says that they do. One with a voter that never
// came starts, and waits for it.
func TestCheckAlone_RefusesOthersWhoseNameOnlyTheLogHas(t *testing.T) {
	own := troupe.Member{ID: 1, Name: "a"}
	nameless, named := `{"id":2,"peerURLs":["http://127.0.0.1:9"]}`, `{"id":2,"name":"b"}`
	for name, c := range map[string]struct {
		inFile  []troupe.Member
		entries []*raftpb.Entry
		refused bool
	}{
		"a voter that never came, in the log":  {[]troupe.Member{own}, []*raftpb.Entry{added(t, 4, nameless)}, false},
		"a voter that never came, in the file": {[]troupe.Member{own, {ID: 2}}, nil, false},
		"a voter with a name in the file":      {[]troupe.Member{own, {ID: 2, Name: "b"}}, nil, true},
		"added and started, in the log": {[]troupe.Member{own},
			[]*raftpb.Entry{added(t, 4, nameless), told(t, 5)}, true},
		"added in the file, started in the log": {[]troupe.Member{own, {ID: 2}}, []*raftpb.Entry{told(t, 4)}, true},
		"of a new cluster, in the log":          {[]troupe.Member{own}, []*raftpb.Entry{added(t, 4, named)}, true},
	} {
		f := &files{
			meta:     raftactor.LogMeta{Member: 1},
			restored: &storeactor.Restored{Index: 3, Membership: &troupe.Membership{Members: c.inFile}},
			recovered: &raftactor.Recovered{Entries: c.entries,
				HardState: &raftpb.HardState{Term: new(uint64(1)), Commit: new(3 + uint64(len(c.entries)))}},
		}
		err := f.checkAlone(&Config{}, zerolog.Nop())
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "reaches no other member") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
