package storeactor

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// A txn goes through three steps, and each looks at the state before the txn only, until the last one begins to
// change it: the compares choose the whole path, nested txns included; the operations on that path are checked; then
// they are executed, in one revision, and cannot fail any more. So a txn happens altogether or not at all, on every
// member alike.

// txnPath is which branch each txn on the way takes.
type txnPath struct {
	request   *pb.TxnRequest
	succeeded bool
	nested    []*txnPath // of the branch taken, one per operation that is a txn, in order
}

func (p *txnPath) ops() []*pb.RequestOp {
	if p.succeeded {
		return p.request.Success
	}
	return p.request.Failure
}

// txn executes a txn. Without a waiter its ranges are not executed, but they are checked.
func (m *machine) txn(r *pb.TxnRequest, waited bool) (*proto.Result, error) {
	reads := 0
	path, err := m.choosePath(r, &reads)
	actors.Must(err == nil, "read a value to compare: %v", err) // a failure of the file cannot be answered
	err = m.checkPath(path, m.leases.lease, &reads)
	m.out.tally.read(reads)
	if err != nil {
		return nil, err
	}
	w := m.begin()
	result := w.txn(path, waited)
	w.end()
	if !waited {
		return nil, nil
	}
	return newResult(m.revision, result, result.size()), nil
}

// choosePath evaluates the compares of the txn and of the nested txns on the way, and adds them to reads: each counts
// as a range.
func (r *reader) choosePath(t *pb.TxnRequest, reads *int) (*txnPath, error) {
	p := &txnPath{request: t, succeeded: true}
	for _, c := range t.Compare {
		*reads++
		ok, err := r.compare(c)
		if err != nil {
			return nil, err
		}
		if !ok {
			p.succeeded = false
			break
		}
	}
	for _, op := range p.ops() {
		if nested := op.GetRequestTxn(); nested != nil {
			n, err := r.choosePath(nested, reads)
			if err != nil {
				return nil, err
			}
			p.nested = append(p.nested, n)
		}
	}
	return p, nil
}

// compare evaluates one compare: every key of its range must satisfy it. Without a key a VALUE compare is false
// whatever it says, and any other compares with zeroes.
func (r *reader) compare(c *pb.Compare) (bool, error) {
	holds, any := true, false
	var failed error
	r.visit(NewKeyRange(c.Key, c.RangeEnd), func(e *keyEntry) bool {
		if !e.alive() {
			return true
		}
		any = true
		holds, failed = r.compareEntry(c, e)
		return holds && failed == nil
	})
	if failed != nil || any {
		return holds, failed
	}
	return c.Target != pb.Compare_VALUE && compareHolds(c, compareNumber(c, keyValue{})), nil
}

func (r *reader) compareEntry(c *pb.Compare, e *keyEntry) (bool, error) {
	f := e.live.found(len(e.live.versions)-1, true)
	if c.Target == pb.Compare_VALUE {
		b, err := r.value(e, f)
		if err != nil {
			return false, err
		}
		return compareHolds(c, bytes.Compare(mustParse(b, f.version).value, c.GetValue())), nil
	}
	kv := keyValue{create: f.created, mod: f.version.Main, version: f.number, lease: e.head.lease}
	return compareHolds(c, compareNumber(c, kv)), nil
}

// compareNumber compares the key's number with the request's, which is 0 when the union holds another target. An
// unknown target compares equal.
func compareNumber(c *pb.Compare, kv keyValue) int {
	switch c.Target {
	case pb.Compare_CREATE:
		return cmp.Compare(int64(kv.create), c.GetCreateRevision())
	case pb.Compare_MOD:
		return cmp.Compare(int64(kv.mod), c.GetModRevision())
	case pb.Compare_VERSION:
		return cmp.Compare(kv.version, c.GetVersion())
	case pb.Compare_LEASE:
		return cmp.Compare(int64(kv.lease), c.GetLease())
	}
	return 0
}

// compareHolds says whether the result of a comparison is the wanted one. An unknown wish is fulfilled.
func compareHolds(c *pb.Compare, result int) bool {
	switch c.Result {
	case pb.Compare_EQUAL:
		return result == 0
	case pb.Compare_NOT_EQUAL:
		return result != 0
	case pb.Compare_GREATER:
		return result > 0
	case pb.Compare_LESS:
		return result < 0
	}
	return true
}

// checkPath checks the operations on the path against the state before the txn, in their order. The revision of a
// range is compared with the compact revision as it is, so that a negative one is refused as soon as anything was
// compacted. What counts as a range is added to reads.
func (r *reader) checkPath(p *txnPath, lease func(proto.LeaseID) (proto.Lease, bool), reads *int) error {
	nested := p.nested
	for _, op := range p.ops() {
		switch v := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			if err := r.checkRangeRevision(proto.Revision(v.RequestRange.Revision)); err != nil {
				return err
			}
		case *pb.RequestOp_RequestPut:
			if err := r.checkTxnPut(v.RequestPut, lease, reads); err != nil {
				return err
			}
		case *pb.RequestOp_RequestTxn:
			if err := r.checkPath(nested[0], lease, reads); err != nil {
				return err
			}
			nested = nested[1:]
		}
	}
	return nil
}

func (r *reader) checkRangeRevision(rev proto.Revision) error {
	switch {
	case rev == 0:
		return nil
	case rev > r.revision:
		return ErrFutureRevision
	case rev < r.compacted:
		return ErrCompacted
	}
	return nil
}

func (r *reader) checkTxnPut(put *pb.PutRequest, lease func(proto.LeaseID) (proto.Lease, bool), reads *int) error {
	if put.Lease != 0 {
		if _, ok := lease(proto.LeaseID(put.Lease)); !ok {
			return ErrLeaseNotFound
		}
	}
	if readsPrevious(put) {
		*reads++
	}
	if put.IgnoreValue || put.IgnoreLease {
		if e := r.entry(put.Key); e == nil || !e.alive() {
			return ErrKeyNotFound
		}
	}
	return nil
}

// txn executes the operations of a path whose checks have passed.
func (w *writing) txn(p *txnPath, waited bool) *txnResult {
	ops := p.ops()
	result := &txnResult{succeeded: p.succeeded, ops: make([]opResult, len(ops))}
	nested := p.nested
	for i, op := range ops {
		switch v := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			if !waited {
				continue
			}
			w.m.out.tally.ranges++
			ranged, err := w.m.ranged(v.RequestRange, w.current())
			actors.Must(err == nil, "a checked range failed in a txn: %v", err)
			result.ops[i] = opResult{kind: opRange, revision: w.current(), ranged: ranged}
		case *pb.RequestOp_RequestPut:
			previous := w.putRequest(v.RequestPut, w.m.entry(v.RequestPut.Key))
			result.ops[i] = opResult{kind: opPut, revision: w.main}
			if previous != nil {
				result.ops[i].previous = [][]byte{previous}
			}
		case *pb.RequestOp_RequestDeleteRange:
			result.ops[i] = w.deleteRequest(v.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			result.ops[i] = opResult{kind: opTxn, txn: w.txn(nested[0], waited)}
			nested = nested[1:]
		}
	}
	return result
}

// readOnlyTxn executes a txn of ranges alone on a published state. What counts as a range is added to reads.
func (r *reader) readOnlyTxn(t *pb.TxnRequest, reads *int) (*proto.Result, error) {
	path, err := r.choosePath(t, reads)
	if err != nil {
		return nil, err
	}
	if err := r.checkPath(path, nil, reads); err != nil {
		return nil, err
	}
	ops := path.ops()
	result := &txnResult{succeeded: path.succeeded, ops: make([]opResult, len(ops))}
	for i, op := range ops {
		*reads++
		ranged, err := r.ranged(op.GetRequestRange(), r.revision)
		if err != nil {
			return nil, err
		}
		result.ops[i] = opResult{kind: opRange, revision: r.revision, ranged: ranged}
	}
	return newResult(r.revision, result, result.size()), nil
}
