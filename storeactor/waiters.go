package storeactor

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"

	"troupe/proto"
)

// waiters are the goroutines that wait for the published state to reach an index. The store pays one atomic load while
// nobody waits, and else for those it wakes: they are ordered by their index, because readers may wait in thousands
// for an index that many turns do not reach.
type waiters struct {
	waiting atomic.Int64
	mu      sync.Mutex
	queue   waiterHeap
	stopped bool
}

type waiter struct {
	index proto.Index
	done  chan struct{}
	place int // in the heap, -1 when it is not there
}

// notify wakes those whose index is reached. Called after the state is published.
func (w *waiters) notify(applied proto.Index) {
	if w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 && w.queue[0].index <= applied {
		close(heap.Pop(&w.queue).(*waiter).done)
	}
}

// stop wakes everybody; who has not reached the index gets ErrStopped.
func (w *waiters) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, one := range w.queue {
		one.place = -1
		close(one.done)
	}
	w.queue = nil
}

// wait waits until reached says so; it is asked again after every wake-up, and first after this waiter can be woken,
// so that no publish is missed.
func (w *waiters) wait(ctx context.Context, index proto.Index, reached func() bool) error {
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	one := &waiter{index: index, done: make(chan struct{}), place: -1}
	w.mu.Lock()
	stopped := w.stopped
	if !stopped {
		heap.Push(&w.queue, one)
	}
	w.mu.Unlock()
	defer w.forget(one)
	if reached() {
		return nil
	}
	if stopped {
		return ErrStopped
	}
	select {
	case <-one.done:
		if reached() {
			return nil
		}
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *waiters) forget(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.place >= 0 {
		heap.Remove(&w.queue, one.place)
	}
}

// waiterHeap is ordered by index.
type waiterHeap []*waiter

func (h waiterHeap) Len() int           { return len(h) }
func (h waiterHeap) Less(i, j int) bool { return h[i].index < h[j].index }

func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *waiterHeap) Push(x any) {
	one := x.(*waiter)
	one.place = len(*h)
	*h = append(*h, one)
}

func (h *waiterHeap) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	one.place = -1
	return one
}
