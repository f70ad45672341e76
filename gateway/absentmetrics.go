package gateway

import "github.com/prometheus/client_golang/prometheus"

// absent are metrics of etcd's for what this version has no part of. etcd shows them from its start, so that rules and
// dashboards may name them; here they stay at 0.
var absent = []struct {
	name, help string
	counter    bool
}{
	// The store of etcd's second API.
	{"etcd_debugging_store_expires_total", "Total number of expired keys.", true},
	{"etcd_debugging_store_watch_requests_total",
		"Total number of incoming watch requests (new or reestablished).", true},
	{"etcd_debugging_store_watchers", "Count of currently active watchers.", false},
	// The sub-command grpc-proxy.
	{"etcd_grpc_proxy_cache_hits_total", "Total number of cache hits", false},
	{"etcd_grpc_proxy_cache_keys_total", "Total number of keys/ranges cached", false},
	{"etcd_grpc_proxy_cache_misses_total", "Total number of cache misses", false},
	{"etcd_grpc_proxy_events_coalescing_total", "Total number of events coalescing", true},
	{"etcd_grpc_proxy_watchers_coalescing_total", "Total number of current watchers coalescing", false},
}

func registerAbsent(register func(prometheus.Collector)) {
	for _, m := range absent {
		if m.counter {
			register(prometheus.NewCounter(prometheus.CounterOpts{Name: m.name, Help: m.help}))
		} else {
			register(prometheus.NewGauge(prometheus.GaugeOpts{Name: m.name, Help: m.help}))
		}
	}
}
