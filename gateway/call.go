package gateway

import (
	"context"
	"time"
)

// phase is a part of a request's time, for the line about slow requests.
type phase int

// The phases of a request, in their order. A request has the time 0 in those that it does not pass.
const (
	// phaseQueue is the wait until the member serves it: for the member to be ready, and for the check of the quota.
	phaseQueue phase = iota
	// phaseReadIndex is the question to the quorum which index a linearizable read must see.
	phaseReadIndex
	// phaseApplyWait is the wait until that index is applied or, for a write, until its entry is committed and applied.
	phaseApplyWait
	// This place is the permission's, the check of who asks; its time is always 0 in this version.
	_
	// phaseRead is the execution of a read, with the wait for room when its answer is large.
	phaseRead
	// phaseSend is the encoding of the answer and handing it to the connection.
	phaseSend
	phaseCount
)

var phaseNames = [phaseCount]string{"queue", "read_index", "apply_wait", "permission", "read", "send"}

// clockStart is what monotonic reads; only differences of it count.
var clockStart = time.Now()

// monotonic is a clock that costs half of time.Now.
func monotonic() time.Duration { return time.Since(clockStart) }

// call is one request in its handler: the context that the handler gets, which also knows how the time was spent. It is
// part of the allocation that holds the request, so that it costs the hot path none.
type call struct {
	context.Context
	began, last time.Duration
	spent       [phaseCount]time.Duration
	// rested is the time that is no phase's.
	rested time.Duration
}

// request is a call with its message.
type request[T any] struct {
	call
	message T
	input   input
}

// begin starts the clock.
func (c *call) begin(ctx context.Context) {
	c.Context, c.began = ctx, monotonic()
	c.last = c.began
}

// lap counts the time since the last lap as spent in a phase, and gives it.
func (c *call) lap(p phase) time.Duration {
	now := monotonic()
	took := now - c.last
	c.spent[p] += took
	c.last = now
	return took
}

// rest counts the time since the last lap as the client's: it waits for other clients, which makes no request slow.
func (c *call) rest() {
	now := monotonic()
	c.rested += now - c.last
	c.last = now
}

// outlive makes a call for a part of this one that goes on when the client leaves. The caller gives it to join.
func (c *call) outlive() *call {
	part := new(call)
	part.begin(context.WithoutCancel(c.Context))
	return part
}

// join adds the times of a part.
func (c *call) join(part *call) {
	for p, spent := range part.spent {
		c.spent[p] += spent
	}
	c.last = part.last
}

// took is the time from the beginning to the last lap.
func (c *call) took() time.Duration { return c.last - c.began }

// callOf gives the call whose context this is. What is no call of a client's gets one whose times nobody reads.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.(*call); ok {
		return c
	}
	c := new(call)
	c.begin(ctx)
	return c
}
