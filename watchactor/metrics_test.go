package watchactor

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
)

// TestMetrics_HaveEtcdsNames: dashboards read these names, types and buckets (flags-metrics.md 4.2), and sending is
// counted.
func TestMetrics_HaveEtcdsNames(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newModel()
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "metrics"}), Config{History: m, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m.batch([]op{put("k", "v")})
	s := mustOpen(t, c)
	r := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	if err := s.Request(ctx, r); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the answer and the event
		if _, err := s.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if _, err := s.Next(gone); err == nil {
		t.Fatal("a frame that nobody made")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	counts := map[string]uint64{}
	for _, f := range families {
		found[f.GetName()] = f.GetType().String()
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			counts[f.GetName()] = h.GetSampleCount()
			if n := len(h.GetBucket()); n != durationBuckets {
				t.Errorf("%s has %d buckets", f.GetName(), n)
			}
		}
	}
	const mvcc, loop = "etcd_debugging_mvcc_", "etcd_debugging_server_watch_send_loop_"
	for name, kind := range map[string]string{
		mvcc + "watch_stream_total": "GAUGE", mvcc + "watcher_total": "GAUGE", mvcc + "slow_watcher_total": "GAUGE",
		mvcc + "pending_events_total": "GAUGE", mvcc + "events_total": "COUNTER",
		loop + "watch_stream_duration_seconds":           "HISTOGRAM",
		loop + "watch_stream_duration_per_event_seconds": "HISTOGRAM",
		loop + "control_stream_duration_seconds":         "HISTOGRAM",
		loop + "progress_duration_seconds":               "HISTOGRAM",
	} {
		if found[name] != kind {
			t.Errorf("%s is of type %q, want %s", name, found[name], kind)
		}
	}
	if counts[loop+"watch_stream_duration_seconds"] != 1 || counts[loop+"control_stream_duration_seconds"] != 1 {
		t.Errorf("sending one event and one answer counted as %v", counts)
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNext_EndsWithItsContext: a reader that waits is woken by the end of its context, whenever that comes.
func TestNext_EndsWithItsContext(t *testing.T) {
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "next"}), Config{History: newModel()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	s := mustOpen(t, c)
	for i := range 2000 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			for range i % 50 {
				runtime.Gosched()
			}
			cancel()
			close(done)
		}()
		if _, err := s.Next(ctx); err == nil {
			t.Fatal("a frame that nobody made")
		}
		<-done
	}
	s.Close()
	if _, err := s.Next(context.Background()); err == nil {
		t.Fatal("a frame of a closed stream")
	}
}
