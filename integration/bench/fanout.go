package main

import (
	"fmt"
	"time"
)

// Scenario (e): many watchers of one key.
const (
	fanoutStreams     = 20
	fanoutWatches     = 100 // on each stream, as etcd's own benchmark tool does
	fanoutValueBytes  = 256
	fanoutShare       = 1.0 / 3
	fanoutOwnStreams  = 2000
	fanoutConnections = 20
)

// fanoutPace is the rate of etcd's own watch-latency benchmark: 200,000 events a second with 2,000 watchers. At lower
// rates what the server does at rest is a large part of what an event seems to cost.
var fanoutPace = pace{clients: 1, perSecond: 100, requests: 400}

func fanoutScenario() scenario {
	return scenario{
		letter: "e", title: "2,000 watchers of one key",
		figures: []figure{
			{
				key: "cpu", title: "server CPU per delivered event, 20 streams of 100, us", digits: 2,
				target: shareOfEtcd("cpu", fanoutShare),
			},
			{key: "p99", title: "put p99, ms", digits: 1},
			{key: "peak", title: "peak RSS, MiB", digits: 0},
			{
				key: "cpu each", title: "server CPU per delivered event, a stream each, us", digits: 2,
				target: shareOfEtcd("cpu each", fanoutShare),
			},
			{key: "p99 each", title: "put p99, a stream each, ms", digits: 1},
			{key: "peak each", title: "peak RSS, a stream each, MiB", digits: 0},
		},
		play: playFanout,
	}
}

func playFanout(t *trial) error {
	if err := fanOut(t, fanoutStreams, fanoutWatches, ""); err != nil {
		return err
	}
	return fanOut(t, fanoutOwnStreams, 1, " each")
}

// fanOut delivers every put of one key to all watchers, and names its figures with the suffix.
func fanOut(t *trial, streams, watches int, suffix string) error {
	at := fanoutPace
	at.requests = t.count(at.requests, 20)
	last, err := revision(t)
	if err != nil {
		return err
	}
	key := "fanout" + suffix + "/"
	c, err := startReaders(t.ctx, readersOrder{
		Endpoint: t.server.Endpoint(), Connections: fanoutConnections, Streams: streams, Watches: watches,
		Key: key + "00", Start: last + 1, Events: at.sent(),
	})
	if err != nil {
		return err
	}
	defer c.end()
	resetPeak(t.server.Pid())
	used, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	profile := t.profile("fanout" + suffix)
	begin := time.Now()
	puts, err := putProbe(t, at, key, fanoutValueBytes)
	if err != nil {
		return err
	}
	report, err := c.done()
	if err != nil {
		return err
	}
	after, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	profile()
	timings := puts.stop(t)
	if report.Complete != streams*watches {
		return fmt.Errorf("%d of %d watches have every event", report.Complete, streams*watches)
	}
	t.set("cpu"+suffix, float64((after-used).Microseconds())/float64(streams*watches*at.sent()))
	t.set("p99"+suffix, within(timings, begin, time.Now()).quantile(0.99))
	peak, err := peakMemory(t.server.Pid())
	t.set("peak"+suffix, peak)
	return err
}
