package leaseactor

import "github.com/prometheus/client_golang/prometheus"

// metrics counts what happens to leases. The first group has etcd's names and buckets (flags-metrics.md 4.2).
type metrics struct {
	granted prometheus.Counter
	revoked prometheus.Counter
	renewed prometheus.Counter
	ttl     prometheus.Histogram
	expired prometheus.Counter

	lateness prometheus.Histogram
	refused  prometheus.Counter
	asked    prometheus.Counter
	// inspected are read when they are asked for, so that they move while the actor is stuck.
	inspected []prometheus.Collector
}

func newMetrics(inspect func() Inspection) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string, value func(Inspection) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(inspect()) })
	}
	return &metrics{
		granted: counter("etcd_debugging_lease_granted_total", "The total number of granted leases."),
		revoked: counter("etcd_debugging_lease_revoked_total", "The total number of revoked leases."),
		renewed: counter("etcd_debugging_lease_renewed_total", "The number of renewed leases seen by the leader."),
		ttl: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "etcd_debugging_lease_ttl_total", Help: "Bucketed histogram of lease TTLs.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 24),
		}),
		expired: counter("etcd_debugging_server_lease_expired_total", "The total number of expired leases."),

		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "troupe_lease_revoke_lateness_seconds",
			Help:    "Time from a lease's expiry to its revocation in the published state.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 14),
		}),
		refused: counter("troupe_lease_revoke_refused_total", "Revocations that raft refused or failed."),
		asked:   counter("troupe_lease_confirm_rounds_total", "Rounds of ReadIndex to confirm leadership."),
		inspected: []prometheus.Collector{
			gauge("troupe_lease_tracked", "Leases whose time this member keeps; 0 unless it leads.",
				func(i Inspection) float64 { return float64(i.Leases) }),
			gauge("troupe_lease_overdue", "Leases that have expired and are not revoked yet.",
				func(i Inspection) float64 { return float64(i.Overdue) }),
			gauge("troupe_lease_expired_queue", "Expired leases that wait to be revoked.",
				func(i Inspection) float64 { return float64(i.Queued) }),
			gauge("troupe_lease_revokes_in_flight", "Revocations of expired leases that raft has and has not answered.",
				func(i Inspection) float64 { return float64(i.RevokesInFlight) }),
			gauge("troupe_lease_revoke_window", "How many revocations may be in flight at present.",
				func(i Inspection) float64 { return float64(i.RevokeWindow) }),
			gauge("troupe_lease_oldest_overdue_seconds", "Time since the expiry of the lease that is overdue for longest.",
				func(i Inspection) float64 { return i.OldestOverdue.Seconds() }),
			gauge("troupe_lease_waiting", "Renewals that wait for a revocation or for leadership to be confirmed.",
				func(i Inspection) float64 { return float64(i.Waiting) }),
		},
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	own := []prometheus.Collector{
		m.granted, m.revoked, m.renewed, m.ttl, m.expired, m.lateness, m.refused, m.asked,
	}
	for _, c := range append(own, m.inspected...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
