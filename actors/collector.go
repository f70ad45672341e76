package actors

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The metrics. Labels are kind and lane, never an instance: depths and counters are summed over the actors of a kind,
// high-water marks and ages are the greatest of them.
var (
	laneLabels = []string{"kind", "lane"}
	kindLabels = []string{"kind"}

	descDepth = prometheus.NewDesc("troupe_actor_mailbox_depth",
		"Messages that wait in the mailboxes of this kind.", laneLabels, nil)
	descBytes = prometheus.NewDesc("troupe_actor_mailbox_bytes",
		"Bytes that wait in the mailboxes of this kind.", laneLabels, nil)
	descHighWater = prometheus.NewDesc("troupe_actor_mailbox_high_water",
		"Greatest depth that a mailbox of this kind has had.", laneLabels, nil)
	descAdmitted = prometheus.NewDesc("troupe_actor_mailbox_admitted_total",
		"Messages that were given a place.", laneLabels, nil)
	descRejected = prometheus.NewDesc("troupe_actor_mailbox_rejected_total",
		"Messages refused because the mailbox was full.", laneLabels, nil)
	descDropped = prometheus.NewDesc("troupe_actor_mailbox_dropped_total",
		"Messages discarded because the mailbox was full.", laneLabels, nil)
	descCoalesced = prometheus.NewDesc("troupe_actor_mailbox_coalesced_total",
		"Messages merged into a waiting one.", laneLabels, nil)
	descResynced = prometheus.NewDesc("troupe_actor_feed_resyncs_total",
		"Messages replaced by a marker from which the receiver reads again.", laneLabels, nil)
	descWhispered = prometheus.NewDesc("troupe_actor_mailbox_whispered_total",
		"Messages admitted that woke nobody.", laneLabels, nil)
	descAborted = prometheus.NewDesc("troupe_actor_mailbox_aborted_total",
		"Messages admitted and then abandoned by a stop, a panic or a restart.", laneLabels, nil)
	descWait = prometheus.NewDesc("troupe_actor_wait_seconds",
		"Time from admission to the turn, of one message in 64.", laneLabels, nil)

	descTurn = prometheus.NewDesc("troupe_actor_turn_seconds",
		"Duration of turns, without the first 32 of each actor.", kindLabels, nil)
	descBusy = prometheus.NewDesc("troupe_actor_busy_age_seconds",
		"Age of the oldest turn that is running now.", kindLabels, nil)
	descHandled = prometheus.NewDesc("troupe_actor_messages_handled_total",
		"Messages handled.", kindLabels, nil)
	descTurns = prometheus.NewDesc("troupe_actor_turns_total",
		"Turns taken.", kindLabels, nil)
	descRestarts = prometheus.NewDesc("troupe_actor_restarts_total",
		"Restarts after a panic.", kindLabels, nil)
	descInstances = prometheus.NewDesc("troupe_actor_instances",
		"Living actors.", kindLabels, nil)
)

// collector walks the actors at scrape time. Nothing is counted twice for it, and nothing is registered per actor.
type collector struct{ sys *System }

// Collector gives the metrics of this system. Register it once, on the registry of the process.
func (s *System) Collector() prometheus.Collector { return collector{s} }

// Describe lists the metrics.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{
		descDepth, descBytes, descHighWater, descAdmitted, descRejected, descDropped, descCoalesced, descResynced,
		descWhispered, descAborted, descWait, descTurn, descBusy, descHandled, descTurns, descRestarts, descInstances,
	} {
		out <- d
	}
}

// Collect sums up the actors by kind.
func (c collector) Collect(out chan<- prometheus.Metric) {
	now := c.sys.clock.Now()
	for _, sums := range c.sys.Picture(0).Kinds {
		age := 0.0
		if !sums.BusySince.IsZero() {
			age = max(now.Sub(sums.BusySince).Seconds(), 0)
		}
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, sums.Kind)
		}
		count := func(d *prometheus.Desc, v uint64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), sums.Kind)
		}
		gauge(descInstances, float64(sums.Living))
		gauge(descBusy, age)
		count(descHandled, sums.Handled)
		count(descTurns, sums.Turns)
		count(descRestarts, sums.Restarts)
		out <- sums.Work.metric(descTurn, sums.Kind)
		for i := range sums.Lanes {
			collectLane(out, &sums.Lanes[i].LaneStats, sums.Kind, sums.Lanes[i].Lane.String())
		}
	}
}

func collectLane(out chan<- prometheus.Metric, l *LaneStats, labels ...string) {
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(descDepth, float64(l.Depth))
	gauge(descBytes, float64(l.Bytes))
	gauge(descHighWater, float64(l.HighWater))
	count(descAdmitted, l.Admitted)
	count(descRejected, l.Rejected)
	count(descDropped, l.Dropped)
	count(descCoalesced, l.Coalesced)
	count(descResynced, l.Resynced)
	count(descWhispered, l.Whispered)
	count(descAborted, l.Aborted)
	out <- l.Wait.metric(descWait, labels...)
}

// metric gives the histogram as Prometheus has it: cumulative, in seconds.
func (g *Histogram) metric(d *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, histogramBuckets)
	var seen uint64
	for i, n := range g.Counts[:histogramBuckets-1] {
		seen += n
		buckets[g.UpperBound(i).Seconds()] = seen
	}
	return prometheus.MustNewConstHistogram(d, g.Count(), g.Sum.Seconds(), buckets, labels...)
}
