package storeactor

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sort"

	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// history is what a store does, written down before it happens: the same index always makes the same writes, as a
// replayed log does. It knows by plain rules, without index or generations, what the file must hold.
type history struct {
	steps   []historyStep // steps[i] is index i+1
	records []historyRecord
}

type historyStep struct {
	write *backendWrite
	// revision and compacted are those after the step.
	revision, compacted proto.Revision
	// compact says that a compaction to `compacted` follows the step.
	compact bool
	others  map[string]string // the records outside the key bucket after the step
}

type historyRecord struct {
	index     proto.Index
	version   proto.Version
	key       string
	tombstone bool
	stored    []byte // key in the file
	value     []byte
	// replaced is the main revision of the next version of the same key, 0 when there is none.
	replaced proto.Revision
}

// newHistory draws a history of n entries: puts and deletions of few keys, some in one revision, re-creations, leases,
// entries without writes, configuration changes, and compactions, many of them exactly at a deletion.
func newHistory(r *rand.Rand, n int) *history {
	h := &history{}
	revision, compacted := proto.Revision(1), proto.Revision(-1)
	alive := map[string]bool{}
	others := map[string]string{}
	for i := 1; i <= n; i++ {
		w := &backendWrite{index: proto.Index(i), term: proto.Term(1 + i/20)}
		step := historyStep{write: w}
		switch kind := r.IntN(10); {
		case kind < 6:
			revision++
			for sub := range 1 + r.IntN(3) {
				h.change(r, w, proto.Version{Main: revision, Sub: proto.SubRevision(sub)}, alive)
			}
		case kind < 7:
			id := 1 + r.Int64N(4)
			key := binary.BigEndian.AppendUint64(nil, uint64(id))
			value, _ := gproto.Marshal(&proto.LeaseRecord{Id: id, Ttl: int64(i)})
			w.batch = append(w.batch, proto.BucketWrite{Bucket: proto.BucketLease, Key: key, Value: value})
			others["lease/"+string(key)] = string(value)
		case kind < 8 && revision > compacted && revision > 1:
			compacted = max(compacted+1, revision-proto.Revision(r.IntN(4)))
			step.compact = true
			w.batch = append(w.batch, proto.BucketWrite{
				Bucket: proto.BucketMeta, Key: metaScheduled, Value: appendVersionKey(nil, proto.Version{Main: compacted}),
			})
		case kind < 9:
			w.confState = fmt.Appendf(nil, `{"voters":[%d]}`, i)
			others["conf"] = string(w.confState)
		}
		w.revision = revision
		for _, change := range w.batch {
			w.bytes += len(change.Key) + len(change.Value)
		}
		step.revision, step.compacted = revision, compacted
		step.others = map[string]string{}
		for k, v := range others {
			step.others[k] = v
		}
		h.steps = append(h.steps, step)
	}
	return h
}

func (h *history) change(r *rand.Rand, w *backendWrite, v proto.Version, alive map[string]bool) {
	key := string(rune('a' + r.IntN(5)))
	record := historyRecord{index: w.index, version: v, key: key, stored: appendVersionKey(nil, v)}
	kv := &mvccpb.KeyValue{Key: []byte(key)}
	if alive[key] && r.IntN(2) == 0 {
		record.tombstone, record.stored = true, append(record.stored, tombstoneMark)
	} else {
		kv.Value, kv.ModRevision = fmt.Appendf(nil, "value %d", v.Main), int64(v.Main)
	}
	alive[key] = !record.tombstone
	for i := len(h.records) - 1; i >= 0; i-- {
		if h.records[i].key == key {
			h.records[i].replaced = v.Main
			break
		}
	}
	record.value, _ = gproto.Marshal(kv)
	h.records = append(h.records, record)
	w.batch = append(w.batch, proto.BucketWrite{Bucket: proto.BucketKey, Key: record.stored, Value: record.value})
}

// dropRecreations leaves out changes of a key that follow another one in the same revision: etcd loses a value that was
// created so in the compacted revision, which is the one listed difference.
func (h *history) dropRecreations() {
	seen := map[string]bool{}
	dropped := map[string]bool{}
	kept := h.records[:0]
	alive := map[string]bool{}
	for _, record := range h.records {
		id := fmt.Sprint(record.key, record.version.Main)
		if seen[id] || record.tombstone && !alive[record.key] {
			dropped[string(record.stored)] = true
			continue
		}
		seen[id] = true
		alive[record.key] = !record.tombstone
		record.replaced = 0
		for i := len(kept) - 1; i >= 0; i-- {
			if kept[i].key == record.key {
				kept[i].replaced = record.version.Main
				break
			}
		}
		kept = append(kept, record)
	}
	h.records = kept
	for _, step := range h.steps {
		batch := step.write.batch[:0]
		for _, w := range step.write.batch {
			if w.Bucket != proto.BucketKey || !dropped[string(w.Key)] {
				batch = append(batch, w)
			}
		}
		step.write.batch = batch
	}
}

// at gives the step of an index; index 0 is the empty store.
func (h *history) at(index proto.Index) historyStep {
	if index == 0 {
		return historyStep{revision: 1, compacted: -1, others: map[string]string{}}
	}
	return h.steps[index-1]
}

// survives says whether a compaction at rev leaves the record: it is the newest of its key at or below rev, and not an
// older tombstone; or it is a tombstone exactly at rev.
func (h *history) survives(record *historyRecord, rev proto.Revision) bool {
	if record.version.Main > rev || record.tombstone && record.version.Main == rev {
		return true
	}
	return !record.tombstone && (record.replaced == 0 || record.replaced > rev)
}

func (h *history) find(v proto.Version) *historyRecord {
	i := sort.Search(len(h.records), func(i int) bool { return !h.records[i].version.Less(v) })
	return &h.records[i]
}

func (h *history) keep(rev proto.Revision) func([]byte, proto.Version) bool {
	return func(key []byte, v proto.Version) bool {
		record := h.find(v)
		if record.key != string(key) {
			panic(fmt.Sprintf("asked for key %q at %v, which is %q", key, v, record.key))
		}
		return h.survives(record, rev)
	}
}

// state is what a store publishes at the index, as far as hashes look at it.
func (h *history) state(index proto.Index) *State {
	tree := newKeyTree()
	for i := range h.records {
		record := &h.records[i]
		if record.index > index {
			break
		}
		entry, found := tree.Get(&keyEntry{key: []byte(record.key)})
		if !found {
			entry = &keyEntry{key: []byte(record.key)}
		}
		if record.tombstone {
			tree.Set(entry.withTombstone(record.version))
		} else {
			tree.Set(entry.withPut(record.version, 0, 0))
		}
	}
	step := h.at(index)
	return &State{Applied: index, Revision: step.revision, Compacted: step.compacted, tree: tree}
}

// hashKeepsAny says whether a hash at the revision keeps any record of any key.
func (h *history) hashKeepsAny(index proto.Index, rev proto.Revision) bool {
	for i := range h.records {
		r := &h.records[i]
		if r.index <= index && r.version.Main <= rev && !r.tombstone && h.survives(r, rev) {
			return true
		}
	}
	return false
}

// wantHash is HashKV at the revision for a store at the index, by its definition.
func (h *history) wantHash(index proto.Index, rev proto.Revision) uint32 {
	compacted := h.at(index).compacted
	at := rev
	if !h.hashKeepsAny(index, rev) {
		at = compacted // etcd's rule for an empty set: everything counts that the compaction left
	}
	sum := crc32.Update(0, castagnoli, []byte("key"))
	for i := range h.records {
		record := &h.records[i]
		main := record.version.Main
		if record.index > index || main > rev {
			continue
		}
		if main <= compacted && (!h.survives(record, at) || record.tombstone && main == compacted) {
			continue
		}
		sum = crc32.Update(sum, castagnoli, record.stored)
		sum = crc32.Update(sum, castagnoli, record.value)
	}
	return sum
}

// check compares a file with the history: everything up to the file's own consistent index and nothing behind it,
// without the records that its compactions may have deleted, and without all that a finished one must have deleted. It
// gives the consistent index.
func (h *history) check(view FileView) (proto.Index, error) {
	meta := func(key []byte) []byte {
		value, _, _ := view.Append(nil, proto.BucketMeta, key)
		return value
	}
	index := proto.Index(0)
	if value := meta(metaConsistentIndex); value != nil {
		index = proto.Index(binary.BigEndian.Uint64(value))
	}
	if int(index) > len(h.steps) {
		return index, fmt.Errorf("consistent index %d", index)
	}
	step := h.at(index)
	if index > 0 && proto.Term(binary.BigEndian.Uint64(meta(metaTerm))) != step.write.term {
		return index, fmt.Errorf("the term is not that of index %d", index)
	}
	if got, want := string(meta(metaConfState)), step.others["conf"]; got != want {
		return index, fmt.Errorf("at index %d: confState %q, want %q", index, got, want)
	}
	compactions, err := readCompactions(view)
	if err != nil {
		return index, err
	}
	if compactions.scheduled != step.compacted {
		return index, fmt.Errorf("at index %d: scheduled %d, want %d", index, compactions.scheduled, step.compacted)
	}
	if compactions.finished > compactions.scheduled {
		return index, fmt.Errorf("finished %d after scheduled %d", compactions.finished, compactions.scheduled)
	}
	return index, h.checkRecords(view, index, compactions)
}

func (h *history) checkRecords(view FileView, index proto.Index, compactions compactionRecords) error {
	var bad error
	stored := map[string]string{}
	err := view.Scan(proto.BucketKey, nil, nil, func(key, value []byte) bool {
		stored[string(key)] = string(value)
		return true
	})
	if err != nil {
		return err
	}
	for i := range h.records {
		record := &h.records[i]
		value, found := stored[string(record.stored)]
		delete(stored, string(record.stored))
		switch {
		case record.index > index:
			if found {
				bad = fmt.Errorf("record %v of index %d in a file at index %d", record.version, record.index, index)
			}
		case found && value != string(record.value):
			bad = fmt.Errorf("record %v has the value %q", record.version, value)
		case !found && h.survives(record, compactions.scheduled):
			bad = fmt.Errorf("record %v (key %s, tombstone %v) is lost; scheduled %d, finished %d",
				record.version, record.key, record.tombstone, compactions.scheduled, compactions.finished)
		case found && !h.survives(record, compactions.finished):
			bad = fmt.Errorf("record %v is left after compaction %d", record.version, compactions.finished)
		}
	}
	for key := range stored {
		bad = fmt.Errorf("unknown record %x", key)
	}
	leases := map[string]string{}
	_ = view.Scan(proto.BucketLease, nil, nil, func(key, value []byte) bool {
		leases["lease/"+string(key)] = string(value)
		return true
	})
	for key, want := range h.at(index).others {
		if key != "conf" && leases[key] != want {
			bad = fmt.Errorf("at index %d: %s is %q, want %q", index, key, leases[key], want)
		}
	}
	return bad
}
