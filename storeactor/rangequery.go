package storeactor

import (
	"bytes"
	"math"
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// rangeItem is one visible key of a range, before its value is needed.
type rangeItem struct {
	entry *keyEntry
	found found
	kv    []byte // encoded, once loaded
	value []byte // for sorting by value
}

// ranged executes a range as of `current`, the newest revision the caller may see, and leaves out nothing that etcd
// 3.7.3 does: the limit is pushed down only in key order and without filters; the count ignores limit and filters;
// keys_only is answered from the index, without the lease, unless the sort needs the values.
func (r *reader) ranged(q *pb.RangeRequest, current proto.Revision) (rangeResult, error) {
	at, err := r.readRevision(proto.Revision(q.Revision), current)
	if err != nil {
		return rangeResult{}, err
	}
	keys := NewKeyRange(q.Key, q.RangeEnd)
	if q.CountOnly {
		return r.counted(keys, at, at == current), nil
	}
	if defaultOrder(q) && !filtersRevisions(q) {
		return r.inKeyOrder(q, keys, at, at == current)
	}
	return r.filteredAndSorted(q, keys, at, at == current)
}

// readRevision gives the revision to read at: 0 and below mean the current one.
func (r *reader) readRevision(wanted, current proto.Revision) (proto.Revision, error) {
	if wanted > current {
		return 0, ErrFutureRevision
	}
	if wanted <= 0 {
		wanted = current
	}
	if wanted < r.compacted {
		return 0, ErrCompacted
	}
	return wanted, nil
}

// counted counts the keys of a range at a revision; newest says that it is the newest the caller may see.
func (r *reader) counted(keys KeyRange, at proto.Revision, newest bool) rangeResult {
	var result rangeResult
	count := counting{newest: newest}
	r.visit(keys, func(e *keyEntry) bool {
		if _, ok := e.get(at); ok {
			result.count++
		}
		return count.goOn()
	})
	if count.cut {
		result.count = r.living(keys)
	}
	return result
}

// defaultOrder reports whether the answer is in key order as the index has it. Order NONE with another target than
// KEY is sorted afterwards, but its limit has been applied in key order by then.
func defaultOrder(q *pb.RangeRequest) bool {
	return q.SortTarget == pb.RangeRequest_KEY && q.SortOrder != pb.RangeRequest_DESCEND && knownOrder(q.SortOrder)
}

// limitPushed reports whether the limit applies to the keys in their order, before sorting.
func limitPushed(q *pb.RangeRequest) bool {
	return (q.SortOrder == pb.RangeRequest_NONE || defaultOrder(q)) && !filtersRevisions(q)
}

func knownOrder(o pb.RangeRequest_SortOrder) bool {
	return knownEnum(pb.RangeRequest_SortOrder_name, o)
}

func filtersRevisions(q *pb.RangeRequest) bool {
	return q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 || q.MaxCreateRevision != 0
}

// inKeyOrder is the common case: one walk over the index, values spliced as they are met.
func (r *reader) inKeyOrder(q *pb.RangeRequest, keys KeyRange, at proto.Revision, newest bool) (rangeResult, error) {
	var result rangeResult
	var failed error
	count := counting{newest: newest}
	limit := q.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	r.visit(keys, func(e *keyEntry) bool {
		f, ok := e.get(at)
		if !ok {
			return true
		}
		result.count++
		if result.count > limit {
			result.more = true
			return count.goOn()
		}
		kv, err := r.shown(q, e, f)
		if err != nil {
			failed = err
			return false
		}
		if result.kvs == nil && !keys.Single() {
			result.borrow()
		}
		result.add(kv)
		return true
	})
	if count.cut {
		result.count = r.living(keys)
	}
	return result, failed
}

// answerRange executes a range and writes its answer.
func (r *reader) answerRange(q *pb.RangeRequest) (*proto.Result, error) {
	if len(q.RangeEnd) == 0 && !q.CountOnly && !q.KeysOnly && defaultOrder(q) && !filtersRevisions(q) {
		if result, err := r.answerKey(q); result != nil || err != nil {
			return result, err
		}
	}
	result, err := r.ranged(q, r.revision)
	defer result.giveBack()
	if err != nil {
		return nil, err
	}
	return newResult(r.revision, &result, result.size()), nil
}

// answerKey answers the most frequent of all requests, the value of one key, in one allocation for the bytes and one
// for the rest; nil when the value is too large for that.
func (r *reader) answerKey(q *pb.RangeRequest) (*proto.Result, error) {
	at, err := r.readRevision(proto.Revision(q.Revision), r.revision)
	if err != nil {
		return nil, err
	}
	e := r.entry(q.Key)
	if e == nil {
		return &proto.Result{Revision: r.revision}, nil
	}
	f, ok := e.get(at)
	if !ok {
		return &proto.Result{Revision: r.revision}, nil
	}
	kv, err := r.value(e, f)
	size := sizeBytesField(len(kv)) + sizeVarintField(1)
	if err != nil || size > answerSmallBytes {
		return nil, err
	}
	body := append(appendBytesHead(make([]byte, 0, size), tagRangeKeyValue, len(kv)), kv...)
	return newOwnedResult(r.revision, appendVarintField(body, tagRangeCount, 1)), nil
}

// shown gives the encoded KeyValue as the range shows it.
func (r *reader) shown(q *pb.RangeRequest, e *keyEntry, f found) ([]byte, error) {
	if !q.KeysOnly {
		return r.value(e, f)
	}
	if q.SortTarget != pb.RangeRequest_VALUE {
		kv := keyValue{key: e.key, create: f.created, mod: f.version.Main, version: f.number}
		return kv.encode(), nil
	}
	b, err := r.value(e, f)
	if err != nil {
		return nil, err
	}
	kv := mustParse(b, f.version)
	kv.value = nil
	return kv.encode(), nil
}

// filteredAndSorted is the general case: the visible keys are collected, filtered, sorted and cut, and values are
// read only for what is left, except to sort by them.
func (r *reader) filteredAndSorted(q *pb.RangeRequest, keys KeyRange, at proto.Revision, newest bool) (rangeResult,
	error) {
	var result rangeResult
	count := counting{newest: newest}
	var items []rangeItem
	pushed := limitPushed(q) && q.Limit > 0
	r.visit(keys, func(e *keyEntry) bool {
		if f, ok := e.get(at); ok {
			result.count++
			if pushed && int64(len(items)) > q.Limit {
				return count.goOn()
			}
			items = append(items, rangeItem{entry: e, found: f})
		}
		return true
	})
	if count.cut {
		result.count = r.living(keys)
	}
	items = filterItems(q, items)
	if err := r.sortItems(q, items); err != nil {
		return rangeResult{}, err
	}
	if q.Limit > 0 && int64(len(items)) > q.Limit {
		items = items[:q.Limit]
		result.more = true
	}
	for i := range items {
		kv := items[i].kv
		if kv == nil || q.KeysOnly {
			var err error
			if kv, err = r.shown(q, items[i].entry, items[i].found); err != nil {
				return rangeResult{}, err
			}
		}
		result.add(kv)
	}
	return result, nil
}

func filterItems(q *pb.RangeRequest, items []rangeItem) []rangeItem {
	if !filtersRevisions(q) {
		return items
	}
	kept := items[:0]
	for _, item := range items {
		mod, create := int64(item.found.version.Main), int64(item.found.created)
		if within(mod, q.MinModRevision, q.MaxModRevision) && within(create, q.MinCreateRevision, q.MaxCreateRevision) {
			kept = append(kept, item)
		}
	}
	return kept
}

// within reports low <= v <= high, where a bound of zero is none.
func within(v, low, high int64) bool { return (low == 0 || v >= low) && (high == 0 || v <= high) }

// itemOrder sorts items by a number or by bytes. It is used with sort.Sort, which is not stable, on purpose: equal
// targets come in the same order as from etcd, which sorts the same list with it.
type itemOrder struct {
	items []rangeItem
	less  func(a, b *rangeItem) bool
}

func (o itemOrder) Len() int           { return len(o.items) }
func (o itemOrder) Swap(i, j int)      { o.items[i], o.items[j] = o.items[j], o.items[i] }
func (o itemOrder) Less(i, j int) bool { return o.less(&o.items[i], &o.items[j]) }

// sortItems sorts as the request says. A target other than KEY without an order is sorted ascending.
func (r *reader) sortItems(q *pb.RangeRequest, items []rangeItem) error {
	order := q.SortOrder
	if q.SortTarget != pb.RangeRequest_KEY && order == pb.RangeRequest_NONE {
		order = pb.RangeRequest_ASCEND
	}
	less := itemLess[q.SortTarget]
	if less == nil || defaultOrder(q) || order != pb.RangeRequest_ASCEND && order != pb.RangeRequest_DESCEND {
		return nil
	}
	if q.SortTarget == pb.RangeRequest_VALUE {
		for i := range items {
			kv, err := r.value(items[i].entry, items[i].found)
			if err != nil {
				return err
			}
			items[i].kv, items[i].value = kv, mustParse(kv, items[i].found.version).value
		}
	}
	var by sort.Interface = itemOrder{items, less}
	if order == pb.RangeRequest_DESCEND {
		by = sort.Reverse(by)
	}
	sort.Sort(by)
	return nil
}

var itemLess = map[pb.RangeRequest_SortTarget]func(a, b *rangeItem) bool{
	pb.RangeRequest_KEY:     func(a, b *rangeItem) bool { return bytes.Compare(a.entry.key, b.entry.key) < 0 },
	pb.RangeRequest_VERSION: func(a, b *rangeItem) bool { return a.found.number < b.found.number },
	pb.RangeRequest_CREATE:  func(a, b *rangeItem) bool { return a.found.created < b.found.created },
	pb.RangeRequest_MOD:     func(a, b *rangeItem) bool { return a.found.version.Main < b.found.version.Main },
	pb.RangeRequest_VALUE:   func(a, b *rangeItem) bool { return bytes.Compare(a.value, b.value) < 0 },
}
