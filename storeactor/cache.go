package storeactor

import (
	"sync/atomic"
	"unsafe"

	"troupe/proto"
)

// headValue is the newest value of one living key: what the index has to know about it, and its bytes while they are
// cached. The facts never change; the bytes come and go, and are always the same bytes, so that a reader who finds
// them and one who does not give the same answer.
type headValue struct {
	data  atomic.Pointer[byte] // nil: not in memory; &retired: no longer the newest value
	used  atomic.Bool          // read since the sweep passed by
	bytes int32                // length of the encoded value
	lease proto.LeaseID
}

// retired marks a head that was replaced: a reader with an old view must not put bytes into it, because the sweep,
// which walks the newest index, would never find and free them.
var retired byte

// valueCache bounds the encoded current values held in memory. It is no truth of its own: what it drops is in
// `recent` or in the file. The index is its ring: a hand walks over the keys, and drops what was not read since it
// last passed (second chance). So no list has to be kept per value, and readers only touch atomic fields.
type valueCache struct {
	bytes atomic.Int64
	max   int64
	hand  []byte // the key the sweep goes on with
}

func newValueCache(max int64) *valueCache { return &valueCache{max: max} }

// keep takes the bytes of a value just written into its new head. Store's turn only.
func (c *valueCache) keep(h *headValue, encoded []byte) {
	if c.fits(len(encoded)) {
		h.data.Store(unsafe.SliceData(encoded))
		c.bytes.Add(int64(len(encoded)))
	}
}

func (c *valueCache) fits(n int) bool { return n > 0 && int64(n) <= c.max/cacheValueShare }

// load gives the cached bytes or nil. Any goroutine.
func (c *valueCache) load(h *headValue) []byte {
	p := h.data.Load()
	if p == nil || p == &retired {
		return nil
	}
	if !h.used.Load() {
		h.used.Store(true)
	}
	return unsafe.Slice(p, int(h.bytes))
}

// fill keeps bytes a reader took from the file, while there is room. Any goroutine.
func (c *valueCache) fill(h *headValue, encoded []byte) {
	n := int64(len(encoded))
	if !c.fits(len(encoded)) || int32(n) != h.bytes {
		return
	}
	if c.bytes.Add(n) > c.max || !h.data.CompareAndSwap(nil, unsafe.SliceData(encoded)) {
		c.bytes.Add(-n)
	}
}

// retire drops the bytes of a head that was replaced. Store's turn only.
func (c *valueCache) retire(h *headValue) {
	if p := h.data.Swap(&retired); p != nil && p != &retired {
		c.bytes.Add(-int64(h.bytes))
	}
}

// evict drops the bytes of a head that stays.
func (c *valueCache) evict(h *headValue) {
	if p := h.data.Load(); p != nil && p != &retired && h.data.CompareAndSwap(p, nil) {
		c.bytes.Add(-int64(h.bytes))
	}
}

// sweep examines up to so many keys while the cache is over its bound. Store's turn only, over the store's own tree.
func (c *valueCache) sweep(tree *keyTree, keys int) {
	for keys > 0 && c.bytes.Load() > c.max {
		visited := 0
		end := true
		tree.Ascend(&keyEntry{key: c.hand}, func(e *keyEntry) bool {
			if visited == keys || c.bytes.Load() <= c.max {
				c.hand, end = e.key, false
				return false
			}
			visited++
			if e.head != nil && !e.head.used.Swap(false) {
				c.evict(e.head)
			}
			return true
		})
		if end {
			c.hand = nil
			if visited == 0 {
				return
			}
		}
		keys -= visited
	}
}
