package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/raftactor"
	"troupe/storeactor"
)

// requestKind is the label type of etcd_server_request_duration_seconds.
type requestKind int

// The kinds of request that are timed; the names are those of etcd's internal requests.
const (
	kindRange requestKind = iota
	kindReadonlyTxn
	kindPut
	kindDeleteRange
	kindTxn
	kindCompaction
	kindLeaseGrant
	kindLeaseRevoke
	kindLeaseCheckpoint
	kindAlarm
	kindMemberAttributes
	kindClusterVersion
	kindDowngrade
	kindUnknown
	kindCount
)

var requestKindNames = [kindCount]string{"Range", "ReadonlyTxn", "Put", "DeleteRange", "Txn", "Compaction",
	"LeaseGrant", "LeaseRevoke", "LeaseCheckpoint", "Alarm", "ClusterMemberAttrSet", "ClusterVersionSet",
	"DowngradeInfoSet", "unknown"}

// kindOf gives the kind of a request that the member makes itself.
func kindOf(r *pb.InternalRaftRequest) requestKind {
	switch {
	case r.LeaseRevoke != nil:
		return kindLeaseRevoke
	case r.LeaseCheckpoint != nil:
		return kindLeaseCheckpoint
	case r.Alarm != nil:
		return kindAlarm
	case r.ClusterMemberAttrSet != nil:
		return kindMemberAttributes
	case r.ClusterVersionSet != nil:
		return kindClusterVersion
	case r.DowngradeInfoSet != nil:
		return kindDowngrade
	}
	return kindUnknown
}

// RequestTimes is etcd_server_request_duration_seconds: how long reads took, and proposals until they were applied,
// those of clients and those that the member makes itself. It is safe for concurrent use.
type RequestTimes struct {
	all      *prometheus.HistogramVec
	children [kindCount][2]atomic.Pointer[prometheus.Observer]
}

// NewRequestTimes makes it and registers it with r, which may be nil for nowhere.
func NewRequestTimes(r prometheus.Registerer) (*RequestTimes, error) {
	t := &RequestTimes{all: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "etcd_server_request_duration_seconds",
		Help:    "Response latency distribution in seconds for each type.",
		Buckets: durationBuckets(0.001, 14),
	}, []string{"type", "success"})}
	if r == nil {
		return t, nil
	}
	return t, r.Register(t.all)
}

// Proposed notes how long a proposal of the member itself took; err is its answer.
func (t *RequestTimes) Proposed(r *pb.InternalRaftRequest, took time.Duration, err error) {
	t.proposed(kindOf(r), took, err)
}

func (t *RequestTimes) proposed(kind requestKind, took time.Duration, err error) {
	t.observe(kind, took, !proposalFailed(err))
}

// observe notes how long a request took. Children appear at their first use, as with etcd.
func (t *RequestTimes) observe(kind requestKind, took time.Duration, success bool) {
	column, label := 1, "true"
	if !success {
		column, label = 0, "false"
	}
	slot := &t.children[kind][column]
	observer := slot.Load()
	if observer == nil {
		resolved := t.all.WithLabelValues(requestKindNames[kind], label)
		observer = &resolved
		slot.Store(observer)
	}
	(*observer).Observe(took.Seconds())
}

// proposalFailures are what etcd calls no success of a proposal. What is refused for what it asks, or left by its
// client, has been dealt with.
var proposalFailures = []error{
	raftactor.ErrTimeout, raftactor.ErrTimeoutLeaderFail, raftactor.ErrNeverProposed, raftactor.ErrStopped,
	raftactor.ErrTooManyRequests, raftactor.ErrNoLeader, raftactor.ErrNotLeader, raftactor.ErrDiskStalled,
	raftactor.ErrNoSpace, storeactor.ErrDiskFull, context.DeadlineExceeded,
}

func proposalFailed(err error) bool {
	if err == nil {
		return false
	}
	for _, failure := range proposalFailures {
		if errors.Is(err, failure) {
			return true
		}
	}
	return false
}
