package sim

import (
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/storeactor"
)

// leaseTTLMin is the shortest time to live under the configuration of the runs, in seconds.
const leaseTTLMin = 2

// change is one event that ever happened.
type change struct {
	main, sub int64
	key       string
	deleted   bool
	// shown is the encoded KeyValue as a watcher gets it.
	shown []byte
	kv    *mvccpb.KeyValue
}

// model is what the store should be, in plain form: the list of all changes, and what exists now. It knows the requests
// that the clients of a run make, and shares no code with the store.
type model struct {
	changes             []change
	live                map[string]int // position of the newest change of each key that exists
	revision, compacted int64
	leases              map[int64]int64 // TTL in seconds
}

func newModel() *model {
	return &model{live: map[string]int{}, revision: 1, compacted: -1, leases: map[int64]int64{}}
}

// within reports whether a key is in the range of (key, rangeEnd).
func within(key, end, k string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// keys lists what exists in a range, sorted.
func (m *model) keys(key, end string) []string {
	var keys []string
	for k := range m.live {
		if within(key, end, k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// kv gives the newest value of a key, nil when it does not exist.
func (m *model) kv(key string) *mvccpb.KeyValue {
	if i, ok := m.live[key]; ok {
		return m.changes[i].kv
	}
	return nil
}

// writing is one revision in the making.
type writing struct {
	*model
	sub int64
}

func (m *model) write(f func(w *writing)) {
	w := &writing{model: m}
	f(w)
	if w.sub > 0 {
		m.revision++
	}
}

func (w *writing) add(c change) {
	c.main, c.sub = w.revision+1, w.sub
	shown, err := gproto.Marshal(c.kv)
	if err != nil {
		panic(err)
	}
	c.shown = shown
	w.changes = append(w.changes, c)
	w.sub++
}

func (w *writing) put(p *pb.PutRequest) {
	main := w.revision + 1
	kv := &mvccpb.KeyValue{
		Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: main, ModRevision: main, Version: 1,
	}
	if before := w.kv(string(p.Key)); before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
	}
	w.add(change{key: string(p.Key), kv: kv})
	w.live[string(p.Key)] = len(w.changes) - 1
}

func (w *writing) delete(keys []string) {
	for _, k := range keys {
		w.add(change{key: k, deleted: true, kv: &mvccpb.KeyValue{Key: []byte(k), ModRevision: w.revision + 1}})
		delete(w.live, k)
	}
}

func (m *model) checkPut(p *pb.PutRequest) error {
	if _, ok := m.leases[p.Lease]; p.Lease != 0 && !ok {
		return storeactor.ErrLeaseNotFound
	}
	return nil
}

// attached lists the keys of a lease, sorted.
func (m *model) attached(id int64) []string {
	return slices.DeleteFunc(m.keys("\x00", "\x00"), func(k string) bool { return m.kv(k).Lease != id })
}

// apply executes a request and gives the error that the answer must be.
func (m *model) apply(r *pb.InternalRaftRequest) error {
	switch {
	case r.Put != nil:
		if err := m.checkPut(r.Put); err != nil {
			return err
		}
		m.write(func(w *writing) { w.put(r.Put) })
	case r.DeleteRange != nil:
		keys := m.keys(string(r.DeleteRange.Key), string(r.DeleteRange.RangeEnd))
		m.write(func(w *writing) { w.delete(keys) })
	case r.Txn != nil:
		return m.txn(r.Txn)
	case r.Compaction != nil:
		switch rev := r.Compaction.Revision; {
		case rev <= m.compacted:
			return storeactor.ErrCompacted
		case rev > m.revision:
			return storeactor.ErrFutureRevision
		default:
			m.compacted = rev
		}
	case r.LeaseGrant != nil:
		if _, ok := m.leases[r.LeaseGrant.ID]; ok {
			return storeactor.ErrLeaseExists
		}
		m.leases[r.LeaseGrant.ID] = max(r.LeaseGrant.TTL, leaseTTLMin)
	case r.LeaseRevoke != nil:
		if _, ok := m.leases[r.LeaseRevoke.ID]; !ok {
			return storeactor.ErrLeaseNotFound
		}
		keys := m.attached(r.LeaseRevoke.ID)
		m.write(func(w *writing) { w.delete(keys) })
		delete(m.leases, r.LeaseRevoke.ID)
	}
	return nil
}

// txn executes a transaction whose compares ask for versions only.
func (m *model) txn(t *pb.TxnRequest) error {
	ops := t.Success
	for _, c := range t.Compare {
		if m.kv(string(c.Key)).GetVersion() != c.GetVersion() {
			ops = t.Failure
		}
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			if err := m.checkPut(p); err != nil {
				return err
			}
		}
	}
	m.write(func(w *writing) {
		for _, op := range ops {
			if p := op.GetRequestPut(); p != nil {
				w.put(p)
			} else if d := op.GetRequestDeleteRange(); d != nil {
				w.delete(w.keys(string(d.Key), string(d.RangeEnd)))
			}
		}
	})
	return nil
}

// at gives the KeyValues that exist at a revision, sorted by key.
func (m *model) at(revision int64) []*mvccpb.KeyValue {
	newest := map[string]*mvccpb.KeyValue{}
	for i := range m.changes {
		c := &m.changes[i]
		if c.main > revision {
			break
		}
		if delete(newest, c.key); !c.deleted {
			newest[c.key] = c.kv
		}
	}
	kvs := make([]*mvccpb.KeyValue, 0, len(newest))
	for _, kv := range newest {
		kvs = append(kvs, kv)
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return kvs
}

// from is the position of the first change at or above a revision.
func (m *model) from(revision int64) int {
	n, _ := slices.BinarySearchFunc(m.changes, revision, func(c change, r int64) int { return int(c.main - r) })
	return n
}
