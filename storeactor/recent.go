package storeactor

import (
	"sort"

	"troupe/proto"
)

// recentItem is one stored change that may not be in the file yet.
type recentItem struct {
	version proto.Version
	// tombstone is true for a deletion.
	tombstone bool
	// record is what the key bucket holds for it: a KeyValue, of a tombstone the key alone.
	record []byte
}

// recent is every change that the file handle beside it does not have, and perhaps some that it has, in order of
// their versions. A copy never changes, whatever is appended to or dropped from the original later.
type recent struct {
	full [][]recentItem
	tail []recentItem
	// tailBytes is what the records of the tail take.
	tailBytes int
}

// find gives the record of a version, nil when it is not here (then the file has it).
func (r *recent) find(v proto.Version) []byte {
	i := r.chunkOf(v)
	if i > len(r.full) {
		return nil
	}
	items := r.chunk(i)
	j := sort.Search(len(items), func(j int) bool { return !items[j].version.Less(v) })
	if j < len(items) && items[j].version == v {
		return items[j].record
	}
	return nil
}

// chunk gives a chunk by position; the tail is the one behind the full ones.
func (r *recent) chunk(i int) []recentItem {
	if i == len(r.full) {
		return r.tail
	}
	return r.full[i]
}

// chunkOf gives the position of the first chunk that ends at or behind v, len(full)+1 when there is none.
func (r *recent) chunkOf(v proto.Version) int {
	if n := len(r.tail); n == 0 || r.tail[n-1].version.Less(v) {
		return len(r.full) + 1
	}
	if !v.Less(r.tail[0].version) {
		return len(r.full)
	}
	return sort.Search(len(r.full), func(i int) bool {
		c := r.full[i]
		return !c[len(c)-1].version.Less(v)
	})
}

// first gives the oldest version here; false when there is none.
func (r *recent) first() (proto.Version, bool) {
	if len(r.full) > 0 {
		return r.full[0][0].version, true
	}
	if len(r.tail) > 0 {
		return r.tail[0].version, true
	}
	return proto.Version{}, false
}

// scan calls f for every item at or behind v, in order, until f gives false.
func (r *recent) scan(v proto.Version, f func(item *recentItem) bool) {
	for i := r.chunkOf(v); i <= len(r.full); i++ {
		items := r.chunk(i)
		for j := range items {
			if !items[j].version.Less(v) && !f(&items[j]) {
				return
			}
		}
	}
}

// append adds a change; its version must be above all others. Only the store does so, to its own value; copies of it
// that were published go on being valid, because items are only ever written behind their length.
func (r *recent) append(v proto.Version, tombstone bool, record []byte) {
	if len(r.tail) == recentChunkItems || r.tailBytes >= recentChunkBytes {
		r.full = append(r.full, r.tail)
		r.tail, r.tailBytes = nil, 0
	}
	if r.tail == nil {
		r.tail = make([]recentItem, 0, recentChunkItems)
	}
	r.tail = append(r.tail, recentItem{version: v, tombstone: tombstone, record: record})
	r.tailBytes += len(record)
}

// trim drops what a file with everything through that revision makes unnecessary, in whole chunks. Published copies
// keep theirs, because the outer list is replaced.
func (r *recent) trim(through proto.Revision) {
	n := sort.Search(len(r.full), func(i int) bool {
		c := r.full[i]
		return c[len(c)-1].version.Main > through
	})
	if n > 0 {
		r.full = append([][]recentItem(nil), r.full[n:]...)
	}
	if k := len(r.tail); len(r.full) == 0 && k > 0 && r.tail[k-1].version.Main <= through {
		r.tail, r.tailBytes = nil, 0
	}
}
