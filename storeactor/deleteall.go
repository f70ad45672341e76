package storeactor

import (
	"slices"

	"github.com/tidwall/btree"

	"troupe/proto"
)

// slab hands out small slices of one type, many of which share an allocation. What is taken from it is released when
// all of its chunk is, so it is for things that end together, like the tombstones of one revision: the next compaction
// drops them all.
type slab[T any] struct {
	free  []T
	chunk int
}

// take gives a zeroed slice of n items, which nobody can append to in place.
func (s *slab[T]) take(n int) []T {
	if len(s.free) < n {
		s.free = make([]T, max(s.chunk, n))
	}
	taken := s.free[:n:n]
	s.free = s.free[n:]
	return taken
}

// bulkDeletion deletes many keys in one revision. What deleting one key costs beyond its place in the index are half a
// dozen small allocations and two searches from the root; for a hundred thousand keys that is half a second in which
// nothing else is executed. Here allocations are shared, and since the keys come in order, each search begins where the
// last one ended.
type bulkDeletion struct {
	entries     slab[keyEntry]
	generations slab[generation]
	versions    slab[proto.Version]
	bytes       slab[byte]
	place       btree.PathHint
	placeDead   btree.PathHint // in the tree of the dead
}

// deleteAll stores tombstones for entries of the index, all alive, in ascending order. They lose their leases, except
// that keys of the lease `detached` stay attached: the caller takes them all away at once.
func (w *writing) deleteAll(doomed []*keyEntry, detached proto.LeaseID) {
	if len(doomed) < bulkDeletionMin {
		for _, e := range doomed {
			w.delete(e, detached)
		}
		return
	}
	m := w.m
	b := bulkDeletion{
		entries: slab[keyEntry]{chunk: bulkChunkKeys}, generations: slab[generation]{chunk: bulkChunkKeys},
		versions: slab[proto.Version]{chunk: 2 * bulkChunkKeys}, bytes: slab[byte]{chunk: bulkChunkBytes},
	}
	m.out.events = slices.Grow(m.out.events, len(doomed))
	m.out.writes = slices.Grow(m.out.writes, len(doomed))
	for _, e := range doomed {
		v := w.next()
		event := proto.Event{Version: v, Kind: proto.EventDelete, Key: e.key}
		event.Previous, event.PreviousKeyValue = m.previous(e, v.Main)
		kv := keyValue{key: e.key}
		n := kv.size()
		event.KeyValue = appendTombstone(b.bytes.take(n + sizeVarintField(uint64(v.Main)))[:0], e.key, v.Main)
		m.cache.retire(e.head)
		dead := b.withTombstone(e, v)
		m.tree.SetHint(dead, &b.place)
		m.dead.SetHint(dead, &b.placeDead)
		if lease := e.head.lease; lease != detached {
			m.leases.move(e.key, lease, 0)
		}
		m.record(v, true, event.KeyValue[:n:n], event)
	}
	m.deadPublished = nil
	m.keys -= len(doomed)
}

// withTombstone is keyEntry.withTombstone with the memory of the bulk.
func (b *bulkDeletion) withTombstone(e *keyEntry, v proto.Version) *keyEntry {
	n := &b.entries.take(1)[0]
	n.key, n.closed = e.key, e.closed
	g := e.live
	if old := g.versions; cap(old) == len(old) && len(old) < bulkVersionsMax {
		g.versions = b.versions.take(len(old) + 1)[:len(old)]
		copy(g.versions, old)
	}
	g.versions = append(g.versions, v)
	g.number++
	if cap(n.closed) == 0 {
		n.closed = b.generations.take(1)[:0]
	}
	n.closed = append(n.closed, g)
	return n
}

// appendTombstone appends what a watcher gets for a deletion. Without the last field it is what is stored.
func appendTombstone(to, key []byte, mod proto.Revision) []byte {
	kv := keyValue{key: key}
	return appendVarintField(kv.appendTo(to), tagKeyValueMod, uint64(mod))
}
