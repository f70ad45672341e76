package storeactor

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// Projected is the size that the file will have when so many bytes that are not in it yet are, and the size that the
// quota is compared with: what is not written goes into free pages first, and only what does not fit makes the file
// grow. It never falls below Total: only a defragmentation makes the file smaller.
func (s FileSizes) Projected(unwritten int64) int64 { return max(s.Total, s.InUse+unwritten) }

// QuotaCost estimates how many bytes a request adds to the file: PutCost, TxnCost, LeaseCost, otherwise 0. The estimate
// is etcd's. A NOSPACE alarm refuses exactly the requests of positive cost.
func QuotaCost(r *pb.InternalRaftRequest) int {
	switch {
	case r.Put != nil:
		return PutCost(r.Put)
	case r.Txn != nil:
		return TxnCost(r.Txn)
	case r.LeaseGrant != nil:
		return LeaseCost
	}
	return 0
}

// PutCost is 256 bytes and those of key and value.
func PutCost(r *pb.PutRequest) int { return quotaPutOverhead + len(r.Key) + len(r.Value) }

// TxnCost is the cost of the puts in the dearer branch, nested ones too; 0 if nothing in it puts. The request need not
// have been checked.
func TxnCost(r *pb.TxnRequest) int { return max(costOps(r.GetSuccess()), costOps(r.GetFailure())) }

func costOps(ops []*pb.RequestOp) int {
	n := 0
	for _, op := range ops {
		if put := op.GetRequestPut(); put != nil {
			n += PutCost(put)
		} else if txn := op.GetRequestTxn(); txn != nil {
			n += TxnCost(txn)
		}
	}
	return n
}

// overQuota says whether the request does not fit the file. Like etcd's it is asked before the request is executed,
// and does not keep it from being executed: other members may have room. It is asked on every member, because each
// raises an alarm of its own, whoever waits for the answer.
func (m *machine) overQuota(r *pb.InternalRaftRequest) bool {
	cost := QuotaCost(r)
	return cost > 0 && m.sizes.Projected(m.credit.payload+int64(m.out.payload))+int64(cost) >= m.quota
}
