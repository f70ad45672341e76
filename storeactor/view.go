package storeactor

import (
	"sort"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// View reads one published state. It pins the file handle that belongs to the state until Release, so it must be
// released soon: pages freed meanwhile cannot be reused. A View belongs to one goroutine.
//
// Whatever reads a value may answer ErrViewCutOff, when the owner of the file has taken the handle away; then the
// caller begins again with a new View.
type View struct {
	reader
	state *State
}

func newView(s *State) *View {
	v := &View{}
	v.show(s)
	return v
}

// show makes the view one of that state.
func (v *View) show(s *State) {
	*v = View{state: s, reader: reader{
		tree: s.tree, dead: s.dead, recent: s.recent, cache: s.cache, file: s.file,
		revision: s.Revision, compacted: s.Compacted,
	}}
}

// views are for reads that end before their view could escape.
var views = sync.Pool{New: func() any { return &View{} }}

// State gives the state the view reads.
func (v *View) State() *State { return v.state }

// Release unpins the file handle. The view, and the state as far as values are concerned, must not be used
// afterwards; answers made before stay valid.
func (v *View) Release() { v.file.Release() }

// Range executes a range whose form has been checked. Errors: ErrCompacted, ErrFutureRevision. The revision of the
// result is the state's, also for a read in the past. The caller owns the body and calls its Release.
func (v *View) Range(q *pb.RangeRequest) (*proto.Result, error) {
	return v.answerRange(q)
}

// Txn executes a txn for which TxnReadOnly holds and whose form has been checked. Errors as of Range.
func (v *View) Txn(t *pb.TxnRequest) (*proto.Result, error) {
	actors.Must(TxnReadOnly(t), "a txn that writes was given to a view")
	reads := 0
	return v.readOnlyTxn(t, &reads)
}

// Lease gives a lease and a function for its keys, sorted; ok is false when there is no such lease.
func (v *View) Lease(id proto.LeaseID) (l proto.Lease, keys func() [][]byte, ok bool) {
	l, ok = v.state.Lease(id)
	return l, func() [][]byte { return v.state.LeaseKeys(id) }, ok
}

// Leases calls f for every lease, by id, until it gives false.
func (v *View) Leases(f func(proto.Lease) bool) { v.state.Leases(f) }

// Value gives the encoded KeyValue that a put stored, if it is still there. The bytes are shared and must not be
// changed.
func (v *View) Value(version proto.Version) ([]byte, bool) {
	if b := v.recent.find(version); b != nil {
		return b, true
	}
	b, ok, err := v.lookup(version)
	return b, ok && err == nil
}

// Events gives the changes of a range with from <= revision <= through, in order and in whole revisions: it ends
// after the first revision with which the events' bytes, or the changes looked at, reach a bound, so it always makes
// progress. next is the revision to go on with; it is above `through` or the state's revision when nothing is left.
// ErrCompacted when from is below the compact revision: then changes are missing. The events are shared and
// immutable.
func (v *View) Events(r KeyRange, from, through proto.Revision, bytes int) ([]proto.Event, proto.Revision, error) {
	if from < v.compacted {
		return nil, from, ErrCompacted
	}
	through = min(through, v.revision)
	if from > through {
		return nil, from, nil
	}
	c := collector{view: v, keys: r, through: through, bytes: bytes}
	if entries, few := v.fewEntries(r); few {
		c.through = changesThrough(entries, from, through)
		c.addChanges(changesByIndex(entries, from, c.through))
	} else {
		c.scan(from)
	}
	if c.err != nil {
		return nil, from, c.err
	}
	if c.next == 0 {
		c.next = c.through + 1
	}
	return c.events, c.next, nil
}

// keyChange is one change as the index knows it.
type keyChange struct {
	version   proto.Version
	entry     *keyEntry
	tombstone bool
}

// fewEntries gives the entries of the range when they are few; few is false when they are many.
func (v *View) fewEntries(r KeyRange) (entries []*keyEntry, few bool) {
	few = true
	v.visit(r, func(e *keyEntry) bool {
		few = len(entries) < eventKeysByIndex
		entries = append(entries, e)
		return few
	})
	return entries, few
}

// changesThrough gives the revision, at least from, up to which the entries have about as many changes as one call may
// look at. Without it every call would gather the whole history of a key that changes all the time, to give the little
// of it that is asked for.
func changesThrough(entries []*keyEntry, from, through proto.Revision) proto.Revision {
	for through > from {
		n := 0
		for _, e := range entries {
			if n += e.changes(from, through, 8*eventChangesMax-n); n >= 8*eventChangesMax {
				break
			}
		}
		if n <= eventChangesMax {
			break
		}
		through = from + (through-from)*eventChangesMax/proto.Revision(n)
	}
	return through
}

// changesByIndex gives the changes of the entries in order.
func changesByIndex(entries []*keyEntry, from, through proto.Revision) (changes []keyChange) {
	for _, e := range entries {
		for i := e.closedAt(from); i <= len(e.closed); i++ {
			g := e.generation(i)
			last := len(g.versions) - 1
			for j := g.at(from-1) + 1; j <= last && g.versions[j].Main <= through; j++ {
				changes = append(changes, keyChange{g.versions[j], e, i < len(e.closed) && j == last})
			}
		}
	}
	if len(entries) > 1 {
		sort.Slice(changes, func(i, j int) bool { return changes[i].version.Less(changes[j].version) })
	}
	return changes
}

// collector gathers events in order until the bound is reached at the end of a revision.
type collector struct {
	view    *View
	keys    KeyRange
	through proto.Revision
	bytes   int

	events  []proto.Event
	size    int
	scanned int            // changes looked at, in range or not
	last    proto.Revision // of the last one
	next    proto.Revision // not 0: a bound was reached, go on here
	err     error
}

// full reports whether a change at v is beyond what this call gives.
func (c *collector) full(v proto.Version) bool {
	if v.Main > c.through {
		return true
	}
	if n := len(c.events); n > 0 && c.size >= c.bytes && v.Main > c.events[n-1].Version.Main {
		c.next = v.Main
		return true
	}
	return false
}

func (c *collector) addChanges(changes []keyChange) {
	for i := range changes {
		ch := &changes[i]
		if c.full(ch.version) {
			return
		}
		if ch.tombstone {
			_, shown := encodeTombstone(ch.entry.key, ch.version.Main)
			c.add(ch.entry, ch.version, true, shown)
			continue
		}
		f := found{version: ch.version, head: ch.entry.alive() && ch.entry.live.last() == ch.version}
		b, err := c.view.value(ch.entry, f)
		if err != nil {
			c.err = err
			return
		}
		c.add(ch.entry, ch.version, false, b)
	}
}

// scan walks the log of all changes: the file's, then what only memory has.
func (c *collector) scan(from proto.Revision) {
	start := proto.Version{Main: from}
	until := proto.Version{Main: c.through + 1}
	if first, ok := c.view.recent.first(); ok && first.Less(until) {
		until = first
	}
	if start.Less(until) {
		var damaged bool
		err := c.view.file.Scan(proto.BucketKey, appendVersionKey(nil, start), appendVersionKey(nil, until),
			func(key, record []byte) bool {
				v, tombstone, ok := parseVersionKey(key)
				damaged = damaged || !ok
				return ok && c.take(v, tombstone, record, true)
			})
		actors.Must(!damaged, "the key bucket holds a key that is no revision")
		if c.err = err; err != nil || c.next != 0 {
			return
		}
	}
	c.view.recent.scan(start, func(item *recentItem) bool {
		return c.take(item.version, item.tombstone, item.record, false)
	})
}

// take adds a stored change if its key is in the range; borrowed says that the bytes belong to the file.
func (c *collector) take(v proto.Version, tombstone bool, record []byte, borrowed bool) bool {
	if c.scanned++; c.scanned > eventScanMax && v.Main > c.last {
		c.next = v.Main
		return false
	}
	c.last = v.Main
	key := keyOfRecord(record)
	if !c.keys.Contains(key) {
		return v.Main <= c.through
	}
	if c.full(v) {
		return false
	}
	switch {
	case tombstone:
		record = tombstoneEvent(record, v.Main)
	case borrowed:
		record = append(make([]byte, 0, len(record)), record...)
	}
	e := c.view.entry(key)
	if e == nil {
		e = &keyEntry{key: keyOfRecord(record)}
	}
	c.add(e, v, tombstone, record)
	return true
}

// add makes the event.
func (c *collector) add(e *keyEntry, v proto.Version, tombstone bool, shown []byte) {
	event := proto.Event{Version: v, Kind: proto.EventPut, Key: e.key, KeyValue: shown}
	if tombstone {
		event.Kind = proto.EventDelete
	} else {
		kv := mustParse(shown, v)
		event.Created = kv.create == kv.mod
	}
	if v.Main-1 >= c.view.compacted && !event.Created {
		if f, ok := e.get(v.Main - 1); ok {
			event.Previous = f.version
		}
	}
	c.events = append(c.events, event)
	c.size += event.Size()
}
