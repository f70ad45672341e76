package storeactor

import "sort"

// The number of keys in a range, without a walk over them.
//
// The API counts all keys of a range, whatever the limit: a client that reads a million keys in pages would have the
// whole rest counted for each page. The tree knows the position of every entry, so the entries between two keys are a
// subtraction; those of deleted keys, which wait in the index for a compaction, are known by a tree of their own. Only
// the newest revision can be counted so. What an older one saw is found by walking.

// bury enters an entry that is dead, in the place of an older one of the same key.
func (m *machine) bury(e *keyEntry) {
	m.dead.Set(e)
	m.deadPublished = nil
}

// unbury takes out the entry of a key that lives again, or that the index drops.
func (m *machine) unbury(e *keyEntry) {
	m.dead.Delete(e)
	m.deadPublished = nil
}

// publishDead gives a tree of the dead entries that does not change any more.
func (m *machine) publishDead() *keyTree {
	if m.deadPublished == nil {
		m.deadPublished = m.dead.Copy()
	}
	return m.deadPublished
}

// living counts the keys of the range at the newest revision.
func (r *reader) living(keys KeyRange) int64 {
	switch {
	case keys.Empty():
		return 0
	case keys.Single():
		if e := r.entry(keys.From); e != nil && e.alive() {
			return 1
		}
		return 0
	}
	return entriesOf(r.tree, keys) - entriesOf(r.dead, keys)
}

// entriesOf counts the entries of a tree in a range of more than one key.
func entriesOf(t *keyTree, keys KeyRange) int64 {
	end := t.Len()
	if keys.kind != rangeOpen {
		end = position(t, keys.To)
	}
	return int64(max(0, end-position(t, keys.From)))
}

// position gives how many entries come before a key. It takes about log2(n) descents.
func position(t *keyTree, key []byte) int {
	return sort.Search(t.Len(), func(i int) bool {
		e, _ := t.GetAt(i)
		return string(e.key) >= string(key)
	})
}

// counting decides when a walk that goes on only to count ends early.
type counting struct {
	newest bool // the range is read at the newest revision
	walked int
	cut    bool // the walk has ended early: the count is living
}

// goOn reports whether to walk on for the count: so much walking costs no more than two positions.
func (c *counting) goOn() bool {
	c.walked++
	c.cut = c.newest && c.walked > countWalkMax
	return !c.cut
}
