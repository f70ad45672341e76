package watchactor

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
)

// put publishes one put of k, as the store does: the state first, then the hub, and whoever reads the state may come
// between the two.
func (l *lockedModel) put(c *Client) {
	l.mu.Lock()
	batch := l.m.batch([]op{put("k", "v")})
	l.mu.Unlock()
	c.Publish(batch)
}

// TestHub_TheFirstWatchMissesNothing: the hub is told nothing while nobody watches. Watches come and go while somebody
// writes without a pause, so that the hub falls idle and wakes at every point of a publication.
func TestHub_TheFirstWatchMissesNothing(t *testing.T) {
	store := &lockedModel{m: newModel()}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "test"}), Config{History: store})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				store.put(c)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for range 100 {
		s := mustOpen(t, c)
		if err := s.Request(ctx, createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})); err != nil {
			t.Fatal(err)
		}
		created, err := s.Next(ctx)
		if err != nil || !created.Created {
			t.Fatalf("created: %+v, %v", created, err)
		}
		last := int64(0)
		for seen := 0; seen < 20; {
			f, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range eventsOf(&f) {
				if last != 0 && e.Kv.ModRevision != last+1 {
					t.Fatalf("event %d follows %d", e.Kv.ModRevision, last)
				}
				if last == 0 && e.Kv.ModRevision > int64(created.HeaderRevision)+1 {
					t.Fatalf("created at %v, the first event is %d", created.HeaderRevision, e.Kv.ModRevision)
				}
				last = e.Kv.ModRevision
				seen++
			}
		}
		s.Close()
	}
	close(stop)
	writer.Wait()
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestHub_KeepsNoBatchesForNobody: what is published while nobody watches does not wait in the hub's mailbox.
func TestHub_KeepsNoBatchesForNobody(t *testing.T) {
	c, m, step := steppedRoom(t, nil)
	s := mustOpen(t, c)
	watchKey(t, s, "k")
	step.Run(10_000)
	s.Close()
	step.Run(10_000)
	for range 1000 {
		c.Publish(m.batch([]op{put("k", "v")}))
	}
	if depth := c.hub.Depth(actors.Normal); depth != 0 {
		t.Fatalf("%d batches wait for nobody", depth)
	}
}
