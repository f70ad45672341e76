package fieldreports

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"troupe/integration/harness"
)

// The crowd of T06: many watches with previous values on one stream, each of one key's prefix, so that the versions of
// its events must follow each other.
const (
	crowdWatches = 500
	crowdRounds  = 20 // puts of each key
	crowdBytes   = 1 << 10
)

// crowdKey is the key that the i-th watch's range holds.
func crowdKey(i int) string { return fmt.Sprintf("crowd/%03d/key", i%crowdWatches) }

// crowd is the stream and what each watch has seen.
type crowd struct {
	stream   pb.Watch_WatchClient
	version  []int64 // last seen, by watch
	compact  []int64 // of the cancel, by watch
	watchIDs map[int64]int
}

// watchCrowd creates the watches and reads nothing else.
func watchCrowd(a *api) *crowd {
	a.t.Helper()
	c := &crowd{
		version: make([]int64, crowdWatches), compact: make([]int64, crowdWatches), watchIDs: map[int64]int{},
	}
	for i := range crowdWatches {
		prefix := fmt.Appendf(nil, "crowd/%03d/", i)
		create := &pb.WatchCreateRequest{Key: prefix, RangeEnd: fmt.Appendf(nil, "crowd/%03d0", i), PrevKv: true}
		if i == 0 {
			c.stream = a.watch(create)
		} else if err := c.stream.Send(&pb.WatchRequest{
			RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create},
		}); err != nil {
			a.t.Fatalf("watch %d: %v", i, err)
		}
	}
	for i := range crowdWatches {
		r := a.receive(c.stream)
		if !r.Created || r.Canceled {
			a.t.Fatalf("watch %d: %v", i, r)
		}
		c.watchIDs[r.WatchId] = i
	}
	return c
}

// read reads until every watch has seen the last version or was cancelled, and checks what it reads.
func (c *crowd) read(a *api) (cancelled int) {
	a.t.Helper()
	for left := crowdWatches; left > 0; {
		r := a.receive(c.stream)
		i, known := c.watchIDs[r.WatchId]
		if !known || c.compact[i] > 0 {
			a.t.Fatalf("a response for watch %d, which is not there: %v", r.WatchId, r)
		}
		for _, e := range r.Events {
			c.event(a, i, e)
		}
		if r.Canceled {
			if r.CompactRevision <= 0 {
				a.t.Fatalf("watch %d was cancelled without a compact revision: %v", i, r)
			}
			c.compact[i] = r.CompactRevision
			cancelled++
		}
		if r.Canceled || len(r.Events) > 0 && c.version[i] == crowdRounds {
			left--
		}
	}
	return cancelled
}

// event checks one event of a watch: its own key, the next version, and the previous value if it is still there.
func (c *crowd) event(a *api, i int, e *mvccpb.Event) {
	a.t.Helper()
	if string(e.Kv.Key) != crowdKey(i) || e.Kv.Version != c.version[i]+1 {
		a.t.Fatalf("watch %d got version %d of %s after version %d", i, e.Kv.Version, e.Kv.Key, c.version[i])
	}
	if e.PrevKv != nil && e.PrevKv.Version != c.version[i] {
		a.t.Fatalf("watch %d: version %d has version %d as the one before", i, e.Kv.Version, e.PrevKv.Version)
	}
	c.version[i]++
}

// T06 (etcd-io/etcd#17529): 500 watches with previous values on a stream that is not read for a while: nobody's events
// are skipped, and what waits for the client is bounded.
func TestWatch_CrowdedStreamThatPausesLosesNothing(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	c := watchCrowd(a)
	value := make([]byte, crowdBytes)
	a.putMany(crowdWatches*crowdRounds, func(i int) (string, []byte) { return crowdKey(i), value })
	if !harness.EtcdStandsIn() {
		// 10,000 events of 2 KiB are five times an outbox: the bound was reached, and kept.
		if held := metric(t, s, "troupe_watch_outbox_bytes"); held > outboxMost {
			t.Errorf("%.0f bytes wait for a client that does not read", held)
		}
		// No buffer given up: then the test would prove nothing. What was put is told a little later.
		awaitMetric(t, s, "troupe_watch_resyncs_total", "counts buffers that were given up",
			func(n float64) bool { return n > 0 })
	}
	if cancelled := c.read(a); cancelled > 0 {
		t.Errorf("%d watches were cancelled, though nothing was compacted", cancelled)
	}
	awaitMetric(t, s, "etcd_debugging_mvcc_slow_watcher_total", "goes back to zero", isZero)
}

// T06, the other half: watches that a compaction overtakes are told so, each of them, and none gets events from after a
// gap.
func TestWatch_CrowdOvertakenByCompactionIsTold(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	c := watchCrowd(a)
	value := make([]byte, crowdBytes)
	const parts = 4
	for part := range parts {
		a.putMany(crowdWatches*crowdRounds/parts, func(i int) (string, []byte) { return crowdKey(i), value })
		if part < parts-1 {
			a.compact(a.put("elsewhere", "1"))
		}
	}
	cancelled := c.read(a)
	t.Logf("%d of %d watches were cancelled", cancelled, crowdWatches)
	if cancelled == 0 && !harness.EtcdStandsIn() {
		t.Errorf("no watch was overtaken: the test proves nothing")
	}
}
