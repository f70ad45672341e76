package storeactor

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"troupe/proto"
)

// TestWaiters_EachIsWokenByItsIndexAndNoEarlier: thousands that wait for different indexes, some of which give up.
func TestWaiters_EachIsWokenByItsIndexAndNoEarlier(t *testing.T) {
	var w waiters
	var applied atomic.Uint64
	const count, last = 2000, 100
	random := rand.New(rand.NewPCG(1, 1))
	var group sync.WaitGroup
	for i := range count {
		index := proto.Index(1 + random.IntN(last))
		ctx, giveUp := context.WithCancel(context.Background())
		if i%5 == 0 {
			giveUp()
		}
		group.Go(func() {
			defer giveUp()
			err := w.wait(ctx, index, func() bool { return proto.Index(applied.Load()) >= index })
			if err == nil && proto.Index(applied.Load()) < index || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("waiting for %d ended at %d: %v", index, applied.Load(), err)
			}
		})
	}
	for index := range uint64(last) {
		applied.Store(index + 1)
		w.notify(proto.Index(index + 1))
	}
	group.Wait()
	if len(w.queue) != 0 || w.waiting.Load() != 0 {
		t.Errorf("%d waiters are left", len(w.queue))
	}
}

// TestWaiters_APublishLooksOnlyAtThoseItWakes: the order of the queue is by index whatever the order of arrival.
func TestWaiters_APublishLooksOnlyAtThoseItWakes(t *testing.T) {
	var w waiters
	var group sync.WaitGroup
	never := func() bool { return false }
	for _, index := range []proto.Index{70, 10, 90, 30, 50} {
		group.Go(func() { _ = w.wait(context.Background(), index, never) })
	}
	for queued := 0; queued < 5; {
		w.mu.Lock()
		queued = len(w.queue)
		w.mu.Unlock()
	}
	w.notify(50)
	w.mu.Lock()
	if len(w.queue) != 2 || w.queue[0].index != 70 {
		t.Errorf("%d are left, the first at %d", len(w.queue), w.queue[0].index)
	}
	w.mu.Unlock()
	w.stop()
	group.Wait()
	if err := w.wait(context.Background(), 1, never); !errors.Is(err, ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
}
