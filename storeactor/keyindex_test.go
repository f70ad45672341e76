package storeactor

import (
	"runtime"
	"testing"
	"weak"

	"troupe/proto"
)

// A key that was put a million times and is never put again must not hold its past.
func TestKeyEntry_ACompactedOneHoldsNothingOfTheOneBefore(t *testing.T) {
	for _, compacted := range []proto.Revision{20, 15} { // one version is left, or six
		cache := newValueCache(1 << 20)
		encoded := []byte("the newest value")
		before := &keyEntry{key: []byte("key")}
		for rev := proto.Revision(1); rev <= 20; rev++ {
			if rev == 5 {
				before = before.withTombstone(proto.Version{Main: rev})
				continue
			}
			before = before.withPut(proto.Version{Main: rev}, int32(len(encoded)), 7)
		}
		cache.keep(before.head, encoded)
		before.head.used.Store(true)
		reader := before.head // of an old view
		want, _ := before.get(20)

		after := before.compacted(compacted).apart()
		if got, ok := after.get(20); !ok || got != want || len(after.live.versions) != int(21-compacted) {
			t.Errorf("compacted at %d: %+v, want %+v", compacted, got, want)
		}
		if h := after.head; string(cache.load(h)) != string(encoded) || h.lease != 7 || !h.used.Load() {
			t.Errorf("compacted at %d: the head has become %q, lease %d", compacted, cache.load(h), h.lease)
		}
		if n := cache.bytes.Load(); cache.load(reader) != nil || n != int64(len(encoded)) {
			t.Errorf("compacted at %d: the cache counts %d bytes", compacted, n)
		}
		cache.fill(reader, encoded)
		if cache.load(reader) != nil {
			t.Errorf("compacted at %d: a reader of an old view fills a head that the sweep does not find", compacted)
		}
		old := weak.Make(before)
		runtime.GC()
		if old.Value() != nil {
			t.Errorf("compacted at %d: the entry before is still held", compacted)
		}
		runtime.KeepAlive(after)
	}
}
