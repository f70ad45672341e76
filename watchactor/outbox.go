package watchactor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"troupe/proto"
)

// Frame is one WatchResponse without its header. The gateway writes the header (cluster, member, term and
// HeaderRevision) and the small fields, and puts Events behind them. A Frame belongs to the reader, but the bytes of
// Events are shared with other streams and must not be changed.
type Frame struct {
	WatchID int64
	// HeaderRevision is the revision of the header; 0 in a cancellation by compaction, as in etcd.
	HeaderRevision  proto.Revision
	Created         bool
	Canceled        bool
	CompactRevision proto.Revision
	CancelReason    string
	// Fragment says that more parts of the same revision follow.
	Fragment bool
	// Events are encoded `events` fields (number 11), tags included, to be laid end to end.
	Events [][]byte

	bytes   int  // of Events
	events  int  // encoded in Events
	control bool // the answer to a request, which holds a credit
	last    bool // ends a revision that was divided: a client puts it together with the frames before it
}

// budget is what all outboxes of a client together may hold before each is held to its minimum.
type budget struct {
	held  atomic.Int64
	total int64
}

// outbox is what a stream has for its client: filled in the stream's turns, emptied by the gateway's goroutine. It also
// keeps the credits that bound the requests of the stream.
type outbox struct {
	mu       sync.Mutex
	frames   []Frame
	first    int
	bytes    int
	reserved int // for history that has been asked for
	bytesMax int
	aheadMax int // history is read for the client while it has less than this to read
	joinMax  int // frames are joined up to this
	budget   *budget
	metrics  *metrics
	// hand is what the reader has taken out and next what of it comes next; both are the reader's. inHand is what it
	// counts for.
	hand   []Frame
	next   int
	inHand weight
	// starved is set while the stream waits for room.
	starved bool
	// credits and creditBytes are taken: requests that are unhandled or whose answer waits here.
	credits     int
	creditBytes int
	// ended is why there will be no more frames.
	ended error
	// filled wakes the reader, which waits only while it has set waits, with a turn of the stream to run or with nil. It
	// is made when the reader first waits.
	filled chan func()
	waits  bool
	freed  chan struct{} // made by a requester that waits, closed when there are credits
}

// room is how many bytes of events the stream may add; not positive when it has to wait.
func (o *outbox) room() space {
	most := o.most()
	o.mu.Lock()
	defer o.mu.Unlock()
	return space{most - o.bytes, min(most, o.aheadMax) - o.bytes}
}

// most is how many bytes of events the outbox holds now. Where all hold very much, it is one frame, of any size: a
// stream that has nothing to send always gets the next.
func (o *outbox) most() int {
	switch held := o.budget.held.Load(); {
	case held < o.budget.total:
		return o.bytesMax
	case held < 2*o.budget.total:
		return min(o.bytesMax, outboxBytesMin)
	default:
		return 1
	}
}

// put adds what a turn made and returns credits for requests without an answer.
func (o *outbox) put(frames []Frame, credits int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		return
	}
	o.frames = append(o.frames, frames...)
	var sum weight
	for i := range frames {
		sum.add(&frames[i])
	}
	o.charge(sum, 1)
	if len(frames) > 0 {
		o.wake()
	}
	o.free(credits, 0)
}

// wake lets a reader that waits try again. The lock is held.
func (o *outbox) wake() {
	if o.waits {
		o.waits = false
		o.filled <- nil // has room for one, and nobody else has sent since the reader set waits
	}
}

// takeTurn gives a turn of the stream to the reader, false when that is not waiting. What the turn puts in here the
// reader then takes without having been woken a second time. While history has been asked for it gives none: a piece
// often comes right behind another, and the reader should find both.
func (o *outbox) takeTurn(turn func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.waits || o.reserved > 0 {
		return false
	}
	o.waits = false
	o.filled <- turn // as in wake
	return true
}

// nudge wakes the reader because its context has ended.
func (o *outbox) nudge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wake()
}

// weight is what frames count for. Answers are bounded by credits and count no bytes.
type weight struct{ bytes, events int }

func (w *weight) add(f *Frame) {
	if !f.control {
		w.bytes += f.bytes + frameBytes
		w.events += f.events
	}
}

// charge counts frames in, or out with sign -1. The lock is held.
func (o *outbox) charge(w weight, sign int) {
	if w.bytes == 0 {
		return
	}
	o.bytes += sign * w.bytes
	o.budget.held.Add(int64(sign * w.bytes))
	o.metrics.pending.Add(int64(sign * w.events))
}

// reserve counts what the stream has asked of history and has not got, beside what it holds.
func (o *outbox) reserve(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		o.budget.held.Add(int64(bytes - o.reserved))
		o.reserved = bytes
	}
}

// free gives credits back. The lock is held.
func (o *outbox) free(credits, bytes int) {
	if o.ended != nil {
		return
	}
	o.credits -= credits
	o.creditBytes -= bytes
	if o.freed != nil && o.credits < requestsMax && o.creditBytes < requestBytesMax {
		close(o.freed)
		o.freed = nil
	}
}

// take gives the next frame; found is false when there is none now. feed says that the stream waits for room and that
// there is some. Several frames are taken out at a time, and count until the reader comes back for more: until gRPC has
// them all.
func (o *outbox) take() (f Frame, found, feed bool, err error) {
	if o.next == len(o.hand) {
		if feed, err = o.refill(); err != nil || len(o.hand) == 0 {
			return Frame{}, false, feed, err
		}
	}
	f = o.pop()
	for joined := 0; o.next < len(o.hand) && f.joins(&o.hand[o.next], o.joinMax); joined++ {
		if joined == 0 {
			f.Events = slices.Clip(f.Events) // what it was made of is shared
		}
		f.join(o.pop())
	}
	return f, true, feed, nil
}

// pop takes the first frame out of the reader's hand. There must be one.
func (o *outbox) pop() Frame {
	f := o.hand[o.next]
	o.hand[o.next] = Frame{}
	o.next++
	return f
}

// refill gives the reader the next frames.
func (o *outbox) refill() (feed bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hand, o.next = o.hand[:0], 0
	o.charge(o.inHand, -1)
	o.inHand = weight{}
	if o.ended != nil {
		o.hand = nil
		return false, o.ended
	}
	answers := 0
	for o.first < len(o.frames) && len(o.hand) < handFramesMax && o.inHand.bytes < joinedFrameBytesMax {
		f := &o.frames[o.first]
		o.inHand.add(f)
		if f.control {
			answers++
		}
		o.hand = append(o.hand, *f)
		*f = Frame{}
		o.first++
	}
	o.tidy()
	o.free(answers, 0)
	if feed = o.starved && o.low(); feed {
		o.starved = false
	}
	return feed, nil
}

// tidy gives storage back that is not needed any more. The lock is held.
func (o *outbox) tidy() {
	switch {
	case o.first == len(o.frames):
		o.frames, o.first = o.frames[:0], 0
		if cap(o.frames) > framesKept {
			o.frames = nil
		}
		if len(o.hand) == 0 && cap(o.hand) > framesKept {
			o.hand = nil
		}
	case o.first >= framesMoved && o.first*2 >= len(o.frames):
		kept := copy(o.frames, o.frames[o.first:])
		clear(o.frames[kept:])
		o.frames, o.first = o.frames[:kept], 0
	}
}

// joins reports whether the next frame can be sent as part of this one: events of the same watch, whole revisions, and
// less than most bytes together.
func (f *Frame) joins(next *Frame, most int) bool {
	return f.events > 0 && next.events > 0 && f.WatchID == next.WatchID && !f.Fragment && !next.Fragment && !f.last &&
		!next.last && f.bytes+next.bytes < most
}

// join makes the next frame a part of this one.
func (f *Frame) join(next Frame) {
	f.Events = append(f.Events, next.Events...)
	f.HeaderRevision = next.HeaderRevision
	f.bytes += next.bytes
	f.events += next.events
}

// low reports whether there is so much room that filling it is worth a turn. The lock is held.
func (o *outbox) low() bool { return o.bytes <= min(o.most(), o.aheadMax)/2 }

// starve notes that the stream waits for room; true when there is room already.
func (o *outbox) starve() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.starved = !o.low()
	return !o.starved
}

// await gives a channel to receive from once before take is worth another try; nil when it is now. A turn that comes
// from it has to be run. Only one goroutine reads an outbox.
func (o *outbox) await() <-chan func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || o.first < len(o.frames) {
		return nil
	}
	if o.filled == nil {
		o.filled = make(chan func(), 1)
	}
	o.waits = true
	return o.filled
}

// acquire takes a credit for a request of that size; it waits while there is none. One request of any size is always
// let in.
func (o *outbox) acquire(ctx context.Context, bytes int) error {
	for {
		freed, err := o.tryAcquire(bytes)
		if err != nil || freed == nil {
			return err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *outbox) tryAcquire(bytes int) (<-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		return nil, o.ended
	}
	if o.credits < requestsMax && (o.creditBytes == 0 || o.creditBytes+bytes <= requestBytesMax) {
		o.credits++
		o.creditBytes += bytes
		return nil, nil
	}
	if o.freed == nil {
		o.freed = make(chan struct{})
	}
	return o.freed, nil
}

// queued is how many bytes of events wait for the client.
func (o *outbox) queued() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int64(o.bytes)
}

// reason is why the outbox has ended, nil while it has not.
func (o *outbox) reason() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// handled gives the bytes of a request back, whose credit stays until it is answered.
func (o *outbox) handled(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.free(0, bytes)
}

// end drops everything and wakes who waits. The first reason stays.
func (o *outbox) end(reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		return
	}
	o.ended = reason
	left := o.inHand
	for i := o.first; i < len(o.frames); i++ {
		left.add(&o.frames[i])
	}
	o.charge(left, -1)
	o.inHand = weight{}
	o.budget.held.Add(int64(-o.reserved))
	o.reserved = 0
	o.frames, o.first, o.credits, o.creditBytes = nil, 0, 0, 0
	o.wake()
	if o.freed != nil {
		close(o.freed)
		o.freed = nil
	}
}
