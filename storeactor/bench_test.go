package storeactor

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

func benchKey(i int) []byte { return fmt.Appendf(nil, "bench/%08d", i) }

// filledRig has n keys of 256 bytes, all in memory unless cold.
func filledRig(b *testing.B, n int, cold bool) *rig {
	r := newRig(b)
	value := bytes.Repeat([]byte("v"), 256)
	for i := range n {
		_, _ = r.run(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: benchKey(i), Value: value}}, false)
	}
	r.cache = 1 << 30
	r.restart()
	if cold {
		r.m.cache.max = 0
		r.m.cache.sweep(r.m.tree, 4*n)
	}
	return r
}

// BenchmarkPut executes puts in batches of one and of a hundred, publishing after each batch as the actor does.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			r := filledRig(b, 100_000, false)
			value := bytes.Repeat([]byte("v"), 256)
			requests := make([]*pb.InternalRaftRequest, 100_000)
			for i := range requests {
				requests[i] = &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: benchKey(i * 7919 % 100_000), Value: value}}
			}
			var keep *State
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += size {
				commands := make([]proto.Command, size)
				for j := range commands {
					commands[j] = proto.Command{
						Index: r.m.applied + 1 + proto.Index(j), Term: 1, Request: requests[(i+j)%len(requests)], Answer: discard{},
					}
				}
				r.m.execute(&proto.Batch{Commands: commands})
				o := r.m.takeOutput()
				keep = r.m.state()
				r.m.recycle(&o)
				if i%10_000 == 0 {
					r.m.recent.trim(r.m.revision) // the file is not what is measured
				}
			}
			_ = keep
		})
	}
}

// BenchmarkGet reads one key, as a handler does.
func BenchmarkGet(b *testing.B) {
	for _, cold := range []bool{false, true} {
		b.Run(fmt.Sprintf("cold=%v", cold), func(b *testing.B) {
			r := filledRig(b, 100_000, cold)
			out := &published{}
			out.state.Store(r.m.state())
			metrics, err := newStoreMetrics(nil, out.state.Load)
			if err != nil {
				b.Fatal(err)
			}
			c := &Client{out: out, metrics: metrics}
			ctx := context.Background()
			q := &pb.RangeRequest{}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				q.Key = benchKeys[i%len(benchKeys)]
				if result, err := c.Range(ctx, q); err != nil || result.Body.Len() < 256 {
					b.Fatal(err)
				}
			}
		})
	}
}

var benchKeys = func() [][]byte {
	keys := make([][]byte, 10_000)
	for i := range keys {
		keys[i] = benchKey(i * 7919 % 100_000)
	}
	return keys
}()

// BenchmarkRange reads 10,000 keys of 256 bytes.
func BenchmarkRange(b *testing.B) {
	for _, q := range []struct {
		name string
		cold bool
		q    *pb.RangeRequest
	}{
		{"hot", false, &pb.RangeRequest{}},
		{"cold", true, &pb.RangeRequest{}},
		{"keys-only", false, &pb.RangeRequest{KeysOnly: true}},
		{"count-only", false, &pb.RangeRequest{CountOnly: true}},
		{"limit=500", false, &pb.RangeRequest{Limit: 500}},
		{"by-mod", false, &pb.RangeRequest{SortTarget: pb.RangeRequest_MOD, SortOrder: pb.RangeRequest_DESCEND}},
	} {
		b.Run(q.name, func(b *testing.B) {
			r := filledRig(b, 10_000, q.cold)
			q.q.Key, q.q.RangeEnd = []byte("bench/"), []byte("bench0")
			v := r.view()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				result, err := v.Range(q.q)
				if err != nil {
					b.Fatal(err)
				}
				if result.Body.Release != nil {
					result.Body.Release()
				}
			}
		})
	}
}
