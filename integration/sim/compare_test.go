package sim

import (
	"bytes"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/storeactor"
)

// checkState compares the numbers of a published state with the model's at its index.
func (h *history) checkState(w *world, s *storeactor.State) {
	if s.Applied > h.last() {
		w.fail("index %d is published, applied was %d", s.Applied, h.last())
		return
	}
	revision, compacted := int64(1), int64(-1)
	if s.Applied > 0 {
		e := h.at(s.Applied)
		revision, compacted = e.revision, e.compacted
	}
	if int64(s.Revision) != revision || int64(s.Compacted) != compacted {
		w.fail("index %d is published with revision %d, compacted %d; the model says %d, %d", s.Applied, s.Revision,
			s.Compacted, revision, compacted)
	}
}

// compare compares everything a reader can see with the model: keys now and at old revisions, the history above the
// compact revision, leases and what is attached to them.
func (w *world) compare(when string) {
	if w.over() {
		return
	}
	v := w.troupe.Store.View()
	defer v.Release()
	s := v.State()
	m := w.history.modelAt(s.Applied)
	for _, revision := range []int64{max(m.compacted, 1), m.revision, max(m.compacted, w.random.Int64N(m.revision)+1)} {
		w.compareRange(when, v, m, revision)
	}
	w.compareEvents(when, v, m)
	w.compareLeases(when, s, m)
}

func (w *world) compareRange(when string, v *storeactor.View, m *model, revision int64) {
	everything := []byte{0}
	result, err := v.Range(&pb.RangeRequest{Key: everything, RangeEnd: everything, Revision: revision})
	if err != nil {
		w.fail("%s: range at %d: %w", when, revision, err)
		return
	}
	got := &pb.RangeResponse{}
	if err := gproto.Unmarshal(bytes.Join(result.Body.Pieces, nil), got); err != nil {
		w.fail("%s: range at %d: %w", when, revision, err)
		return
	}
	if result.Body.Release != nil {
		result.Body.Release()
	}
	want := m.at(revision)
	same := slices.EqualFunc(got.Kvs, want, func(a, b *mvccpb.KeyValue) bool { return gproto.Equal(a, b) })
	if !same || got.Count != int64(len(want)) {
		w.fail("%s, at index %d: keys at revision %d:\ngot  %v\nwant %v", when, v.State().Applied, revision, got.Kvs, want)
	}
}

// compareEvents compares the history that is left. The generator makes no two puts of one key in one revision, so that
// every event at the compact revision is still there.
func (w *world) compareEvents(when string, v *storeactor.View, m *model) {
	from := max(m.compacted, 1)
	everything := []byte{0}
	events, _, err := v.Events(storeactor.NewKeyRange(everything, everything), proto.Revision(from),
		proto.Revision(m.revision), 1<<30)
	if err != nil {
		w.fail("%s: events: %w", when, err)
		return
	}
	want := m.changes[m.from(from):]
	if len(events) != len(want) {
		w.fail("%s: %d events from revision %d on, want %d", when, len(events), from, len(want))
		return
	}
	for i := range events {
		e, c := &events[i], &want[i]
		if int64(e.Version.Main) != c.main || int64(e.Version.Sub) != c.sub || string(e.Key) != c.key ||
			(e.Kind == proto.EventDelete) != c.deleted || !bytes.Equal(e.KeyValue, c.shown) {
			w.fail("%s: event %d/%d of %q (deleted %v), want %d/%d of %q (deleted %v)", when, e.Version.Main,
				e.Version.Sub, e.Key, e.Kind == proto.EventDelete, c.main, c.sub, c.key, c.deleted)
			return
		}
	}
}

func (w *world) compareLeases(when string, s *storeactor.State, m *model) {
	if s.LeaseCount() != len(m.leases) {
		w.fail("%s: %d leases, want %d", when, s.LeaseCount(), len(m.leases))
	}
	for id, ttl := range m.leases {
		l, ok := s.Lease(proto.LeaseID(id))
		if !ok || l.TTL != ttl {
			w.fail("%s: lease %d: %+v (%v), want TTL %d", when, id, l, ok, ttl)
		}
		var keys []string
		for _, k := range s.LeaseKeys(proto.LeaseID(id)) {
			keys = append(keys, string(k))
		}
		if want := m.attached(id); !slices.Equal(keys, want) {
			w.fail("%s: lease %d has the keys %q, want %q", when, id, keys, want)
		}
	}
}

// hashedAt names what a HashKV is a function of.
type hashedAt struct{ revision, compacted proto.Revision }

// hash asks for the HashKV of a revision, 0 for the newest, and compares it with every other one at the same place.
func (w *world) hash(revision proto.Revision) {
	if w.over() {
		return
	}
	r, err := w.troupe.Store.HashKV(context.Background(), revision)
	if w.over() {
		return
	}
	if err != nil {
		w.fail("hash at %d: %w", revision, err)
		return
	}
	at := hashedAt{r.HashRevision, r.CompactRevision}
	w.trace.add("hash", at, r.Hash)
	w.tally.hashes++
	if was, known := w.hashes[at]; known && was != r.Hash {
		w.fail("HashKV at %+v was %x and is %x", at, was, r.Hash)
	}
	w.hashes[at] = r.Hash
}
