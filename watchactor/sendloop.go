package watchactor

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sendLoop is how long the reader of a stream takes to send a frame. The names, types and buckets are etcd's
// (flags-metrics.md 4.2); what it measures there is measured here: from a frame's leaving the outbox until its sender
// comes back, without the wait for its turn (sendpace.go).
type sendLoop struct{ stream, perEvent, control, progress *durations }

func newSendLoop() sendLoop {
	named := func(name, help string) *durations {
		name = "etcd_debugging_server_watch_send_loop_" + name + "_seconds"
		return &durations{describe: prometheus.NewDesc(name, help, nil, nil)}
	}
	return sendLoop{
		stream: named("watch_stream_duration", "How long sending a watch response with events took."),
		perEvent: named("watch_stream_duration_per_event",
			"How long sending a watch response with events took, divided by the events."),
		control:  named("control_stream_duration", "How long sending the answer to a watch request took."),
		progress: named("progress_duration", "How long sending a progress notification took."),
	}
}

func (l sendLoop) all() []prometheus.Collector {
	return []prometheus.Collector{l.stream, l.perEvent, l.control, l.progress}
}

// durations is a histogram with etcd's buckets, from 1 ms by twos. The library's costs as much as what is measured
// here.
type durations struct {
	describe *prometheus.Desc
	buckets  [durationBuckets + 1]atomic.Uint64 // the last has what is longer than all
	sum      atomic.Int64                       // ns
}

// durationBuckets is the number of finite buckets.
const durationBuckets = 14

func (d *durations) observe(took time.Duration) {
	at := 0
	for bound := time.Millisecond; at < durationBuckets && took > bound; bound *= 2 {
		at++
	}
	d.buckets[at].Add(1)
	d.sum.Add(int64(took))
}

// Describe is part of prometheus.Collector.
func (d *durations) Describe(out chan<- *prometheus.Desc) { out <- d.describe }

// Collect is part of prometheus.Collector.
func (d *durations) Collect(out chan<- prometheus.Metric) {
	sum, below, bounds := d.sum.Load(), uint64(0), make(map[float64]uint64, durationBuckets)
	for i := range durationBuckets {
		below += d.buckets[i].Load()
		bounds[(time.Millisecond << i).Seconds()] = below
	}
	count := below + d.buckets[durationBuckets].Load()
	out <- prometheus.MustNewConstHistogram(d.describe, count, time.Duration(sum).Seconds(), bounds)
}

// sending is the frame that a stream's reader has in hand. It belongs to the reader.
type sending struct {
	since   time.Time // zero: none
	events  int
	control bool
}

// measured says as what a frame counts, as with etcd: the end of a watch whose history is gone counts like events, and
// the confirmation that a watch was cancelled counts as nothing.
func measured(f *Frame) (events int, control, any bool) {
	switch {
	case f.Canceled && f.CompactRevision != 0:
		return 1, false, true
	case f.Canceled && !f.Created:
		return 0, false, false
	}
	return f.events, f.control, true
}

// begin measures from now on, which is the time now unless that is zero.
func (s *sending) begin(f *Frame, now time.Time) {
	if now.IsZero() {
		now = time.Now()
	}
	var any bool
	if s.events, s.control, any = measured(f); any {
		s.since = now
	}
}

// done measures the frame that is in hand no longer, and gives the time; zero if there was none.
func (s *sending) done(m *metrics) time.Time {
	if s.since.IsZero() {
		return time.Time{}
	}
	now := time.Now()
	took := now.Sub(s.since)
	s.since = time.Time{}
	switch {
	case s.events > 0:
		m.sendLoop.stream.observe(took)
		m.sendLoop.perEvent.observe(took / time.Duration(s.events))
	case s.control:
		m.sendLoop.control.observe(took)
	default:
		m.sendLoop.progress.observe(took)
	}
	return now
}
