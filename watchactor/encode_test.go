package watchactor

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"troupe/proto"
)

func noPrevious(*proto.Event) []byte { return nil }

// TestEncodeRun_DecodesToTheEvents: whatever the sizes, the pieces laid end to end are the events, each once, and large
// values are referred to and not copied.
func TestEncodeRun_DecodesToTheEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		size := rapid.SampledFrom([]int{0, 1, 100, spliceBytesMin - 100, spliceBytesMin, 3 * spliceBytesMin})
		var events []proto.Event
		for range rapid.IntRange(1, 8).Draw(t, "revisions") {
			var ops []op
			for _, key := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "keys")] {
				if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
					ops = append(ops, del(key))
				} else {
					ops = append(ops, op{key, make([]byte, size.Draw(t, "value"))})
				}
			}
			events = append(events, m.txn(ops...)...)
		}
		v := variant(rapid.IntRange(0, variants-1).Draw(t, "variant"))
		limit := rapid.IntRange(1, 40_000).Draw(t, "limit")
		r := encodeRun(selection{events: events}, v, func(e *proto.Event) []byte { return e.PreviousKeyValue }, limit)
		var want []proto.Event
		for i := range events {
			if v.passes(&events[i]) {
				want = append(want, events[i])
			}
		}
		if len(want) == 0 {
			if r != nil {
				t.Fatal("a run of nothing")
			}
			return
		}
		from := want[rapid.IntRange(0, len(want)-1).Draw(t, "from")].Version.Main
		for len(want) > 0 && want[0].Version.Main < from {
			want = want[1:]
		}
		checkRun(t, r.since(from, limit), v, want, limit)
	})
}

// checkRun decodes the responses of a run, with and without fragments.
func checkRun(t *rapid.T, r *run, v variant, want []proto.Event, limit int) {
	for _, fragment := range []bool{false, true} {
		i, open := 0, false
		r.responses(fragment, func(one response) {
			got := eventsOf(&Frame{Events: one.pieces})
			if len(got) != one.events {
				t.Fatalf("a response of %d events says %d", len(got), one.events)
			}
			if !open && i > 0 && want[i].Version.Main == want[i-1].Version.Main {
				t.Fatalf("revision %d was divided without a mark", want[i].Version.Main)
			}
			open = one.fragment
			if one.fragment && !fragment {
				t.Fatal("a fragment nobody asked for")
			}
			first := got[0].Kv.ModRevision
			for _, e := range got {
				if !bytes.Equal(marshal(e.Kv), want[i].KeyValue) || uint8(e.Type) != uint8(want[i].Kind) {
					t.Fatalf("event %d is %v", i, e)
				}
				if has := v&variantPrevious != 0 && !want[i].Created; has != (e.PrevKv != nil) ||
					has && !bytes.Equal(marshal(e.PrevKv), want[i].PreviousKeyValue) {
					t.Fatalf("event %d has the previous value %v", i, e.PrevKv)
				}
				i++
			}
			if one.bytes >= limit && len(got) > 1 && (fragment || got[len(got)-1].Kv.ModRevision != first) {
				t.Fatalf("a response of %d bytes was not divided below %d", one.bytes, limit)
			}
		})
		if i != len(want) || open {
			t.Fatalf("%d events of %d, open %v", i, len(want), open)
		}
	}
}

// TestEncodeRun_DividesBetweenRevisions is field report T10: four transactions of 12 puts of 100 KB make four
// responses, not one of 4.8 MB.
func TestEncodeRun_DividesBetweenRevisions(t *testing.T) {
	m := newModel()
	var events []proto.Event
	for range 4 {
		var ops []op
		for i := range 12 {
			ops = append(ops, op{string(rune('a' + i)), make([]byte, 100_000)})
		}
		events = append(events, m.txn(ops...)...)
	}
	r := encodeRun(selection{events: events}, 0, noPrevious, responseLimit(requestBytesDefault))
	count := 0
	r.responses(false, func(one response) {
		count++
		if one.events != 12 || one.bytes > 1_300_000 {
			t.Errorf("a response of %d events and %d bytes", one.events, one.bytes)
		}
	})
	if count != 4 {
		t.Fatalf("%d responses", count)
	}
}

// TestEncodeRun_KeepsResponsesSmallWhereRevisionsAllow: many small revisions committed together do not make one large
// response, and a large revision alone stays whole.
func TestEncodeRun_KeepsResponsesSmallWhereRevisionsAllow(t *testing.T) {
	m := newModel()
	var events []proto.Event
	for range 20 {
		events = append(events, m.txn(op{"k", make([]byte, 50_000)})...)
	}
	events = append(events, m.txn(op{"a", make([]byte, 600_000)}, op{"b", make([]byte, 600_000)})...)
	r := encodeRun(selection{events: events}, 0, noPrevious, responseLimit(requestBytesDefault))
	for _, fragment := range []bool{false, true} {
		total, last := 0, 0
		r.responses(fragment, func(one response) {
			total, last = total+one.events, one.events
			if one.bytes > responseBytesWanted && one.events != 2 {
				t.Errorf("a response of %d events and %d bytes", one.events, one.bytes)
			}
		})
		if total != 22 || last != 2 {
			t.Errorf("%d events in all, %d in the last response", total, last)
		}
	}
}

// TestEncodeRun_CopiesNoLargeValue checks that the bytes of the store are shared.
func TestEncodeRun_CopiesNoLargeValue(t *testing.T) {
	m := newModel()
	events := m.txn(op{"k", make([]byte, 1<<20)})
	r := encodeRun(selection{events: events}, 0, noPrevious, 1<<30)
	for _, p := range r.pieces {
		if len(p) == len(events[0].KeyValue) && &p[0] == &events[0].KeyValue[0] {
			return
		}
	}
	t.Fatal("the value was copied")
}
