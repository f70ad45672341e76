package raftactor

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/proto"
)

func confChangeOf(kind raftpb.ConfChangeType, id uint64, context string) *raftpb.ConfChange {
	return &raftpb.ConfChange{Type: &kind, NodeId: &id, Context: []byte(context)}
}

// three has voters 1 and 2, learner 3, and 9 removed.
func three() *proto.Membership {
	m := testMembership(1, 2, 3)
	m.Members[2].IsLearner = true
	m.Removed = []proto.MemberID{9}
	return m
}

func TestValidateConfChange_AsEtcd(t *testing.T) {
	add, learner := raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode
	for _, c := range []struct {
		name string
		cc   *raftpb.ConfChange
		max  int
		want error
	}{
		{"add", confChangeOf(add, 4, `{"id":4,"peerURLs":["http://x:1"]}`), 1, nil},
		{"add removed", confChangeOf(add, 9, `{"id":9,"peerURLs":["http://x:1"]}`), 1, ErrMemberRemoved},
		{"remove removed", confChangeOf(raftpb.ConfChangeRemoveNode, 9, ``), 1, ErrMemberRemoved},
		{"add existing id", confChangeOf(add, 2, `{"id":2,"peerURLs":["http://x:1"]}`), 1, ErrMemberExists},
		{"add taken URL", confChangeOf(add, 4, `{"id":4,"peerURLs":["http://10.0.0.2:2380"]}`), 1, ErrPeerURLExists},
		{"add learner beyond the limit", confChangeOf(learner, 4, `{"id":4,"peerURLs":["http://x:1"],"isLearner":true}`),
			1, ErrTooManyLearners},
		{"add learner within the limit", confChangeOf(learner, 4, `{"id":4,"peerURLs":["http://x:1"],"isLearner":true}`),
			2, nil},
		{"promote", confChangeOf(add, 3, `{"id":3,"peerURLs":null,"isPromote":true}`), 1, nil},
		{"promote voter", confChangeOf(add, 2, `{"id":2,"peerURLs":null,"isPromote":true}`), 1, ErrMemberNotLearner},
		{"promote unknown", confChangeOf(add, 4, `{"id":4,"peerURLs":null,"isPromote":true}`), 1, ErrMemberNotFound},
		{"remove", confChangeOf(raftpb.ConfChangeRemoveNode, 2, ``), 1, nil},
		{"remove unknown", confChangeOf(raftpb.ConfChangeRemoveNode, 4, ``), 1, ErrMemberNotFound},
		{"update", confChangeOf(raftpb.ConfChangeUpdateNode, 2, `{"id":2,"peerURLs":["http://x:1"]}`), 1, nil},
		{"update to its own URL", confChangeOf(raftpb.ConfChangeUpdateNode, 2,
			`{"id":2,"peerURLs":["http://10.0.0.2:2380"]}`), 1, nil},
		{"update to another's URL", confChangeOf(raftpb.ConfChangeUpdateNode, 2,
			`{"id":2,"peerURLs":["http://10.0.0.1:2380"]}`), 1, ErrPeerURLExists},
		{"update unknown", confChangeOf(raftpb.ConfChangeUpdateNode, 4, `{"id":4,"peerURLs":["http://x:1"]}`), 1,
			ErrMemberNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := validateConfChange(three(), c.cc, c.max); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func applied(t *testing.T, m *proto.Membership, cc *raftpb.ConfChange) (*proto.Membership, []proto.BucketWrite) {
	t.Helper()
	ctx, err := validateConfChange(m, cc, 2)
	if err != nil {
		t.Fatal(err)
	}
	return applyConfChange(m, cc, ctx)
}

func TestApplyConfChange_LeavesTheOldMembershipAlone(t *testing.T) {
	for _, cc := range []*raftpb.ConfChange{
		confChangeOf(raftpb.ConfChangeAddNode, 4, `{"id":4,"peerURLs":["http://x:1"]}`),
		confChangeOf(raftpb.ConfChangeAddNode, 3, `{"id":3,"peerURLs":null,"isPromote":true}`),
		confChangeOf(raftpb.ConfChangeRemoveNode, 2, ``),
		confChangeOf(raftpb.ConfChangeUpdateNode, 2, `{"id":2,"peerURLs":["http://x:1"]}`),
	} {
		before := three()
		after, _ := applied(t, before, cc)
		if !reflect.DeepEqual(before, three()) {
			t.Fatalf("%v changed the membership in force", cc)
		}
		if reflect.DeepEqual(before, after) {
			t.Fatalf("%v changed nothing", cc)
		}
	}
}

func TestApplyConfChange_WritesEtcdsBuckets(t *testing.T) {
	next, writes := applied(t, three(), confChangeOf(raftpb.ConfChangeAddLearnerNode, 0x4108ee6c9dd6b712,
		`{"id":4686257562550974226,"peerURLs":["http://127.0.0.1:23999"],"isLearner":true}`))
	want := `{"id":4686257562550974226,"peerURLs":["http://127.0.0.1:23999"],"isLearner":true}`
	if len(writes) != 1 || string(writes[0].Key) != "4108ee6c9dd6b712" || string(writes[0].Value) != want {
		t.Fatalf("addition wrote %+v", writes)
	}
	if !next.Member(0x4108ee6c9dd6b712).IsLearner {
		t.Fatal("the learner is a voter")
	}
	next, writes = applied(t, next, confChangeOf(raftpb.ConfChangeRemoveNode, 2, ``))
	if len(writes) != 2 || !writes[0].Delete || string(writes[0].Key) != "2" || string(writes[1].Value) != "removed" {
		t.Fatalf("removal wrote %+v", writes)
	}
	if next.Member(2) != nil || !reflect.DeepEqual(next.Removed, []proto.MemberID{2, 9}) {
		t.Fatalf("removal left %+v", next)
	}
	// An update changes the peer URLs only: a learner stays one.
	next, _ = applied(t, next, confChangeOf(raftpb.ConfChangeUpdateNode, 3, `{"id":3,"peerURLs":["http://y:1"]}`))
	if m := next.Member(3); !m.IsLearner || m.Name != "m3" || m.PeerURLs[0] != "http://y:1" {
		t.Fatalf("update left %+v", m)
	}
	for i := 1; i < len(next.Members); i++ {
		if next.Members[i-1].ID >= next.Members[i].ID {
			t.Fatalf("members are not sorted: %+v", next.Members)
		}
	}
}

func TestConfStateJSON_IsEtcds(t *testing.T) {
	// As etcd 3.7.3 wrote it for a voter and a learner.
	want := `{"voters":[1,2],"learners":[3],"auto_leave":false}`
	if got := string(encodeConfState(ConfStateOf(three()))); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	cs, err := parseConfState([]byte(want))
	if err != nil || len(cs.Voters) != 2 || len(cs.Learners) != 1 || cs.GetAutoLeave() {
		t.Fatalf("read back as %v, %v", cs, err)
	}
}

func TestApplyAttributes(t *testing.T) {
	set := func(id uint64) *membershippb.ClusterMemberAttrSetRequest {
		return &membershippb.ClusterMemberAttrSetRequest{Member_ID: id,
			MemberAttributes: &membershippb.Attributes{Name: "n", ClientUrls: []string{"http://c:1"}}}
	}
	next, writes := applyAttributes(three(), set(2))
	if m := next.Member(2); m.Name != "n" || m.ClientURLs[0] != "http://c:1" || len(writes) != 1 {
		t.Fatalf("got %+v, %+v", m, writes)
	}
	if next, writes := applyAttributes(three(), set(9)); len(writes) != 0 || !reflect.DeepEqual(next, three()) {
		t.Fatal("the attributes of a removed member were not ignored")
	}
	mustPanic(t, "attributes of an unknown member", func() { applyAttributes(three(), set(77)) })
}

func TestApplyVersions(t *testing.T) {
	next, writes := applyClusterVersion(three(), &membershippb.ClusterVersionSetRequest{Ver: "3.7.0"}, "3.7.3", 5)
	if next.ClusterVersion != "3.7.0" || string(writes[0].Key) != "clusterVersion" || string(writes[0].Value) != "3.7.0" {
		t.Fatalf("got %+v, %+v", next, writes)
	}
	mustPanic(t, "a cluster version above this program's", func() {
		applyClusterVersion(three(), &membershippb.ClusterVersionSetRequest{Ver: "3.8.0"}, "3.7.3", 5)
	})
	if next.Lowered != (proto.Lowering{}) {
		t.Fatalf("a rise counts as a lowering: %+v", next.Lowered)
	}
	next, _ = applyClusterVersion(next, &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}, "3.7.3", 8)
	if next.Lowered != (proto.Lowering{At: 8, From: "3.7.0"}) {
		t.Fatalf("the lowering is %+v", next.Lowered)
	}
	next, writes = applyDowngrade(three(), &membershippb.DowngradeInfoSetRequest{Enabled: true, Ver: "3.6.0"})
	if next.DowngradeTarget != "3.6.0" || string(writes[0].Value) != `{"target-version":"3.6.0","enabled":true}` {
		t.Fatalf("got %+v, %+v", next, writes)
	}
	next, writes = applyDowngrade(next, &membershippb.DowngradeInfoSetRequest{Enabled: false, Ver: "3.6.0"})
	if next.DowngradeTarget != "" || string(writes[0].Value) != `{"target-version":"","enabled":false}` {
		t.Fatalf("got %+v, %+v", next, writes)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

// The ids are those that etcd 3.7.3 gave itself for this peer URL and the default token.
func TestNewIDs_AreEtcds(t *testing.T) {
	id := NewMemberID([]string{"http://127.0.0.1:23912"}, "etcd-cluster")
	if id.String() != "2659bf82b187392" {
		t.Fatalf("member id %v", id)
	}
	if c := NewClusterID([]proto.Member{{ID: id}}); c.String() != "481a8bcf63034e6f" {
		t.Fatalf("cluster id %v", c)
	}
	a, b := []string{"http://b:1", "http://a:1"}, []string{"http://a:1", "http://b:1"}
	if NewMemberID(a, "t") != NewMemberID(b, "t") || a[0] != "http://b:1" {
		t.Fatal("the id depends on the order of the URLs, or the order was changed")
	}
}

func TestV2Members_HasWhatOldReadersLookFor(t *testing.T) {
	m := three()
	m.ClusterVersion = "3.7.0"
	m.Members[0].ClientURLs = []string{"http://c:1"}
	var store struct {
		Root       *v2Node
		WatcherHub struct {
			EventHistory struct{ Queue struct{ Events []any } }
		}
		CurrentVersion int
	}
	if err := json.Unmarshal(encodeV2Members(m, 42), &store); err != nil {
		t.Fatal(err)
	}
	if store.CurrentVersion != 2 || len(store.WatcherHub.EventHistory.Queue.Events) != 1000 {
		t.Fatalf("version %d, %d slots", store.CurrentVersion, len(store.WatcherHub.EventHistory.Queue.Events))
	}
	cluster := store.Root.Children["0"]
	first := cluster.Children["members"].Children["1"]
	for _, c := range []struct{ got, want string }{
		{first.Path, "/0/members/1"},
		{first.Children["raftAttributes"].Value, `{"peerURLs":["http://10.0.0.1:2380"]}`},
		{first.Children["attributes"].Value, `{"name":"m1","clientURLs":["http://c:1"]}`},
		{cluster.Children["members"].Children["3"].Children["raftAttributes"].Value,
			`{"peerURLs":["http://10.0.0.3:2380"],"isLearner":true}`},
		{cluster.Children["removed_members"].Children["9"].Path, "/0/removed_members/9"},
		{cluster.Children["version"].Value, "3.7.0"},
		{store.Root.Children["1"].Path, "/1"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if cluster.Children["members"].Children["2"].Children["attributes"] != nil {
		t.Error("a member without client URLs has attributes")
	}
}
