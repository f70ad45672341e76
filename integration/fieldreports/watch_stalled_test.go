package fieldreports

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// The clients of T09, who do not read.
const (
	stalledStreams     = 100
	stalledConnections = 20
	stalledValues      = 16
	stalledBytes       = 1 << 20
)

// T09 (etcd-io/etcd#16839, #18965): clients that stop reading cost a bounded number of bytes; when they read again they
// have missed nothing.
func TestWatch_ClientsThatDoNotReadCostABoundedBuffer(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	streams := make([]pb.Watch_WatchClient, stalledStreams)
	conns := make([]*api, stalledConnections)
	for i := range conns {
		conns[i] = newAPI(t, s)
	}
	for i := range streams {
		streams[i] = conns[i%stalledConnections].watch(&pb.WatchCreateRequest{Key: []byte("large")})
		if r := a.receive(streams[i]); !r.Created {
			t.Fatalf("watch: %v", r)
		}
	}
	most := 0.0
	for range stalledValues {
		a.put("large", string(make([]byte, stalledBytes)))
		if !harness.EtcdStandsIn() {
			most = max(most, metric(t, s, "troupe_watch_outbox_bytes"))
		}
	}
	if !harness.EtcdStandsIn() {
		if most > outboxesMost {
			t.Errorf("%.0f bytes wait for clients that do not read", most)
		}
		// Sixteen megabytes are four outboxes: every watch has lost its buffer, or never got one.
		awaitMetric(t, s, "etcd_debugging_mvcc_slow_watcher_total", "counts all that do not read",
			func(v float64) bool { return v == stalledStreams })
	}
	err := asManyTimes(a.ctx, stalledConnections, stalledStreams, func(_ context.Context, i int) error {
		return readVersions(streams[i], stalledValues)
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitMetric(t, s, "etcd_debugging_mvcc_slow_watcher_total", "goes back to zero", isZero)
	if !harness.EtcdStandsIn() {
		awaitMetric(t, s, "troupe_watch_outbox_bytes", "goes back to zero", isZero)
	}
}

// readVersions reads the events of one key from its first version to the last.
func readVersions(stream pb.Watch_WatchClient, last int64) error {
	for version := int64(0); version < last; {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.Canceled {
			return fmt.Errorf("cancelled: %v", r)
		}
		for _, e := range r.Events {
			if version++; e.Kv.Version != version {
				return fmt.Errorf("version %d, want %d", e.Kv.Version, version)
			}
		}
	}
	return nil
}
