package fieldreports

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// The history of T08.
const (
	behindRevisions = 20_000
	behindWatchers  = 10
	behindKeys      = 100
	behindBytes     = 512
)

func behindKey(i int) string { return fmt.Sprintf("behind/%02d", i%behindKeys) }

// openBehind opens streams with a watch of everything from the beginning; nothing is read beyond the creation.
func openBehind(a *api, n int) []pb.Watch_WatchClient {
	a.t.Helper()
	streams := make([]pb.Watch_WatchClient, n)
	for i := range streams {
		streams[i] = a.watch(&pb.WatchCreateRequest{
			Key: []byte("behind/"), RangeEnd: []byte("behind0"), StartRevision: 1,
		})
		if r := a.receive(streams[i]); !r.Created || r.Canceled {
			a.t.Fatalf("watch: %v", r)
		}
	}
	return streams
}

// readRevisions reads a stream from the first revision to the last. Every revision has one event.
func readRevisions(stream pb.Watch_WatchClient, first, last int64) error {
	for next := first; next <= last; {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.Canceled {
			return fmt.Errorf("cancelled: %v", r)
		}
		for _, e := range r.Events {
			if e.Kv.ModRevision != next {
				return fmt.Errorf("an event at revision %d, want %d", e.Kv.ModRevision, next)
			}
			next++
		}
	}
	return nil
}

// T08 (etcd-io/etcd#22264, #18109): the work for watchers that are far behind follows what is delivered: nothing is
// read while nobody takes it, and the whole is not read again for every piece or for every watcher.
func TestWatch_CatchingUpCostsWhatIsDelivered(t *testing.T) {
	harness.TroupeOnly(t, "the pieces of history read are counted by troupe")
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	value := make([]byte, behindBytes)
	a.putMany(behindRevisions, func(i int) (string, []byte) { return behindKey(i), value })
	const readBytes = "troupe_watch_history_read_bytes_total"
	streams := openBehind(a, behindWatchers)
	// Nobody reads. The reading stops by itself, and writers do not start it again.
	still := awaitStill(t, s, readBytes)
	a.putMany(behindKeys, func(i int) (string, []byte) { return behindKey(i), value })
	if again := metric(t, s, readBytes); again-still > behindKeys*(behindBytes+1024) {
		t.Errorf("%.0f bytes of history were read for watchers that do not read", again-still)
	}
	err := asManyTimes(a.ctx, behindWatchers, behindWatchers, func(_ context.Context, i int) error {
		return readRevisions(streams[i], 2, 1+behindRevisions+behindKeys)
	})
	if err != nil {
		t.Fatal(err)
	}
	delivered := float64(behindWatchers * (behindRevisions + behindKeys))
	if sent := metric(t, s, "etcd_debugging_mvcc_events_total"); sent < delivered {
		t.Errorf("%.0f events sent, %.0f delivered", sent, delivered)
	}
	// An event is its value, a key, and a few numbers. Watchers at nearly the same place share what is read for them, so
	// ten of them take about a tenth of what they get. Half is asked for: a slow machine may pull them apart.
	share := metric(t, s, readBytes) / (delivered * (behindBytes + 128))
	t.Logf("%.0f %% of the bytes that were delivered were read", 100*share)
	if share > 0.5 {
		t.Errorf("%.0f %% of the bytes that were delivered to %d watchers were read", 100*share, behindWatchers)
	}
	awaitMetric(t, s, "etcd_debugging_mvcc_slow_watcher_total", "goes back to zero", isZero)
}

// awaitStill waits until a counter no longer grows, and gives it.
func awaitStill(t *testing.T, s *harness.Server, name string) float64 {
	t.Helper()
	const looks = 15 // in a row that show the same
	last, same := -1.0, 0
	harness.Eventually(t, limit, name+" stops growing", func() error {
		now := metric(t, s, name)
		if same++; now != last {
			last, same = now, 0
		}
		if same < looks {
			time.Sleep(100 * time.Millisecond) // longer than any pause between two pieces
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
	return last
}
