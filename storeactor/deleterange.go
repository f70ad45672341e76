package storeactor

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// deleteRange executes a deletion that stands alone. It cannot fail; without a match the revision stays.
func (m *machine) deleteRange(r *pb.DeleteRangeRequest) (*proto.Result, error) {
	w := m.begin()
	op := w.deleteRequest(r)
	w.end()
	return newResult(m.revision, &op, op.size()), nil
}

// deleteRequest deletes all living keys of a range, in order.
func (w *writing) deleteRequest(r *pb.DeleteRangeRequest) opResult {
	op := opResult{kind: opDelete}
	var doomed []*keyEntry
	w.m.visit(NewKeyRange(r.Key, r.RangeEnd), func(e *keyEntry) bool {
		if e.alive() {
			doomed = append(doomed, e)
		}
		return true
	})
	if r.PrevKv {
		w.m.out.tally.ranges++
		op.previous = make([][]byte, len(doomed))
		for i, e := range doomed {
			op.previous[i] = w.m.mustHead(e)
		}
	}
	w.deleteAll(doomed, 0)
	op.deleted = int64(len(doomed))
	op.revision = w.current()
	w.m.out.tally.deletes++
	return op
}
