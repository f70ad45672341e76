package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/leaseactor"
	"troupe/proto"
	"troupe/raftactor"
)

// clients are those that tell the member proposals.
type clients struct {
	world *world
	open  []*op
	byID  map[uint64]*op
	reads []question
	// refused are the requests of this life of which the answer said that nothing was proposed.
	refused map[uint64]bool
	// acknowledged is the highest index whose answer has been seen.
	acknowledged proto.Index
	values       int
	deletedAt    int64 // revision of the last deletion that was answered
}

// op is a proposal without an answer so far.
type op struct {
	request *pb.InternalRaftRequest
	index   proto.Index // 0 until it is applied

	// The answer, and what was published when it was sent.

	done      bool
	result    *proto.Result
	err       error
	published proto.Index
}

// question is a linearizable read without an answer so far. What was acknowledged before it was asked it must see.
type question struct {
	reply actors.Reply[proto.Index]
	floor proto.Index
}

// forget drops what has no answer: the clients' connections are gone.
func (c *clients) forget() {
	c.open, c.byID, c.refused, c.reads = nil, map[uint64]*op{}, map[uint64]bool{}, nil
}

// asked reports whether a request of this life is a client's.
func (c *clients) asked(id uint64) bool { return c.byID[id] != nil }

// applied notes the index of a request.
func (c *clients) applied(id uint64, index proto.Index) {
	if o := c.byID[id]; o != nil {
		o.index = index
	}
	if c.refused[id] {
		c.world.fail("request %x was refused, and is applied at index %d", id, index)
	}
}

// tell proposes a request.
func (c *clients) tell(r *pb.InternalRaftRequest) {
	raft, store := c.world.troupe.Raft, c.world.troupe.Store
	o := &op{request: r}
	answer := actors.ReplyTo(func(result *proto.Result, err error) {
		o.done, o.result, o.err, o.published = true, result, err, store.State().Applied
	})
	if err := raft.ProposeInTerm(raft.Status().Term, r, answer); err != nil {
		if !errors.Is(err, raftactor.ErrNotLeader) && !errors.Is(err, raftactor.ErrTooManyRequests) {
			c.world.fail("%v was refused: %w", r, err)
		}
		return
	}
	c.open = append(c.open, o)
	c.byID[r.Header.ID] = o
}

// collect takes the answers that have come and compares them with the model's.
func (c *clients) collect() {
	c.open = slices.DeleteFunc(c.open, func(o *op) bool {
		if o.done && !c.world.over() {
			c.answered(o)
		}
		return o.done
	})
	c.reads = slices.DeleteFunc(c.reads, func(q question) bool {
		index, err, done := q.reply.Poll()
		if done && err == nil && index < q.floor && !c.world.over() {
			c.world.fail("a read got index %d after %d was acknowledged", index, q.floor)
		}
		return done
	})
}

func (c *clients) answered(o *op) {
	w, result, err := c.world, o.result, o.err
	w.tally.answers++
	if o.index == 0 {
		switch {
		case errors.Is(err, raftactor.ErrNotLeader), errors.Is(err, raftactor.ErrTooManyRequests),
			errors.Is(err, raftactor.ErrDiskStalled):
			c.refused[o.request.Header.ID] = true
		case errors.Is(err, raftactor.ErrTimeout):
		default:
			w.fail("%v was answered before it was applied: %v, %v", o.request, result, err)
		}
		return
	}
	e := w.history.at(o.index)
	w.trace.add("answer", o.index, err)
	switch {
	case !errors.Is(err, e.err) || (err == nil) != (e.err == nil):
		w.fail("%v at index %d was answered %v, want %v", o.request, o.index, err, e.err)
	case err == nil && int64(result.Revision) != e.revision:
		w.fail("%v at index %d was answered revision %d, want %d", o.request, o.index, result.Revision, e.revision)
	case o.published < o.index:
		w.fail("%v was answered when %d was published; it has index %d", o.request, o.published, o.index)
	}
	c.acknowledged = max(c.acknowledged, o.index)
	if err == nil && (o.request.DeleteRange != nil || o.request.Txn != nil) {
		c.deletedAt = e.revision
	}
}

// read asks for a linearizable read, also of a member that is not ready. One that is answered at once sees what is
// published now.
func (c *clients) read() {
	w := c.world
	if w.over() {
		return
	}
	q := question{actors.NewReply[proto.Index](), c.acknowledged}
	if err := w.troupe.Raft.ReadIndexTo(q.reply); err != nil {
		w.fail("read: %w", err)
		return
	}
	index, err, done := q.reply.Poll()
	if !done {
		c.reads = append(c.reads, q)
		return
	}
	if applied := w.troupe.Store.State().Applied; err != nil || index > applied || applied < c.acknowledged {
		w.fail("a read at index %d (%v) sees %d; %d was acknowledged", index, err, applied, c.acknowledged)
	}
}

func (c *clients) key() []byte { return []byte{byte('a' + c.world.random.IntN(5))} }

func (c *clients) value() []byte {
	c.values++
	return fmt.Appendf(nil, "v%d-%0*d", c.values, c.world.random.IntN(60), 0)
}

// lease gives an id from a small set.
func (c *clients) lease() int64 { return 1 + c.world.random.Int64N(4) }

func (c *clients) newPut(key []byte) *pb.PutRequest {
	p := &pb.PutRequest{Key: key, Value: c.value()}
	if c.world.random.IntN(4) == 0 {
		p.Lease = c.lease()
	}
	return p
}

// propose tells one random request.
func (c *clients) propose() {
	random := c.world.random
	r := &pb.InternalRaftRequest{}
	switch n := random.IntN(20); {
	case n < 8:
		r.Put = c.newPut(c.key())
	case n < 11:
		r.DeleteRange = &pb.DeleteRangeRequest{Key: c.key()}
		if random.IntN(3) == 0 {
			r.DeleteRange.RangeEnd = c.key()
		}
	case n < 14:
		r.Txn = c.newTxn()
	case n < 17:
		r.Compaction = &pb.CompactionRequest{Revision: c.compaction()}
	case n < 19:
		r.LeaseGrant = &pb.LeaseGrantRequest{ID: c.lease(), TTL: 1 + random.Int64N(5)}
	default:
		r.LeaseRevoke = &pb.LeaseRevokeRequest{ID: c.lease()}
	}
	c.tell(r)
}

// compaction picks a revision: the head, a deletion that was answered, one that is compacted, or anything.
func (c *clients) compaction() int64 {
	m := c.world.history.head
	switch c.world.random.IntN(5) {
	case 0, 1:
		return m.revision
	case 2:
		return max(1, c.deletedAt)
	case 3:
		return max(1, m.compacted)
	}
	return 1 + c.world.random.Int64N(m.revision+1)
}

// newTxn makes a transaction that deletes some keys and puts others, perhaps one of those, and does so only if a key
// has some version.
func (c *clients) newTxn() *pb.TxnRequest {
	t := &pb.TxnRequest{}
	if c.world.random.IntN(2) == 0 {
		t.Compare = []*pb.Compare{{
			Target: pb.Compare_VERSION, Key: c.key(),
			TargetUnion: &pb.Compare_Version{Version: c.world.random.Int64N(3)},
		}}
		t.Failure = []*pb.RequestOp{putOp(c.newPut(c.key()))}
	}
	if c.world.random.IntN(2) == 0 {
		t.Success = append(t.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: c.key()},
		}})
	}
	for _, k := range c.world.random.Perm(5)[:1+c.world.random.IntN(3)] {
		t.Success = append(t.Success, putOp(c.newPut([]byte{byte('a' + k)})))
	}
	return t
}

func putOp(p *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
}

// deleteAndCompact deletes a key and, once that is answered, compacts at exactly the deletion.
func (c *clients) deleteAndCompact() {
	w := c.world
	c.tell(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: c.key()}})
	for n := 0; n < 500 && len(c.open) > 0 && w.step(); n++ {
		c.collect()
	}
	if !w.over() {
		c.tell(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: max(1, c.deletedAt)}})
	}
}

// renew asks for more time for a lease and notes that it has it.
func (c *clients) renew() {
	w := c.world
	status := w.troupe.Raft.Status
	for status().Applied < status().Commit && w.step() { // else the call would wait for that
	}
	if w.over() {
		return
	}
	id := c.lease()
	ttl, err := w.troupe.Leases.Renew(context.Background(), proto.LeaseID(id))
	if w.over() || errors.Is(err, leaseactor.ErrStopped) || errors.Is(err, leaseactor.ErrNotPrimary) {
		return // time must pass before it can be answered, or the disk is stalled
	}
	if err != nil {
		w.fail("renew lease %d: %w", id, err)
	}
	if _, there := w.troupe.Store.State().Lease(proto.LeaseID(id)); ttl > 0 && !there {
		w.fail("lease %d was renewed for %d s and is not there", id, ttl)
	}
	if ttl > 0 {
		w.history.extended[id] = w.clock.Now()
	}
	w.trace.add("renewed", id, ttl)
}
