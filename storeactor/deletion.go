package storeactor

import (
	"fmt"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// deletion is the pure core of one physical compaction: it walks the key bucket up to the compacted revision in small
// steps, and says which records of each step go.
//
// Everything at or below the compacted revision is in the file before the first step and never changes again, except by
// the steps themselves; so each step may read the newest handle, and go on where the last one ended.
type deletion struct {
	request *compactFile
	// after is the index that must be in the file before the first step: that of the write with the scheduled revision.
	after proto.Index
	// resumed says that an earlier process began it: then its hash would miss what is gone already.
	resumed bool
	// limit is how many records one step looks at; it ends earlier when they are large.
	limit int

	started time.Time
	next    []byte // where the next step begins; nil: at the first record
	deleted int
	hash    *keyValueHash
	// settling counts down the empty commits after the last step.
	settling int
}

// newDeletion prepares a compaction. previous is the compact revision before it, -1 when there was none: the hash over
// what the compaction saw is made at that one.
func newDeletion(request *compactFile, previous proto.Revision, after proto.Index, limit int) *deletion {
	return &deletion{
		request: request, after: after, limit: limit,
		hash: newKeyValueHash(hashRule{
			revision: request.revision, compacted: previous, keep: request.keep,
		}),
	}
}

// deletionStep is what one step found.
type deletionStep struct {
	// writes are the deletions, and after the last step the finished revision.
	writes []proto.BucketWrite
	// deletes is how many records go, bytes what the writes hold.
	deletes, bytes int
	// done says that nothing is left behind this step.
	done bool
}

// step looks at the next records of the view.
func (d *deletion) step(view FileView) (deletionStep, error) {
	var result deletionStep
	var damaged error
	seen, size, more := 0, 0, false
	end := appendVersionKey(nil, proto.Version{Main: d.request.revision + 1})
	err := view.Scan(proto.BucketKey, d.next, end, func(key, value []byte) bool {
		if seen == d.limit || size >= compactionBatchBytes {
			d.next, more = append(d.next[:0], key...), true
			return false
		}
		seen++
		size += len(key) + len(value)
		version, tombstone, ok := parseVersionKey(key)
		if !ok {
			damaged = fmt.Errorf("%w: key bucket holds the key %x", ErrFileDamaged, key)
			return false
		}
		keep := d.request.keep(keyOfRecord(value), version)
		if !keep {
			result.writes = append(result.writes, proto.BucketWrite{
				Bucket: proto.BucketKey, Key: append([]byte(nil), key...), Delete: true,
			})
			result.bytes += len(key)
		}
		d.hash.addJudged(key, value, version, tombstone, keep)
		return true
	})
	if err == nil {
		err = damaged
	}
	if err != nil {
		return deletionStep{}, err
	}
	result.deletes = len(result.writes)
	d.deleted += result.deletes
	result.done = !more
	if result.done {
		result.writes = append(result.writes, proto.BucketWrite{
			Bucket: proto.BucketMeta, Key: metaFinished,
			Value: appendVersionKey(nil, proto.Version{Main: d.request.revision}),
		})
	}
	actors.Must(d.request.revision > 0 || result.deletes == 0, "compaction at %d deletes", d.request.revision)
	return result, nil
}
