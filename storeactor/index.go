package storeactor

import (
	"github.com/tidwall/btree"

	"troupe/actors"
	"troupe/proto"
)

// keyTree is the ordered index of all keys, the deleted ones too until a compaction drops them. The tree copies on
// write: a copy shares the nodes, and whoever changes its own tree copies the nodes on the path first. So published
// copies may be read by any number of goroutines without a lock while the store goes on changing its own. It has no
// lock of its own.
type keyTree = btree.BTreeG[*keyEntry]

// indexDegree makes nodes of up to 31 entries: a larger node makes the copies on write dearer, a smaller one the tree
// deeper. Measured for a million keys, 16 to 32 are equal; with 100,000 keys and puts of 100 clients, 16 copies less.
const indexDegree = 16

func newKeyTree() *keyTree {
	return btree.NewBTreeGOptions(lessEntry, btree.Options{Degree: indexDegree, NoLocks: true})
}

// reader reads keys and values of one state: a published one, or the store's own in its turn. It belongs to one
// goroutine.
type reader struct {
	tree   *keyTree
	dead   *keyTree // the entries of it that are not alive, as of the same state
	recent recent
	cache  *valueCache
	file   FileView
	// reopen gives a new handle when file was cut off. Only the store has it; everybody else begins again with a newer
	// state.
	reopen func() (FileView, error)

	revision, compacted proto.Revision

	// What searches need beside their result; fields, so that a search does not allocate.
	pivot      keyEntry
	versionKey [revisionKeyBytes]byte
}

// entry gives the entry of the key, or nil.
func (r *reader) entry(key []byte) *keyEntry {
	r.pivot.key = key
	e, _ := r.tree.Get(&r.pivot)
	return e
}

// visit calls f for each entry of the range in order, dead ones too, until f gives false.
func (r *reader) visit(keys KeyRange, f func(e *keyEntry) bool) {
	if keys.Single() {
		if e := r.entry(keys.From); e != nil {
			f(e)
		}
		return
	}
	if keys.Empty() {
		return
	}
	r.pivot.key = keys.From
	if keys.kind == rangeOpen {
		r.tree.Ascend(&r.pivot, f)
		return
	}
	to := string(keys.To)
	r.tree.Ascend(&r.pivot, func(e *keyEntry) bool { return string(e.key) < to && f(e) })
}

// value gives the encoded KeyValue of a version that the index has. The bytes are shared and must not be written to.
func (r *reader) value(e *keyEntry, f found) ([]byte, error) {
	if f.head {
		if b := r.cache.load(e.head); b != nil {
			return b, nil
		}
	}
	if b := r.recent.find(f.version); b != nil {
		return b, nil
	}
	b, err := r.stored(f.version)
	if err != nil {
		return nil, err
	}
	if f.head {
		r.cache.fill(e.head, b)
	}
	return b, nil
}

// cached gives the bytes of a head if they are in memory, else nil.
func (r *reader) cached(e *keyEntry) []byte {
	if b := r.cache.load(e.head); b != nil {
		return b
	}
	return r.recent.find(e.live.last())
}

// stored reads the value of a put that the index has from the file. A value that is in neither is lost data: the
// member must not go on answering.
func (r *reader) stored(v proto.Version) ([]byte, error) {
	b, ok, err := r.lookup(v)
	if err == nil && !ok {
		actors.Must(false, "the value of revision %d/%d is neither in memory nor in the file", v.Main, v.Sub)
	}
	return b, err
}

// lookup reads the value of a put from the file, if it is there.
func (r *reader) lookup(v proto.Version) ([]byte, bool, error) {
	key := appendVersionKey(r.versionKey[:0], v)
	b, ok, err := r.file.Append(nil, proto.BucketKey, key)
	if err != nil && r.reopen != nil {
		if r.file, err = r.reopen(); err == nil {
			b, ok, err = r.file.Append(nil, proto.BucketKey, key)
		}
	}
	return b, ok, err
}
