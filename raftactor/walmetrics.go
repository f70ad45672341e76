package raftactor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// LogMetrics are the metrics of the log and of the snapshot files, named as etcd names them.
type LogMetrics struct {
	fsync     prometheus.Histogram
	write     prometheus.Histogram
	bytes     prometheus.Gauge
	snapFsync prometheus.Histogram
	snapSave  prometheus.Histogram
	// snapMarshal measures the encoding of a snapshot.
	snapMarshal prometheus.Histogram
	// snapFileFsync and snapFileSave measure database files that other members send.
	snapFileFsync, snapFileSave prometheus.Histogram
}

// diskBuckets are etcd's: 1 ms doubling to 8.192 s.
func diskBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 14) }

// NewLogMetrics makes the metrics and registers them with r, which may be nil for none.
func NewLogMetrics(r prometheus.Registerer) (*LogMetrics, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "etcd", Name: name, Help: help, Buckets: diskBuckets(),
		})
	}
	m := &LogMetrics{
		fsync:       histogram("disk_wal_fsync_duration_seconds", "Latency of the log's fsyncs."),
		write:       histogram("disk_wal_write_duration_seconds", "Latency of the log's writes."),
		snapFsync:   histogram("snap_fsync_duration_seconds", "Latency of making a snapshot file durable."),
		snapSave:    histogram("debugging_snap_save_total_duration_seconds", "Latency of saving a snapshot."),
		snapMarshal: histogram("debugging_snap_save_marshalling_duration_seconds", "Latency of encoding a snapshot."),
		snapFileFsync: histogram("snap_db_fsync_duration_seconds",
			"Latency of making a database file from another member durable."),
		snapFileSave: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "etcd", Name: "snap_db_save_total_duration_seconds",
			Help: "Latency of taking a database file from another member.", Buckets: prometheus.ExponentialBuckets(0.1, 2, 10),
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "etcd", Name: "disk_wal_write_bytes_total", Help: "Bytes written to the log.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.fsync, m.write, m.bytes, m.snapFsync, m.snapSave, m.snapMarshal, m.snapFileFsync, m.snapFileSave,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// logMeter measures with a clock that the shell passes in. A nil meter measures nothing.
type logMeter struct {
	metrics *LogMetrics
	now     func() time.Time
}

func nothing() {}

// startWrite begins a write of that many bytes; the result ends it.
func (m *logMeter) startWrite(bytes int) func() {
	if m == nil {
		return nothing
	}
	m.metrics.bytes.Add(float64(bytes))
	return m.start(m.metrics.write)
}

// startSync begins a sync of the log.
func (m *logMeter) startSync() func() {
	if m == nil {
		return nothing
	}
	return m.start(m.metrics.fsync)
}

// startSnapSync begins writing a snapshot file.
func (m *logMeter) startSnapSync() func() {
	if m == nil {
		return nothing
	}
	return m.start(m.metrics.snapFsync)
}

// startSnapMarshal begins encoding a snapshot.
func (m *logMeter) startSnapMarshal() func() {
	if m == nil {
		return nothing
	}
	return m.start(m.metrics.snapMarshal)
}

// startSnapSave begins saving a snapshot, from its file to the record in the log.
func (m *logMeter) startSnapSave() func() {
	if m == nil {
		return nothing
	}
	return m.start(m.metrics.snapSave)
}

func (m *logMeter) start(h prometheus.Histogram) func() {
	begin := m.now()
	return func() { h.Observe(m.now().Sub(begin).Seconds()) }
}
