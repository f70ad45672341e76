package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"troupe/proto"
)

// features are etcd's feature gates with their defaults.
var features = []struct {
	name, stage string
	enabled     float64
}{
	{"AllAlpha", "ALPHA", 0},
	{"AllBeta", "BETA", 0},
	{"CompactHashCheck", "ALPHA", 0},
	{"FastLeaseKeepAlive", "BETA", 1},
	{"InitialCorruptCheck", "ALPHA", 0},
	{"LeaseCheckpoint", "ALPHA", 0},
	{"LeaseCheckpointPersist", "ALPHA", 0},
	{"PriorityRequest", "ALPHA", 0},
	{"SetMemberLocalAddr", "ALPHA", 0},
	{"StopGRPCServiceOnDefrag", "ALPHA", 0},
	{"TxnModeWriteWithSharedBuffer", "BETA", 1},
}

// featureGauge is etcd_server_feature_enabled. Gates that were not decided have their default.
func featureGauge(decided map[string]bool) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_feature_enabled",
		Help: "Whether or not a feature is enabled. 1 is enabled, 0 is not."}, []string{"name", "stage"})
	for _, f := range features {
		enabled := f.enabled
		if on, ok := decided[f.name]; ok {
			enabled = 0
			if on {
				enabled = 1
			}
		}
		g.WithLabelValues(f.name, f.stage).Set(enabled)
	}
	return g
}

// knownPeers reports the members as they are when asked; etcd counts the member itself among its peers.
type knownPeers struct {
	desc  *prometheus.Desc
	local proto.MemberID
	state func() State
}

func newKnownPeers(cfg *Config) knownPeers {
	return knownPeers{local: cfg.Member, state: cfg.Store.State, desc: prometheus.NewDesc("etcd_network_known_peers",
		"The current number of known peers.", []string{"Local", "Remote"}, nil)}
}

// Describe implements prometheus.Collector.
func (c knownPeers) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c knownPeers) Collect(out chan<- prometheus.Metric) {
	m := c.state().Membership
	if m == nil {
		return
	}
	for i := range m.Members {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1, c.local.String(), m.Members[i].ID.String())
	}
}
