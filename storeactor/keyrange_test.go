package storeactor

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"
)

// inRange is the API's description of (key, range_end), for the fuzz target to compare with.
func inRange(key, end, k []byte) bool {
	if len(end) == 0 {
		return bytes.Equal(k, key)
	}
	return bytes.Compare(k, key) >= 0 && (bytes.Equal(end, []byte{0}) || bytes.Compare(k, end) < 0)
}

// probes are the keys at which a range of that key and end can change its mind.
func probes(keys ...[]byte) [][]byte {
	all := [][]byte{{}, {0}, {0, 0}, {255}, {255, 255, 255}}
	for _, k := range keys {
		all = append(all, k, append(bytes.Clone(k), 0), append(bytes.Clone(k), 255))
		if n := len(k); n > 0 {
			less := bytes.Clone(k)
			less[n-1]--
			more := bytes.Clone(k)
			more[n-1]++
			all = append(all, k[:n-1], less, more, append(less, 255))
		}
	}
	return all
}

// FuzzKeyRange compares the arithmetic of ranges with their description, key by key: containment, emptiness,
// intersection, and the interval that the check of a txn makes of a range.
func FuzzKeyRange(f *testing.F) {
	f.Add([]byte("a"), []byte("b"), []byte("a"), []byte{0})
	f.Add([]byte{0}, []byte{0}, []byte("a"), []byte{})
	f.Add([]byte("a"), []byte("a\x00"), []byte("a"), []byte{})
	f.Add([]byte("b"), []byte("a"), []byte("a"), []byte("c"))
	f.Add([]byte("a"), []byte{}, []byte("a\x00"), []byte("a\x00\x00"))
	f.Fuzz(func(t *testing.T, key, end, key2, end2 []byte) {
		r, s := NewKeyRange(key, end), NewKeyRange(key2, end2)
		both, some := false, false
		for _, k := range probes(key, end, key2, end2) {
			in, in2 := inRange(key, end, k), inRange(key2, end2, k)
			if r.Contains(k) != in {
				t.Fatalf("%q in [%q, %q): %v", k, key, end, !in)
			}
			if !r.Empty() && intervalOf(r).contains(string(k)) != in {
				t.Fatalf("%q in the interval of [%q, %q): %v", k, key, end, !in)
			}
			both, some = both || in && in2, some || in
		}
		if r.Empty() == some {
			t.Fatalf("[%q, %q) is empty: %v", key, end, r.Empty())
		}
		if r.Intersects(s) != both || s.Intersects(r) != both {
			t.Fatalf("[%q, %q) meets [%q, %q): %v", key, end, key2, end2, !both)
		}
		put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}
		del := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: key2, RangeEnd: end2},
		}}
		nested := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: []*pb.RequestOp{put}}}}
		for _, ops := range [][]*pb.RequestOp{{put, del}, {del, put}, {nested, del}, {del, nested}} {
			if err := CheckChanges(ops); (err != nil) != inRange(key2, end2, key) {
				t.Fatalf("put %q and delete [%q, %q): %v", key, key2, end2, err)
			}
		}
	})
}

// executions lists every way the branches of nested txns can go: for each the keys put and the ranges deleted.
func executions(ops []*pb.RequestOp) []execution {
	all := []execution{{}}
	for _, op := range ops {
		var ways []execution
		switch v := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			ways = []execution{{puts: []string{string(v.RequestPut.Key)}}}
		case *pb.RequestOp_RequestDeleteRange:
			ways = []execution{{deletes: []*pb.DeleteRangeRequest{v.RequestDeleteRange}}}
		case *pb.RequestOp_RequestTxn:
			ways = append(executions(v.RequestTxn.Success), executions(v.RequestTxn.Failure)...)
		default:
			continue
		}
		var next []execution
		for _, a := range all {
			for _, b := range ways {
				next = append(next, execution{
					slices.Concat(a.puts, b.puts), slices.Concat(a.deletes, b.deletes),
				})
			}
		}
		all = next
	}
	return all
}

type execution struct {
	puts    []string
	deletes []*pb.DeleteRangeRequest
}

func (x execution) changesTwice() bool {
	for i, k := range x.puts {
		if slices.Contains(x.puts[:i], k) {
			return true
		}
		for _, d := range x.deletes {
			if inRange(d.Key, d.RangeEnd, []byte(k)) {
				return true
			}
		}
	}
	return false
}

// TestCheckTxn_RefusesExactlyWhatCouldChangeAKeyTwice compares the check with the enumeration of all executions.
func TestCheckTxn_RefusesExactlyWhatCouldChangeAKeyTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := drawOps(rt, newNaive(), 2)
		want := slices.ContainsFunc(executions(ops), execution.changesTwice)
		err := CheckChanges(ops)
		if (err != nil) != want || err != nil && !errors.Is(err, ErrDuplicateKey) {
			rt.Fatalf("%v\ngot %v, want refused: %v", ops, err, want)
		}
		if _, bySets := changesOf(ops); (bySets != nil) != want {
			rt.Fatalf("%v\nthe sets say %v, want refused: %v", ops, bySets, want)
		}
	})
}
