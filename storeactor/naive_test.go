package storeactor

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// naive is what the store should be, in the plainest form: the list of all changes ever made, from which every answer
// is computed by the words of the API's description. It shares no code with the store.
type naive struct {
	log       []naiveChange
	revision  int64
	compacted int64
	leases    map[int64]int64
}

type naiveChange struct {
	main, sub int64
	kv        *mvccpb.KeyValue // of a deletion the key alone
	deleted   bool
}

func newNaive() *naive { return &naive{revision: 1, compacted: -1, leases: map[int64]int64{}} }

func naiveIn(key, end, k string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// at gives what exists at a revision, in key order. The log may hold changes of an unfinished revision.
func (n *naive) at(rev int64, key, end string) []*mvccpb.KeyValue {
	newest := map[string]naiveChange{}
	for _, c := range n.log {
		if c.main <= rev && naiveIn(key, end, string(c.kv.Key)) {
			newest[string(c.kv.Key)] = c
		}
	}
	var kvs []*mvccpb.KeyValue
	for _, c := range newest {
		if !c.deleted {
			kvs = append(kvs, gproto.Clone(c.kv).(*mvccpb.KeyValue))
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return kvs
}

func (n *naive) one(rev int64, key string) *mvccpb.KeyValue {
	if kvs := n.at(rev, key, ""); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// naiveTxn is one revision in the making.
type naiveTxn struct {
	*naive
	sub int64
}

func (n *naiveTxn) current() int64 {
	if n.sub > 0 {
		return n.revision + 1
	}
	return n.revision
}

func (n *naive) write(f func(t *naiveTxn)) {
	t := &naiveTxn{naive: n}
	f(t)
	n.revision = t.current()
}

func (n *naiveTxn) add(kv *mvccpb.KeyValue, deleted bool) {
	n.log = append(n.log, naiveChange{n.revision + 1, n.sub, kv, deleted})
	n.sub++
}

func (n *naive) checkPut(p *pb.PutRequest) error {
	if _, ok := n.leases[p.Lease]; p.Lease != 0 && !ok {
		return ErrLeaseNotFound
	}
	if (p.IgnoreLease || p.IgnoreValue) && n.one(n.revision, string(p.Key)) == nil {
		return ErrKeyNotFound
	}
	return nil
}

func (n *naiveTxn) put(p *pb.PutRequest) *pb.PutResponse {
	before := n.one(n.current(), string(p.Key))
	kv := &mvccpb.KeyValue{
		Key: p.Key, Value: p.Value, Lease: p.Lease,
		CreateRevision: n.revision + 1, ModRevision: n.revision + 1, Version: 1,
	}
	answer := &pb.PutResponse{}
	if before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
		if p.IgnoreValue {
			kv.Value = before.Value
		}
		if p.IgnoreLease {
			kv.Lease = before.Lease
		}
		if p.PrevKv {
			answer.PrevKv = before
		}
	}
	n.add(kv, false)
	answer.Header = &pb.ResponseHeader{Revision: n.revision + 1}
	return answer
}

func (n *naiveTxn) delete(d *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	answer := &pb.DeleteRangeResponse{}
	for _, kv := range n.at(n.current(), string(d.Key), string(d.RangeEnd)) {
		if d.PrevKv {
			answer.PrevKvs = append(answer.PrevKvs, kv)
		}
		n.add(&mvccpb.KeyValue{Key: kv.Key}, true)
		answer.Deleted++
	}
	answer.Header = &pb.ResponseHeader{Revision: n.current()}
	return answer
}

// ranged follows the description of a range step by step, sort after limit where that is the quirk.
func (n *naive) ranged(q *pb.RangeRequest, current int64) (*pb.RangeResponse, error) {
	rev := q.Revision
	if rev > current {
		return nil, ErrFutureRevision
	}
	if rev <= 0 {
		rev = current
	}
	if rev < n.compacted {
		return nil, ErrCompacted
	}
	kvs := n.at(rev, string(q.Key), string(q.RangeEnd))
	answer := &pb.RangeResponse{Count: int64(len(kvs)), Header: &pb.ResponseHeader{Revision: current}}
	if q.CountOnly {
		return answer, nil
	}
	filters := q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 || q.MaxCreateRevision != 0
	keyOrder := q.SortOrder == pb.RangeRequest_NONE ||
		q.SortOrder == pb.RangeRequest_ASCEND && q.SortTarget == pb.RangeRequest_KEY
	if keyOrder && !filters && q.Limit > 0 && int64(len(kvs)) > q.Limit+1 {
		kvs = kvs[:q.Limit+1]
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return q.MaxModRevision != 0 && kv.ModRevision > q.MaxModRevision ||
			q.MinModRevision != 0 && kv.ModRevision < q.MinModRevision ||
			q.MaxCreateRevision != 0 && kv.CreateRevision > q.MaxCreateRevision ||
			q.MinCreateRevision != 0 && kv.CreateRevision < q.MinCreateRevision
	})
	naiveSort(q, kvs)
	if q.Limit > 0 && int64(len(kvs)) > q.Limit {
		kvs, answer.More = kvs[:q.Limit], true
	}
	for _, kv := range kvs {
		if q.KeysOnly {
			kv.Value = nil
			if q.SortTarget != pb.RangeRequest_VALUE {
				kv.Lease = 0
			}
		}
		answer.Kvs = append(answer.Kvs, kv)
	}
	return answer, nil
}

func naiveSort(q *pb.RangeRequest, kvs []*mvccpb.KeyValue) {
	if q.SortTarget == pb.RangeRequest_KEY && q.SortOrder != pb.RangeRequest_DESCEND {
		return
	}
	by := func(a, b *mvccpb.KeyValue) int {
		switch q.SortTarget {
		case pb.RangeRequest_KEY:
			return bytes.Compare(a.Key, b.Key)
		case pb.RangeRequest_VERSION:
			return cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			return cmp.Compare(a.ModRevision, b.ModRevision)
		}
		return bytes.Compare(a.Value, b.Value)
	}
	var list sort.Interface = naiveList{kvs, by}
	if q.SortOrder == pb.RangeRequest_DESCEND {
		list = sort.Reverse(list)
	}
	sort.Sort(list)
}

type naiveList struct {
	kvs []*mvccpb.KeyValue
	by  func(a, b *mvccpb.KeyValue) int
}

func (l naiveList) Len() int           { return len(l.kvs) }
func (l naiveList) Swap(i, j int)      { l.kvs[i], l.kvs[j] = l.kvs[j], l.kvs[i] }
func (l naiveList) Less(i, j int) bool { return l.by(l.kvs[i], l.kvs[j]) < 0 }

// choose evaluates the compares of the whole path.
func (n *naive) choose(t *pb.TxnRequest, path map[*pb.TxnRequest]bool) {
	path[t] = true
	ops := t.Success
	for _, c := range t.Compare {
		if !n.compare(c) {
			path[t], ops = false, t.Failure
			break
		}
	}
	for _, op := range ops {
		if nested := op.GetRequestTxn(); nested != nil {
			n.choose(nested, path)
		}
	}
}

func (n *naive) compare(c *pb.Compare) bool {
	kvs := n.at(n.revision, string(c.Key), string(c.RangeEnd))
	if len(kvs) == 0 {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kvs = []*mvccpb.KeyValue{{}}
	}
	for _, kv := range kvs {
		var r int
		switch c.Target {
		case pb.Compare_VERSION:
			r = cmp.Compare(kv.Version, c.GetVersion())
		case pb.Compare_CREATE:
			r = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
		case pb.Compare_MOD:
			r = cmp.Compare(kv.ModRevision, c.GetModRevision())
		case pb.Compare_VALUE:
			r = bytes.Compare(kv.Value, c.GetValue())
		case pb.Compare_LEASE:
			r = cmp.Compare(kv.Lease, c.GetLease())
		}
		ok := map[pb.Compare_CompareResult]bool{
			pb.Compare_EQUAL: r == 0, pb.Compare_NOT_EQUAL: r != 0, pb.Compare_GREATER: r > 0, pb.Compare_LESS: r < 0,
		}[c.Result]
		if !ok {
			return false
		}
	}
	return true
}

func naiveOps(t *pb.TxnRequest, path map[*pb.TxnRequest]bool) []*pb.RequestOp {
	if path[t] {
		return t.Success
	}
	return t.Failure
}

func (n *naive) check(t *pb.TxnRequest, path map[*pb.TxnRequest]bool) error {
	for _, op := range naiveOps(t, path) {
		var err error
		if q := op.GetRequestRange(); q != nil && q.Revision != 0 {
			if q.Revision > n.revision {
				err = ErrFutureRevision
			} else if q.Revision < n.compacted {
				err = ErrCompacted
			}
		} else if p := op.GetRequestPut(); p != nil {
			err = n.checkPut(p)
		} else if nested := op.GetRequestTxn(); nested != nil {
			err = n.check(nested, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *naiveTxn) txn(t *pb.TxnRequest, path map[*pb.TxnRequest]bool) *pb.TxnResponse {
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: path[t]}
	for _, op := range naiveOps(t, path) {
		one := &pb.ResponseOp{}
		switch v := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			ranged, err := n.ranged(v.RequestRange, n.current())
			if err != nil {
				panic(fmt.Sprint("a checked range failed: ", err))
			}
			one.Response = &pb.ResponseOp_ResponseRange{ResponseRange: ranged}
		case *pb.RequestOp_RequestPut:
			one.Response = &pb.ResponseOp_ResponsePut{ResponsePut: n.put(v.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			one.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: n.delete(v.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			one.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: n.txn(v.RequestTxn, path)}
		}
		answer.Responses = append(answer.Responses, one)
	}
	return answer
}

// apply executes a request and gives the answer without header.
func (n *naive) apply(r *pb.InternalRaftRequest) (answer gproto.Message, err error) {
	switch {
	case r.Put != nil:
		if err = n.checkPut(r.Put); err == nil {
			n.write(func(t *naiveTxn) { a := t.put(r.Put); a.Header = nil; answer = a })
		}
	case r.DeleteRange != nil:
		n.write(func(t *naiveTxn) { a := t.delete(r.DeleteRange); a.Header = nil; answer = a })
	case r.Range != nil:
		var a *pb.RangeResponse
		if a, err = n.ranged(r.Range, n.revision); err == nil {
			a.Header, answer = nil, a
		}
	case r.Txn != nil:
		path := map[*pb.TxnRequest]bool{}
		n.choose(r.Txn, path)
		if err = n.check(r.Txn, path); err == nil {
			n.write(func(t *naiveTxn) { a := t.txn(r.Txn, path); a.Header = nil; answer = a })
		}
	case r.Compaction != nil:
		switch {
		case r.Compaction.Revision <= n.compacted:
			err = ErrCompacted
		case r.Compaction.Revision > n.revision:
			err = ErrFutureRevision
		default:
			n.compacted, answer = r.Compaction.Revision, &pb.CompactionResponse{}
		}
	case r.LeaseGrant != nil:
		if _, ok := n.leases[r.LeaseGrant.ID]; ok {
			err = ErrLeaseExists
			break
		}
		ttl := max(r.LeaseGrant.TTL, rigLeaseTTLMin)
		n.leases[r.LeaseGrant.ID] = ttl
		answer = &pb.LeaseGrantResponse{ID: r.LeaseGrant.ID, TTL: ttl}
	case r.LeaseRevoke != nil:
		answer, err = n.revoke(r.LeaseRevoke.ID)
	}
	return answer, err
}

func (n *naive) revoke(id int64) (gproto.Message, error) {
	if _, ok := n.leases[id]; !ok {
		return nil, ErrLeaseNotFound
	}
	n.write(func(t *naiveTxn) {
		for _, key := range n.attached(id) {
			t.delete(&pb.DeleteRangeRequest{Key: []byte(key)})
		}
	})
	delete(n.leases, id)
	return &pb.LeaseRevokeResponse{}, nil
}

// attached lists the keys of a lease in order.
func (n *naive) attached(id int64) []string {
	var keys []string
	for _, kv := range n.at(n.revision, "\x00", "\x00") {
		if kv.Lease == id {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// kept lists the versions that a file compacted at n.compacted must still have: all above it, and per key the newest
// at or below it unless that is an older tombstone; and of a key deleted and created again at it, the first tombstone
// there too.
func (n *naive) kept() []string {
	newest := map[string]int{}
	tombstone := map[string]int{}
	keep := map[int]bool{}
	for i, c := range n.log {
		key := string(c.kv.Key)
		if c.main > n.compacted {
			keep[i] = true
			continue
		}
		newest[key] = i
		if _, ok := tombstone[key]; c.deleted && c.main == n.compacted && !ok {
			tombstone[key] = i
		}
	}
	for _, i := range newest {
		keep[i] = !n.log[i].deleted
	}
	for _, i := range tombstone {
		keep[i] = true
	}
	var all []string
	for i, c := range n.log {
		if keep[i] {
			v := proto.Version{Main: proto.Revision(c.main), Sub: proto.SubRevision(c.sub)}
			all = append(all, versionText(v, c.deleted)+"="+string(c.kv.Key))
		}
	}
	return all
}

func versionText(v proto.Version, tombstone bool) string {
	if tombstone {
		return fmt.Sprintf("%d/%dt", v.Main, v.Sub)
	}
	return fmt.Sprintf("%d/%d", v.Main, v.Sub)
}
