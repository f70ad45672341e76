package debugpage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// load keeps a member busy with everything: puts, reads, watches and leases, from several connections.
type load struct {
	stop context.CancelFunc
	wait sync.WaitGroup
	puts atomic.Int64
}

// loadPause paces each writer: the pages are looked at on machines with two cores, and the browser needs one.
const loadPause = 2 * time.Millisecond

func startLoad(t *testing.T, dial func(testing.TB) *clientv3.Client) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop}
	for i := range 3 {
		client := dial(t)
		name := fmt.Sprintf("service/web-%d", i)
		for j := range 4 {
			l.wait.Go(func() { l.write(ctx, client, fmt.Sprintf("%s/%d", name, j)) })
		}
		for j := range 12 {
			events := client.Watch(clientv3.WithRequireLeader(ctx), fmt.Sprintf("%s/%d", name, j%4))
			l.wait.Go(func() { drain(events) })
		}
		events := client.Watch(ctx, "service/", clientv3.WithPrefix())
		l.wait.Go(func() { drain(events) })
		if lease, err := client.Grant(ctx, 60); err == nil {
			if alive, err := client.KeepAlive(ctx, lease.ID); err == nil {
				l.wait.Go(func() { drain(alive) })
			}
		}
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.wait.Wait()
}

func drain[T any](c <-chan T) {
	for range c { // only the reading counts
	}
}

func (l *load) write(ctx context.Context, client *clientv3.Client, key string) {
	value := strings.Repeat("v", 256)
	for n := 0; ctx.Err() == nil; n++ {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second) // what was begun is not cut
		_, err := client.Put(one, fmt.Sprintf("%s/%d", key, n%50), value)
		if err == nil {
			l.puts.Add(1)
			_, err = client.Get(one, key, clientv3.WithPrefix(), clientv3.WithLimit(20))
		}
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			select {
			case <-time.After(50 * time.Millisecond): // it is stalled on purpose
			case <-ctx.Done():
			}
		}
		select {
		case <-time.After(loadPause):
		case <-ctx.Done():
		}
	}
}
