package watchactor

import (
	"slices"

	"troupe/proto"
)

// piece is a bounded stretch of history of one range, read once for every watch that has come to it. It is owned by the
// reader of history; the runs it makes are shared and immutable.
type piece struct {
	keys Range
	// from and next bound the revisions: everything in [from, next) has been looked at.
	from, next proto.Revision
	// at is the store's revision when the piece was read, compacted its compact revision after that.
	at, compacted proto.Revision
	events        []proto.Event
	bytes         int // of the events and of the runs made
	runs          map[runKey]*run
}

// runKey names one encoding of a piece.
type runKey struct {
	keys Range
	as   variant
}

// holds reports whether the piece has the next events of a watch of that range that has sent everything below from.
func (p *piece) holds(keys Range, from proto.Revision) bool {
	return p.from <= from && from < p.next && p.keys.covers(keys)
}

// run gives the events of a range from a revision on, encoded on first use; nil when there are none.
func (p *piece) run(w *want, value func(proto.Version) ([]byte, bool), limit int) (made *run, fresh bool) {
	key := runKey{w.keys, w.as}
	r, known := p.runs[key]
	if !known {
		r = encodeRun(p.selection(w.keys), w.as, previousAfter(p.compacted, value), limit)
		if p.runs == nil {
			p.runs = make(map[runKey]*run, 1)
		}
		p.runs[key] = r
		if r != nil {
			p.bytes += r.bytes
		}
	}
	if r != nil && w.from > r.first {
		r = r.since(w.from, limit)
	}
	return r, !known
}

// selection gives the events of a range within the piece's.
func (p *piece) selection(keys Range) selection {
	s := selection{events: p.events}
	if keys == p.keys {
		return s
	}
	s.picks = []int32{}
	for i := range p.events {
		if keys.Contains(p.events[i].Key) {
			s.picks = append(s.picks, int32(i))
		}
	}
	return s
}

// previousAfter gives previous values as a read of the revision before the event would at that compact revision: absent
// once it has been compacted, even where the value is still at hand (api.md 3.2).
func previousAfter(compacted proto.Revision, value func(proto.Version) ([]byte, bool)) previousOf {
	return func(e *proto.Event) []byte {
		if e.Version.Main-1 < compacted {
			return nil
		}
		if e.PreviousKeyValue != nil {
			return e.PreviousKeyValue
		}
		if kv, ok := value(e.Previous); ok {
			return kv
		}
		return nil
	}
}

// shelf keeps the pieces that were read last, so that watches which are nearly at the same place share them, however
// they keep pace. It is bounded in pieces and bytes; the one used longest ago goes first.
type shelf struct {
	pieces []*piece // the one used last at the end
	bytes  int
	most   int
}

// find gives a piece with the next events of a watch.
func (s *shelf) find(keys Range, from proto.Revision) *piece {
	for i := len(s.pieces) - 1; i >= 0; i-- {
		if p := s.pieces[i]; p.holds(keys, from) {
			s.pieces = append(slices.Delete(s.pieces, i, i+1), p)
			return p
		}
	}
	return nil
}

// before gives the last revision that a piece from `from` on should have, so that it ends where a kept piece begins:
// from there on both watches are at the same place.
func (s *shelf) before(keys Range, from, through proto.Revision) proto.Revision {
	for _, p := range s.pieces {
		if p.from > from && p.keys.covers(keys) {
			through = min(through, p.from-1)
		}
	}
	return through
}

// add keeps a piece.
func (s *shelf) add(p *piece) {
	s.pieces = append(s.pieces, p)
	s.bytes += p.bytes
	s.trim()
}

// grown counts what a kept piece has grown by.
func (s *shelf) grown(bytes int) {
	s.bytes += bytes
	s.trim()
}

// trim forgets pieces beyond the bound, but never the one used last.
func (s *shelf) trim() {
	for len(s.pieces) > 1 && (len(s.pieces) > shelfPiecesMax || s.bytes > s.most) {
		s.bytes -= s.pieces[0].bytes
		s.pieces = slices.Delete(s.pieces, 0, 1)
	}
}

// clear forgets everything: nobody is behind any more.
func (s *shelf) clear() { s.pieces, s.bytes = nil, 0 }
