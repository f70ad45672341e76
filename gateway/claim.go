package gateway

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"troupe/proto"
)

// claim is what one large answer has in an account: the bytes of its bodies, until gRPC has written them. Those of an
// ordinary answer are in the ledger from before they are read; those of a watch response are lent by its stream. But
// gRPC forgets what is queued on a connection that breaks: the connection gives that back when it is closed. Otherwise
// some clients that leave in the middle of an answer would use the account up.
type claim struct {
	account account
	conn    *connection // nil if it is not known
	left    atomic.Int64

	// Of the check for clients that take nothing; only its goroutine uses them.
	leftSeen int64
	stuck    stall
}

// account is where bytes are entered; leave strikes some.
type account interface{ leave(bytes int64) }

// newClaim makes a claim of bytes that are entered, for an answer to the client of a call.
func newClaim(ctx context.Context, from account, bytes int64) *claim {
	return newClaimOn(connectionOf(ctx), from, bytes)
}

// newClaimOn is newClaim for an answer on a connection.
func newClaimOn(conn *connection, from account, bytes int64) *claim {
	c := &claim{account: from, conn: conn}
	c.left.Store(bytes)
	if conn != nil {
		conn.hold(c)
	}
	return c
}

// watchAccount is that of the responses of a watch stream.
type watchAccount struct{ WatchStream }

func (a watchAccount) leave(bytes int64) { a.GiveBack(int(bytes)) }

// ofWatch reports whether the claim is that of a watch response.
func (c *claim) ofWatch() bool {
	_, is := c.account.(watchAccount)
	return is
}

// giveBack strikes bytes, at most those that are left.
func (c *claim) giveBack(bytes int64) {
	for {
		left := c.left.Load()
		n := min(bytes, left)
		if n <= 0 {
			return
		}
		if !c.left.CompareAndSwap(left, left-n) {
			continue
		}
		c.account.leave(n)
		if c.conn != nil {
			if !c.ofWatch() {
				c.conn.taken.Add(n)
			}
			if n == left {
				c.conn.release(c)
			}
		}
		return
	}
}

// drop gives everything back: the answer is not sent.
func (c *claim) drop() {
	if c != nil {
		c.giveBack(c.left.Load())
	}
}

// settle strikes all that is left. The connection calls it when it is closed.
func (c *claim) settle() {
	if left := c.left.Swap(0); left > 0 {
		c.account.leave(left)
	}
}

// lend appends a body to what gRPC gets, without copying it: a body's bytes are its own or immutable, never the file's.
// The body is released, and its bytes are given back, when gRPC has written the last of it.
func (c *claim) lend(out mem.BufferSlice, body proto.Body) mem.BufferSlice {
	l := &loan{claim: c, release: body.Release, bytes: int64(body.Len()), pool: forgetting{}}
	last := -1 // the last piece of whose end gRPC tells us: it does not tell of very small ones
	for i, piece := range body.Pieces {
		if !mem.IsBelowBufferPoolingThreshold(cap(piece)) {
			last = i
			l.left.Add(1)
		}
	}
	// gRPC writes in order, so that what stands in front of the last one is written before it; what stands behind it must
	// not be the body's any more.
	rest := slices.Concat(body.Pieces[last+1:]...)
	for i := range body.Pieces[:last+1] {
		out = append(out, mem.NewBuffer(&body.Pieces[i], l))
	}
	if len(rest) > 0 {
		out = append(out, mem.SliceBuffer(rest))
	}
	if last < 0 {
		l.end()
	}
	return out
}

var _ mem.BufferPool = (*loan)(nil)

// loan is one body that gRPC has: the pool to which it gives the pieces back.
type loan struct {
	claim   *claim
	release func()
	bytes   int64
	left    atomic.Int32
	pool    mem.BufferPool // of the pieces
	// stepwise says that the bytes of a piece are given back with it, and not all with the last.
	stepwise bool
}

// Get implements mem.BufferPool.
func (l *loan) Get(length int) *[]byte {
	l.left.Add(1)
	return l.pool.Get(length)
}

// Put takes one piece back.
func (l *loan) Put(piece *[]byte) {
	n := len(*piece)
	l.pool.Put(piece)
	switch {
	case l.left.Add(-1) == 0:
		l.end()
	case l.stepwise:
		l.claim.giveBack(int64(n))
	}
}

// forgetting is the pool of pieces that are not reused.
type forgetting struct{}

// Get implements mem.BufferPool.
func (forgetting) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (forgetting) Put(piece *[]byte) { *piece = nil } // what gRPC still holds of the list must not hold the bytes

func (l *loan) end() {
	if l.release != nil {
		l.release()
	}
	l.claim.giveBack(l.bytes)
}
