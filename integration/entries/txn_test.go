package entries

import (
	"bytes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// txnDepthMax is how deep transactions are nested.
const txnDepthMax = 3

func (g *generator) txn(depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range g.random.IntN(3) {
		r.Compare = append(r.Compare, g.compare())
	}
	for range g.random.IntN(4) {
		r.Success = append(r.Success, g.op(depth))
	}
	for range g.random.IntN(3) {
		r.Failure = append(r.Failure, g.op(depth))
	}
	if depth == 0 {
		keepApart(r)
	}
	return r
}

func (g *generator) op(depth int) *pb.RequestOp {
	n := g.random.IntN(12)
	switch {
	case n < 5:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: g.put()}}
	case n < 7:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: g.deleteRange()}}
	case n < 9 && depth+1 < txnDepthMax:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.txn(depth + 1)}}
	case n == 9 && g.chance(30):
		return &pb.RequestOp{}
	default:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: g.rangeRequest()}}
	}
}

func (g *generator) compare() *pb.Compare {
	c := &pb.Compare{Key: g.key(), Result: pb.Compare_CompareResult(g.random.IntN(4))}
	if g.chance(3) {
		c.RangeEnd = g.rangeEnd(c.Key)
	}
	switch g.random.IntN(5) {
	case 0:
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: g.random.Int64N(4)}
	case 1:
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: g.pastRevision()}
	case 2:
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: g.pastRevision()}
	case 3:
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: g.value()}
	default:
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: g.lease()}
		if g.chance(2) {
			c.TargetUnion = &pb.Compare_Lease{Lease: 0}
		}
	}
	return c
}

// keepApart removes the deletions of a transaction that cover one of its puts in a way that etcd 3.7.3 does not notice
// (a range that ends with "\0", or the two in different nested transactions). There etcd writes both, and a compaction
// at that revision makes it lose the key and stop; troupe refuses or keeps. Package fieldreports holds those cases.
func keepApart(root *pb.TxnRequest) {
	var puts [][]byte
	visit(root, func(op *pb.RequestOp) {
		if put := op.GetRequestPut(); put != nil {
			puts = append(puts, put.Key)
		}
	})
	visit(root, func(op *pb.RequestOp) {
		deletion := op.GetRequestDeleteRange()
		if deletion == nil {
			return
		}
		for _, key := range puts {
			if covers(deletion, key) {
				op.Request = &pb.RequestOp_RequestRange{
					RequestRange: &pb.RangeRequest{Key: deletion.Key, RangeEnd: deletion.RangeEnd},
				}
				return
			}
		}
	})
}

// visit calls f for every operation of a transaction, nested ones and both branches included.
func visit(r *pb.TxnRequest, f func(*pb.RequestOp)) {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			f(op)
			if nested := op.GetRequestTxn(); nested != nil {
				visit(nested, f)
			}
		}
	}
}

func covers(d *pb.DeleteRangeRequest, key []byte) bool {
	switch {
	case len(d.RangeEnd) == 0:
		return bytes.Equal(d.Key, key)
	case bytes.Equal(d.RangeEnd, []byte{0}):
		return bytes.Compare(key, d.Key) >= 0
	default:
		return bytes.Compare(key, d.Key) >= 0 && bytes.Compare(key, d.RangeEnd) < 0
	}
}
