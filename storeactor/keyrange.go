package storeactor

import "bytes"

// KeyRange is a set of keys: one key, the keys of [From, To), or all keys from From on. It is the exact meaning of
// the pair (key, range_end) of the API in every spelling, and the only place where that pair is interpreted.
//
// A range whose end is not behind its start is empty. The slices are the request's; a KeyRange does not copy them.
type KeyRange struct {
	// From is the first key of the range.
	From []byte
	// To is the first key behind the range; it has a meaning for rangeBounded only.
	To   []byte
	kind rangeKind
}

type rangeKind uint8

const (
	rangeSingle  rangeKind = iota // the key From
	rangeBounded                  // From <= key < To
	rangeOpen                     // From <= key
)

// NewKeyRange gives the keys that (key, range_end) means: no range_end is the one key, the single byte 0 is every key
// from key on, anything else ends the range before it.
func NewKeyRange(key, rangeEnd []byte) KeyRange {
	switch {
	case len(rangeEnd) == 0:
		return KeyRange{From: key, kind: rangeSingle}
	case len(rangeEnd) == 1 && rangeEnd[0] == 0:
		return KeyRange{From: key, kind: rangeOpen}
	default:
		return KeyRange{From: key, To: rangeEnd, kind: rangeBounded}
	}
}

// Single reports whether the range is one key by its form.
func (r KeyRange) Single() bool { return r.kind == rangeSingle }

// Empty reports whether no key can be in the range.
func (r KeyRange) Empty() bool { return r.kind == rangeBounded && bytes.Compare(r.From, r.To) >= 0 }

// Contains reports whether the key is in the range.
func (r KeyRange) Contains(key []byte) bool {
	switch r.kind {
	case rangeSingle:
		return bytes.Equal(key, r.From)
	case rangeOpen:
		return bytes.Compare(key, r.From) >= 0
	default:
		return bytes.Compare(key, r.From) >= 0 && bytes.Compare(key, r.To) < 0
	}
}

// endsBefore reports whether every key of the range is below key.
func (r KeyRange) endsBefore(key []byte) bool {
	switch r.kind {
	case rangeSingle:
		return bytes.Compare(r.From, key) < 0
	case rangeOpen:
		return false
	default:
		return bytes.Compare(r.To, key) <= 0
	}
}

// Intersects reports whether some key is in both ranges. Keys are byte strings of any length, so two ranges meet
// exactly when neither ends before the other begins: the larger of the two starts is in both.
func (r KeyRange) Intersects(s KeyRange) bool {
	if r.Empty() || s.Empty() {
		return false
	}
	return !r.endsBefore(s.From) && !s.endsBefore(r.From)
}
