package gateway

import (
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestServer_TellsWhenManyCallsComeTogether(t *testing.T) {
	var told atomic.Int64
	e := newReadyEdge(t, func(c *Config) { c.Crowded = func() { told.Add(1) } })
	kv := pb.NewKVClient(e.conn)
	for round := range int64(2) {
		e.room.mu.Lock() // so that proposals do not end
		var calls sync.WaitGroup
		start := func(n int) {
			for range n {
				calls.Go(func() {
					if _, err := kv.Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		start(crowdedCalls - 1)
		eventually(t, "all are being worked on", func() bool { return e.unary.Load() == crowdedCalls-1 })
		before := told.Load()
		start(2)
		eventually(t, "two more are being worked on", func() bool { return e.unary.Load() == crowdedCalls+1 })
		e.room.mu.Unlock()
		if before != 2*round {
			t.Errorf("told %d times before there are many, want %d", before, 2*round)
		}
		eventually(t, "told of each", func() bool { return told.Load() == 2*(round+1) })
		calls.Wait()
		eventually(t, "all have left", func() bool { return e.unary.Load() == 0 })
	}
}
