package watchactor

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// flatHistory is a store without a past: what a benchmark's watches never need.
type flatHistory struct{}

func (flatHistory) Position() (proto.Revision, proto.Revision) { return 1, 0 }
func (flatHistory) Value(proto.Version) ([]byte, bool)         { return nil, false }
func (flatHistory) Events(_ Range, _, through proto.Revision, _ int) ([]proto.Event, proto.Revision, error) {
	return nil, through + 1, nil
}

// BenchmarkPublish_ManyWatchers publishes to 1,000 watchers of one key, on as many streams or on one, and waits until
// all have their frame. The encodings per batch must stay 1.
func BenchmarkPublish_ManyWatchers(b *testing.B) {
	for _, shape := range []struct{ streams, watches int }{{1000, 1}, {10, 100}, {1, 1000}} {
		b.Run(fmt.Sprintf("streams=%d/watches=%d", shape.streams, shape.watches), func(b *testing.B) {
			publish(b, shape.streams, shape.watches)
		})
	}
}

func publish(b *testing.B, streams, watches int) {
	ctx := context.Background()
	restless := boundsDefault
	restless.restPerDelivery = 0
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "bench"}), Config{History: flatHistory{}, bounds: &restless})
	if err != nil {
		b.Fatal(err)
	}
	frames := make(chan struct{}, streams)
	var readers sync.WaitGroup
	for range streams {
		s := mustOpen(b, c)
		for range watches {
			if err := s.Request(ctx, createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Next(ctx); err != nil {
				b.Fatal(err)
			}
		}
		readers.Go(func() {
			for n := 1; ; n++ {
				if _, err := s.Next(ctx); err != nil {
					return
				}
				if n%watches == 0 {
					frames <- struct{}{}
				}
			}
		})
	}
	m := newModel()
	batches := make([]*proto.EventBatch, b.N)
	for i := range batches {
		batches[i] = m.batch([]op{{"k", make([]byte, 256)}})
	}
	before := testutil.ToFloat64(c.metrics.encoded)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c.Publish(batches[i])
		for range streams {
			<-frames
		}
	}
	b.StopTimer()
	b.ReportMetric((testutil.ToFloat64(c.metrics.encoded)-before)/float64(b.N), "encodings/op")
	if err := c.Stop(ctx); err != nil {
		b.Fatal(err)
	}
	readers.Wait()
}

// BenchmarkRoute_ManyRanges routes a put past 1,000 ranges that do not hold it and one that does.
func BenchmarkRoute_ManyRanges(b *testing.B) {
	core := newHubCore(1, groupsDefault, 0)
	for i := range 1000 {
		core.step(join{
			stream: streamAddress{id: 1}, watch: int64(i), from: 2, first: true,
			keys: Range{Key: fmt.Sprintf("/registry/%04d/", i), End: fmt.Sprintf("/registry/%04d0", i)},
		})
	}
	m := newModel()
	batch := m.batch([]op{put("/registry/0500/default/pod", "v")})
	b.ReportAllocs()
	for range b.N {
		if len(core.step(published{batch})) != 1 {
			b.Fatal("not routed to one group")
		}
	}
}

// BenchmarkEncode encodes one event of 256 bytes.
func BenchmarkEncode(b *testing.B) {
	m := newModel()
	events := m.txn(op{"k", make([]byte, 256)})
	b.ReportAllocs()
	for range b.N {
		encodeRun(selection{events: events}, 0, noPrevious, 1<<20)
	}
}
