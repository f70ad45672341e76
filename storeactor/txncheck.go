package storeactor

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// CheckRange says what is wrong with the form of a range: ErrKeyEmpty or ErrSortOption. Like all checks in this file
// it is pure, looks at nothing but the request, and belongs before the proposal: apply does not repeat it.
func CheckRange(r *pb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return ErrKeyEmpty
	}
	if !knownEnum(pb.RangeRequest_SortOrder_name, r.SortOrder) ||
		!knownEnum(pb.RangeRequest_SortTarget_name, r.SortTarget) {
		return ErrSortOption
	}
	return nil
}

// CheckPut says what is wrong with the form of a put: ErrKeyEmpty, ErrValueProvided or ErrLeaseProvided.
func CheckPut(r *pb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return ErrKeyEmpty
	case r.IgnoreValue && len(r.Value) != 0:
		return ErrValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return ErrLeaseProvided
	}
	return nil
}

// CheckDeleteRange says what is wrong with the form of a deletion: ErrKeyEmpty.
func CheckDeleteRange(r *pb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return ErrKeyEmpty
	}
	return nil
}

// CheckTxn says what is wrong with the form of a txn. operationsMax bounds the longest of its three lists, and the
// lists of a nested txn by what that leaves. The order of the checks is etcd's: counts, keys and options first, then
// whether one execution might change one key twice. Errors: those of the other checks, ErrTooManyOps, ErrKeyNotFound
// for an empty operation, ErrUnknownEnum, ErrDuplicateKey.
func CheckTxn(r *pb.TxnRequest, operationsMax int) error {
	if err := checkTxnForm(r, operationsMax); err != nil {
		return err
	}
	if err := CheckChanges(r.Success); err != nil {
		return err
	}
	return CheckChanges(r.Failure)
}

// TxnReadOnly reports whether a txn consists of ranges alone at its top level. A nested txn counts as a write, as in
// etcd, and an empty txn as read-only.
func TxnReadOnly(r *pb.TxnRequest) bool {
	return allRanges(r.Success, false) && allRanges(r.Failure, false)
}

// TxnSerializable reports whether a txn consists of serializable ranges alone, so that it needs no quorum. True for
// an empty txn.
func TxnSerializable(r *pb.TxnRequest) bool {
	return allRanges(r.Success, true) && allRanges(r.Failure, true)
}

func allRanges(ops []*pb.RequestOp, serializable bool) bool {
	for _, op := range ops {
		if r := op.GetRequestRange(); r == nil || serializable && !r.Serializable {
			return false
		}
	}
	return true
}

func knownEnum[E ~int32](names map[int32]string, e E) bool {
	_, ok := names[int32(e)]
	return ok
}

func checkTxnForm(r *pb.TxnRequest, operationsMax int) error {
	n := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if n > operationsMax {
		return ErrTooManyOps
	}
	for _, c := range r.GetCompare() {
		if len(c.GetKey()) == 0 {
			return ErrKeyEmpty
		}
		if !knownEnum(pb.Compare_CompareResult_name, c.Result) || !knownEnum(pb.Compare_CompareTarget_name, c.Target) {
			return ErrUnknownEnum
		}
	}
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			if err := checkOpForm(op, operationsMax-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOpForm(op *pb.RequestOp, operationsMax int) error {
	switch v := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return CheckRange(v.RequestRange)
	case *pb.RequestOp_RequestPut:
		return CheckPut(v.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return CheckDeleteRange(v.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxnForm(v.RequestTxn, operationsMax)
	}
	return ErrKeyNotFound
}
