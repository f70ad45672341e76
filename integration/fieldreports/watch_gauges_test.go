package fieldreports

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// Bounds of the member's default configuration that the tests of watches lean on, with room: what is tested is that
// there is a bound, far below what an unbounded buffer would hold.
const (
	// outboxesMost is all outboxes together: twice 96 MiB, and one more delivery of a megabyte for each of a hundred
	// streams.
	outboxesMost = 400 << 20
	// outboxMost is one outbox: 4 MiB and one more delivery.
	outboxMost = 8 << 20
	// responseMost is the largest response that is not one revision alone: the default request limit of 1.5 MiB and
	// 512 KiB beside it.
	responseMost = 2 << 20
)

// awaitMetric waits until a metric of the member satisfies the condition.
func awaitMetric(t *testing.T, s *harness.Server, name string, what string, wanted func(float64) bool) {
	t.Helper()
	harness.Eventually(t, limit, name+" "+what, func() error {
		if value := metric(t, s, name); !wanted(value) {
			return fmt.Errorf("it is %v", value)
		}
		return nil
	})
}

func isZero(v float64) bool { return v == 0 }

// putMany puts n values with many requests at the same time, the i-th at the key and with the value that make gives.
func (a *api) putMany(n int, make func(i int) (key string, value []byte)) {
	a.t.Helper()
	const clients = 32
	failed := asManyTimes(a.ctx, clients, n, func(ctx context.Context, i int) error {
		key, value := make(i)
		_, err := a.kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: value})
		return err
	})
	if failed != nil {
		a.t.Fatalf("put: %v", failed)
	}
}

// asManyTimes calls work for 0 to n-1 from several goroutines and gives the first error.
func asManyTimes(ctx context.Context, clients, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, done := make(chan int), make(chan struct{})
	for range clients {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range next {
				if err := work(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range clients {
		<-done
	}
	return context.Cause(ctx)
}
