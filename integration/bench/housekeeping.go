package main

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Scenario (c): defragmentation of a large file. Scenario (d): compaction of a long history.
const (
	defragmentKeys       = 540_000
	defragmentValueBytes = 1 << 10
	// defragmentDeleted is one of how many keys is deleted before, so that there is something to give back.
	defragmentDeleted = 10
	// defragmentMoreMax is how much longer than before a put or a renewal may take, in ms.
	defragmentMoreMax = 100

	compactionRevisions = 300_000
	compactionKeys      = 100_000
)

// renewalPace is a tenth of a second for each of the leases.
var renewalPace = pace{clients: 8, perSecond: 80}

func defragmentScenario() scenario {
	return scenario{
		letter: "c", title: "defragmentation of 600 MB",
		figures: []figure{
			{key: "file", title: "size of the file before, MiB", digits: 0},
			{key: "put before", title: "longest put before, ms", digits: 1},
			{
				key: "put while", title: "longest put while, ms", digits: 1,
				target: aboveBefore("put while", "put before", defragmentMoreMax),
			},
			{key: "renewal before", title: "longest renewal before, ms", digits: 1},
			{
				key: "renewal while", title: "longest renewal while, ms", digits: 1,
				target: aboveBefore("renewal while", "renewal before", defragmentMoreMax),
			},
			{key: "seconds", title: "time it takes, s", digits: 1},
		},
		play: playDefragment,
	}
}

func playDefragment(t *trial) error {
	keys := t.count(defragmentKeys, 1000)
	key := func(i int) string { return fmt.Sprintf("data/%07d", i) }
	if err := loadKeys(t, keys, key, make([]byte, defragmentValueBytes), nil); err != nil {
		return err
	}
	conn, err := t.server.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	kv, maintenance := pb.NewKVClient(conn), pb.NewMaintenanceClient(conn)
	deleted, err := kv.DeleteRange(t.ctx, &pb.DeleteRangeRequest{
		Key: []byte(key(0)), RangeEnd: []byte(key(keys / defragmentDeleted)),
	})
	if err != nil {
		return err
	}
	compact := &pb.CompactionRequest{Revision: deleted.Header.Revision, Physical: true}
	if _, err := kv.Compact(t.ctx, compact); err != nil {
		return err
	}
	status, err := maintenance.Status(t.ctx, &pb.StatusRequest{})
	if err != nil {
		return err
	}
	t.set("file", float64(status.DbSize)/(1<<20))
	t.note("%d keys loaded, the file has %d MiB", keys, status.DbSize>>20)
	return beside(t, "defragment", func() error {
		_, err := maintenance.Defragment(t.ctx, &pb.DefragmentRequest{})
		return err
	}, func(puts, renewals sides) {
		t.set("put before", puts.before.quantile(1))
		t.set("put while", puts.while.quantile(1))
		t.set("renewal before", renewals.before.quantile(1))
		t.set("renewal while", renewals.while.quantile(1))
	})
}

// sides are the latencies of one kind of request before and during some work.
type sides struct{ before, while latencies }

// beside measures puts and renewals in a calm time and then while work runs; the figure "seconds" is its duration.
func beside(t *trial, name string, work func() error, report func(puts, renewals sides)) error {
	puts, err := putProbe(t, steady, "probe/", probeValueBytes)
	if err != nil {
		return err
	}
	renewals, err := renewalProbe(t, renewalPace)
	if err != nil {
		return err
	}
	quiet := time.Now()
	if err := t.rest(calm); err != nil {
		return err
	}
	profile := t.profile(name)
	begin := time.Now()
	if err := work(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	end := time.Now()
	profile()
	t.set("seconds", end.Sub(begin).Seconds())
	split := func(all []timing) sides { return sides{within(all, quiet, begin), overlapping(all, begin, end)} }
	report(split(puts.stop(t)), split(renewals.stop(t)))
	return nil
}

func compactionScenario() scenario {
	return scenario{
		letter: "d", title: "compaction of 300,000 revisions",
		figures: []figure{
			{key: "p99 before", title: "put p99 before, ms", digits: 1},
			{
				key: "p99 while", title: "put p99 while, ms", digits: 1,
				target: timesBefore("p99 while", "p99 before", 2),
			},
			{key: "longest", title: "longest put while, ms", digits: 1},
			{key: "seconds", title: "until it is in the file, s", digits: 1},
		},
		play: playCompaction,
	}
}

func playCompaction(t *trial) error {
	revisions := t.count(compactionRevisions, 3000)
	keys := max(revisions*compactionKeys/compactionRevisions, 1)
	key := func(i int) string { return fmt.Sprintf("data/%06d", i%keys) }
	if err := loadRevisions(t, revisions, key, make([]byte, probeValueBytes)); err != nil {
		return err
	}
	last, err := revision(t)
	if err != nil {
		return err
	}
	t.note("%d revisions of %d keys loaded", revisions, keys)
	conn, err := t.server.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	return beside(t, "compaction", func() error {
		return compact(t.ctx, pb.NewKVClient(conn), last)
	}, func(puts, _ sides) {
		t.set("p99 before", puts.before.quantile(0.99))
		t.set("p99 while", puts.while.quantile(0.99))
		t.set("longest", puts.while.quantile(1))
	})
}

// compact compacts and waits until the file has it.
func compact(ctx context.Context, kv pb.KVClient, to int64) error {
	_, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: to, Physical: true})
	return err
}
