package storeactor

import (
	"sort"

	"troupe/proto"
)

// generation is the life of a key from its creation to its deletion: the versions of its values, and of the tombstone
// when the key was deleted.
//
// The versions of a living key are appended to in place: an older entry shares the array and sees only its own
// length, and only the newest entry of a key is ever appended to, by the store in its turn. So a key with a million
// versions does not cost a copy of a million versions for each put.
type generation struct {
	// created is the version that created the key. After a restart its sub-revision is lost and 0, and for a generation
	// whose first surviving record is a tombstone it is zero.
	created proto.Version
	// number is the version number of the newest version, counted from 1 at creation; a tombstone counts as one.
	number int64
	// versions is ascending.
	versions []proto.Version
}

func (g *generation) last() proto.Version { return g.versions[len(g.versions)-1] }

// at gives the position of the newest version at or below the revision, -1 when all are above it.
func (g *generation) at(rev proto.Revision) int {
	n := len(g.versions)
	if n == 0 {
		return -1
	}
	if g.versions[n-1].Main <= rev {
		return n - 1
	}
	return sort.Search(n, func(i int) bool { return g.versions[i].Main > rev }) - 1
}

// found says which version of a key is visible, and what the index knows about it.
type found struct {
	version proto.Version
	created proto.Revision
	// number is the version of the API: 1 for the created key.
	number int64
	// head is true for the newest version of a living key: then the entry's head is this value.
	head bool
}

// keyEntry is all the index knows about one key. It is immutable: a change makes a new entry, which takes the old
// one's place in the tree, so that any number of published trees may share entries.
type keyEntry struct {
	key []byte
	// closed holds the generations that ended in a tombstone, oldest first; appended to like generation.versions.
	closed []generation
	// live is the present life of the key; it has no versions while the key is deleted.
	live generation
	// head is the newest value; nil while the key is deleted.
	head *headValue
}

func lessEntry(a, b *keyEntry) bool { return string(a.key) < string(b.key) }

// alive reports whether the key exists now.
func (e *keyEntry) alive() bool { return len(e.live.versions) > 0 }

// get finds what a reader at that revision sees of the key.
func (e *keyEntry) get(rev proto.Revision) (found, bool) {
	if i := e.live.at(rev); i >= 0 {
		return e.live.found(i, i == len(e.live.versions)-1), true
	}
	// Of the closed ones only the first that ends above rev can show a value at rev: those before it ended at or below
	// rev, and of those behind it none begins before its tombstone.
	if c := e.closedAt(rev + 1); c < len(e.closed) {
		g := &e.closed[c]
		if i := g.at(rev); i >= 0 {
			return g.found(i, false), true
		}
	}
	return found{}, false
}

func (g *generation) found(i int, head bool) found {
	behind := int64(len(g.versions) - 1 - i)
	return found{version: g.versions[i], created: g.created.Main, number: g.number - behind, head: head}
}

// headedEntry is an entry and the head that it was made with in one piece, bornEntry also the only version of a new
// life: the index is most of what the collector has to walk over, and so a put of a new key is one object for it.
type (
	headedEntry struct {
		keyEntry
		value headValue
	}
	bornEntry struct {
		headedEntry
		first [1]proto.Version
	}
)

// withPut gives the entry after a put at v of a value that takes so many bytes encoded and is attached to the lease.
// The old entry must be the newest of its key.
func (e *keyEntry) withPut(v proto.Version, bytes int32, lease proto.LeaseID) *keyEntry {
	var n *headedEntry
	if e.alive() {
		n = new(headedEntry)
		n.live = e.live
		n.live.versions = append(n.live.versions, v)
		n.live.number++
	} else {
		born := &bornEntry{first: [1]proto.Version{v}}
		n = &born.headedEntry
		n.live = generation{created: v, number: 1, versions: born.first[:]}
	}
	n.key, n.closed, n.head = e.key, e.closed, &n.value
	n.value.bytes, n.value.lease = bytes, lease
	return &n.keyEntry
}

// apart gives a living entry that a compaction made of another as a piece of its own: its head, and its only version,
// are parts of the other one and would hold all that the compaction has dropped. The cached bytes move to the new
// head. Store's turn only, before the entry takes the other one's place.
func (e *keyEntry) apart() *keyEntry {
	var n *headedEntry
	if len(e.live.versions) == 1 {
		single := &bornEntry{first: [1]proto.Version{e.live.versions[0]}}
		n = &single.headedEntry
		n.live.versions = single.first[:]
	} else {
		n = new(headedEntry)
		n.live.versions = e.live.versions
	}
	n.key, n.closed, n.head = e.key, e.closed, &n.value
	n.live.created, n.live.number = e.live.created, e.live.number
	n.value.bytes, n.value.lease = e.head.bytes, e.head.lease
	n.value.used.Store(e.head.used.Load())
	n.value.data.Store(e.head.data.Swap(&retired))
	return &n.keyEntry
}

// withTombstone gives the entry after a deletion at v. The old entry must be the newest of its key, and alive.
func (e *keyEntry) withTombstone(v proto.Version) *keyEntry {
	g := e.live
	g.versions = append(g.versions, v)
	g.number++
	return &keyEntry{key: e.key, closed: append(e.closed, g)}
}

// closedAt gives the position of the first closed generation that ended at or above the revision.
func (e *keyEntry) closedAt(rev proto.Revision) int {
	return sort.Search(len(e.closed), func(i int) bool { return e.closed[i].last().Main >= rev })
}

// has reports whether v is one of the entry's versions.
func (e *keyEntry) has(v proto.Version) bool {
	if e.live.has(v) {
		return true
	}
	for c := e.closedAt(v.Main); c < len(e.closed) && e.closed[c].versions[0].Main <= v.Main; c++ {
		if e.closed[c].has(v) {
			return true
		}
	}
	return false
}

func (g *generation) has(v proto.Version) bool {
	n := len(g.versions)
	if n == 0 || v.Less(g.versions[0]) || g.versions[n-1].Less(v) {
		return false
	}
	i := sort.Search(n, func(i int) bool { return !g.versions[i].Less(v) })
	return i < n && g.versions[i] == v
}

// changes counts the versions with from <= revision <= through, up to about most.
func (e *keyEntry) changes(from, through proto.Revision, most int) int {
	n := 0
	for i := e.closedAt(from); i <= len(e.closed) && n < most; i++ {
		g := e.generation(i)
		before := g.at(from - 1)
		if n += g.at(through) - before; len(g.versions) > 0 && g.last().Main > through {
			break
		}
	}
	return n
}

// eachAfter calls f for each version behind v, in order, until f gives false. kind says what the version is.
func (e *keyEntry) eachAfter(v proto.Version, f func(v proto.Version, kind versionKind) bool) {
	for i := e.closedAt(v.Main); i <= len(e.closed); i++ {
		g := e.generation(i)
		last := len(g.versions) - 1
		for j := sort.Search(last+1, func(j int) bool { return v.Less(g.versions[j]) }); j <= last; j++ {
			kind := versionOld
			switch {
			case j == last && i < len(e.closed):
				kind = versionTombstone
			case j == last:
				kind = versionHead
			}
			if !f(g.versions[j], kind) {
				return
			}
		}
	}
}

// versionKind is what a version of a key is.
type versionKind uint8

const (
	versionOld       versionKind = iota // a value that was put over or deleted
	versionHead                         // the value of a living key
	versionTombstone                    // a deletion
)

// generationAt gives the position of the generation that a compaction at rev cuts: the first whose last version is at
// or above rev, else the living one, which is numbered len(closed) whether or not it has versions.
func (e *keyEntry) generationAt(rev proto.Revision) int { return e.closedAt(rev) }

func (e *keyEntry) generation(i int) *generation {
	if i == len(e.closed) {
		return &e.live
	}
	return &e.closed[i]
}

// survivor gives the version of a value that is visible at rev but lives in a later generation than the one a
// compaction at rev cuts: the key was deleted and created again in that very revision. etcd loses it; here it is kept
// with the tombstone before it, the one listed difference in what a compaction keeps.
func (e *keyEntry) survivor(rev proto.Revision, cut int) (proto.Version, bool) {
	f, ok := e.get(rev)
	if !ok || e.generation(cut).has(f.version) {
		return proto.Version{}, false
	}
	return f.version, true
}

// compacted gives the entry after a compaction at rev: itself when nothing changes, nil when nothing is left of the
// key.
func (e *keyEntry) compacted(rev proto.Revision) *keyEntry {
	cut := e.generationAt(rev)
	from := e.generation(cut).at(rev)
	keep, kept := e.survivor(rev, cut)
	if cut == 0 && from <= 0 && !e.changesAfter(cut, rev) {
		if len(e.closed) == 0 && !e.alive() {
			return nil
		}
		return e
	}
	n := &keyEntry{key: e.key, head: e.head}
	for c := cut; c <= len(e.closed); c++ {
		g := *e.generation(c)
		i := g.at(rev)
		switch {
		case c == cut && i > 0:
			g.versions = trimFront(g.versions, i)
		case c > cut && i >= 0:
			if !(kept && g.has(keep)) {
				i++ // what is at rev goes altogether
			}
			g.versions = trimFront(g.versions, i)
		}
		if c == len(e.closed) {
			n.live = g
		} else if len(g.versions) > 0 {
			n.closed = append(n.closed, g)
		}
	}
	if len(n.closed) == 0 && !n.alive() {
		return nil
	}
	return n
}

// changesAfter reports whether a generation behind the cut one has more than one version at or below rev, or one that
// does not survive.
func (e *keyEntry) changesAfter(cut int, rev proto.Revision) bool {
	for c := cut + 1; c <= len(e.closed); c++ {
		g := e.generation(c)
		i := g.at(rev)
		if i < 0 {
			continue
		}
		if keep, ok := e.survivor(rev, cut); !ok || g.versions[i] != keep || i > 0 {
			return true
		}
	}
	return false
}

// trimFront drops the first n versions. It copies when that leaves most of the array unused, so that a key with a
// long past does not hold its memory.
func trimFront(versions []proto.Version, n int) []proto.Version {
	rest := versions[n:]
	if len(rest)*2 < cap(versions) {
		return append(make([]proto.Version, 0, len(rest)), rest...)
	}
	return rest
}

// keptForHash reports whether HashKV at rev counts version v of this key although v is at or below the compact
// revision: the newest version at or below rev of the generation that rev cuts unless it is that generation's
// tombstone, and the survivor.
func (e *keyEntry) keptForHash(rev proto.Revision, v proto.Version) bool {
	cut := e.generationAt(rev)
	g := e.generation(cut)
	if i := g.at(rev); i >= 0 && g.versions[i] == v {
		return cut == len(e.closed) || i != len(g.versions)-1
	}
	keep, ok := e.survivor(rev, cut)
	return ok && keep == v
}

// keepsForHash reports whether any version of this key is kept for a hash at rev.
func (e *keyEntry) keepsForHash(rev proto.Revision) bool {
	cut := e.generationAt(rev)
	g := e.generation(cut)
	if i := g.at(rev); i >= 0 && (cut == len(e.closed) || i != len(g.versions)-1) {
		return true
	}
	_, ok := e.survivor(rev, cut)
	return ok
}
