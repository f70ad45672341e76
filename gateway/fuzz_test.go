package gateway

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/storeactor"
)

// FuzzRequest decodes arbitrary bytes as every request that may become an entry of the log. Whatever passes decoding
// and checks must be encodable as an entry and decode again to the same: an entry that a member cannot decode stops it
// at every start.
func FuzzRequest(f *testing.F) {
	for _, m := range []protobuf.Message{
		&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 3},
		&pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}},
		&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k"), Target: 99, Result: 99}},
			Success: []*pb.RequestOp{opPut("k"), {}, opTxn(&pb.TxnRequest{Failure: []*pb.RequestOp{opPut("k")}})}},
		&pb.AlarmRequest{Action: 99, Alarm: 99},
		&pb.RangeRequest{Key: []byte("k"), SortOrder: 99, SortTarget: -1},
	} {
		b, err := protobuf.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xff, 0xff, 0xff})
	c := newTestCodec()
	f.Fuzz(func(t *testing.T, data []byte) {
		decode := func(m protobuf.Message) bool {
			return c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, m) == nil
		}
		put, del, txn, read := new(pb.PutRequest), new(pb.DeleteRangeRequest), new(pb.TxnRequest), new(pb.RangeRequest)
		if decode(read) {
			_ = storeactor.CheckRange(read)
		}
		if decode(put) && storeactor.CheckPut(put) == nil {
			requireEntry(t, &pb.InternalRaftRequest{Put: put})
		}
		if decode(del) && storeactor.CheckDeleteRange(del) == nil {
			requireEntry(t, &pb.InternalRaftRequest{DeleteRange: del})
		}
		if decode(txn) {
			_ = storeactor.TxnReadOnly(txn) && storeactor.TxnSerializable(txn)
			if cost := storeactor.TxnCost(txn); cost < 0 {
				t.Fatalf("cost %d", cost)
			}
			if storeactor.CheckTxn(txn, txnOpsDefault) == nil {
				requireEntry(t, &pb.InternalRaftRequest{Txn: txn})
			}
		}
	})
}

func requireEntry(t *testing.T, r *pb.InternalRaftRequest) {
	t.Helper()
	b, err := protobuf.Marshal(r)
	if err != nil {
		t.Fatalf("accepted and not encodable: %v", err)
	}
	again := new(pb.InternalRaftRequest)
	if err := protobuf.Unmarshal(b, again); err != nil {
		t.Fatalf("accepted and not decodable: %v", err)
	}
	if !protobuf.Equal(r, again) {
		t.Fatal("the entry is another request")
	}
}
