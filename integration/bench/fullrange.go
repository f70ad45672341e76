package main

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// Scenario (h): everything is read by many at once.
const (
	rangesKeys       = 10_000
	rangesValueBytes = 10_000
	rangesReaders    = 20
)

func rangesScenario() scenario {
	return scenario{
		letter: "h", title: "20 full ranges of 10,000 values of 10 KB at once",
		figures: []figure{
			{key: "cpu", title: "server CPU per GB, s", digits: 2, target: shareOfEtcd("cpu", 0.5)},
			{key: "over", title: "peak RSS over the base, MiB", digits: 0, target: shareOfEtcd("over", 0.5)},
			{key: "base", title: "RSS before, MiB", digits: 0},
			{key: "seconds", title: "until all are read, s", digits: 1},
			{key: "p99 before", title: "put p99 before, ms", digits: 1},
			{key: "p99 while", title: "put p99 while, ms", digits: 1},
		},
		play: playRanges,
	}
}

func playRanges(t *trial) error {
	keys := t.count(rangesKeys, 200)
	key := func(i int) string { return fmt.Sprintf("full/%06d", i) }
	if err := loadKeys(t, keys, key, make([]byte, rangesValueBytes), nil); err != nil {
		return err
	}
	puts, err := putProbe(t, steady, "probe/", probeValueBytes)
	if err != nil {
		return err
	}
	quiet := time.Now()
	if err := t.rest(calm); err != nil {
		return err
	}
	base, err := residentMemory(t.server.Pid())
	if err != nil {
		return err
	}
	resetPeak(t.server.Pid())
	used, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	profile := t.profile("ranges")
	begin := time.Now()
	bytes := make([]int, rangesReaders)
	err = parallel(t.ctx, t.server, rangesReaders, rangesReaders,
		func(ctx context.Context, conn *grpc.ClientConn, i int) error {
			var answer sizedAnswer
			request := &pb.RangeRequest{Key: []byte("full/"), RangeEnd: []byte("full0")}
			err := conn.Invoke(ctx, pb.KV_Range_FullMethodName, request, &answer, grpc.ForceCodecV2(rawCodec{}))
			bytes[i] = answer.bytes
			return err
		})
	if err != nil {
		return err
	}
	end := time.Now()
	after, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	peak, err := peakMemory(t.server.Pid())
	if err != nil {
		return err
	}
	profile()
	timings := puts.stop(t)
	total := 0
	for _, one := range bytes {
		if one < keys*rangesValueBytes {
			return fmt.Errorf("an answer of %d bytes is not everything", one)
		}
		total += one
	}
	t.set("cpu", (after-used).Seconds()/(float64(total)/1e9))
	t.set("base", base)
	t.set("over", peak-base)
	t.set("seconds", end.Sub(begin).Seconds())
	t.set("p99 before", within(timings, quiet, begin).quantile(0.99))
	t.set("p99 while", overlapping(timings, begin, end).quantile(0.99))
	return nil
}
