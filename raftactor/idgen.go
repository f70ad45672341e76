package raftactor

import (
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// Layout of a request id, from the highest bit: 16 bits of the member id, 40 bits of the clock in milliseconds at
// start, 8 bits of a counter that carries into the clock. It is etcd's, so that members of both kinds never give out
// the same id: the low 16 bits of member ids differ, and the clock passes the counter of an earlier life of this member
// unless that gave out more than 256 ids per millisecond for all of its life.
const (
	requestIDMemberBits  = 16
	requestIDCounterBits = 8
	requestIDClockBits   = 64 - requestIDMemberBits - requestIDCounterBits
)

// requestIDs gives out ids of requests and of read rounds. It is safe for concurrent use.
type requestIDs struct {
	prefix uint64
	suffix atomic.Uint64
}

// newRequestIDs makes the generator of one life of a member. entries are those that this life will apply again: no id
// of theirs may be given out, or the waiter of a new request would be told of an old one's fate. The clock alone does
// not ensure that; it may have been set back.
func newRequestIDs(member proto.MemberID, start time.Time, entries []*raftpb.Entry) *requestIDs {
	g := &requestIDs{prefix: uint64(member) << (64 - requestIDMemberBits)}
	clock := uint64(start.UnixMilli()) & (1<<requestIDClockBits - 1)
	suffix := clock << requestIDCounterBits
	const mask = 1<<(64-requestIDMemberBits) - 1
	for _, e := range entries {
		if id := entryID(e); id&^mask == g.prefix {
			suffix = max(suffix, id&mask)
		}
	}
	g.suffix.Store(suffix)
	return g
}

// entryID is the request id in an entry, 0 if there is none.
func entryID(e *raftpb.Entry) uint64 {
	if e.GetType() == raftpb.EntryConfChange {
		var cc raftpb.ConfChange
		if pb.Unmarshal(e.Data, &cc) != nil {
			return 0 // apply stops the process over it
		}
		return cc.GetId()
	}
	return requestIDOf(e.Data)
}

// next gives an id that was not given before.
func (g *requestIDs) next() uint64 {
	return g.prefix | g.suffix.Add(1)&(1<<(64-requestIDMemberBits)-1)
}
