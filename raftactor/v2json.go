package raftactor

import (
	"encoding/json"
	"path"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// The membership in the form of etcd's v2 store, which is the data of a .snap file and of a snapshot message. etcd 3.7
// never reads it; 3.6 and earlier build their membership from it, and so do tools. Only what those read is filled with
// meaning: the directories, the members, the removed ids and the cluster version. The history and the counters are
// those of a store in which nothing has happened.

// v2HistorySlots is the number of slots in the store's history, all of which are written out.
const v2HistorySlots = 1000

// v2StoreVersion is the version of the store's form.
const v2StoreVersion = 2

// v2Node is a file or a directory. A file's Children are null, a directory's an object.
type v2Node struct {
	Path          string
	CreatedIndex  uint64
	ModifiedIndex uint64
	ExpireTime    time.Time
	Value         string
	Children      map[string]*v2Node
}

// v2Queue is the history's ring.
type v2Queue struct {
	Events   []*struct{}
	Size     int
	Front    int
	Back     int
	Capacity int
}

// v2History is the store's history of events.
type v2History struct {
	Queue      v2Queue
	StartIndex uint64
	LastIndex  uint64
}

// v2Hub holds the history.
type v2Hub struct{ EventHistory v2History }

// v2Stats are the store's counters.
type v2Stats struct {
	GetSuccess            uint64 `json:"getsSuccess"`
	GetFail               uint64 `json:"getsFail"`
	SetSuccess            uint64 `json:"setsSuccess"`
	SetFail               uint64 `json:"setsFail"`
	DeleteSuccess         uint64 `json:"deleteSuccess"`
	DeleteFail            uint64 `json:"deleteFail"`
	UpdateSuccess         uint64 `json:"updateSuccess"`
	UpdateFail            uint64 `json:"updateFail"`
	CreateSuccess         uint64 `json:"createSuccess"`
	CreateFail            uint64 `json:"createFail"`
	CompareAndSwapSuccess uint64 `json:"compareAndSwapSuccess"`
	CompareAndSwapFail    uint64 `json:"compareAndSwapFail"`
	CompareDeleteSuccess  uint64 `json:"compareAndDeleteSuccess"`
	CompareDeleteFail     uint64 `json:"compareAndDeleteFail"`
	ExpireCount           uint64 `json:"expireCount"`
	Watchers              uint64 `json:"watchers"`
}

// v2Store is the whole.
type v2Store struct {
	Root           *v2Node
	WatcherHub     v2Hub
	CurrentIndex   uint64
	Stats          v2Stats
	CurrentVersion int
}

// v2RaftAttributes is what a member's raftAttributes file holds.
type v2RaftAttributes struct {
	PeerURLs  []string `json:"peerURLs"`
	IsLearner bool     `json:"isLearner,omitempty"`
}

// v2Attributes is what a member's attributes file holds.
type v2Attributes struct {
	Name       string   `json:"name,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}

func v2Dir(at string, index uint64) *v2Node {
	return &v2Node{Path: at, CreatedIndex: index, ModifiedIndex: index, Children: map[string]*v2Node{}}
}

// file puts a file into a directory.
func (n *v2Node) file(name, value string, index uint64) {
	n.Children[name] = &v2Node{Path: path.Join(n.Path, name), CreatedIndex: index, ModifiedIndex: index, Value: value}
}

// dir makes a directory in a directory.
func (n *v2Node) dir(name string, index uint64) *v2Node {
	child := v2Dir(path.Join(n.Path, name), index)
	n.Children[name] = child
	return child
}

// encodeV2Members gives the membership in that form. index is put wherever the store counts its own changes.
func encodeV2Members(m *proto.Membership, index uint64) []byte {
	root := v2Dir("/", 0)
	root.dir("1", 0)
	cluster := root.dir("0", 0)
	members := cluster.dir("members", index)
	for i := range m.Members {
		member := &m.Members[i]
		dir := members.dir(member.ID.String(), index)
		dir.file("raftAttributes", v2Encode(v2RaftAttributes{member.PeerURLs, member.IsLearner}), index)
		if len(member.ClientURLs) > 0 {
			dir.file("attributes", v2Encode(v2Attributes{member.Name, member.ClientURLs}), index)
		}
	}
	if len(m.Removed) > 0 {
		removed := cluster.dir("removed_members", index)
		for _, id := range m.Removed {
			removed.file(id.String(), "", index)
		}
	}
	if m.ClusterVersion != "" {
		cluster.file("version", m.ClusterVersion, index)
	}
	return []byte(v2Encode(&v2Store{
		Root: root,
		WatcherHub: v2Hub{v2History{
			Queue:      v2Queue{Events: make([]*struct{}, v2HistorySlots), Capacity: v2HistorySlots},
			StartIndex: index,
			LastIndex:  index,
		}},
		CurrentIndex:   index,
		CurrentVersion: v2StoreVersion,
	}))
}

func v2Encode(v any) string {
	data, err := json.Marshal(v)
	actors.Must(err == nil, "the v2 form of the membership cannot be encoded: %v", err)
	return string(data)
}
