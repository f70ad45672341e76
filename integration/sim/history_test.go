package sim

import (
	"bytes"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor"
)

// history is what all lives together have applied, by index, and what the model makes of it.
type history struct {
	entries []entry
	head    *model
	// extended is when the time of each lease began last in this life.
	extended map[int64]time.Time
	// outlived are leases that a client revoked after their time, when the member's own revocation may have been on its
	// way already: that one then ends the next lease with the id, as in etcd.
	outlived map[int64]bool
}

// entry is one applied entry.
type entry struct {
	term    proto.Term
	encoded []byte // of the request, nil when the entry has none for the store
	request *pb.InternalRaftRequest
	// revision, compacted and err are what the model says after the entry.
	revision, compacted int64
	err                 error
}

func newHistory() *history {
	return &history{head: newModel(), extended: map[int64]time.Time{}, outlived: map[int64]bool{}}
}

// last is the index of the last entry applied in any life.
func (h *history) last() proto.Index { return proto.Index(len(h.entries)) }

// at gives an entry.
func (h *history) at(index proto.Index) *entry { return &h.entries[index-1] }

// machine wraps what raft applies to, to record what passes.
func (h *history) machine(w *world) func(raftactor.Machine) raftactor.Machine {
	return func(m raftactor.Machine) raftactor.Machine { return &recorder{w, h, m} }
}

// recorder is the machine of one life.
type recorder struct {
	world   *world
	history *history
	next    raftactor.Machine
}

// Apply implements raftactor.Machine.
func (r *recorder) Apply(b *proto.Batch) error {
	for i := range b.Commands {
		r.history.record(r.world, &b.Commands[i])
	}
	return r.next.Apply(b)
}

// record takes the next entry, or compares it with what an earlier life has applied at its place.
func (h *history) record(w *world, c *proto.Command) {
	if w.over() {
		return
	}
	e := entry{term: c.Term}
	if c.Request != nil && c.Refused == nil {
		e.request = c.Request
		encoded, err := gproto.MarshalOptions{Deterministic: true}.Marshal(c.Request)
		if err != nil {
			w.fail("entry %d: %w", c.Index, err)
		}
		e.encoded = encoded
	}
	w.trace.add("apply", c.Index, c.Term, e.encoded)
	if c.Index <= h.last() {
		if was := h.at(c.Index); was.term != e.term || !bytes.Equal(was.encoded, e.encoded) {
			w.fail("entry %d was %v of term %d and is now %v of term %d", c.Index, was.request, was.term, e.request, e.term)
		}
		return
	}
	if c.Index != h.last()+1 {
		w.fail("entry %d is applied after entry %d", c.Index, h.last())
		return
	}
	if e.request != nil {
		h.checkLease(w, c)
		e.err = h.head.apply(e.request)
		w.clients.applied(e.request.GetHeader().GetID(), c.Index)
	}
	e.revision, e.compacted = h.head.revision, h.head.compacted
	h.entries = append(h.entries, e)
}

// checkLease notes grants, and checks that a lease is not revoked before its time by the member itself.
func (h *history) checkLease(w *world, c *proto.Command) {
	now := w.clock.Now()
	if g := c.Request.LeaseGrant; g != nil && h.head.leases[g.ID] == 0 {
		h.extended[g.ID] = now
	}
	r := c.Request.LeaseRevoke
	if r == nil || h.head.leases[r.ID] == 0 {
		return
	}
	since := h.extended[r.ID]
	if since.Before(w.primarySince) { // a life begins all times anew
		since = w.primarySince
	}
	ttl := time.Duration(h.head.leases[r.ID]) * time.Second
	early := ttl - now.Sub(since)
	switch {
	case w.clients.asked(c.Request.GetHeader().GetID()):
		h.outlived[r.ID] = early <= 0
		return
	case w.primarySince.IsZero() || c.Term < w.troupe.Raft.Status().Term: // decided in an earlier life
	case early > 0 && !h.outlived[r.ID]:
		w.fail("lease %d of %v was revoked %v before its time", r.ID, ttl, early)
	}
	w.tally.expired++
	h.outlived[r.ID] = false
}

// modelAt executes the history up to an index.
func (h *history) modelAt(index proto.Index) *model {
	if index == h.last() {
		return h.head
	}
	return h.replay(index)
}

func (h *history) replay(index proto.Index) *model {
	m := newModel()
	for i := range h.entries[:index] {
		if r := h.entries[i].request; r != nil {
			_ = m.apply(r)
		}
	}
	return m
}

// describe says what an entry is.
func (e *entry) describe() string {
	return fmt.Sprintf("term %d, %v, revision %d, compacted %d, error %v", e.term, e.request, e.revision, e.compacted,
		e.err)
}
