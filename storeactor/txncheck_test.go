package storeactor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func opOfPut(key string) *pb.RequestOp {
	put := &pb.PutRequest{Key: []byte(key), Value: []byte("v")}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
}

func opOfDelete(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}}
}

func opOfRange(key string, rev int64) *pb.RequestOp {
	ranged := &pb.RangeRequest{Key: []byte(key), Revision: rev}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: ranged}}
}

func opOfTxn(success, failure []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: success, Failure: failure}}}
}

// TestCheckTxn_OverlapInEverySpelling: a deletion that covers a put of the same txn is refused in all six spellings
// of the range, in both orders, at every place of either (etcd accepts four of them and then loses the key, T22 and
// T23).
func TestCheckTxn_OverlapInEverySpelling(t *testing.T) {
	spellings := map[string][2]string{
		"prefix":           {"cfg/", "cfg0"},
		"point":            {"cfg/a", ""},
		"range":            {"cfg/a", "cfg/b"},
		"from key":         {"cfg/a", "\x00"},
		"from zero":        {"\x00", "\x00"},
		"zero to from key": {"a", "\x00"},
	}
	for name, r := range spellings {
		del, put := opOfDelete(r[0], r[1]), opOfPut("cfg/a")
		nested := func(op *pb.RequestOp) *pb.RequestOp { return opOfTxn(nil, []*pb.RequestOp{op}) }
		places := map[string][]*pb.RequestOp{
			"side by side":     {del, put},
			"put first":        {put, del},
			"put nested":       {del, nested(put)},
			"delete nested":    {nested(del), put},
			"siblings":         {nested(put), nested(del)},
			"siblings, turned": {nested(del), nested(put)},
			"deeper":           {nested(nested(put)), opOfPut("x"), del},
		}
		for place, ops := range places {
			t.Run(name+", "+place, func(t *testing.T) {
				for _, x := range []*pb.TxnRequest{{Success: ops}, {Failure: ops}} {
					if err := CheckTxn(x, 128); !errors.Is(err, ErrDuplicateKey) {
						t.Fatalf("got %v", err)
					}
				}
			})
		}
	}
}

func TestCheckTxn_LegalPairs(t *testing.T) {
	both := opOfTxn([]*pb.RequestOp{opOfPut("a")}, []*pb.RequestOp{opOfPut("a"), opOfDelete("b", "")})
	legal := map[string][]*pb.RequestOp{
		"the same key in both branches": {both},
		"two deletions of one key":      {opOfDelete("a", ""), opOfDelete("a", "c"), opOfDelete("\x00", "\x00")},
		"a range and a put":             {opOfRange("a", 0), opOfPut("a")},
		"a deletion up to the put":      {opOfDelete("a", "b"), opOfPut("b")},
		"an empty range over the put":   {opOfDelete("c", "a"), opOfPut("b")},
		"the successor of a point":      {opOfDelete("a", ""), opOfPut("a\x00")},
	}
	for name, ops := range legal {
		if err := CheckTxn(&pb.TxnRequest{Success: ops}, 128); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	branches := &pb.TxnRequest{Success: []*pb.RequestOp{opOfPut("a")}, Failure: []*pb.RequestOp{opOfPut("a")}}
	if err := CheckTxn(branches, 128); err != nil {
		t.Errorf("then and else: %v", err)
	}
}

func TestCheckTxn_Form(t *testing.T) {
	many := func(n int) (ops []*pb.RequestOp) {
		for i := range n {
			ops = append(ops, opOfPut(fmt.Sprint(i)))
		}
		return ops
	}
	key := []byte("k")
	cases := []struct {
		name string
		txn  *pb.TxnRequest
		want error
	}{
		{"empty", &pb.TxnRequest{}, nil},
		{"as many as allowed", &pb.TxnRequest{Success: many(128), Failure: many(128)}, nil},
		{"one too many", &pb.TxnRequest{Failure: many(129)}, ErrTooManyOps},
		{"too many compares", &pb.TxnRequest{Compare: make([]*pb.Compare, 129)}, ErrTooManyOps},
		{"the nested txn has what is left", &pb.TxnRequest{Success: []*pb.RequestOp{opOfTxn(many(127), nil)}}, nil},
		{"the nested txn has more", &pb.TxnRequest{Success: []*pb.RequestOp{opOfTxn(many(128), nil)}}, ErrTooManyOps},
		{"compare without key", &pb.TxnRequest{Compare: []*pb.Compare{{}}}, ErrKeyEmpty},
		{"nil compare", &pb.TxnRequest{Compare: []*pb.Compare{nil}}, ErrKeyEmpty},
		{"unknown result", &pb.TxnRequest{Compare: []*pb.Compare{{Key: key, Result: 99}}}, ErrUnknownEnum},
		{"unknown target", &pb.TxnRequest{Compare: []*pb.Compare{{Key: key, Target: 99}}}, ErrUnknownEnum},
		{"empty operation", &pb.TxnRequest{Success: []*pb.RequestOp{{}}}, ErrKeyNotFound},
		{"nil operation", &pb.TxnRequest{Failure: []*pb.RequestOp{nil}}, ErrKeyNotFound},
		{"nil range", &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{}}}}, ErrKeyEmpty},
		{"nil put", &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{}}}}, ErrKeyEmpty},
		{"nil delete", &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{}}}}, ErrKeyEmpty},
		{"nil txn", &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{}}}}, nil},
		{"form before overlap", &pb.TxnRequest{Success: []*pb.RequestOp{
			opOfPut("a"), opOfPut("a"), opOfPut(""),
		}}, ErrKeyEmpty},
	}
	for _, c := range cases {
		if err := CheckTxn(c.txn, 128); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	for _, q := range []*pb.RangeRequest{
		{Key: key, SortOrder: 99}, {Key: key, SortTarget: 99}, {Key: key, SortTarget: -1},
	} {
		if err := CheckRange(q); !errors.Is(err, ErrSortOption) {
			t.Errorf("%v: %v", q, err)
		}
	}
	if err := CheckPut(&pb.PutRequest{Key: key, Value: key, IgnoreValue: true}); !errors.Is(err, ErrValueProvided) {
		t.Error(err)
	}
	if err := CheckPut(&pb.PutRequest{Key: key, Lease: 1, IgnoreLease: true}); !errors.Is(err, ErrLeaseProvided) {
		t.Error(err)
	}
}

// TestCheckTxn_CostOfManyNestedRanges: the check of the worst nesting a request can hold stays far below a second.
func TestCheckTxn_CostOfManyNestedRanges(t *testing.T) {
	n := 0
	var build func(width, depth int) []*pb.RequestOp
	build = func(width, depth int) (ops []*pb.RequestOp) {
		for range width {
			n++
			ops = append(ops, opOfDelete(fmt.Sprintf("%07d", 2*n), ""))
			if depth > 0 {
				ops = append(ops, opOfTxn(build(width, depth-1), nil))
			}
		}
		return ops
	}
	x := &pb.TxnRequest{Success: build(12, 3)}
	start := time.Now()
	if err := CheckTxn(x, 128); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Fatalf("%d operations took %v", n, took)
	}
}
