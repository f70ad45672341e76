package watchactor

import (
	"strings"

	"troupe/proto"
)

// rangeOpen is the range end that stands for "every key from here on" (api.md 2.1).
const rangeOpen = "\x00"

// Range is what a watch covers, in the literal form of the wire: End empty is the single key Key, End "\x00" is every
// key at or above Key, any other End is the half-open interval [Key, End). It holds strings because they are
// immutable and comparable, so that a Range can be the key of a map.
type Range struct {
	Key string
	End string
}

// Point reports whether the range is a single key.
func (r Range) Point() bool { return r.End == "" }

// Contains reports whether key lies in the range. It does not allocate.
func (r Range) Contains(key []byte) bool {
	switch r.End {
	case "":
		return string(key) == r.Key
	case rangeOpen:
		return string(key) >= r.Key
	default:
		return string(key) >= r.Key && string(key) < r.End
	}
}

// covers reports whether every key of s lies in r.
func (r Range) covers(s Range) bool {
	if r.Point() {
		return r == s
	}
	if s.Point() {
		return s.Key >= r.Key && (r.End == rangeOpen || s.Key < r.End)
	}
	return s.Key >= r.Key && (r.End == rangeOpen || s.End != rangeOpen && s.End <= r.End)
}

// overlaps reports whether two intervals have keys in common. Neither may be a point.
func (r Range) overlaps(s Range) bool {
	return (r.End == rangeOpen || s.Key < r.End) && (s.End == rangeOpen || r.Key < s.End)
}

// union gives the interval of all keys of two intervals that overlap.
func (r Range) union(s Range) Range {
	u := Range{min(r.Key, s.Key), rangeOpen}
	if r.End != rangeOpen && s.End != rangeOpen {
		u.End = max(r.End, s.End)
	}
	return u
}

// empty reports whether the range can hold no key, for which a watch is refused.
func (r Range) empty() bool {
	return r.End != "" && r.End != rangeOpen && r.Key >= r.End
}

// rangeOf takes the range of a create request. The slices may belong to a reused buffer, so they are copied; an empty
// key means the smallest key there can be, as etcd reads it (api.md 2.1).
func rangeOf(key, end []byte) Range {
	if len(key) == 0 {
		key = []byte{0}
	}
	return Range{Key: string(key), End: string(end)}
}

// name prints the range for an actor's name and for logs: printable bytes as they are, others escaped, cut to a bound.
func (r Range) name() string {
	var b strings.Builder
	writeEscaped(&b, r.Key)
	if !r.Point() {
		b.WriteString("..")
		if r.End != rangeOpen {
			writeEscaped(&b, r.End)
		}
	}
	return b.String()
}

func writeEscaped(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	if len(s) > rangeNameBytesMax {
		s = s[:rangeNameBytesMax]
	}
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
}

// History is where the past is read from: the store's published state. Every method may be called from any actor's
// turn at any time and must not wait for an actor. Position never goes back, and a batch is visible in it before the
// hub hears of the batch.
type History interface {
	// Position gives the store's revision and its compact revision, from one published state.
	Position() (revision, compacted proto.Revision)
	// Events gives the events of the range with from <= revision <= through, in order, whole revisions only, about bytes
	// of them but at least one revision if there is one. next is the first revision that has not been looked at; it is
	// larger than through once all has been read, and from when nothing can be read just now: then it is asked again after
	// a pause, because it must not wait. It returns ErrCompacted (wrapped or not) when from is below the compact revision.
	// The events are immutable.
	Events(r Range, from, through proto.Revision, bytes int) (events []proto.Event, next proto.Revision, err error)
	// Value gives the encoded KeyValue of a version, false when it has been compacted away.
	Value(v proto.Version) (keyValue []byte, ok bool)
}
