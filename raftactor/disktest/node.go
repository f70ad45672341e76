package disktest

import (
	"maps"
	"math/rand/v2"
	"sort"
)

// node is a file or a directory: what is visible, what is durable, and the changes between the two, in order.
type node struct {
	// names is nil for a file.
	names        map[string]*node
	durableNames map[string]*node
	nameChanges  []nameChange

	data        []byte // may be shorter than size; the rest is zero
	size        int64
	durableData []byte
	durableSize int64
	changes     []dataChange

	// lock is the open file that holds the lock.
	lock *file
}

// nameChange is one atomic change of a directory: the new node of each name, nil for a removed one.
type nameChange map[string]*node

// dataChange is a write, or with nil data a new size.
type dataChange struct {
	offset int64
	data   []byte
}

func newDir() *node { return &node{names: map[string]*node{}, durableNames: map[string]*node{}} }

func (n *node) isDir() bool { return n.names != nil }

// used is how many bytes the visible files from here on have.
func (n *node) used() int64 {
	if !n.isDir() {
		return n.size
	}
	bytes := int64(0)
	for _, child := range n.names {
		bytes += child.used()
	}
	return bytes
}

func (c nameChange) apply(names map[string]*node) {
	for name, target := range c {
		if target == nil {
			delete(names, name)
		} else {
			names[name] = target
		}
	}
}

// link makes a change of names visible.
func (n *node) link(c nameChange) {
	c.apply(n.names)
	n.nameChanges = append(n.nameChanges, c)
}

// settleNames makes all names durable.
func (n *node) settleNames() {
	n.durableNames = maps.Clone(n.names)
	n.nameChanges = nil
}

// settleName makes one name durable, apart from changes before it.
func (n *node) settleName(name string) { n.durableNames[name] = n.names[name] }

// write makes a write visible.
func (n *node) write(data []byte, offset int64) {
	if len(data) == 0 {
		return
	}
	data = append([]byte(nil), data...)
	n.changes = append(n.changes, dataChange{offset: offset, data: data})
	n.data = overwrite(n.data, data, offset)
	n.size = max(n.size, offset+int64(len(data)))
}

func overwrite(b, data []byte, offset int64) []byte {
	if end := offset + int64(len(data)); end > int64(len(b)) {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[offset:], data)
	return b
}

// truncate makes a new size visible.
func (n *node) truncate(size int64) {
	if n.size == size {
		return
	}
	n.changes = append(n.changes, dataChange{offset: size})
	n.data = n.data[:min(int64(len(n.data)), size)]
	n.size = size
}

// settle makes the content durable.
func (n *node) settle() {
	n.durableData = append([]byte(nil), n.data...)
	n.durableSize = n.size
	n.changes = nil
}

// crash replaces what is visible, here and below, by what survives.
func (n *node) crash(random *rand.Rand) {
	n.lock = nil
	if !n.isDir() {
		n.crashData(random)
		return
	}
	n.crashNames(random)
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	sort.Strings(names) // a map's order is not the seed's
	for _, name := range names {
		n.names[name].crash(random)
	}
}

// crashNames keeps a prefix of the changes, as a journal does, or any subset.
func (n *node) crashNames(random *rand.Rand) {
	prefix := random.IntN(2) == 0
	count := random.IntN(len(n.nameChanges) + 1)
	for i, c := range n.nameChanges {
		if prefix && i < count || !prefix && random.IntN(2) == 0 {
			c.apply(n.durableNames)
		}
	}
	n.names = maps.Clone(n.durableNames)
	n.nameChanges = nil
}

// survival decides how many of a file's changes each sector, and the size, have seen.
type survival struct {
	random  *rand.Rand
	mode    int
	changes int
	// cut is the first change that is not whole, for the mode in which a prefix survives.
	cut  int
	seen map[int64]int
}

// The ways in which changes survive.
const (
	surviveNone = iota
	surviveAll
	survivePrefix // the changes up to one, which is torn
	surviveAny    // each sector for itself
	surviveModes
)

// count says how many changes reached the sector; sector -1 stands for the size.
func (s *survival) count(sector int64) int {
	if n, ok := s.seen[sector]; ok {
		return n
	}
	n := 0
	switch s.mode {
	case surviveAll:
		n = s.changes
	case survivePrefix:
		n = min(s.cut+s.random.IntN(2), s.changes)
	case surviveAny:
		n = s.random.IntN(s.changes + 1)
	}
	s.seen[sector] = n
	return n
}

// crashData replaces the visible content by what survives of it.
func (n *node) crashData(random *rand.Rand) {
	s := survival{
		random: random, mode: random.IntN(surviveModes), changes: len(n.changes),
		cut: random.IntN(len(n.changes) + 1), seen: map[int64]int{},
	}
	data, size := append([]byte(nil), n.durableData...), n.durableSize
	for i, c := range n.changes {
		if c.data == nil {
			data = s.cutOff(data, c.offset, i)
			if s.count(-1) > i {
				size = c.offset
			}
			continue
		}
		end := c.offset + int64(len(c.data))
		for at := c.offset; at < end; {
			next := min(at-at%sectorBytes+sectorBytes, end)
			if s.count(at/sectorBytes) > i {
				data = overwrite(data, c.data[at-c.offset:next-c.offset], at)
			}
			at = next
		}
		if s.count(-1) > i {
			size = max(size, end)
		}
	}
	n.data, n.size = data[:min(int64(len(data)), size)], size
	n.settle()
}

// cutOff zeroes what a truncation took away, in the sectors that have seen it.
func (s *survival) cutOff(data []byte, size int64, change int) []byte {
	for at := size; at < int64(len(data)); {
		next := min(at-at%sectorBytes+sectorBytes, int64(len(data)))
		if s.count(at/sectorBytes) > change {
			clear(data[at:next])
		}
		at = next
	}
	return data
}
