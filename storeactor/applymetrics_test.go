package storeactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// TestApplyHistogram_CountsAsEtcdDoes: labels and success of what a batch applied, each with its own time.
func TestApplyHistogram_CountsAsEtcdDoes(t *testing.T) {
	r := newRig(t)
	clock := time.Unix(0, 0)
	r.m.now = func() time.Time {
		clock = clock.Add(150 * time.Microsecond)
		return clock
	}
	r.m.lap()
	version := proto.BucketWrite{Bucket: proto.BucketCluster, Key: clusterVersionKey, Value: []byte("3.7.0")}
	member := proto.BucketWrite{Bucket: proto.BucketMembers, Key: []byte("1"), Value: []byte("{}")}
	r.m.execute(&proto.Batch{Commands: []proto.Command{
		{Index: 1, Term: 1},
		{Index: 2, Term: 1, Answered: &proto.Result{}, Writes: []proto.BucketWrite{member}},
		{Index: 3, Term: 1, Answered: &proto.Result{}, Writes: []proto.BucketWrite{version}},
		{Index: 4, Term: 1, Request: putOf("a", 1)},
		{Index: 5, Term: 1, Request: putOf("a", 1), Answer: discard{}},
		{Index: 6, Term: 1, Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), Lease: 9}}},
		{Index: 7, Term: 1, Request: &pb.InternalRaftRequest{Range: &pb.RangeRequest{Key: []byte("a")}}},
		{Index: 8, Term: 1, Request: &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2}}},
		{Index: 9, Term: 1, Request: &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2}}},
	}})
	o := r.m.takeOutput()
	h := newApplyHistogram()
	h.add(o.applied, time.Second)
	h.add(nil, time.Second)
	expected := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "etcd_server_apply_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		Help: "The latency distributions of v2 apply called by backend.",
	}, []string{"version", "op", "success"})
	for _, one := range []struct {
		op, success string
		n           int
	}{
		{"ClusterMemberAttrSet", "true", 1}, {"ClusterVersionSet", "true", 1}, {"Compaction", "true", 2},
		{"Put", "false", 1}, {"Put", "true", 2},
	} {
		for range one.n {
			expected.WithLabelValues("v3", one.op, one.success).Observe(0.00015)
		}
	}
	if got, want := histogramsOf(t, h), histogramsOf(t, expected); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// histogramsOf prints what a collector of histograms shows.
func histogramsOf(t *testing.T, c prometheus.Collector) string {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		fmt.Fprintln(&b, f.GetName(), f.GetHelp())
		for _, m := range f.Metric {
			for _, l := range m.Label {
				fmt.Fprintf(&b, "%s=%s ", l.GetName(), l.GetValue())
			}
			h := m.Histogram
			fmt.Fprintf(&b, "%d %.5f", h.GetSampleCount(), h.GetSampleSum())
			for _, bucket := range h.Bucket {
				fmt.Fprintf(&b, " %.4f:%d", bucket.GetUpperBound(), bucket.GetCumulativeCount())
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}

func BenchmarkApplyHistogram(b *testing.B) {
	h := newApplyHistogram()
	c := &proto.Command{Request: putOf("a", 1)}
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			var list []applied
			for i := 0; i < b.N; i += size {
				list = list[:0]
				for range size {
					list = appendApplied(list, applyKindOf(c), nil, 3*time.Microsecond)
				}
				h.add(list, time.Second)
			}
		})
	}
}
