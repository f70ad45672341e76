package watchactor

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the room does. The first group has etcd's names (flags-metrics.md 4.2).
type metrics struct {
	streams prometheus.Gauge
	watches prometheus.Gauge
	slow    prometheus.Gauge
	pending atomic.Int64
	waiting prometheus.GaugeFunc
	events  prometheus.Counter

	encoded  prometheus.Counter
	groups   prometheus.Gauge
	buffered prometheus.GaugeFunc
	lost     prometheus.Counter

	crowded       prometheus.Counter
	onTheWay      prometheus.GaugeFunc
	history       prometheus.Counter
	historyBytes  prometheus.Counter
	historyServed prometheus.Counter
	sendLoop      sendLoop
	shelf         atomic.Int64
	shelved       prometheus.GaugeFunc
}

func newMetrics(b *budget, t *transit) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		sendLoop: newSendLoop(),
		streams:  gauge("etcd_debugging_mvcc_watch_stream_total", "Total number of watch streams."),
		watches:  gauge("etcd_debugging_mvcc_watcher_total", "Total number of watchers."),
		slow:     gauge("etcd_debugging_mvcc_slow_watcher_total", "Total number of unsynced slow watchers."),
		events:   counter("etcd_debugging_mvcc_events_total", "Total number of events sent by this member."),

		encoded: counter("troupe_watch_encodings_total", "Times a batch was encoded for a range and a variant."),
		groups:  gauge("troupe_watch_groups", "Groups of watchers that share a range."),
		lost:    counter("troupe_watch_resyncs_total", "Times a watch lost its buffer and went back to history."),
		history: counter("troupe_watch_history_reads_total", "Bounded pieces of history read for watches that are behind."),
		historyBytes: counter("troupe_watch_history_read_bytes_total",
			"Bytes of events in the pieces of history read."),
		historyServed: counter("troupe_watch_history_served_total",
			"Answers of the reader of history to watches that are behind; many share one piece."),
		buffered: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "troupe_watch_outbox_bytes", Help: "Bytes that wait in the outboxes of all streams, or in the transport.",
		}, func() float64 { return float64(b.held.Load()) }),
	}
	m.crowded = counter("troupe_watch_crowded_total",
		"Times a batch was left to history because too many bytes of batches were on their way to watches.")
	m.onTheWay = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "troupe_watch_transit_bytes", Help: "Bytes of batches on their way to the outboxes of watch streams.",
	}, func() float64 { return float64(t.held.Load()) })
	m.shelved = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "troupe_watch_history_kept_bytes", Help: "Bytes of history kept for watches that come a little later.",
	}, func() float64 { return float64(m.shelf.Load()) })
	m.waiting = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "etcd_debugging_mvcc_pending_events_total", Help: "Total number of pending events to be sent.",
	}, func() float64 { return float64(m.pending.Load()) })
	return m
}

// register enters all of them, where the caller wants metrics.
func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range append(m.sendLoop.all(),
		m.streams, m.watches, m.slow, m.waiting, m.events, m.encoded, m.groups, m.buffered, m.lost, m.history,
		m.historyBytes, m.historyServed, m.shelved, m.crowded, m.onTheWay,
	) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
