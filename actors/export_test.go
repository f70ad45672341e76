package actors

// Storage is the number of queue segments and turn slices that an actor holds, for tests of giving them back.
func Storage[M any](r Ref[M]) int {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	n := 0
	for _, l := range [...]*lane[M]{&r.b.only, r.b.normal} {
		if l == nil {
			continue
		}
		for s := l.head; s != nil; s = s.next {
			n++
		}
		if l.index != nil {
			n++
		}
	}
	if r.b.batch != nil {
		n++
	}
	return n
}

// The limits that tests rely on.
const (
	ControlStreakMax = controlStreakMax
	SegmentMessages  = segmentMessages
	RestartsMax      = restartsMax
	RestartWindow    = restartWindow
	IndexKeysKept    = indexKeysKept
)
