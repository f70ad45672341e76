package storeactor

import (
	"bytes"

	"github.com/tidwall/btree"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// CheckChanges gives ErrDuplicateKey when an execution of the operations, whichever branches its nested txns take,
// might change one key twice.
//
// The rule: two puts of one key clash, and so do a put and a deletion that covers it, in whatever order they stand
// and however deep either is nested, unless they are in the two branches of one nested txn, of which only one is
// executed. Two deletions of a key do not clash. All ranges are exact intervals of byte strings, so that every
// spelling of a range is judged alike. It is stricter than etcd where etcd overlooks an overlap, and may be, because
// it comes before the proposal.
func CheckChanges(ops []*pb.RequestOp) error {
	if len(ops) <= changesPairwiseMax && !hasTxn(ops) {
		return checkPairs(ops)
	}
	_, err := changesOf(ops)
	return err
}

// changesPairwiseMax is the number of operations up to which all pairs are compared, which allocates nothing; a
// longer list, or a nested one, is judged by ordered sets.
const changesPairwiseMax = 16

func hasTxn(ops []*pb.RequestOp) bool {
	for _, op := range ops {
		if op.GetRequestTxn() != nil {
			return true
		}
	}
	return false
}

// checkPairs judges operations that are not nested.
func checkPairs(ops []*pb.RequestOp) error {
	for i, op := range ops {
		put := op.GetRequestPut()
		if put == nil {
			continue
		}
		for j, other := range ops {
			if second := other.GetRequestPut(); second != nil && j > i && bytes.Equal(put.Key, second.Key) {
				return ErrDuplicateKey
			}
			if del := other.GetRequestDeleteRange(); del != nil && NewKeyRange(del.Key, del.RangeEnd).Contains(put.Key) {
				return ErrDuplicateKey
			}
		}
	}
	return nil
}

// interval is a set of keys from <= key < to, or from <= key when open. A single key k is the interval from k to
// k+"\0", the next byte string after it; so all ranges have one form, and uniting them is exact.
type interval struct {
	from, to string
	open     bool
}

func intervalOf(r KeyRange) interval {
	v := interval{from: string(r.From), open: r.kind == rangeOpen}
	switch r.kind {
	case rangeSingle:
		v.to = v.from + "\x00"
	case rangeBounded:
		v.to = string(r.To)
	}
	return v
}

func (v interval) contains(key string) bool { return v.from <= key && (v.open || key < v.to) }

// reaches reports whether v, which begins at or before w, leaves no gap before it.
func (v interval) reaches(w interval) bool { return v.open || w.from <= v.to }

// extend gives v grown to the end of w.
func (v interval) extend(w interval) interval {
	if w.open || !v.open && v.to < w.to {
		v.to, v.open = w.to, w.open
	}
	return v
}

// changes is what operations may change: the keys they may put and the keys they may delete, the latter as intervals
// that do not touch.
type changes struct {
	puts    btree.Set[string]
	deletes *btree.BTreeG[interval]
}

func newChanges() *changes {
	return &changes{deletes: btree.NewBTreeGOptions(func(a, b interval) bool { return a.from < b.from },
		btree.Options{NoLocks: true})}
}

// changesOf gives what the operations may change, nil for nothing, or ErrDuplicateKey. The smaller set is merged into
// the larger and nesting is bounded by the count of operations, so the cost is n log n for whatever a request can
// hold.
func changesOf(ops []*pb.RequestOp) (*changes, error) {
	var all *changes
	for _, op := range ops {
		one, err := changesOfOne(op)
		if err != nil {
			return nil, err
		}
		if all.clashes(one) {
			return nil, ErrDuplicateKey
		}
		all = all.merge(one)
	}
	return all, nil
}

func changesOfOne(op *pb.RequestOp) (*changes, error) {
	switch v := op.GetRequest().(type) {
	case *pb.RequestOp_RequestPut:
		one := newChanges()
		one.puts.Insert(string(v.RequestPut.GetKey()))
		return one, nil
	case *pb.RequestOp_RequestDeleteRange:
		r := NewKeyRange(v.RequestDeleteRange.GetKey(), v.RequestDeleteRange.GetRangeEnd())
		if r.Empty() {
			return nil, nil
		}
		one := newChanges()
		one.deletes.Set(intervalOf(r))
		return one, nil
	case *pb.RequestOp_RequestTxn:
		success, err := changesOf(v.RequestTxn.GetSuccess())
		if err != nil {
			return nil, err
		}
		failure, err := changesOf(v.RequestTxn.GetFailure())
		return success.merge(failure), err
	}
	return nil, nil
}

func (c *changes) size() int { return c.puts.Len() + c.deletes.Len() }

// clashes reports whether an execution that does both changes a key twice. It walks the smaller one.
func (c *changes) clashes(d *changes) bool {
	if c == nil || d == nil {
		return false
	}
	if c.size() < d.size() {
		c, d = d, c
	}
	clash := false
	d.puts.Scan(func(key string) bool {
		clash = c.puts.Contains(key) || c.deletesKey(key)
		return !clash
	})
	if clash {
		return true
	}
	d.deletes.Scan(func(v interval) bool {
		c.puts.Ascend(v.from, func(key string) bool {
			clash = v.contains(key)
			return false
		})
		return !clash
	})
	return clash
}

func (c *changes) deletesKey(key string) bool {
	covered := false
	c.deletes.Descend(interval{from: key}, func(v interval) bool {
		covered = v.contains(key)
		return false
	})
	return covered
}

// merge unites the two, either of which may be nil, and uses both up.
func (c *changes) merge(d *changes) *changes {
	if c == nil {
		return d
	}
	if d == nil {
		return c
	}
	if c.size() < d.size() {
		c, d = d, c
	}
	d.puts.Scan(func(key string) bool { c.puts.Insert(key); return true })
	d.deletes.Scan(func(v interval) bool { c.addDelete(v); return true })
	return c
}

// addDelete adds an interval, united with those it meets.
func (c *changes) addDelete(v interval) {
	c.deletes.Descend(v, func(before interval) bool {
		if before.reaches(v) {
			v = before.extend(v)
		}
		return false
	})
	for {
		var met *interval
		c.deletes.Ascend(interval{from: v.from}, func(w interval) bool {
			if v.reaches(w) {
				met = &w
			}
			return false
		})
		if met == nil {
			break
		}
		c.deletes.Delete(*met)
		v = v.extend(*met)
	}
	c.deletes.Set(v)
}
