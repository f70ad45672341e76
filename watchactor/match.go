package watchactor

// matchIndex tells which of a set of ranges a key lies in. It is pure: no clock, no lock, no randomness.
//
// Single keys are found by a map. Intervals are kept in a treap ordered by their bounds, each node knowing the
// largest end below it, so that a lookup costs the matches plus the depth. The naive way, walking all ranges per
// event, makes every put pay for every watch; a prefix tree would do for prefixes only, and clients may watch any
// interval. Priorities are hashes of the bounds, so that the shape depends on the contents alone and a seeded run
// repeats.
type matchIndex[T any] struct {
	points map[string]T
	root   *interval[T]
	// intervals counts the nodes of the treap.
	intervals int
}

// interval is one node: [low, high), high "" standing for "without end".
type interval[T any] struct {
	low, high   string
	reach       string // the largest high of the subtree, "" if one is without end
	priority    uint64
	left, right *interval[T]
	value       T
}

// size is the number of ranges in the index.
func (x *matchIndex[T]) size() int { return len(x.points) + x.intervals }

// put enters a range; an equal one is replaced.
func (x *matchIndex[T]) put(r Range, value T) {
	if r.Point() {
		if x.points == nil {
			x.points = make(map[string]T)
		}
		x.points[r.Key] = value
		return
	}
	low, high := boundsOf(r)
	if n := x.root.find(low, high); n != nil {
		n.value = value
		return
	}
	x.root = x.root.insert(&interval[T]{low: low, high: high, priority: priorityOf(low, high), value: value})
	x.intervals++
}

// get gives the value of exactly that range.
func (x *matchIndex[T]) get(r Range) (value T, ok bool) {
	if r.Point() {
		value, ok = x.points[r.Key]
		return value, ok
	}
	if n := x.root.find(boundsOf(r)); n != nil {
		return n.value, true
	}
	return value, false
}

// remove takes exactly that range out, if it is there.
func (x *matchIndex[T]) remove(r Range) {
	if r.Point() {
		delete(x.points, r.Key)
		if len(x.points) == 0 {
			x.points = nil // maps never shrink; an index that was large once must not stay large
		}
		return
	}
	low, high := boundsOf(r)
	if x.root.find(low, high) != nil {
		x.root = x.root.remove(low, high)
		x.intervals--
	}
}

// match calls f for every range that holds key. f must not change the index.
func (x *matchIndex[T]) match(key []byte, f func(T)) {
	if v, ok := x.points[string(key)]; ok {
		f(v)
	}
	x.root.match(key, f)
}

func (n *interval[T]) match(key []byte, f func(T)) {
	for n != nil {
		if n.reach != "" && n.reach <= string(key) {
			return
		}
		n.left.match(key, f)
		if n.low > string(key) {
			return
		}
		if n.high == "" || n.high > string(key) {
			f(n.value)
		}
		n = n.right
	}
}

func boundsOf(r Range) (low, high string) {
	if r.End == rangeOpen {
		return r.Key, ""
	}
	return r.Key, r.End
}

// priorityOf is FNV-1a over both bounds, finished so that short similar bounds spread.
func priorityOf(low, high string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{low, "\x00", high} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// order compares bounds with those of n.
func (n *interval[T]) order(low, high string) int {
	switch {
	case low < n.low:
		return -1
	case low > n.low:
		return 1
	case high == n.high:
		return 0
	case n.high == "" || high != "" && high < n.high:
		return -1
	default:
		return 1
	}
}

func (n *interval[T]) find(low, high string) *interval[T] {
	for n != nil {
		switch o := n.order(low, high); {
		case o < 0:
			n = n.left
		case o > 0:
			n = n.right
		default:
			return n
		}
	}
	return nil
}

func (n *interval[T]) insert(fresh *interval[T]) *interval[T] {
	if n == nil {
		return fresh.update()
	}
	if n.order(fresh.low, fresh.high) < 0 {
		n.left = n.left.insert(fresh)
		if n.left.priority > n.priority {
			return n.rotateRight()
		}
	} else {
		n.right = n.right.insert(fresh)
		if n.right.priority > n.priority {
			return n.rotateLeft()
		}
	}
	return n.update()
}

func (n *interval[T]) remove(low, high string) *interval[T] {
	switch o := n.order(low, high); {
	case o < 0:
		n.left = n.left.remove(low, high)
	case o > 0:
		n.right = n.right.remove(low, high)
	default:
		return n.left.join(n.right)
	}
	return n.update()
}

// join makes one treap of two whose intervals do not mix.
func (n *interval[T]) join(right *interval[T]) *interval[T] {
	switch {
	case n == nil:
		return right
	case right == nil:
		return n
	case n.priority > right.priority:
		n.right = n.right.join(right)
		return n.update()
	default:
		right.left = n.join(right.left)
		return right.update()
	}
}

func (n *interval[T]) rotateRight() *interval[T] {
	top := n.left
	n.left, top.right = top.right, n
	n.update()
	return top.update()
}

func (n *interval[T]) rotateLeft() *interval[T] {
	top := n.right
	n.right, top.left = top.left, n
	n.update()
	return top.update()
}

// update recomputes reach from the node and its children.
func (n *interval[T]) update() *interval[T] {
	n.reach = n.high
	for _, child := range [...]*interval[T]{n.left, n.right} {
		if child != nil && n.reach != "" && (child.reach == "" || child.reach > n.reach) {
			n.reach = child.reach
		}
	}
	return n
}
