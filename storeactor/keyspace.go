package storeactor

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"

	"troupe/proto"
)

// KeyspaceQuery asks which prefixes take the space.
type KeyspaceQuery struct {
	// Depth is how many parts of a key, each ended by '/', make its prefix: 1 to KeyspaceDepthMax. A '/' that a key begins
	// with ends no part, so that with 2 /registry/pods/default/web belongs to /registry/pods/. A key with fewer parts
	// belongs to the prefix through its last '/', and one without any to the empty prefix.
	Depth int
	// Top is how many prefixes are listed, 1 to KeyspaceTopMax; the others are summed up.
	Top int
	// Within leaves out the keys that do not begin so.
	Within []byte
}

// PrefixUse is what the keys of one prefix take. Bytes are those of the records in the file, keys and values; what
// pages add is in no prefix.
type PrefixUse struct {
	// Prefix is the prefix, at most keyspacePrefixBytesMax of it; Cut says that it is longer.
	Prefix []byte
	Cut    bool
	// Keys is how many keys exist, LiveBytes what their present values take.
	Keys, LiveBytes int64
	// Revisions is how many values and deletions are stored, the present values among them, and Bytes what all of them
	// take. What Bytes exceeds LiveBytes by is what a compaction can free.
	Revisions, Bytes int64
}

func (u *PrefixUse) add(v *PrefixUse) {
	u.Keys += v.Keys
	u.LiveBytes += v.LiveBytes
	u.Revisions += v.Revisions
	u.Bytes += v.Bytes
}

// Keyspace is a report. It is made in pieces beside all other work, each at the state published then, so that it is
// exact for a prefix that nobody wrote to meanwhile.
type Keyspace struct {
	// Prefixes are those that take the most, by Bytes.
	Prefixes []PrefixUse
	// Others sums up the other prefixes, of which there are OtherPrefixes; Total is everything.
	Others        PrefixUse
	OtherPrefixes int64
	Total         PrefixUse
	// From and Through are the revisions at the beginning and at the end, Compacted the compact revision and Sizes the
	// sizes of the file at the end.
	From, Through, Compacted proto.Revision
	Sizes                    FileSizes
}

// prefixOf gives the prefix that a key belongs to at a depth.
func prefixOf(key []byte, depth int) []byte {
	end := 0
	for depth > 0 {
		i := bytes.IndexByte(key[end:], '/')
		if i < 0 {
			break
		}
		if end += i + 1; end > 1 {
			depth--
		}
	}
	return key[:end]
}

// keyspaceSums adds up prefixes whose keys come in order, and keeps those that take the most. It is pure. Its memory is
// bounded by depth and top, whatever the keys: one is open only while keys of it may follow, and each open one begins
// with the one before.
type keyspaceSums struct {
	depth, top int
	open       []PrefixUse
	largest    useHeap
	report     Keyspace
}

// of gives the sums of the prefix that a key belongs to, valid until the next call.
func (s *keyspaceSums) of(key []byte) *PrefixUse {
	prefix := prefixOf(key, s.depth)
	for n := len(s.open); n > 0 && !bytes.HasPrefix(prefix, s.open[n-1].Prefix); n-- {
		s.close()
	}
	n := len(s.open)
	if n == 0 || len(s.open[n-1].Prefix) < len(prefix) {
		s.open = append(s.open, PrefixUse{Prefix: bytes.Clone(prefix)})
	}
	return &s.open[len(s.open)-1]
}

// close ends the innermost open prefix.
func (s *keyspaceSums) close() {
	n := len(s.open) - 1
	use := s.open[n]
	s.open[n] = PrefixUse{}
	s.open = s.open[:n]
	s.report.Total.add(&use)
	if len(use.Prefix) > keyspacePrefixBytesMax {
		use.Prefix, use.Cut = bytes.Clone(use.Prefix[:keyspacePrefixBytesMax]), true
	}
	heap.Push(&s.largest, use)
	if len(s.largest) > s.top {
		least := heap.Pop(&s.largest).(PrefixUse)
		s.report.Others.add(&least)
		s.report.OtherPrefixes++
	}
}

// finish gives the report.
func (s *keyspaceSums) finish() Keyspace {
	for len(s.open) > 0 {
		s.close()
	}
	s.report.Prefixes = slices.Clone(s.largest)
	slices.SortFunc(s.report.Prefixes, func(a, b PrefixUse) int { return compareUse(&b, &a) })
	return s.report
}

// compareUse orders by bytes; equal ones so that the first in the order of keys is the larger.
func compareUse(a, b *PrefixUse) int {
	return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.LiveBytes, b.LiveBytes), bytes.Compare(b.Prefix, a.Prefix))
}

// useHeap has the least use at the front.
type useHeap []PrefixUse

// Len is part of heap.Interface, as are the others.
func (h useHeap) Len() int           { return len(h) }
func (h useHeap) Less(i, j int) bool { return compareUse(&h[i], &h[j]) < 0 }
func (h useHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *useHeap) Push(x any)        { *h = append(*h, x.(PrefixUse)) }
func (h *useHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = PrefixUse{}
	*h = old[:len(old)-1]
	return last
}
