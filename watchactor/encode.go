package watchactor

import (
	"encoding/binary"
	"math/bits"
	"sort"

	"troupe/actors"
	"troupe/proto"
)

// Field tags of the two messages a watcher's events are made of (etcdserverpb/rpc.proto, mvccpb/kv.proto).
const (
	tagResponseEvents = 11<<3 | 2
	tagEventKind      = 1 << 3 // a varint's wire type is 0
	tagEventKeyValue  = 2<<3 | 2
	tagEventPrevious  = 3<<3 | 2
)

// run is a run of whole revisions of one range, encoded once for one variant and shared by every watcher that gets
// them. It is immutable once made. pieces, laid end to end, are `events` fields of a WatchResponse, tags included.
type run struct {
	pieces [][]byte
	bytes  int
	marks  []eventMark
	first  proto.Revision
	last   proto.Revision
	// whole and fragmented are the responses the run makes without and with the fragment option; nil when it fits into
	// one.
	whole      []response
	fragmented []response
}

// eventMark ends one event: its revision and where it ends, in bytes from the start of the run.
type eventMark struct {
	revision proto.Revision
	end      int
}

// selection is the events of a batch that concern a range: all of them, or those at the given positions, in order.
type selection struct {
	events []proto.Event
	picks  []int32 // nil: all
}

func (s selection) len() int {
	if s.picks == nil {
		return len(s.events)
	}
	return len(s.picks)
}

func (s selection) at(i int) *proto.Event {
	if s.picks == nil {
		return &s.events[i]
	}
	return &s.events[s.picks[i]]
}

// previousOf finds the encoded previous value of an event, nil when there is none or it is gone.
type previousOf func(e *proto.Event) []byte

// encodeRun encodes the events that the variant keeps; nil when none is left. limit is the largest response in bytes.
func encodeRun(s selection, v variant, previous previousOf, limit int) *run {
	e := encoder{variant: v}
	e.measure(s, previous)
	if len(e.parts) == 0 {
		return nil
	}
	r := e.encode()
	r.divide(limit)
	return r
}

// encoder works in two passes, so that the copied bytes get one buffer of exactly their size: a buffer that grew would
// leave earlier pieces pointing at the old one.
type encoder struct {
	variant variant
	parts   []eventParts
	copied  int
	spliced int
}

type eventParts struct {
	event    *proto.Event
	previous []byte
	body     int // encoded length of the Event message
}

func (e *encoder) measure(s selection, previous previousOf) {
	e.parts = make([]eventParts, 0, s.len())
	for i := range s.len() {
		ev := s.at(i)
		if !e.variant.passes(ev) {
			continue
		}
		p := eventParts{event: ev, body: fieldBytes(len(ev.KeyValue))}
		if ev.Kind != proto.EventPut {
			p.body += 2
		}
		if e.variant&variantPrevious != 0 && !ev.Created && ev.Previous != (proto.Version{}) {
			if p.previous = previous(ev); p.previous != nil {
				p.body += fieldBytes(len(p.previous))
			}
		}
		spliced := splicedBytes(ev.KeyValue) + splicedBytes(p.previous)
		e.spliced += spliced
		e.copied += fieldBytes(p.body) - spliced
		e.parts = append(e.parts, p)
	}
}

func (e *encoder) encode() *run {
	r := &run{bytes: e.copied + e.spliced, marks: make([]eventMark, 0, len(e.parts))}
	b := splicer{buffer: make([]byte, 0, e.copied)}
	for i := range e.parts {
		p := &e.parts[i]
		b.number(tagResponseEvents)
		b.number(uint64(p.body))
		if p.event.Kind != proto.EventPut {
			b.number(tagEventKind)
			b.number(uint64(p.event.Kind))
		}
		b.field(tagEventKeyValue, p.event.KeyValue)
		if p.previous != nil {
			b.field(tagEventPrevious, p.previous)
		}
		r.marks = append(r.marks, eventMark{p.event.Version.Main, b.total()})
	}
	r.pieces = b.finish()
	r.first, r.last = r.marks[0].revision, r.marks[len(r.marks)-1].revision
	if b.total() != r.bytes {
		actors.Must(false, "an event run was measured at %d bytes and encoded into %d", r.bytes, b.total())
	}
	return r
}

// fieldBytes is the size of a length-delimited field with a one-byte tag.
func fieldBytes(n int) int { return 1 + numberBytes(uint64(n)) + n }

// numberBytes is the size of a varint.
func numberBytes(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// splicedBytes is how much of a stored value is referred to instead of copied.
func splicedBytes(stored []byte) int {
	if len(stored) >= spliceBytesMin {
		return len(stored)
	}
	return 0
}

// splicer builds a list of pieces from copied bytes and references to stored ones.
type splicer struct {
	pieces  [][]byte
	buffer  []byte
	cut     int // where the open piece starts in buffer
	spliced int
}

func (b *splicer) total() int { return len(b.buffer) + b.spliced }

func (b *splicer) number(v uint64) { b.buffer = binary.AppendUvarint(b.buffer, v) }

func (b *splicer) field(tag uint64, value []byte) {
	b.number(tag)
	b.number(uint64(len(value)))
	if splicedBytes(value) == 0 {
		b.buffer = append(b.buffer, value...)
		return
	}
	b.finishPiece()
	b.pieces = append(b.pieces, value)
	b.spliced += len(value)
}

func (b *splicer) finishPiece() {
	if n := len(b.buffer); n > b.cut {
		b.pieces = append(b.pieces, b.buffer[b.cut:n:n])
		b.cut = n
	}
}

func (b *splicer) finish() [][]byte {
	b.finishPiece()
	return b.pieces
}

// since gives the part of the run from a revision on, nil when nothing is left. It copies no event.
func (r *run) since(from proto.Revision, limit int) *run {
	if from <= r.first {
		return r
	}
	i := sort.Search(len(r.marks), func(i int) bool { return r.marks[i].revision >= from })
	if i == len(r.marks) {
		return nil
	}
	start := r.marks[i-1].end
	part := &run{
		pieces: r.cut(start, r.bytes), bytes: r.bytes - start,
		marks: make([]eventMark, 0, len(r.marks)-i), first: r.marks[i].revision, last: r.last,
	}
	for _, m := range r.marks[i:] {
		part.marks = append(part.marks, eventMark{m.revision, m.end - start})
	}
	part.divide(limit)
	return part
}

// cut gives the bytes [from, to) of the run as pieces that share its memory.
func (r *run) cut(from, to int) [][]byte {
	var pieces [][]byte
	at := 0
	for _, p := range r.pieces {
		low, high := max(from-at, 0), min(to-at, len(p))
		if low < high {
			pieces = append(pieces, p[low:high:high])
		}
		if at += len(p); at >= to {
			break
		}
	}
	return pieces
}
