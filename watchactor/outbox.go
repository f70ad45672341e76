package watchactor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

// budget is what all streams of a client hold together, in their outboxes and in the transport, and what they may hold
// before they are held to less (outboxTotalDefault). What is reserved, for history that was asked for, is part of it.
type budget struct {
	held, reserved atomic.Int64
	total          int64
}

// strained reports whether the transport is given no more of a stream before it has sent what it was given.
func (b *budget) strained() bool { return b.held.Load() >= b.total }

// full reports whether a stream holds no more than one response, and in the transport what it was given last.
func (b *budget) full() bool { return b.held.Load() >= 2*b.total }

// walled reports whether a stream of that owner gets nothing, because all of them or its own hold too much.
func (b *budget) walled(owner *Owner) bool {
	return b.there() >= outboxWall*b.total || owner.there() >= ownerWall*b.total
}

// askedOut reports whether a stream of that owner asks for no history. What others have asked for counts; what events
// come all the same, when very many streams ask at a time, does not have to wait for that.
func (b *budget) askedOut(owner *Owner) bool {
	return b.held.Load() >= outboxWall*b.total || owner.held.Load() >= ownerWall*b.total
}

// Owner is what the streams of one connection hold together, so that a client that reads nothing keeps nobody from
// watching but itself. The zero value is ready.
type Owner struct{ held, reserved, gone atomic.Int64 }

// Held gives the bytes that the streams hold now, and those that have gone ever: while there are some and none go, the
// client takes nothing.
func (o *Owner) Held() (bytes, gone int64) { return o.there(), o.gone.Load() }

// Hold counts bytes in, LetGo counts them out.
func (o *Owner) Hold(bytes int) { o.held.Add(int64(bytes)) }

// LetGo is for bytes that were held.
func (o *Owner) LetGo(bytes int) {
	o.held.Add(int64(-bytes))
	o.gone.Add(int64(bytes))
}

// there is what is held and not only reserved.
func (o *Owner) there() int64  { return o.held.Load() - o.reserved.Load() }
func (b *budget) there() int64 { return b.held.Load() - b.reserved.Load() }

// outbox is what a stream has for its client: filled in the stream's turns, emptied by the gateway's goroutine. It also
// keeps the credits that bound the requests of the stream.
type outbox struct {
	mu       sync.Mutex
	frames   []Frame
	first    int
	bytes    int
	reserved int // for history that has been asked for
	lent     int // what the transport holds of what was taken out
	bytesMax int
	aheadMax int // history is read for the client while it has less than this to read
	joinMax  int // frames are joined up to this
	budget   *budget
	owner    *Owner
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
	most, ahead := o.most(), o.mostAhead()
	o.mu.Lock()
	defer o.mu.Unlock()
	return space{most - o.bytes, ahead - o.bytes}
}

// most is how many bytes of events the outbox holds now. Where all hold very much, it is one frame, of any size: a
// stream that has nothing to send gets the next, until there is the wall.
func (o *outbox) most() int {
	switch b := o.budget; {
	case b.walled(o.owner):
		return 0
	case b.full():
		return 1
	case b.strained():
		return min(o.bytesMax, outboxBytesMin)
	default:
		return o.bytesMax
	}
}

// mostAhead is how many of them the outbox holds while history is asked for.
func (o *outbox) mostAhead() int {
	if o.budget.askedOut(o.owner) {
		return 0
	}
	return min(o.most(), o.aheadMax)
}

// hold counts bytes in.
func (o *outbox) hold(bytes int) {
	o.budget.held.Add(int64(bytes))
	o.owner.Hold(bytes)
}

// letGo counts out bytes that were held.
func (o *outbox) letGo(bytes int) {
	o.budget.held.Add(int64(-bytes))
	o.owner.LetGo(bytes)
}

// setReserved counts what is reserved for history as held. The lock is held.
func (o *outbox) setReserved(bytes int) {
	more := int64(bytes - o.reserved)
	o.reserved = bytes
	o.budget.reserved.Add(more)
	o.owner.reserved.Add(more)
	o.hold(int(more))
}

// withheld reports whether the reader gets nothing because the transport has not sent what it got, while all hold very
// much. The lock is held.
func (o *outbox) withheld() bool { return o.lent > 0 && o.budget.strained() }

// lend counts bytes that the transport holds. Those of the frame in the reader's hand count twice meanwhile.
func (o *outbox) lend(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lent += bytes
	o.hold(bytes)
}

// giveBack counts out what was lent. It may come when the outbox has long ended.
func (o *outbox) giveBack(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lent -= bytes
	o.letGo(bytes)
	if o.first < len(o.frames) && !o.withheld() {
		o.wake()
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
	if sign < 0 {
		o.letGo(w.bytes)
	} else {
		o.hold(w.bytes)
	}
	o.metrics.pending.Add(int64(sign * w.events))
}

// reserve counts what the stream has asked of history and has not got, beside what it holds.
func (o *outbox) reserve(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		o.setReserved(bytes)
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
	answers, withheld := 0, o.withheld()
	for !withheld && o.first < len(o.frames) && len(o.hand) < handFramesMax && o.inHand.bytes < joinedFrameBytesMax {
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
func (o *outbox) low() bool {
	most := o.mostAhead()
	return most > 0 && o.bytes <= most/2
}

// starve notes that the stream waits for room; again says that it has to look itself, after a pause: there is room
// already, or none for anybody, and then nobody would tell it.
func (o *outbox) starve() (again bool, pause time.Duration) {
	walled := o.budget.askedOut(o.owner)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.starved = walled || !o.low()
	if walled {
		return true, wallPause
	}
	return !o.starved, 0
}

// await gives a channel to receive from once before take is worth another try; nil when it is now. A turn that comes
// from it has to be run. Only one goroutine reads an outbox.
func (o *outbox) await() <-chan func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || o.first < len(o.frames) && !o.withheld() {
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
	o.owner.gone.Add(int64(-left.bytes)) // the client has not taken it
	o.inHand = weight{}
	o.setReserved(0)
	o.frames, o.first, o.credits, o.creditBytes = nil, 0, 0, 0
	o.wake()
	if o.freed != nil {
		close(o.freed)
		o.freed = nil
	}
}
