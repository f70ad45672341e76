package gateway

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// movingStore is a store in which a batch is applied whenever keys of a lease are read.
type movingStore struct{ *fakeRoom }

func (s movingStore) LeaseKeys(id proto.LeaseID) [][]byte {
	s.mu.Lock()
	s.state.Revision++
	s.mu.Unlock()
	return s.fakeRoom.LeaseKeys(id)
}

// A client that lists the keys of a lease and goes on from the header's revision misses nothing.
func TestTimeToLive_TheHeaderIsNotLaterThanTheKeys(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.Store = movingStore{c.Store.(*fakeRoom)} })
	client := newClient(t, e)
	granted, err := client.Grant(within(t), 30)
	if err != nil {
		t.Fatal(err)
	}
	left, err := client.TimeToLive(within(t), granted.ID, clientv3.WithAttachedKeys())
	if err != nil {
		t.Fatal(err)
	}
	if left.Revision != granted.Revision || len(left.Keys) != 2 {
		t.Errorf("%d keys at revision %d, before them it was %d", len(left.Keys), left.Revision, granted.Revision)
	}
}

// TestTimeToLive_IsTheOfficialEncoding decodes what is encoded by hand, with every kind of number and many keys.
func TestTimeToLive_IsTheOfficialEncoding(t *testing.T) {
	many := make([][]byte, 1000)
	for i := range many {
		many[i] = fmt.Appendf(nil, "key/%0*d", i%200, i)
	}
	for _, want := range []*pb.LeaseTimeToLiveResponse{
		{ID: 7, TTL: 3, GrantedTTL: 10},
		{ID: -7, TTL: -2, GrantedTTL: 9_000_000_000},
		{ID: 1 << 62, TTL: 0, GrantedTTL: 2, Keys: [][]byte{[]byte("a"), {0xff, 0}}},
		{ID: 1, TTL: 1, GrantedTTL: 1, Keys: many},
	} {
		encoded := timeToLive(want.ID, want.TTL, want.GrantedTTL, want.Keys)
		got := new(pb.LeaseTimeToLiveResponse)
		if err := protobuf.Unmarshal(encoded, got); err != nil || !protobuf.Equal(got, want) {
			t.Errorf("decoded as %v, %v; want %v", got, err, want)
		}
	}
}
