package main

import (
	"fmt"
	"time"
)

// Scenario (a): watchers that are far behind.
const (
	catchupRevisions  = 200_000
	catchupKeys       = 10_000
	catchupValueBytes = 128
	catchupWatchers   = 10
)

func catchupScenario() scenario {
	return scenario{
		letter: "a", title: "10 watchers start 200,000 revisions behind",
		figures: []figure{
			{key: "p50 before", title: "put p50 before, ms", digits: 2},
			{
				key: "p50 while", title: "put p50 while they read, ms", digits: 2,
				target: timesBefore("p50 while", "p50 before", 1.5),
			},
			{key: "p99 before", title: "put p99 before, ms", digits: 1},
			{key: "p99 while", title: "put p99 while they read, ms", digits: 1},
			{key: "seconds", title: "until all have the whole history, s", digits: 1, target: shareOfEtcd("seconds", 0.5)},
			{key: "cpu", title: "server CPU per delivered event, us", digits: 2},
			{key: "peak", title: "peak RSS while they read, MiB", digits: 0},
		},
		play: playCatchup,
	}
}

func playCatchup(t *trial) error {
	revisions := t.count(catchupRevisions, 1000)
	key := func(i int) string { return fmt.Sprintf("history/%05d", i%catchupKeys) }
	if err := loadRevisions(t, revisions, key, make([]byte, catchupValueBytes)); err != nil {
		return err
	}
	t.note("%d revisions loaded", revisions)
	puts, err := putProbe(t, steady, "probe/", probeValueBytes)
	if err != nil {
		return err
	}
	quiet := time.Now()
	if err := t.rest(calm); err != nil {
		return err
	}
	resetPeak(t.server.Pid())
	profile := t.profile("while")
	used, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	begin := time.Now()
	report, err := readAll(t, readersOrder{
		Connections: catchupWatchers, Streams: catchupWatchers, Watches: 1,
		Key: "history/", End: "history0", Start: 1, Events: revisions,
	})
	if err != nil {
		return err
	}
	end := time.Now()
	after, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	profile()
	timings := puts.stop(t)
	if report.Complete != catchupWatchers {
		return fmt.Errorf("%d of %d watchers have the whole history", report.Complete, catchupWatchers)
	}
	before, while := within(timings, quiet, begin), overlapping(timings, begin, end)
	t.set("p50 before", before.quantile(0.5))
	t.set("p99 before", before.quantile(0.99))
	t.set("p50 while", while.quantile(0.5))
	t.set("p99 while", while.quantile(0.99))
	t.set("seconds", report.Seconds)
	t.set("cpu", float64((after-used).Microseconds())/float64(revisions*catchupWatchers))
	peak, err := peakMemory(t.server.Pid())
	t.set("peak", peak)
	return err
}

// readAll has a process of its own read an order to its end.
func readAll(t *trial, order readersOrder) (readersReport, error) {
	order.Endpoint = t.server.Endpoint()
	c, err := startReaders(t.ctx, order)
	if err != nil {
		return readersReport{}, err
	}
	defer c.end()
	return c.done()
}
