package raftactor

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"troupe/proto"
)

// metrics are raft's numbers, under etcd's names. What is in the published status is read from there at a scrape, so
// that a turn does not pay for it.
type metrics struct {
	pending           atomic.Int64
	leaderChanges     prometheus.Counter
	failed            prometheus.Counter
	slowReads         prometheus.Counter
	failedReads       prometheus.Counter
	heartbeatFailures prometheus.Counter
	promotions        prometheus.Counter
	promotionsFailed  *prometheus.CounterVec
}

// newMetrics makes the metrics of a member and registers them with r, which may be nil for none.
// status is what raft published last, applied the index that the store has published.
func newMetrics(r prometheus.Registerer, member proto.MemberID, status func() *proto.RaftStatus,
	applied func() proto.Index) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_server_" + name, Help: help})
	}
	m := &metrics{
		leaderChanges:     counter("leader_changes_seen_total", "Changes of the leader that this member has seen."),
		failed:            counter("proposals_failed_total", "Proposals that were refused, timed out or abandoned."),
		slowReads:         counter("slow_read_indexes_total", "Times that reads got no index within the request timeout."),
		failedReads:       counter("read_indexes_failed_total", "Reads that were refused an index."),
		heartbeatFailures: counter("heartbeat_send_failures_total", "Heartbeats that were sent too late."),
		promotions:        counter("learner_promote_successes", "Learners that this member, leading, gave a vote."),
		promotionsFailed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_server_learner_promote_failures",
			Help: "Promotions that failed while this member led, by reason."}, []string{"Reason"}),
	}
	if r == nil {
		return m, nil
	}
	id := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "etcd_server_id", Help: "The id of this member, in hex.",
	}, []string{"server_id"})
	id.WithLabelValues(member.String()).Set(1)
	all := []prometheus.Collector{id, m.leaderChanges, m.failed, m.slowReads, m.failedReads, m.heartbeatFailures,
		m.promotions, m.promotionsFailed}
	for _, c := range append(all, m.gauges(status, applied)...) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// gauges are the numbers that a scrape reads. Some are counters by name and gauges by type, as in etcd.
func (m *metrics) gauges(status func() *proto.RaftStatus, applied func() proto.Index) []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "etcd_server_" + name, Help: help}, f)
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	return []prometheus.Collector{
		gauge("has_leader", "Whether a leader is known.", func() float64 { return flag(status().Leader != 0) }),
		gauge("is_leader", "Whether this member leads.", func() float64 { return flag(status().IsLeader()) }),
		gauge("is_learner", "Whether this member has no vote.", func() float64 { return flag(status().Learner) }),
		gauge("proposals_committed_total", "The index up to which entries are committed.",
			func() float64 { return float64(status().Commit) }),
		gauge("proposals_applied_total", "The index up to which entries are applied.",
			func() float64 { return float64(applied()) }),
		gauge("proposals_pending", "Proposals of this member that are not committed.",
			func() float64 { return float64(m.pending.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "troupe_raft_log_full", Help: "Whether writes are refused because the disk of the log is full.",
		}, func() float64 { return flag(status().LogFull) }),
		gauge("snapshot_apply_in_progress_total", "Whether a snapshot is being installed.",
			func() float64 { return 0 }),
	}
}

// count adds what a turn has seen.
func (m *metrics) count(t *tally, pending int) {
	m.pending.Store(int64(pending))
	if *t == (tally{}) {
		return
	}
	m.leaderChanges.Add(float64(t.leaderChanges))
	m.failed.Add(float64(t.failedProposals))
	m.slowReads.Add(float64(t.slowReads))
	m.failedReads.Add(float64(t.failedReads))
	m.heartbeatFailures.Add(float64(t.lateTicks))
}

// promotionReasons are the ends of promotions that are counted as failures, as etcd does: what a leader has found.
var promotionReasons = []error{ErrMemberNotFound, ErrMemberRemoved, ErrMemberNotLearner, ErrLearnerNotReady,
	ErrNotEnoughStarted}

// promoted counts the end of a promotion.
func (m *metrics) promoted(err error) {
	if err == nil {
		m.promotions.Inc()
		return
	}
	for _, reason := range promotionReasons {
		if errors.Is(err, reason) {
			m.promotionsFailed.WithLabelValues(reason.Error()).Inc()
		}
	}
}
