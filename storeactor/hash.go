package storeactor

import (
	"fmt"
	"hash/crc32"

	"troupe/proto"
)

// castagnoli is the polynomial of etcd's hashes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashRule says which records of the key bucket a hash counts. The rule is etcd 3.7.3's, so that members of both kinds
// can be compared (etcd-internals section 7).
type hashRule struct {
	// revision: nothing above it counts.
	revision proto.Revision
	// compacted is the compact revision the hash is made at, -1 when the store was never compacted. Of the records at or
	// below it only those count that keep wants; and a tombstone exactly at it does not, because etcd before 3.5.16
	// deleted it and all must agree.
	compacted proto.Revision
	// keep is pure and looks at an immutable index only.
	keep func(key []byte, v proto.Version) bool
}

// keyValueHash is HashKV in the making: CRC32-C over the bucket's name and then key and value of every record that
// counts, in order.
type keyValueHash struct {
	rule hashRule
	sum  uint32
}

func newKeyValueHash(rule hashRule) *keyValueHash {
	return &keyValueHash{rule: rule, sum: crc32.Update(0, castagnoli, []byte(proto.BucketKey))}
}

// addJudged adds a record at or below the rule's revision, for which keep has been asked already where it matters.
func (h *keyValueHash) addJudged(key, value []byte, v proto.Version, tombstone, keep bool) {
	if v.Main <= h.rule.compacted && !keep || v.Main == h.rule.compacted && tombstone {
		return
	}
	h.sum = crc32.Update(h.sum, castagnoli, key)
	h.sum = crc32.Update(h.sum, castagnoli, value)
}

// hashKeyValues computes HashKV over a view by the rule. It reads all of the key bucket up to the rule's revision.
func hashKeyValues(view FileView, rule hashRule) (uint32, error) {
	h := newKeyValueHash(rule)
	if rule.revision < 0 {
		return h.sum, nil // etcd takes a negative revision as "before everything"
	}
	var damaged error
	end := appendVersionKey(nil, proto.Version{Main: rule.revision + 1})
	err := view.Scan(proto.BucketKey, nil, end, func(key, value []byte) bool {
		v, tombstone, ok := parseVersionKey(key)
		if !ok {
			damaged = fmt.Errorf("%w: key bucket holds the key %x", ErrFileDamaged, key)
			return false
		}
		h.addJudged(key, value, v, tombstone, v.Main > rule.compacted || rule.keep(keyOfRecord(value), v))
		return true
	})
	if err == nil {
		err = damaged
	}
	return h.sum, err
}

// hashWholeFile computes Hash over a view: CRC32-C over the name of every bucket and all keys and values in it, in
// order, without the three meta records that differ between equal members.
func hashWholeFile(view FileView) (uint32, error) {
	sum := uint32(0)
	for _, name := range buckets {
		sum = crc32.Update(sum, castagnoli, []byte(name))
		err := view.Scan(name, nil, nil, func(key, value []byte) bool {
			if name == proto.BucketMeta && metaOutsideHash(key) {
				return true
			}
			sum = crc32.Update(sum, castagnoli, key)
			sum = crc32.Update(sum, castagnoli, value)
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// storedHashes are the hashes of the last finished compactions of this process, by revision. etcd answers HashKV at
// exactly such a revision with what the compaction saw before it deleted, at the compact revision before it, also when
// the revision has been compacted further since.
type storedHashes struct {
	hashes []HashResult
}

// add keeps the newest ones only.
func (s *storedHashes) add(h HashResult) {
	s.hashes = append(s.hashes, h)
	if extra := len(s.hashes) - hashesStoredMax; extra > 0 {
		s.hashes = append([]HashResult(nil), s.hashes[extra:]...)
	}
}

// at gives the stored hash of that very revision.
func (s *storedHashes) at(revision proto.Revision) (HashResult, bool) {
	for _, h := range s.hashes {
		if h.HashRevision == revision {
			return h, true
		}
	}
	return HashResult{}, false
}
