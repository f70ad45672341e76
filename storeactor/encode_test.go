package storeactor

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"troupe/proto"
)

// TestKeyValue_IsTheOfficialEncoding: what is stored is hashed and compared between members, so it has to be the same
// bytes; and what the official type encodes is read back.
func TestKeyValue_IsTheOfficialEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		number := rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64())
		want := &mvccpb.KeyValue{
			Key: rapid.SliceOf(rapid.Byte()).Draw(rt, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(rt, "value"),
			CreateRevision: number.Draw(rt, "create"), ModRevision: number.Draw(rt, "mod"),
			Version: number.Draw(rt, "version"), Lease: number.Draw(rt, "lease"),
		}
		encoded, err := gproto.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		kv := keyValue{
			key: want.Key, value: want.Value, create: proto.Revision(want.CreateRevision),
			mod: proto.Revision(want.ModRevision), version: want.Version, lease: proto.LeaseID(want.Lease),
		}
		if got := kv.encode(); !bytes.Equal(got, encoded) || len(got) != kv.size() {
			rt.Fatalf("encoded %x, want %x", got, encoded)
		}
		back, ok := parseKeyValue(encoded)
		if !ok || !bytes.Equal(back.encode(), encoded) {
			rt.Fatalf("decoded %+v", back)
		}
	})
}

// FuzzParseKeyValue: no stored bytes make the decoder panic, and it accepts what the official one accepts.
func FuzzParseKeyValue(f *testing.F) {
	f.Add([]byte{10, 1, 'k', 16, 2, 24, 2, 32, 1, 42, 1, 'v'})
	f.Add([]byte{10, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		var want mvccpb.KeyValue
		if gproto.Unmarshal(b, &want) != nil {
			_, _ = parseKeyValue(b)
			return
		}
		kv, ok := parseKeyValue(b)
		if !ok || !bytes.Equal(kv.key, want.Key) || !bytes.Equal(kv.value, want.Value) ||
			int64(kv.mod) != want.ModRevision || int64(kv.create) != want.CreateRevision ||
			kv.version != want.Version || int64(kv.lease) != want.Lease {
			t.Fatalf("%x: %+v, want %v", b, kv, &want)
		}
	})
}

// TestAnswers_RoundTripThroughTheOfficialTypes reads the answers that no random test covers; decode compares the
// bytes.
func TestAnswers_RoundTripThroughTheOfficialTypes(t *testing.T) {
	r := newRig(t)
	grant := &pb.LeaseGrantResponse{}
	decode(t, r.must(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 60}}), grant)
	if grant.ID != 7 || grant.TTL != 60 {
		t.Error(grant)
	}
	status := &pb.AuthStatusResponse{}
	decode(t, r.must(&pb.InternalRaftRequest{AuthStatus: &pb.AuthStatusRequest{}}), status)
	if status.Enabled || status.AuthRevision != 1 {
		t.Error(status)
	}
	raise := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1 << 63, Alarm: pb.AlarmType_NOSPACE}
	alarms := &pb.AlarmResponse{}
	decode(t, r.must(&pb.InternalRaftRequest{Alarm: raise}), alarms)
	if len(alarms.Alarms) != 1 || alarms.Alarms[0].MemberID != 1<<63 || alarms.Alarms[0].Alarm != pb.AlarmType_NOSPACE {
		t.Error(alarms)
	}
	if key := r.m.alarms[0].encode(); true {
		want, _ := gproto.Marshal(alarms.Alarms[0])
		if !bytes.Equal(key, want) {
			t.Errorf("alarm record %x, want %x", key, want)
		}
	}
	record, _ := gproto.Marshal(&proto.LeaseRecord{})
	if got := encodeLease(proto.Lease{}); !bytes.Equal(got, record) {
		t.Errorf("lease record %x", got)
	}
}
