package storeactor

import (
	"troupe/actors"
	"troupe/proto"
)

// compaction is one compaction on its way: answered logically at once, then the index is compacted in steps between
// turns, then the backend deletes what the index no longer has. One is worked on at a time, in order.
//
// Until the index is compacted it says more than it has to, which no reader can notice: reads below the compact
// revision are refused by the revision, and at or above it the index answers the same before, during and after. Views
// opened before go on with the tree and the file handle they have.
type compaction struct {
	revision proto.Revision
	// cursor is the key the next step begins with; nil: the first.
	cursor []byte
	// sent says that the backend has been asked to delete.
	sent bool
	// done is closed when the deletions are finished and the sizes after them are published.
	done chan struct{}
}

// compact executes a compaction request.
func (m *machine) compact(rev proto.Revision) (*proto.Result, error) {
	switch {
	case rev <= m.compacted:
		return nil, ErrCompacted
	case rev > m.revision:
		return nil, ErrFutureRevision
	}
	m.compacted = rev
	m.out.compacted = true
	m.out.tally.ranges++ // etcd reads a key to learn the revision
	m.out.put(proto.BucketMeta, metaScheduled, appendVersionKey(nil, proto.Version{Main: rev}))
	c := m.schedule(rev)
	return &proto.Result{Revision: m.revision, Done: c.done}, nil
}

// schedule queues a compaction. One that waits behind the one being worked on is not done for itself when a later one
// comes: that deletes all it would have deleted. So two are the most, however fast clients ask, each of which would
// walk over the whole index.
func (m *machine) schedule(rev proto.Revision) *compaction {
	if n := len(m.compactions); n >= compactionsQueuedMax {
		last := m.compactions[n-1]
		last.revision = rev
		return last
	}
	c := &compaction{revision: rev, done: make(chan struct{})}
	m.compactions = append(m.compactions, c)
	return c
}

// compactionDue reports whether there is a step to do.
func (m *machine) compactionDue() bool { return len(m.compactions) > 0 && !m.compactions[0].sent }

// compactStep examines the next keys of the index. After the last ones it gives the request for the backend, whose
// keep looks at the compacted index: what that has is kept.
func (m *machine) compactStep(keys int) *compactFile {
	c := m.compactions[0]
	type change struct{ before, after *keyEntry }
	var changes []change
	visited := 0
	end := true
	m.pivot.key = c.cursor
	m.tree.Ascend(&m.pivot, func(e *keyEntry) bool {
		if visited == keys {
			c.cursor, end = e.key, false
			return false
		}
		visited++
		if after := e.compacted(c.revision); after != e {
			changes = append(changes, change{e, after})
		}
		return true
	})
	for _, ch := range changes {
		switch {
		case ch.after == nil:
			m.tree.Delete(ch.before)
			m.unbury(ch.before)
		case ch.after.alive():
			m.tree.Set(ch.after.apart())
		default:
			m.tree.Set(ch.after)
			m.bury(ch.after)
		}
	}
	if !end {
		return nil
	}
	c.sent = true
	tree := m.tree.Copy()
	return &compactFile{revision: c.revision, keep: func(key []byte, v proto.Version) bool {
		e, ok := tree.Get(&keyEntry{key: key})
		return ok && e.has(v)
	}}
}

// compactedPhysically takes the backend's report and lets the next compaction begin. The caller closes done.
func (m *machine) compactedPhysically(rev proto.Revision) (done chan struct{}) {
	actors.Must(len(m.compactions) > 0 && m.compactions[0].sent && m.compactions[0].revision == rev,
		"the backend reports a compaction at %d that is not under way", rev)
	done = m.compactions[0].done
	m.compactions[0] = nil
	m.compactions = m.compactions[1:]
	return done
}

// credit bounds in bytes what is on its way to the file.
type credit struct {
	outstanding int64
	// payload is the keys and values in it: what the file will grow by, roughly, without what memory takes for them.
	payload int64
	sent    []creditEntry
}

type creditEntry struct {
	index          proto.Index
	bytes, payload int64
}

func (c *credit) take(index proto.Index, bytes, payload int) {
	c.outstanding += int64(bytes)
	c.payload += int64(payload)
	c.sent = append(c.sent, creditEntry{index, int64(bytes), int64(payload)})
}

// settle gives back what a checkpoint holds.
func (c *credit) settle(index proto.Index) {
	n := 0
	for n < len(c.sent) && c.sent[n].index <= index {
		c.outstanding -= c.sent[n].bytes
		c.payload -= c.sent[n].payload
		n++
	}
	c.sent = append(c.sent[:0], c.sent[n:]...)
}

// checkpointed takes a checkpoint: the new handle, and with it the right to forget what the file has. The old handle
// is to be released after the next state is published.
func (m *machine) checkpointed(c *checkpointed) (old FileView) {
	old = m.file
	m.file, m.sizes = c.view, c.sizes
	m.recent.trim(c.revision)
	m.credit.settle(c.index)
	return old
}
