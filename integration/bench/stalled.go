package main

import "time"

// Scenario (b): streams that stop reading large values, and read again.
const (
	stalledStreams     = 200
	stalledConnections = 20
	stalledValueBytes  = 64 << 10
	// stalledWrites is how much history piles up: 32 MiB for each stream, 6.25 GiB to deliver in all.
	stalledWrites = 512
	// stalledMeasured is how many times as many writes are measured before that, and while nobody reads.
	stalledMeasured = 5
	stalledRSSMax   = 600 // MiB
	// stalledNoise is how far two p99 of the same situation are apart on a shared machine.
	stalledNoise = 1.25
)

// stalledPace is 6.25 MiB/s of 64 KiB values: much for such a server, little for a disk.
var stalledPace = pace{clients: 4, perSecond: 100}

func stalledScenario() scenario {
	return scenario{
		letter: "b", title: "200 streams of 64 KiB values stop reading, then read",
		figures: []figure{
			{key: "p99 before", title: "put p99 before (64 KiB values), ms", digits: 1},
			{
				key: "p99 stopped", title: "put p99 while nobody reads, ms", digits: 1,
				target: timesBefore("p99 stopped", "p99 before", stalledNoise),
			},
			{
				key: "p99 reading", title: "put p99 while all read again, ms", digits: 1,
				target: timesBefore("p99 reading", "p99 before", stalledNoise),
			},
			// The writes that they leave unread are a fifth of those that are measured while nobody reads.
			{key: "p95 unread", title: "put p95 of what they leave unread, ms", digits: 1},
			{key: "p50 reading", title: "put p50 while all read again, ms", digits: 2},
			{key: "peak stopped", title: "peak RSS while nobody reads, MiB", digits: 0},
			{key: "peak", title: "peak RSS, MiB", digits: 0, target: atMost("peak", stalledRSSMax)},
			{key: "seconds", title: "until all have everything, s", digits: 1},
			{
				key: "lost", title: "streams without complete sequence or compaction cancel", digits: 0,
				target: atMost("lost", 0),
			},
		},
		play: playStalled,
	}
}

func playStalled(t *trial) error {
	limited := stalledPace
	limited.requests = t.count(stalledWrites, 64)/limited.clients - 1
	// Before: the same writes, watched by nobody, and more of them: the p99 of a few hundred is chance.
	longer := limited
	longer.requests *= stalledMeasured
	before, err := putsToTheEnd(t, longer, "before/")
	if err != nil {
		return err
	}
	last, err := revision(t)
	if err != nil {
		return err
	}
	resetPeak(t.server.Pid())
	c, err := startReaders(t.ctx, readersOrder{
		Endpoint: t.server.Endpoint(), Connections: stalledConnections, Streams: stalledStreams, Watches: 1,
		Key: "watched/", End: "watched0", Start: last + 1, Events: limited.sent(), Hold: true,
	})
	if err != nil {
		return err
	}
	defer c.end()
	unread, err := putsToTheEnd(t, limited, "watched/")
	if err != nil {
		return err
	}
	// Those that the streams leave unread cannot be more, each is 64 KiB for every stream. What is written after them is
	// watched by nobody, while nobody reads.
	longer.requests -= limited.requests
	further, err := putsToTheEnd(t, longer, "further/")
	if err != nil {
		return err
	}
	stopped := unread.with(further)
	peakStopped, err := peakMemory(t.server.Pid())
	if err != nil {
		return err
	}
	t.note("%d values written past %d streams that do not read", limited.sent(), stalledStreams)
	t.set("p99 before", before.quantile(0.99))
	t.set("p95 unread", unread.quantile(0.95))
	t.set("p99 stopped", stopped.quantile(0.99))
	t.set("peak stopped", peakStopped)
	return readAgain(t, c)
}

// putsToTheEnd lets a probe send all it has to send.
func putsToTheEnd(t *trial, at pace, prefix string) (latencies, error) {
	begin := time.Now()
	puts, err := putProbe(t, at, prefix, stalledValueBytes)
	if err != nil {
		return nil, err
	}
	puts.wait()
	return within(puts.stop(t), begin, time.Now()), nil
}

// readAgain lets the streams read while the writers go on, on keys that nobody watches: else there would be no end.
func readAgain(t *trial, c *child) error {
	puts, err := putProbe(t, stalledPace, "another/", stalledValueBytes)
	if err != nil {
		return err
	}
	profile := t.profile("reading")
	begin := time.Now()
	if err := c.read(); err != nil {
		return err
	}
	report, err := c.done()
	if err != nil {
		return err
	}
	end := time.Now()
	profile()
	reading := overlapping(puts.stop(t), begin, end)
	t.set("p99 reading", reading.quantile(0.99))
	t.set("p50 reading", reading.quantile(0.5))
	t.set("seconds", report.Seconds)
	t.set("lost", float64(stalledStreams-report.Complete-report.Cancelled))
	peak, err := peakMemory(t.server.Pid())
	t.set("peak", peak)
	return err
}
