package storeactor

import (
	"context"
	"errors"
	"time"

	"troupe/proto"
)

// Keyspace reports which prefixes take the space. It walks over the index in the caller's goroutine, in pieces of half
// a millisecond, each with a view of its own, and rests thrice as long after each: it takes a quarter of a processor
// at most, and nothing waits for it. Values are not read, only their lengths. Errors: the context's cause.
func (c *Client) Keyspace(ctx context.Context, q KeyspaceQuery) (Keyspace, error) {
	walk := &keyspaceWalk{keys: prefixRange(q.Within),
		sums: keyspaceSums{depth: min(max(q.Depth, 1), KeyspaceDepthMax), top: min(max(q.Top, 1), KeyspaceTopMax)}}
	from := c.State().Revision
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		began := time.Now()
		v := c.View()
		done, err := walk.piece(v, keyspacePieceVersions)
		v.Release()
		pause := min(keyspaceRest*time.Since(began), keyspaceRestMax)
		switch {
		case errors.Is(err, ErrViewCutOff):
			pause = cutOffRetry
		case err != nil:
			return Keyspace{}, err
		case done:
			report, state := walk.sums.finish(), c.State()
			report.From, report.Through, report.Compacted = from, state.Revision, state.Compacted
			report.Sizes = state.Sizes
			return report, nil
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Keyspace{}, context.Cause(ctx)
		}
	}
}

// prefixRange is the keys that begin with a prefix.
func prefixRange(prefix []byte) KeyRange {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			to := append([]byte(nil), prefix[:i+1]...)
			to[i]++
			return KeyRange{From: prefix, To: to, kind: rangeBounded}
		}
	}
	return KeyRange{From: prefix, kind: rangeOpen}
}

// keyspaceWalk is a walk over the keys of a range and their versions, which may end and go on at any version.
type keyspaceWalk struct {
	keys KeyRange // what is left
	// after is the last version counted of the key that is first in keys.
	after proto.Version
	sums  keyspaceSums
	bytes []byte // for the keys of versions
}

// piece counts about so many versions and keys; done says that none are left. After an error the walk can go on with
// another view.
func (w *keyspaceWalk) piece(v *View, most int) (done bool, err error) {
	done = true
	v.visit(w.keys, func(e *keyEntry) bool {
		if string(e.key) != string(w.keys.From) {
			w.keys.From, w.after = e.key, proto.Version{}
		}
		if done = most > 0; !done {
			return false
		}
		most--
		use := w.sums.of(e.key)
		e.eachAfter(w.after, func(version proto.Version, kind versionKind) bool {
			if most <= 0 {
				done = false
				return false
			}
			most--
			if err = w.count(v, use, e, version, kind); err != nil {
				return false
			}
			w.after = version
			return true
		})
		return done && err == nil
	})
	return done && err == nil, err
}

// count adds one version to the sums.
func (w *keyspaceWalk) count(v *View, use *PrefixUse, e *keyEntry, version proto.Version, kind versionKind) error {
	size := revisionKeyBytes
	if kind == versionTombstone {
		kv := keyValue{key: e.key}
		size = tombstoneKeyBytes + kv.size()
	} else if record := v.recent.find(version); record != nil {
		size += len(record)
	} else {
		w.bytes = appendVersionKey(w.bytes[:0], version)
		stored, _, err := v.file.ValueSize(proto.BucketKey, w.bytes)
		if err != nil {
			return err
		}
		size += stored
	}
	use.Revisions++
	use.Bytes += int64(size)
	if kind == versionHead {
		use.Keys++
		use.LiveBytes += int64(size)
	}
	return nil
}
