package storeactor

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// applyKind says what kind of entry was applied; its name is the label `op`, etcd's.
type applyKind uint8

const (
	applyPut applyKind = iota
	applyRange
	applyDeleteRange
	applyTxn
	applyCompaction
	applyLeaseGrant
	applyLeaseRevoke
	applyLeaseCheckpoint
	applyAlarm
	applyAuthDisable
	applyAuthenticate
	applyAuthUserGet
	applyAuthUserList
	applyAuthRoleGet
	applyAuthRoleList
	applyUnknown // AuthStatus, for which etcd has no name
	applyClusterVersion
	applyMemberAttributes
	applyDowngrade
	applyNone // not counted: a leader's first entry, a conf change, a range that nobody waits for
)

var applyNames = [applyNone]string{
	"Put", "Range", "DeleteRange", "Txn", "Compaction", "LeaseGrant", "LeaseRevoke", "LeaseCheckpoint", "Alarm",
	"AuthDisable", "Authenticate", "AuthUserGet", "AuthUserList", "AuthRoleGet", "AuthRoleList", "unknown",
	"ClusterVersionSet", "ClusterMemberAttrSet", "DowngradeInfoSet",
}

// applyKindOf gives the kind of a command.
func applyKindOf(c *proto.Command) applyKind {
	r := c.Request
	switch {
	case r == nil:
		return applyInternalKind(c)
	case r.Put != nil:
		return applyPut
	case r.Txn != nil:
		return applyTxn
	case r.Range != nil:
		if c.Answer == nil {
			return applyNone
		}
		return applyRange
	case r.DeleteRange != nil:
		return applyDeleteRange
	}
	return applyRareKind(r)
}

func applyRareKind(r *pb.InternalRaftRequest) applyKind {
	switch {
	case r.Compaction != nil:
		return applyCompaction
	case r.LeaseGrant != nil:
		return applyLeaseGrant
	case r.LeaseRevoke != nil:
		return applyLeaseRevoke
	case r.LeaseCheckpoint != nil:
		return applyLeaseCheckpoint
	case r.Alarm != nil:
		return applyAlarm
	}
	return applyAuthKind(r)
}

// applyAuthKind tells the requests about authentication that do not stop this member.
func applyAuthKind(r *pb.InternalRaftRequest) applyKind {
	switch {
	case r.AuthDisable != nil:
		return applyAuthDisable
	case r.Authenticate != nil:
		return applyAuthenticate
	case r.AuthUserGet != nil:
		return applyAuthUserGet
	case r.AuthUserList != nil:
		return applyAuthUserList
	case r.AuthRoleGet != nil:
		return applyAuthRoleGet
	case r.AuthRoleList != nil:
		return applyAuthRoleList
	}
	return applyUnknown
}

// applyInternalKind tells the requests that apply has executed itself by what they write.
func applyInternalKind(c *proto.Command) applyKind {
	if c.Answered == nil || len(c.Writes) == 0 {
		return applyNone
	}
	switch w := &c.Writes[0]; {
	case w.Bucket == proto.BucketMembers:
		return applyMemberAttributes
	case isClusterVersion(w):
		return applyClusterVersion
	}
	return applyDowngrade
}

// applied is one entry that was applied: its cell of the histogram, and how long it took.
type applied struct {
	cell applyKind
	took time.Duration
}

// appendApplied adds an entry to what a turn applied.
func appendApplied(list []applied, kind applyKind, err error, took time.Duration) []applied {
	if kind == applyNone {
		return list
	}
	cell := 2 * kind
	if err == nil || errors.Is(err, ErrCompacted) { // etcd's idea of success
		cell++
	}
	return append(list, applied{cell, took})
}

// applyBuckets is the number of buckets of etcd's histogram: 0.0001 s times the powers of two.
const (
	applyBuckets     = 20
	applyBucketFirst = 100 * time.Microsecond
)

// applyHistogram is etcd_server_apply_duration_seconds. It takes a turn at once, so that an entry costs a few
// additions. A histogram of the library costs a lock, two searches and a hash of the labels for each.
type applyHistogram struct {
	description *prometheus.Desc
	mu          sync.Mutex
	cells       [2 * applyNone]applyCell
}

type applyCell struct {
	counts [applyBuckets + 1]uint64
	total  uint64
	sum    time.Duration
}

func newApplyHistogram() *applyHistogram {
	return &applyHistogram{description: prometheus.NewDesc("etcd_server_apply_duration_seconds",
		"The latency distributions of v2 apply called by backend.", []string{"version", "op", "success"}, nil)}
}

// add counts the entries of a turn. It gives how many of them took longer than slow, and the longest time.
func (h *applyHistogram) add(entries []applied, slow time.Duration) (count int, slowest time.Duration) {
	if len(entries) == 0 {
		return 0, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		bucket := 0
		for limit := applyBucketFirst; e.took > limit && bucket < applyBuckets; limit *= 2 {
			bucket++
		}
		cell := &h.cells[e.cell]
		cell.counts[bucket]++
		cell.total++
		cell.sum += e.took
		if slowest = max(slowest, e.took); e.took > slow {
			count++
		}
	}
	return count, slowest
}

// Describe implements prometheus.Collector.
func (h *applyHistogram) Describe(out chan<- *prometheus.Desc) { out <- h.description }

// Collect implements prometheus.Collector.
func (h *applyHistogram) Collect(out chan<- prometheus.Metric) {
	h.mu.Lock()
	cells := h.cells
	h.mu.Unlock()
	for i := range cells {
		cell := &cells[i]
		if cell.total == 0 {
			continue
		}
		below := make(map[float64]uint64, applyBuckets)
		sum, limit := uint64(0), applyBucketFirst.Seconds()
		for b := range applyBuckets {
			sum += cell.counts[b]
			below[limit] = sum
			limit *= 2
		}
		out <- prometheus.MustNewConstHistogram(h.description, cell.total, cell.sum.Seconds(), below,
			"v3", applyNames[i/2], strconv.FormatBool(i%2 == 1))
	}
}
