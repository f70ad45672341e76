package storeactor

import (
	"troupe/proto"
)

// indexBuilder makes the index out of the records of the key bucket, which are added in the order of their versions.
type indexBuilder struct {
	tree     *keyTree
	cache    *valueCache
	revision proto.Revision
	pivot    keyEntry
	damaged  int
}

// restoredKeys is a finished index.
type restoredKeys struct {
	tree  *keyTree
	dead  *keyTree // the entries of it that are not alive
	cache *valueCache
	// revision is the main revision of the last record, 1 when there is none.
	revision proto.Revision
	// keys is the number of living keys.
	keys   int
	leases leaseTable
	// unknownLeases counts keys whose lease is not in the lease bucket: they are not attached to any.
	unknownLeases int
	// damaged counts values that could not be decoded; what they were is unknown.
	damaged int
}

// newIndexBuilder begins a restore. cacheBytes bounds the values kept in memory later; 0 is the default.
func newIndexBuilder(cacheBytes int64) *indexBuilder {
	if cacheBytes <= 0 {
		cacheBytes = cacheBytesDefault
	}
	return &indexBuilder{tree: newKeyTree(), cache: newValueCache(cacheBytes), revision: 1}
}

// add takes the next record. encoded is the stored value. It is not kept: what readers want is read again when they
// want it, and a start with a large file would hold up to the whole cache that nobody has asked for. An empty one,
// which etcdutl's --bump-revision leaves, counts as a value of the empty key, which no request can name.
func (b *indexBuilder) add(v proto.Version, tombstone bool, encoded []byte) {
	b.revision = max(b.revision, v.Main)
	kv, ok := parseKeyValue(encoded)
	if !ok {
		b.damaged++
	}
	b.pivot.key = kv.key
	e, known := b.tree.Get(&b.pivot)
	if !known {
		e = &keyEntry{key: append(make([]byte, 0, len(kv.key)), kv.key...)}
	}
	if tombstone {
		b.addTombstone(e, known, v)
		return
	}
	if e.head != nil {
		b.cache.retire(e.head)
	}
	head := &headValue{bytes: int32(len(encoded)), lease: kv.lease}
	n := e.withPut(v, head)
	if !known {
		// The oldest surviving record of a key tells when its life began; what was before it has been compacted.
		n.live.created = proto.Version{Main: kv.create}
		n.live.number = kv.version
	}
	b.tree.Set(n)
}

// addTombstone ends the key's life. A key whose first surviving record is a tombstone gets a life that is nothing
// else; a second tombstone in a row, which only a damaged history could hold, is left out.
func (b *indexBuilder) addTombstone(e *keyEntry, known bool, v proto.Version) {
	switch {
	case !known:
		b.tree.Set(&keyEntry{key: e.key, closed: []generation{{number: 1, versions: []proto.Version{v}}}})
	case e.alive():
		b.cache.retire(e.head)
		b.tree.Set(e.withTombstone(v))
	}
}

// finish attaches keys to the leases, which must all be given, and ends the building.
func (b *indexBuilder) finish(leases []proto.Lease) *restoredKeys {
	r := &restoredKeys{
		tree: b.tree, dead: newKeyTree(), cache: b.cache, revision: b.revision, leases: newLeaseTable(), damaged: b.damaged,
	}
	for _, l := range leases {
		r.leases.table.Set(l)
	}
	b.tree.Scan(func(e *keyEntry) bool {
		if !e.alive() {
			r.dead.Set(e)
			return true
		}
		r.keys++
		if id := e.head.lease; id != 0 {
			if _, ok := r.leases.lease(id); !ok {
				r.unknownLeases++
			}
			r.leases.move(e.key, 0, id)
		}
		return true
	})
	return r
}
