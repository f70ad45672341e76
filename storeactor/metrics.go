package storeactor

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// storeMetrics are the counters of the store, under etcd's names. Those that follow the published state are functions
// of it and cost nothing while nobody looks.
type storeMetrics struct {
	ranges, puts, deletes, txns prometheus.Counter
	putBytes                    prometheus.Gauge
	slowApplies                 prometheus.Counter
	applies                     *applyHistogram
	indexCompaction             prometheus.Histogram
}

func newStoreMetrics(registry prometheus.Registerer, state func() *State) (*storeMetrics, error) {
	counter := func(subsystem, name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "etcd", Subsystem: subsystem, Name: name, Help: help,
		})
	}
	m := &storeMetrics{
		ranges:  counter("mvcc", "range_total", "Total number of ranges seen by this member."),
		puts:    counter("mvcc", "put_total", "Total number of puts seen by this member."),
		deletes: counter("mvcc", "delete_total", "Total number of deletes seen by this member."),
		txns:    counter("mvcc", "txn_total", "Total number of txns seen by this member."),
		putBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "etcd_debugging", Subsystem: "mvcc", Name: "total_put_size_in_bytes",
			Help: "The total size of put kv pairs seen by this member.",
		}),
		slowApplies: counter("server", "slow_apply_total",
			"The total number of slow apply requests (likely overloaded from slow disk)."),
		applies: newApplyHistogram(),
		indexCompaction: histogram("etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
			"Bucketed histogram of index compaction pause duration.", prometheus.ExponentialBuckets(0.5, 2, 14)),
	}
	follow := func(name, help string, f func(*State) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "etcd_debugging", Subsystem: "mvcc", Name: name, Help: help,
		}, func() float64 { return float64(f(state())) })
	}
	if registry == nil {
		return m, nil
	}
	authRevision := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "etcd_debugging_auth_revision", Help: "The current revision of auth store.",
	}, func() float64 { return float64(max(state().AuthRevision, 1)) }) // etcd begins with 1
	collectors := []prometheus.Collector{
		m.ranges, m.puts, m.deletes, m.txns, m.putBytes, m.slowApplies, m.applies,
		m.indexCompaction,
		follow("keys_total", "Total number of keys.", func(s *State) int64 { return int64(s.Keys) }),
		follow("current_revision", "The current revision of store.", func(s *State) int64 { return int64(s.Revision) }),
		follow("compact_revision", "The revision of the last compaction in store.",
			func(s *State) int64 { return int64(s.Compacted) }),
		authRevision,
	}
	var failed []error
	for _, c := range collectors {
		failed = append(failed, registry.Register(c))
	}
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("register the store's metrics: %w", err)
	}
	return m, nil
}

func (m *storeMetrics) add(t *tally) {
	for _, c := range [...]struct {
		counter prometheus.Counter
		n       int
	}{
		{m.ranges, t.ranges}, {m.puts, t.puts}, {m.deletes, t.deletes}, {m.txns, t.txns},
	} {
		if c.n > 0 {
			c.counter.Add(float64(c.n))
		}
	}
	if t.putBytes > 0 {
		m.putBytes.Add(float64(t.putBytes))
	}
}
