package differential

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// txnDepthMax is how deep transactions are nested.
const txnDepthMax = 3

func (d dice) txn(depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range d.below(3) {
		r.Compare = append(r.Compare, d.compare())
	}
	for range d.length() {
		r.Success = append(r.Success, d.op(depth))
	}
	for range d.length() / 2 {
		r.Failure = append(r.Failure, d.op(depth))
	}
	return r
}

// length draws how long a list of operations is; --max-txn-ops is 8.
func (d dice) length() int {
	if d.rare(5) {
		return 6 + d.below(4)
	}
	return d.below(4)
}

func (d dice) op(depth int) *pb.RequestOp {
	switch n := d.below(16); {
	case n < 6:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: d.put()}}
	case n < 9:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d.deleteRange()}}
	case n < 12 && depth+1 < txnDepthMax:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: d.txn(depth + 1)}}
	case n == 12 && d.rare(3):
		return pick(d, &pb.RequestOp{}, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{}},
			&pb.RequestOp{Request: &pb.RequestOp_RequestPut{}}, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{}},
			&pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{}})
	default:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: d.rangeRequest()}}
	}
}

func (d dice) compare() *pb.Compare {
	c := &pb.Compare{Key: d.key(), Result: pb.Compare_CompareResult(d.below(4))}
	if d.rare(2) {
		c.RangeEnd = d.rangeEnd(c.Key)
	}
	union := d.below(5)
	switch union {
	case 0:
		c.TargetUnion = &pb.Compare_Version{Version: int64(d.below(4))}
	case 1:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: d.revision()}
	case 2:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: d.revision()}
	case 3:
		c.TargetUnion = &pb.Compare_Value{Value: d.value()}
	default:
		c.TargetUnion = &pb.Compare_Lease{Lease: pick(d, 0, d.lease())}
	}
	c.Target = pb.Compare_CompareTarget(union)
	if d.rare(5) { // a union that does not fit
		c.Target = pb.Compare_CompareTarget(d.below(5))
	}
	if d.rare(6) {
		c.TargetUnion = nil
	}
	if d.rare(7) {
		c.Result = 99
	}
	if d.rare(7) {
		c.Target = 99
	}
	return c
}
