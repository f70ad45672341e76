package raftactor

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"
)

func TestRequestIDOf_AgreesWithTheDecoder(t *testing.T) {
	for _, r := range []*etcdserverpb.InternalRaftRequest{
		{},
		{ID: 5, Put: &etcdserverpb.PutRequest{Key: []byte("k")}},
		{Header: &etcdserverpb.RequestHeader{ID: 1 << 63, Username: "root", AuthRevision: 3},
			Txn: &etcdserverpb.TxnRequest{}},
		{ID: 5, Header: &etcdserverpb.RequestHeader{ID: 6}, AuthEnable: &etcdserverpb.AuthEnableRequest{}},
		{Header: &etcdserverpb.RequestHeader{Username: "x"}},
	} {
		data, err := pb.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		want := r.GetID()
		if want == 0 {
			want = r.GetHeader().GetID()
		}
		if got := requestIDOf(data); got != want {
			t.Errorf("%v: got %x, want %x", r, got, want)
		}
	}
}

// FuzzRequestIDOf: whatever the decoder accepts, the scan reads the same id from; whatever it refuses, the scan
// survives.
func FuzzRequestIDOf(f *testing.F) {
	f.Add(encodedPut(7, "key", 10))
	f.Add([]byte{0x08, 0x80})
	f.Add([]byte{0xa2, 0x06, 0x02, 0x08, 0x05, 0x08, 0x09})
	f.Fuzz(func(t *testing.T, data []byte) {
		got := requestIDOf(data)
		var r etcdserverpb.InternalRaftRequest
		if pb.Unmarshal(data, &r) != nil {
			return
		}
		// Fields that occur twice are merged by the decoder and never written by a member.
		again, err := pb.Marshal(&r)
		if err != nil || len(again) != len(data) {
			return
		}
		want := r.GetID()
		if want == 0 {
			want = r.GetHeader().GetID()
		}
		if got != want {
			t.Fatalf("%x: got %x, want %x", data, got, want)
		}
	})
}

func op(r any) *etcdserverpb.RequestOp {
	switch r := r.(type) {
	case *etcdserverpb.RangeRequest:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: r}}
	case *etcdserverpb.TxnRequest:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: r}}
	case *etcdserverpb.PutRequest:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: r}}
	}
	return &etcdserverpb.RequestOp{}
}

func TestValidateRequest_KeepsTheLogDecodable(t *testing.T) {
	txn := func(t *etcdserverpb.TxnRequest) *etcdserverpb.InternalRaftRequest {
		return &etcdserverpb.InternalRaftRequest{Txn: t}
	}
	nested := func(inner *etcdserverpb.TxnRequest) *etcdserverpb.InternalRaftRequest {
		return txn(&etcdserverpb.TxnRequest{Failure: []*etcdserverpb.RequestOp{op(&etcdserverpb.TxnRequest{
			Success: []*etcdserverpb.RequestOp{op(&etcdserverpb.PutRequest{}), op(inner)}})}})
	}
	for _, c := range []struct {
		name string
		r    *etcdserverpb.InternalRaftRequest
		good bool
	}{
		{"put", &etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{}}, true},
		{"auth enable", &etcdserverpb.InternalRaftRequest{AuthEnable: &etcdserverpb.AuthEnableRequest{}}, true},
		{"nothing", &etcdserverpb.InternalRaftRequest{}, false},
		{"range order", &etcdserverpb.InternalRaftRequest{Range: &etcdserverpb.RangeRequest{SortOrder: 3}}, false},
		{"range target", &etcdserverpb.InternalRaftRequest{Range: &etcdserverpb.RangeRequest{SortTarget: -1}}, false},
		{"empty txn", txn(&etcdserverpb.TxnRequest{}), true},
		{"empty operation", txn(&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{op(nil)}}), false},
		{"nested", nested(&etcdserverpb.TxnRequest{}), true},
		{"nested empty operation", nested(&etcdserverpb.TxnRequest{Failure: []*etcdserverpb.RequestOp{op(nil)}}), false},
		{"nested range", nested(&etcdserverpb.TxnRequest{Failure: []*etcdserverpb.RequestOp{
			op(&etcdserverpb.RangeRequest{SortOrder: 9})}}), false},
		{"compare result", txn(&etcdserverpb.TxnRequest{Compare: []*etcdserverpb.Compare{{Result: 4}}}), false},
		{"compare target", txn(&etcdserverpb.TxnRequest{Compare: []*etcdserverpb.Compare{{Target: 5}}}), false},
		{"compare without a value", txn(&etcdserverpb.TxnRequest{Compare: []*etcdserverpb.Compare{{}}}), true},
		{"alarm", &etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Alarm: 1, Action: 1}}, true},
		{"alarm action", &etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Action: 3}}, false},
		{"alarm type", &etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Alarm: 7}}, false},
		{"permission", &etcdserverpb.InternalRaftRequest{AuthRoleGrantPermission: &etcdserverpb.
			AuthRoleGrantPermissionRequest{Perm: &authpb.Permission{PermType: 3}}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := ValidateRequest(c.r)
			if (err == nil) != c.good {
				t.Fatalf("got %v, want good=%v", err, c.good)
			}
			if err != nil && !errors.Is(err, ErrInvalidRequest) {
				t.Fatalf("%v does not say that the request is invalid", err)
			}
		})
	}
}

func TestRequestIDs_LayoutAndOrder(t *testing.T) {
	start := time.UnixMilli(0x0123456789)
	g := newRequestIDs(0xffff0000abcd1234, start, nil)
	if first := g.next(); first != 0x1234_0123456789_01 {
		t.Fatalf("first id %x", first)
	}
	for range 254 {
		g.next()
	}
	if carried := g.next(); carried != 0x1234_012345678a_00 {
		t.Fatalf("the counter did not carry: %x", carried)
	}
	// A life that began 1 ms later begins above the ids of the earlier one, and another member's never meet them.
	if later := newRequestIDs(0xffff0000abcd1234, start.Add(2*time.Millisecond), nil).next(); later <= g.next() {
		t.Fatalf("%x was given before", later)
	}
	// Nor with a clock that was set back, for what is still to be applied.
	old := []*raftpb.Entry{
		{Data: encodedPut(0x1234_0223456789_05, "k", 0)},
		{Data: encodedPut(0x9999_0923456789_05, "k", 0)}, // another member's
	}
	if back := newRequestIDs(0xffff0000abcd1234, start, old).next(); back != 0x1234_0223456789_06 {
		t.Fatalf("%x with the clock set back", back)
	}
	if other := newRequestIDs(0x5678, start, nil).next(); other>>48 == g.next()>>48 {
		t.Fatal("two members share a prefix")
	}
}
