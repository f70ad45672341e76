package storeactor

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fileMetrics are the metrics of the file and of what backend does with it. Names, labels and buckets are etcd 3.7's.
type fileMetrics struct {
	commit, rebalance, spill, write prometheus.Histogram
	hash, hashRevision              prometheus.Histogram
	compactionPause, compactionAll  prometheus.Histogram
	compactionLast                  prometheus.Gauge
	compactionKeys                  prometheus.Counter
	viewsCutOff                     prometheus.Counter
	defrag, snapshot                prometheus.Histogram
	defragInflight, snapshotsOpen   prometheus.Gauge
}

// newFileMetrics makes and registers them; a nil registerer leaves them unregistered.
func newFileMetrics(
	reg prometheus.Registerer, file File, status *atomic.Pointer[FileStatus],
) (*fileMetrics, error) {
	disk := prometheus.ExponentialBuckets(0.001, 2, 14)
	m := &fileMetrics{
		commit: histogram("etcd_disk_backend_commit_duration_seconds",
			"The latency distributions of commit called by backend.", disk),
		rebalance: histogram("etcd_debugging_disk_backend_commit_rebalance_duration_seconds",
			"The latency distributions of commit.rebalance called by bboltdb backend.", disk),
		spill: histogram("etcd_debugging_disk_backend_commit_spill_duration_seconds",
			"The latency distributions of commit.spill called by bboltdb backend.", disk),
		write: histogram("etcd_debugging_disk_backend_commit_write_duration_seconds",
			"The latency distributions of commit.write called by bboltdb backend.", disk),
		hash: histogram("etcd_mvcc_hash_duration_seconds",
			"The latency distribution of storage hash operation.", prometheus.ExponentialBuckets(0.01, 2, 15)),
		hashRevision: histogram("etcd_mvcc_hash_rev_duration_seconds",
			"The latency distribution of storage hash by revision operation.", prometheus.ExponentialBuckets(0.01, 2, 15)),
		compactionPause: histogram("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
			"Bucketed histogram of db compaction pause duration.", prometheus.ExponentialBuckets(1, 2, 13)),
		compactionAll: histogram("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
			"Bucketed histogram of db compaction total duration.", prometheus.ExponentialBuckets(100, 2, 14)),
		compactionLast: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "etcd_debugging_mvcc_db_compaction_last", Help: "The unix time of the last db compaction.",
		}),
		compactionKeys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "etcd_debugging_mvcc_db_compaction_keys_total", Help: "Total number of db keys compacted.",
		}),
		viewsCutOff: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "troupe_store_file_views_cut_off_total", Help: "Read handles ended because they were too old.",
		}),
		defrag: histogram("etcd_disk_backend_defrag_duration_seconds",
			"The latency distribution of backend defragmentation.", prometheus.ExponentialBuckets(0.1, 2, 13)),
		snapshot: histogram("etcd_disk_backend_snapshot_duration_seconds",
			"The latency distribution of backend snapshots.", prometheus.ExponentialBuckets(0.01, 2, 17)),
		defragInflight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "etcd_disk_defrag_inflight",
			Help: "Whether or not defrag is active on the member. 1 means active, 0 means not.",
		}),
		snapshotsOpen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "troupe_store_snapshots_open", Help: "Snapshots that wait, are being made or are being downloaded.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range append(m.collectors(), sizeCollectors(file, status)...) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *fileMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.commit, m.rebalance, m.spill, m.write, m.hash, m.hashRevision, m.compactionPause, m.compactionAll,
		m.compactionLast, m.compactionKeys, m.viewsCutOff, m.defrag, m.snapshot, m.defragInflight, m.snapshotsOpen,
	}
}

// sizeCollectors read the file when they are asked; a file that was closed keeps its last sizes.
func sizeCollectors(file File, status *atomic.Pointer[FileStatus]) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("etcd_mvcc_db_total_size_in_bytes", "Total size of the underlying database physically allocated in bytes.",
			func() float64 { return float64(file.Sizes().Total) }),
		gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Total size of the underlying database logically in use in bytes.",
			func() float64 { return float64(file.Sizes().InUse) }),
		gauge("etcd_mvcc_db_open_read_transactions", "The number of currently open read transactions",
			func() float64 { return float64(file.OpenViews()) }),
		gauge("troupe_store_disk_full", "1 while the disk of the database file has no space left, else 0.",
			func() float64 {
				if status.Load().Full() {
					return 1
				}
				return 0
			}),
	}
}

func histogram(name, help string, bounds []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds})
}

func (m *fileMetrics) committed(s CommitStats) {
	m.commit.Observe(s.Total.Seconds())
	m.rebalance.Observe(s.Rebalance.Seconds())
	m.spill.Observe(s.Spill.Seconds())
	m.write.Observe(s.Write.Seconds())
}

func milliseconds(d time.Duration) float64 { return float64(d.Milliseconds()) }
