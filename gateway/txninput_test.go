package gateway

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"troupe/storeactor"
)

// drawTxnWire draws a transaction, and its wire form with what Marshal never makes: operations that say several things.
func drawTxnWire(t *rapid.T, depth int) (wire []byte) {
	for range rapid.IntRange(0, 7).Draw(t, "fields") {
		field := protowire.Number(rapid.IntRange(1, 4).Draw(t, "list"))
		if field > txnFailureField {
			wire = protowire.AppendVarint(protowire.AppendTag(wire, 9, protowire.VarintType), 1)
			continue
		}
		var op []byte
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			part := protowire.Number(rapid.IntRange(1, opTxnField).Draw(t, "part"))
			var inner []byte
			switch {
			case part == opTxnField && depth > 0 && field != txnCompareField:
				inner = drawTxnWire(t, depth-1)
			case part != opTxnField && rapid.Bool().Draw(t, "keyed"):
				inner = []byte{1<<3 | 2, 1, 'k'}
			}
			if field == txnCompareField {
				op = append(op, 3<<3|2, 1, 'k')
				continue
			}
			op = protowire.AppendBytes(protowire.AppendTag(op, part, protowire.BytesType), inner)
		}
		wire = protowire.AppendBytes(protowire.AppendTag(wire, field, protowire.BytesType), op)
	}
	return wire
}

// countMessages counts the messages within a decoded transaction.
func countMessages(r *pb.TxnRequest) int64 {
	n := int64(len(r.Compare))
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			n++
			if op.Request != nil {
				n++
			}
			if inner := op.GetRequestTxn(); inner != nil {
				n += countMessages(inner)
			}
		}
	}
	return n
}

func TestTxnInput_CheckFindsInWhatIsDecodedWhatItFindsInTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(t, "most")
		wire := drawTxnWire(t, 3)
		if cut := rapid.IntRange(0, 20).Draw(t, "cut"); cut < len(wire) && rapid.Bool().Draw(t, "torn") {
			wire = wire[:len(wire)-cut]
		}
		whole, kept := new(pb.TxnRequest), new(pb.TxnRequest)
		w := &txnWalk{listMax: most}
		n := w.walk(wire)
		if err := protobuf.Unmarshal(wire, whole); err != nil {
			if n != len(wire) {
				t.Fatalf("bad bytes are cut to %d of %d: %v", n, len(wire), err)
			}
			return
		}
		if err := protobuf.Unmarshal(wire[:n], kept); err != nil {
			t.Fatal(err)
		}
		want, got := storeactor.CheckTxn(whole, most), storeactor.CheckTxn(kept, most)
		if !errors.Is(got, want) || (want == nil) != (got == nil) {
			t.Fatalf("%d of %d bytes: %v, the whole: %v", n, len(wire), got, want)
		}
		if n < len(wire) && !errors.Is(want, storeactor.ErrTooManyOps) {
			t.Fatalf("cut, and the whole is %v", want)
		}
		if longest := max(len(kept.Compare), len(kept.Success), len(kept.Failure)); longest > most+1 {
			t.Fatalf("a list of %d is decoded", longest)
		}
		if has := countMessages(kept); w.messages < has {
			t.Fatalf("%d messages are counted, of %d", w.messages, has)
		}
	})
}

// empties is a list of n empty messages.
func empties(field byte, n int) []byte { return bytes.Repeat([]byte{field<<3 | 2, 0}, n) }

// nested puts a transaction into the first operation of another.
func nested(txn []byte) []byte {
	op := protowire.AppendBytes([]byte{opTxnField<<3 | 2}, txn)
	return protowire.AppendBytes([]byte{2<<3 | 2}, op)
}

// A list of a million empty operations costs no more than the operations by which it is refused.
func TestTxnInput_AMillionOperationsAreRefusedForNothing(t *testing.T) {
	s := &Server{cfg: Config{TxnOpsMax: txnOpsDefault}}
	for field := byte(txnCompareField); field <= txnFailureField; field++ {
		wire := empties(field, 1<<20)
		txn := new(pb.TxnRequest)
		in := &input{into: txn, server: s}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := in.decode(wire)
		runtime.ReadMemStats(&after)
		if err != nil || in.refused || !errors.Is(storeactor.CheckTxn(txn, txnOpsDefault), storeactor.ErrTooManyOps) {
			t.Errorf("list %d: %v, refused: %v", field, err, in.refused)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("list %d: %d bytes are allocated", field, took)
		}
	}
}

// What is counted for a transaction is no less than what it takes, whatever it is made of.
func TestTxnInput_CountsWhatItIsDecodedTo(t *testing.T) {
	const n = 50_000
	key := []byte{1<<3 | 2, 1, 'k'}
	opOf := func(part byte, inner []byte) []byte {
		op := protowire.AppendBytes([]byte{part<<3 | 2}, inner)
		return protowire.AppendBytes([]byte{2<<3 | 2}, op)
	}
	for name, one := range map[string][]byte{"nothing": empties(2, 1), "range": opOf(1, key), "put": opOf(2, key),
		"delete": opOf(3, key), "txn": opOf(4, nil), "compare": {1<<3 | 2, 5, 3<<3 | 2, 1, 'k', 4 << 3, 1}} {
		wire := nested(bytes.Repeat(one, n))
		w := &txnWalk{listMax: txnOpsDefault}
		if kept := w.walk(wire); kept != len(wire) {
			t.Fatalf("%s: cut at %d", name, kept)
		}
		into := new(pb.TxnRequest)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		err := protobuf.Unmarshal(wire, into)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); err != nil || took > w.messages*txnMessageBytes+1<<20 {
			t.Errorf("%s: %v, %d bytes are taken, %d messages counted", name, err, took, w.messages)
		}
		runtime.KeepAlive(into)
	}
}

// Nested transactions in flight are bounded together: more are refused, small ones pass, and all is given back.
func TestTxnInput_LargeOnesAreBoundedTogether(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.txns.max = 2 * txnBytesFree })
	e.SetReady()
	large, small := new(pb.TxnRequest), new(pb.TxnRequest)
	if err := protobuf.Unmarshal(nested(bytes.Repeat(nested(nil), 120)), large); err != nil {
		t.Fatal(err)
	}
	for range 5 { // each within the bounds
		large.Success = append(large.Success, large.Success[0])
	}
	small.Success = []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}}}
	if err := storeactor.CheckTxn(large, txnOpsDefault); err != nil {
		t.Fatal(err)
	}
	kv := pb.NewKVClient(e.conn)
	e.gates.txns.open.Add(1)
	_, err := kv.Txn(within(t), large)
	wantStatus(t, err, codes.Unknown, tooManyRequests)
	if _, err := kv.Txn(within(t), small); err != nil {
		t.Errorf("a small one: %v", err)
	}
	e.gates.txns.open.Add(-1)
	if _, err := kv.Txn(within(t), large); err != nil { // larger than the bound, and alone
		t.Errorf("a large one alone: %v", err)
	}
	eventually(t, "the room is given back", func() bool { return e.gates.txns.open.Load() == 0 })
	wantPage(t, e, "/metrics", `troupe_gateway_rejected_total{kind="txn_bytes"} 1`)
	large.Success = make([]*pb.RequestOp, 100_000)
	for i := range large.Success {
		large.Success[i] = new(pb.RequestOp)
	}
	_, err = kv.Txn(within(t), large)
	wantStatus(t, err, codes.InvalidArgument, "etcdserver: too many operations in txn request")
}
