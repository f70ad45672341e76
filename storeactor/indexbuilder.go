package storeactor

import (
	"github.com/tidwall/btree"

	"troupe/proto"
)

// indexBuilder makes the index out of the records of the key bucket, which are added in the order of their versions.
type indexBuilder struct {
	tree     *keyTree
	cache    *valueCache
	revision proto.Revision
	pivot    keyEntry
	damaged  int
	// hint remembers the place of the last key: what was written together is often near each other, and the place that
	// was looked up is the one that is set.
	hint btree.PathHint
}

// keyRecord is what the index wants of a record of the key bucket. An empty value, which etcdutl's --bump-revision
// leaves, counts as a value of the empty key, which no request can name.
type keyRecord struct {
	version   proto.Version
	tombstone bool
	damaged   bool // the value could not be decoded
	key       []byte
	created   proto.Revision
	number    int64
	lease     proto.LeaseID
	bytes     int32 // of the value as stored
}

// parseKeyRecord reads a record of the key bucket; ok is false when its key is not that of a revision. The key of the
// result is a part of value.
func parseKeyRecord(key, value []byte) (r keyRecord, ok bool) {
	if r.version, r.tombstone, ok = parseVersionKey(key); !ok {
		return r, false
	}
	kv, whole := parseKeyValue(value)
	r.damaged, r.bytes = !whole, int32(len(value))
	r.key, r.created, r.number, r.lease = kv.key, kv.create, kv.version, kv.lease
	return r, true
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

// add takes the next record and copies what it keeps. That is not the value: what readers want is read again when they
// want it, and a start with a large file would hold up to the whole cache that nobody has asked for.
func (b *indexBuilder) add(r *keyRecord) {
	b.revision = max(b.revision, r.version.Main)
	if r.damaged {
		b.damaged++
	}
	b.pivot.key = r.key
	e, known := b.tree.GetHint(&b.pivot, &b.hint)
	switch {
	case r.tombstone && !known:
		// A key whose first surviving record is a tombstone gets a life that is nothing else.
		closed := generation{number: 1, versions: []proto.Version{r.version}}
		b.set(&keyEntry{key: exactly(r.key), closed: []generation{closed}})
	case r.tombstone:
		if e.alive() { // else a second tombstone in a row, which only a damaged history could hold, is left out
			b.cache.retire(e.head)
			b.set(e.withTombstone(r.version))
		}
	case !known:
		// The oldest surviving record of a key tells when its life began; what was before it has been compacted.
		unborn := keyEntry{key: exactly(r.key)}
		n := unborn.withPut(r.version, r.bytes, r.lease)
		n.live.created, n.live.number = proto.Version{Main: r.created}, r.number
		b.set(n)
	default:
		if e.head != nil {
			b.cache.retire(e.head)
		}
		b.set(e.withPut(r.version, r.bytes, r.lease))
	}
}

func (b *indexBuilder) set(e *keyEntry) { b.tree.SetHint(e, &b.hint) }

// exactly copies b into as much room as it needs.
func exactly(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

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
