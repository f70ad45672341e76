package gateway

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// ledger bounds the bytes of large answers that exist at the same time. A reader enters the size of its answer before
// the answer exists (gather.go) and waits, in order of arrival, until it fits; the bytes are struck as gRPC frees what
// it has written (claim.go). The naive way, to bound the number of requests, bounds nothing: one list may be a thousand
// times another.
//
// Answers are of three classes, and none waits behind larger ones: each class has a queue of its own, and a part of
// the bound that larger ones leave free. Otherwise a few lists whose clients read slowly would keep everybody from
// getting a key. The other way round nothing is kept free: large ones wait while smaller ones take their room. And an
// answer that is larger than the whole bound takes all of it.
type ledger struct {
	max      int64
	classes  [answerClasses]answerClass
	waiting  int // most that may wait in a class
	patience time.Duration

	mu    sync.Mutex
	inUse int64
	empty chan struct{} // not nil while somebody waits for the end of all answers

	highWater int64  // of inUse
	refused   uint64 // those who gave up waiting for room, or could not even wait
}

// answerClasses is their number: small, medium, large.
const answerClasses = 3

// answerClass is what the answers below a size, and not below that of the class before, have.
type answerClass struct {
	below        int64
	bound        int64     // what may be in use with an answer of the class
	queue        list.List // of *ledgerEntry
	lastAdmitted time.Time // when one that waited was let in last
}

type ledgerEntry struct {
	bytes    int64
	admitted chan struct{}
}

func newLedger(bytesMax int64) *ledger {
	l := &ledger{max: bytesMax, waiting: answerWaitersMax, patience: answerWaitMax}
	small, medium := &l.classes[0], &l.classes[1]
	small.below, small.bound = min(smallAnswerBytes, bytesMax/smallAnswersMin), bytesMax
	medium.below, medium.bound = min(mediumAnswerBytes, bytesMax/mediumAnswersMin), small.bound-bytesMax/smallAnswersShare
	large := &l.classes[2]
	large.below, large.bound = math.MaxInt64, medium.bound-bytesMax/mediumAnswersShare
	if small.below == 0 { // too little for classes
		small.below = math.MaxInt64
	}
	return l
}

// class is that of an answer.
func (l *ledger) class(bytes int64) *answerClass {
	i := 0
	for bytes >= l.classes[i].below && i < answerClasses-1 {
		i++
	}
	return &l.classes[i]
}

// enter takes that many bytes. An answer larger than what there is for its class is admitted when there is nothing
// but a few smaller ones. It fails with ErrTooManyAnswers when too many of its class wait already or none of them has
// been let in for answerWaitMax, and with the context's cause when that ends first.
func (l *ledger) enter(ctx context.Context, bytes int64) error {
	l.mu.Lock()
	class := l.class(bytes)
	queue := &class.queue
	if queue.Len() == 0 && l.fits(0, bytes) {
		l.take(bytes)
		l.mu.Unlock()
		return nil
	}
	if queue.Len() >= l.waiting {
		l.refused++
		l.mu.Unlock()
		return ErrTooManyAnswers
	}
	entry := &ledgerEntry{bytes: bytes, admitted: make(chan struct{})}
	element := queue.PushBack(entry)
	l.mu.Unlock()

	reason := l.wait(ctx, class, entry)
	if reason == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-entry.admitted:
		return nil // admitted while giving up: the bytes are ours, and the answer may as well be made
	default:
		queue.Remove(element)
		l.refused++
		l.admit()
		return reason
	}
}

// wait waits until an entry is admitted, and gives the reason for giving up otherwise.
func (l *ledger) wait(ctx context.Context, class *answerClass, entry *ledgerEntry) error {
	timer := time.NewTimer(l.patience)
	defer timer.Stop()
	began := time.Now()
	for {
		select {
		case <-entry.admitted:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-timer.C:
			l.mu.Lock()
			progress := class.lastAdmitted
			l.mu.Unlock()
			if progress.Before(began) {
				progress = began
			}
			left := l.patience - now.Sub(progress)
			if left <= 0 {
				return ErrTooManyAnswers
			}
			timer.Reset(left)
		}
	}
}

// extend takes more bytes for an answer that has some already, or none, and reports whether they fit now. One that
// has none, or comes to another class, does not overtake those of the class who wait; else one that has some may,
// because it ends the sooner.
func (l *ledger) extend(has, more int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	class := l.class(has + more)
	overtakes := class.queue.Len() > 0 && (has == 0 || l.class(has) != class)
	if overtakes || !l.fits(has, more) {
		return false
	}
	l.take(more)
	return true
}

// take enters bytes. The caller holds the lock.
func (l *ledger) take(bytes int64) {
	l.inUse += bytes
	l.highWater = max(l.highWater, l.inUse)
}

// enterNow takes that many bytes without asking whether they fit: those of a write, which has happened and must be
// answered. Readers wait the longer.
func (l *ledger) enterNow(bytes int64) {
	l.mu.Lock()
	l.take(bytes)
	l.mu.Unlock()
}

// leave gives bytes back.
func (l *ledger) leave(bytes int64) {
	if bytes == 0 {
		return
	}
	l.mu.Lock()
	l.inUse -= bytes
	l.admit()
	if l.inUse == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
	l.mu.Unlock()
}

// whenEmpty is closed when no bytes are in use, now or as soon as the last are given back.
func (l *ledger) whenEmpty() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inUse == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	return l.empty
}

// admit lets in as many of those who wait as fit, the smaller classes first, in order within each. Where one does not
// fit, no larger one does. The caller holds the lock.
func (l *ledger) admit() {
	for i := range l.classes {
		queue := &l.classes[i].queue
		for front := queue.Front(); front != nil; front = queue.Front() {
			entry := front.Value.(*ledgerEntry)
			if !l.fits(0, entry.bytes) {
				return
			}
			l.take(entry.bytes)
			l.classes[i].lastAdmitted = time.Now()
			queue.Remove(front)
			close(entry.admitted)
		}
	}
}

// fits reports whether more bytes can be taken for an answer that has some. One that is larger than what there is for
// its class may take what there is in all, and one that is larger than that comes beside no more than what its class
// leaves to others.
func (l *ledger) fits(has, more int64) bool {
	c, others, size := l.class(has+more), l.inUse-has, has+more
	switch {
	case others == 0:
		return true
	case size <= c.bound:
		return others+size <= c.bound
	case size <= l.max:
		return others+size <= l.max
	default:
		return others <= l.max-c.bound
	}
}

// queued is the number of readers that wait. The caller holds the lock.
func (l *ledger) queued() (n int) {
	for i := range l.classes {
		n += l.classes[i].queue.Len()
	}
	return n
}

// inFlight gives the bytes entered and the number of readers that wait, for metrics and tests.
func (l *ledger) inFlight() (bytes int64, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse, l.queued()
}

// ledgerNumbers are the numbers of a ledger at one moment.
type ledgerNumbers struct {
	inUse, max, highWater int64
	waiting               int
	refused               uint64
}

func (l *ledger) numbers() ledgerNumbers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ledgerNumbers{inUse: l.inUse, max: l.max, highWater: l.highWater, waiting: l.queued(), refused: l.refused}
}

// chunkPool makes the buffers of large answers: chunks of one size, so that they are reused whatever the answers'
// sizes, and each is free again as soon as gRPC has written it.
type chunkPool struct{ pool sync.Pool }

func newChunkPool() *chunkPool {
	return &chunkPool{pool: sync.Pool{New: func() any {
		b := make([]byte, chunkBytes)
		return &b
	}}}
}

// Get gives one chunk; it implements mem.BufferPool.
func (p *chunkPool) Get(length int) *[]byte {
	b := p.pool.Get().(*[]byte)
	*b = (*b)[:length]
	return b
}

// Put takes a chunk back.
func (p *chunkPool) Put(b *[]byte) { p.pool.Put(b) }

// fill copies a prefix and the bodies of an answer into chunks, which come from a pool on this one.
func (*chunkPool) fill(size int, prefix []byte, a *answer, p mem.BufferPool) mem.BufferSlice {
	out := make(mem.BufferSlice, 0, (size+chunkBytes-1)/chunkBytes)
	var current *[]byte
	used := 0
	write := func(pieces ...[]byte) {
		for _, piece := range pieces {
			for len(piece) > 0 {
				if current == nil {
					current, used = p.Get(chunkBytes), 0
				}
				n := copy((*current)[used:], piece)
				used += n
				piece = piece[n:]
				if used == chunkBytes {
					out = append(out, mem.NewBuffer(current, p))
					current = nil
				}
			}
		}
	}
	write(prefix)
	write(a.body.Pieces...)
	for i := range a.more {
		write(a.more[i].Pieces...)
	}
	if current != nil {
		*current = (*current)[:used]
		out = append(out, mem.NewBuffer(current, p))
	}
	return out
}
