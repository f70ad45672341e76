package probes

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

const (
	// stormClients is how many clients ask at the same time, each over a connection of its own; stormRounds how often
	// the probes are asked meanwhile.
	stormClients = 48
	stormRounds  = 20
)

// A member that has much to do is not restarted for it: liveness does not wait behind clients, whatever they send, and
// whoever holds the connections of the client port does not hold those of the metrics port.
func TestProbes_LivezAnswersDuringAStorm(t *testing.T) {
	s := start(t, harness.Troupe)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	var answered atomic.Int64
	value := []byte(strings.Repeat("v", 16<<10))
	for n := range stormClients {
		kv := pb.NewKVClient(s.Conn(t))
		clients.Go(func() {
			for ctx.Err() == nil {
				var err error
				switch n % 3 {
				case 0:
					_, err = kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
				case 1:
					_, err = kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true})
				default:
					_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte{'k', byte(n), byte(answered.Load())}, Value: value})
				}
				if err == nil {
					answered.Add(1)
				}
			}
		})
	}
	for range stormRounds {
		before := answered.Load()
		for _, url := range []string{s.URL, s.metricsURL} {
			if got := ask(t, http.MethodGet, url+"/livez?verbose"); got.status != http.StatusOK {
				t.Errorf("%s/livez: %+v", url, got)
			}
		}
		harness.Eventually(t, limit, "the storm goes on", func() error {
			if answered.Load() == before {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
}
