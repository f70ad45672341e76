package raftactor

import (
	"encoding/binary"
)

// reads are the linearizable reads that wait for an index, and the one round that is out.
//
// A round asks the leader once for all reads that had arrived when it started; what arrives while it is out shares the
// next one. A read must never be answered by a round that started before the read did: the index of that round may be
// older than a write that the reader has already seen acknowledged.
//
// A round asked again has a new id, and the answer to the old one is ignored. A round is void when the term or the
// leader changes: raft may have lost it without a word. Its reads then join the next one.
type reads struct {
	waiting []*read
	// out are the reads of the round that is out, id its id (0: none), asked its tick.
	out   []*read
	id    uint64
	asked int
}

// outstanding reports whether a round is out.
func (r *reads) outstanding() bool { return r.id != 0 }

// count is the number of reads without an answer.
func (r *reads) count() int { return len(r.waiting) + len(r.out) }

// start begins a round with id for all that wait and gives its context. Nothing may be out.
func (r *reads) start(id uint64, now int) []byte {
	r.out, r.waiting = r.waiting, nil
	r.id, r.asked = id, now
	return roundContext(id)
}

// again asks the round that is out under a new id.
func (r *reads) again(id uint64, now int) []byte {
	r.id, r.asked = id, now
	return roundContext(id)
}

// finish gives the reads of the round with that context; nil when it is not the one that is out.
func (r *reads) finish(context []byte) []*read {
	if r.id == 0 || len(context) != 8 || binary.BigEndian.Uint64(context) != r.id {
		return nil
	}
	done := r.out
	r.out, r.id = nil, 0
	return done
}

// void ends the round that is out; its reads wait again, before those that came later.
func (r *reads) void() {
	if r.id == 0 {
		return
	}
	r.waiting = append(r.out, r.waiting...)
	r.out, r.id = nil, 0
}

// expire removes and gives the reads that arrived at or before tick since. Both lists are in the order of arrival.
func (r *reads) expire(since int) []*read {
	var gone []*read
	cut := func(list []*read) []*read {
		n := 0
		for n < len(list) && list[n].since <= since {
			n++
		}
		gone = append(gone, list[:n]...)
		return list[n:]
	}
	r.out = cut(r.out)
	r.waiting = cut(r.waiting)
	if len(r.out) == 0 {
		r.id = 0
	}
	return gone
}

// roundContext is the context of a round: its id, big-endian, as etcd's.
func roundContext(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
