package storeactor

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// writing is one revision in the making: the changes of a put, a deletion, a txn or a revocation. It is committed by
// end; nothing that can fail may happen between its first change and end.
type writing struct {
	m    *machine
	main proto.Revision
	sub  proto.SubRevision
	// counted is the operations counted before it.
	counted int
}

func (m *machine) begin() writing {
	return writing{m: m, main: m.revision + 1, counted: m.out.tally.operations()}
}

// current is the newest revision that operations of this writing see: its own once it has changed something.
func (w *writing) current() proto.Revision {
	if w.sub > 0 {
		return w.main
	}
	return w.m.revision
}

// end makes the revision the current one if anything was changed. Several operations count as a txn, whatever asked for
// them, as with etcd.
func (w *writing) end() {
	if t := &w.m.out.tally; t.operations()-w.counted > 1 {
		t.txns++
	}
	if w.sub > 0 {
		w.m.revision = w.main
	}
}

func (w *writing) next() proto.Version {
	v := proto.Version{Main: w.main, Sub: w.sub}
	w.sub++
	return v
}

// put stores a value. e is the key's entry, nil when the index has none. The key is copied for a new entry only; the
// value is copied once, into its encoding, which then is at the same time what the file stores, what watchers get,
// what readers get and what the cache holds.
func (w *writing) put(e *keyEntry, key, value []byte, lease proto.LeaseID) {
	m := w.m
	v := w.next()
	kv := keyValue{key: key, value: value, create: v.Main, mod: v.Main, version: 1, lease: lease}
	event := proto.Event{Version: v, Kind: proto.EventPut}
	var before proto.LeaseID
	switch {
	case e == nil:
		e = &keyEntry{key: append(make([]byte, 0, len(key)), key...)}
		m.keys++
	case e.alive():
		kv.create, kv.version = e.live.created.Main, e.live.number+1
		before = e.head.lease
	default:
		m.keys++
		m.unbury(e)
	}
	if event.Created = kv.create == v.Main; !event.Created {
		event.Previous, event.PreviousKeyValue = m.previous(e, v.Main)
	}
	encoded := kv.encode()
	if e.head != nil {
		m.cache.retire(e.head)
	}
	n := e.withPut(v, int32(len(encoded)), lease)
	m.cache.keep(n.head, encoded)
	m.tree.Set(n)
	m.leases.move(n.key, before, lease)
	event.Key, event.KeyValue = n.key, encoded
	m.record(v, false, encoded, event)
	m.out.puts++
	m.out.tally.puts++
	m.out.tally.putBytes += len(key) + len(value)
}

// previous gives the version that a change at `main` replaces and its bytes if they are at hand: what a reader of the
// revision before would see, also when the same revision changes a key more than once.
func (m *machine) previous(e *keyEntry, main proto.Revision) (proto.Version, []byte) {
	f, ok := e.get(main - 1)
	if !ok {
		return proto.Version{}, nil
	}
	if f.head {
		return f.version, m.cached(e)
	}
	return f.version, m.recent.find(f.version)
}

// delete stores a tombstone. The entry must be the index's and alive. The key loses its lease, unless that is
// `detached`, which the caller takes all keys from.
func (w *writing) delete(e *keyEntry, detached proto.LeaseID) {
	m := w.m
	v := w.next()
	event := proto.Event{Version: v, Kind: proto.EventDelete, Key: e.key}
	event.Previous, event.PreviousKeyValue = m.previous(e, v.Main)
	stored, shown := encodeTombstone(e.key, v.Main)
	event.KeyValue = shown
	m.cache.retire(e.head)
	n := e.withTombstone(v)
	m.tree.Set(n)
	m.bury(n)
	if lease := e.head.lease; lease != detached {
		m.leases.move(e.key, lease, 0)
	}
	m.keys--
	m.record(v, true, stored, event)
}

// record hands one change to the file, to readers and to watchers.
func (m *machine) record(v proto.Version, tombstone bool, stored []byte, event proto.Event) {
	m.recent.append(v, tombstone, stored)
	m.out.events = append(m.out.events, event)
	m.out.put(proto.BucketKey, m.out.versionKey(v, tombstone), stored)
}

// put executes a put that stands alone.
func (m *machine) put(r *pb.PutRequest) (*proto.Result, error) {
	e := m.entry(r.Key)
	if err := m.checkPut(r, e); err != nil {
		return nil, err
	}
	w := m.begin()
	previous := w.putRequest(r, e)
	w.end()
	if previous == nil {
		return &proto.Result{Revision: m.revision}, nil
	}
	op := opResult{kind: opPut, previous: [][]byte{previous}}
	return newResult(m.revision, &op, op.size()), nil
}

// checkPut is all that can be wrong with a put once it is in the log.
func (m *machine) checkPut(r *pb.PutRequest, e *keyEntry) error {
	if r.Lease != 0 {
		if _, ok := m.leases.lease(proto.LeaseID(r.Lease)); !ok {
			return ErrLeaseNotFound
		}
	}
	if (r.IgnoreValue || r.IgnoreLease) && (e == nil || !e.alive()) {
		m.out.tally.ranges++
		return ErrKeyNotFound
	}
	return nil
}

// readsPrevious reports whether a put looks at what the key has. That counts as a range, whether there is anything or
// not.
func readsPrevious(r *pb.PutRequest) bool { return r.PrevKv || r.IgnoreValue || r.IgnoreLease }

// putRequest does a put that has been checked, and gives the value before it if that was asked for and there was one.
func (w *writing) putRequest(r *pb.PutRequest, e *keyEntry) (previous []byte) {
	value, lease := r.Value, proto.LeaseID(r.Lease)
	if readsPrevious(r) {
		w.m.out.tally.ranges++
	}
	if e != nil && e.alive() {
		if r.IgnoreLease {
			lease = e.head.lease
		}
		if r.PrevKv || r.IgnoreValue {
			encoded := w.m.mustHead(e)
			if r.IgnoreValue {
				value = mustParse(encoded, e.live.last()).value
			}
			if r.PrevKv {
				previous = encoded
			}
		}
	}
	w.put(e, r.Key, value, lease)
	return previous
}

// mustHead reads the newest value of a living key in the store's own turn, where a failure of the file cannot be
// answered with anything but the end: other members execute the entry.
func (m *machine) mustHead(e *keyEntry) []byte {
	b, err := m.value(e, e.live.found(len(e.live.versions)-1, true))
	actors.Must(err == nil, "read the value of a key: %v", err)
	return b
}

func mustParse(encoded []byte, v proto.Version) keyValue {
	kv, ok := parseKeyValue(encoded)
	if !ok {
		actors.Must(false, "the value of revision %d/%d cannot be decoded", v.Main, v.Sub)
	}
	return kv
}
