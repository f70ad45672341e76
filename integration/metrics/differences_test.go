package metrics

import (
	"fmt"
	"strings"
)

// The deliberate differences, each with its reason. An entry is the name of a metric, or of a histogram's series; one
// that ends in * stands for all with that beginning. A label behind it picks the series that have that label.

// missing is what etcd has and troupe has not.
var missing = map[string]string{
	`etcd_server_apply_duration_seconds_bucket{op="Alarm"`: asksNoEntry,
}

// additional is what troupe has more of a metric of etcd's.
var additional = map[string]string{
	`etcd_server_healthcheck{name="disk"`:         "only troupe has this check",
	`etcd_server_healthchecks_total{name="disk"`:  "only troupe has this check",
	`etcd_server_healthcheck{name="space"`:        "only troupe has this check",
	`etcd_server_healthchecks_total{name="space"`: "only troupe has this check",
	"go_*":                           "follows the version of Go",
	`grpc_server_*{grpc_service="v3`: "etcd shows the methods of Lock and Election from their first call on",
}

// positive is what both count, each in its own way, and what must have moved.
var positive = map[string]string{
	"etcd_disk_wal_fsync_duration_seconds":                          "troupe syncs several entries at once",
	"etcd_disk_wal_write_duration_seconds":                          "troupe writes once for a batch, etcd by record",
	"etcd_disk_wal_write_bytes_total":                               "padding of the last page differs",
	"etcd_disk_backend_commit_duration_seconds":                     "the file may lag by 500 ms",
	"etcd_debugging_disk_backend_commit_rebalance_duration_seconds": "as the commits",
	"etcd_debugging_disk_backend_commit_spill_duration_seconds":     "as the commits",
	"etcd_debugging_disk_backend_commit_write_duration_seconds":     "as the commits",
	"etcd_mvcc_db_total_size_in_bytes":                              "how the file grows follows the commits",
	"etcd_mvcc_db_total_size_in_use_in_bytes":                       "the same",
	"etcd_debugging_mvcc_db_compaction_last":                        "a time",
	"os_fd_used":                                                    "other files",
	"os_fd_limit":                                                   "Go raises the limit to what the system allows",
	"process_*":                                                     "another process",
}

// alike is what is the same but for the length of ids and numbers in requests and answers.
var alike = map[string]string{
	"etcd_network_client_grpc_received_bytes_total": "the members' ids, drawn by lot, are of different length",
	"etcd_network_client_grpc_sent_bytes_total":     "the members' ids, drawn by lot, are of different length",
}

// alikePart is the greatest difference that alike allows.
const alikePart = 0.03

// asksNoEntry is why an Alarm request that only asks is not counted.
const asksNoEntry = "asking for the alarms is a read here, not an entry"

// free may differ in any way.
var free = map[string]string{
	"etcd_mvcc_db_open_read_transactions":   "how many handles there are at a moment",
	"etcd_debugging_mvcc_watcher_total":     "etcd goes on counting a watch of what is compacted",
	"etcd_server_proposals_applied_total":   asksNoEntry,
	"etcd_server_proposals_committed_total": asksNoEntry,

	`etcd_server_apply_duration_seconds_count{op="Alarm"`:                    asksNoEntry,
	`etcd_server_request_duration_seconds_count{success="true",type="Alarm"`: asksNoEntry,

	"go_*":              "another program",
	"promhttp_*":        "the test looks until the counters stand still",
	"process_network_*": "counts the machine's traffic",
}

// listed reports whether a list has a metric, or one of its series.
func listed(list map[string]string, name, series string) bool {
	for entry := range list {
		metric, label, some := strings.Cut(entry, "{")
		beginning, open := strings.CutSuffix(metric, "*")
		of, _, _ := strings.Cut(series, "{")
		if some && !strings.Contains(series, label) {
			continue
		}
		if metric == name || metric == of || open && strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}

// moved says what has been counted since an earlier look, apart from what counts by itself or by looking.
func (p page) moved(since page) error {
	for series, now := range p.values {
		name := p.family(series)
		if kind := p.types[name]; kind == "gauge" || listed(positive, name, series) || listed(free, name, series) ||
			strings.HasPrefix(name, "troupe_") {
			continue
		}
		if before := since.values[series]; now != before {
			return fmt.Errorf("%s was %v and is %v", series, before, now)
		}
	}
	return nil
}
