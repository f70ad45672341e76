package etcdctl

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"troupe/integration/harness"
)

// defragValueBytes and defragKeys make a file that is copied for a while also on a fast machine.
const (
	defragValueBytes = 64 << 10
	defragKeys       = 800
)

// fillAndCompact makes a file of which half is free pages.
func fillAndCompact(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := harness.Context(t, 2*time.Minute)
	value := strings.Repeat("v", defragValueBytes)
	for i := range defragKeys {
		if _, err := c.Put(ctx, fmt.Sprintf("fill/%04d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	last, err := c.Delete(ctx, "fill/", clientv3.WithRange(fmt.Sprintf("fill/%04d", defragKeys/2)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(ctx, last.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// besideDefrag writes, renews and watches until it is stopped, and counts what was done from start to end inside the
// time between begin and end.
type besideDefrag struct {
	inside        atomic.Int64 // how often the clock of the defragmentation was started and stopped: odd is inside
	puts, renews  atomic.Int64
	acknowledged  atomic.Int64
	watched       atomic.Int64
	stopped       chan struct{}
	everybody     sync.WaitGroup
	lease         clientv3.LeaseID
	client        *clientv3.Client
	wrong         chan error
	watchFinished chan struct{}
}

func startBesideDefrag(t *testing.T, c *clientv3.Client) *besideDefrag {
	t.Helper()
	b := &besideDefrag{
		stopped: make(chan struct{}), client: c, wrong: make(chan error, 10), watchFinished: make(chan struct{}),
	}
	ctx := harness.Context(t, 3*time.Minute)
	lease, err := c.Grant(ctx, 30)
	if err != nil {
		t.Fatal(err)
	}
	b.lease = lease.ID
	if _, err := c.Put(ctx, "leased", "x", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	events := c.Watch(ctx, "beside", clientv3.WithRev(lease.ResponseHeader.Revision+1))
	go func() {
		defer close(b.watchFinished)
		for r := range events {
			for _, e := range r.Events {
				if string(e.Kv.Value) == "end" {
					return
				}
				if n := b.watched.Add(1); string(e.Kv.Value) != fmt.Sprint(n) {
					b.wrong <- fmt.Errorf("event %d is that of put %s", n, e.Kv.Value)
					return
				}
			}
		}
	}()
	b.everybody.Go(func() {
		b.repeat(&b.puts, func() error {
			_, err := c.Put(ctx, "beside", fmt.Sprint(b.acknowledged.Load()+1))
			if err == nil {
				b.acknowledged.Add(1)
			}
			return err
		})
	})
	b.everybody.Go(func() {
		b.repeat(&b.renews, func() error {
			r, err := c.KeepAliveOnce(ctx, b.lease)
			if err == nil && r.TTL <= 0 {
				err = errors.New("the lease is gone")
			}
			return err
		})
	})
	return b
}

// repeat does something again and again, and counts how often it was begun and done inside.
func (b *besideDefrag) repeat(count *atomic.Int64, do func() error) {
	for {
		select {
		case <-b.stopped:
			return
		default:
		}
		before := b.inside.Load()
		if err := do(); err != nil {
			b.wrong <- err
			return
		}
		if before%2 == 1 && b.inside.Load() == before {
			count.Add(1)
		}
	}
}

// stop ends it, and checks that no event is missing and the lease has kept its key.
func (b *besideDefrag) stop(t *testing.T) {
	t.Helper()
	close(b.stopped)
	b.everybody.Wait()
	ctx := harness.Context(t, time.Minute)
	if _, err := b.client.Put(ctx, "beside", "end"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.watchFinished:
	case <-ctx.Done():
	}
	if got, want := b.watched.Load(), b.acknowledged.Load(); got != want {
		t.Errorf("%d puts were acknowledged, %d events came", want, got)
	}
	if r, err := b.client.Get(ctx, "leased"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("the key of the lease: %v %v", r, err)
	}
	select {
	case err := <-b.wrong:
		t.Error(err)
	default:
	}
}

// TestEtcdctl_DefragBesideTheWork: etcdctl defrag makes the file smaller while puts and renewals go on, a watch misses
// nothing, and the history is the same afterwards, also for the next process. What counts is that requests were begun
// and answered while it ran; etcd answers none.
func TestEtcdctl_DefragBesideTheWork(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	c := s.Client(t)
	fillAndCompact(t, c)
	m := pb.NewMaintenanceClient(s.Conn(t))
	size := func() int64 {
		r, err := m.Status(harness.Context(t, time.Minute), &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.DbSize
	}
	before := size()
	b := startBesideDefrag(t, c)
	for range 5 { // a machine that stands still for the length of a defragmentation proves nothing
		b.inside.Add(1)
		_, err := m.Defragment(harness.Context(t, time.Minute), &pb.DefragmentRequest{})
		b.inside.Add(1)
		if err != nil {
			t.Fatal(err)
		}
		if b.puts.Load() > 5 && b.renews.Load() > 5 {
			break
		}
	}
	if puts, renews := b.puts.Load(), b.renews.Load(); puts <= 5 || renews <= 5 {
		t.Errorf("only %d puts and %d renewals were answered while the file was defragmented", puts, renews)
	}
	if after := size(); after > before*2/3 {
		t.Errorf("the file has %d bytes, before it had %d", after, before)
	}
	out := s.MustCtl(t, "defrag", "--command-timeout=60s")
	if !strings.HasPrefix(out, "Finished defragmenting etcd member["+s.Endpoint()+"]") {
		t.Errorf("etcdctl defrag says %q", out)
	}
	b.stop(t)
	want := s.Hashes(t)
	s.Kill(t)
	s.Start(t)
	harness.SameHashes(t, "before the kill", want, "after it", s.Hashes(t))
}
