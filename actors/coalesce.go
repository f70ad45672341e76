package actors

// keyIndex finds the waiting message of a key. It hides the key type from the lane.
type keyIndex[M any] interface {
	// find gives the waiting slot with m's key and remembers that key for note.
	find(m M) *slot[M]
	// note enters s under the key of the last find.
	note(s *slot[M])
	// forget removes s, which is about to be taken.
	forget(s *slot[M])
	// holds reports whether s is still entered under its own key; false after a merge that changed the key.
	holds(s *slot[M]) bool
	// reusable reports whether the emptied index is small enough to keep.
	reusable() bool
}

// keyMap is the keyIndex for keys of type K. Slots do not move while they wait, so it may point at them.
type keyMap[M any, K comparable] struct {
	key     func(M) (K, bool)
	waiting map[K]*slot[M]
	last    K
	keyed   bool
	peak    int
}

func newKeyMap[M any, K comparable](key func(M) (K, bool)) *keyMap[M, K] {
	return &keyMap[M, K]{key: key, waiting: make(map[K]*slot[M])}
}

func (i *keyMap[M, K]) find(m M) *slot[M] {
	i.last, i.keyed = i.key(m)
	if !i.keyed {
		return nil
	}
	return i.waiting[i.last]
}

func (i *keyMap[M, K]) note(s *slot[M]) {
	if i.keyed {
		i.waiting[i.last] = s
		i.peak = max(i.peak, len(i.waiting))
	}
}

func (i *keyMap[M, K]) forget(s *slot[M]) {
	if k, ok := i.key(s.m); ok && i.waiting[k] == s {
		delete(i.waiting, k)
	}
}

func (i *keyMap[M, K]) holds(s *slot[M]) bool {
	k, ok := i.key(s.m)
	return ok && i.waiting[k] == s
}

func (i *keyMap[M, K]) reusable() bool {
	var none K
	i.last = none // an idle index must not keep a key alive
	return len(i.waiting) == 0 && i.peak <= indexKeysKept
}
