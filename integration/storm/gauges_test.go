package storm

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// standingGauges say what a member is and has, clients or not: after the storm the same as before. Every other gauge on
// the page is about clients, their requests or work, and is 0 when there are none, whoever added it; except freeGauges.
var standingGauges = map[string]string{
	"etcd_server_version":                 "a fact",
	"etcd_server_go_version":              "a fact",
	"etcd_server_id":                      "a fact",
	"etcd_cluster_version":                "a fact",
	"etcd_server_feature_enabled":         "a fact",
	"etcd_server_quota_backend_bytes":     "a fact",
	"etcd_network_known_peers":            "a fact",
	"go_info":                             "a fact",
	"os_fd_limit":                         "a fact",
	"troupe_version":                      "a fact",
	"*_bound":                             "a fact",
	"troupe_gateway_open_bound":           "a fact",
	"etcd_server_has_leader":              "it goes on",
	"etcd_server_is_leader":               "it goes on",
	"etcd_debugging_auth_revision":        "etcd begins with 1",
	"etcd_mvcc_db_open_read_transactions": "that of the published state",
	"troupe_actor_instances":              "the actors of the member itself, and none for clients",
	"troupe_gateway_open":                 "the connection of the look itself",
}

// freeGauges may differ after the storm. The text is the reason; a name that ends in * stands for all with that
// beginning, one that begins with * for all with that end.
var freeGauges = map[string]string{
	"etcd_debugging_mvcc_compact_revision":        "the storm compacts",
	"etcd_debugging_mvcc_current_revision":        "the storm writes",
	"etcd_debugging_mvcc_keys_total":              "the storm writes",
	"etcd_debugging_mvcc_total_put_size_in_bytes": "the storm writes",
	"etcd_debugging_mvcc_db_compaction_last":      "time of the last compaction",
	"etcd_mvcc_db_total_size_in_bytes":            "the storm writes",
	"etcd_mvcc_db_total_size_in_use_in_bytes":     "the storm writes",
	"etcd_disk_wal_write_bytes_total":             "a counter that etcd calls a gauge",
	"etcd_server_proposals_applied_total":         "a counter that etcd calls a gauge",
	"etcd_server_proposals_committed_total":       "a counter that etcd calls a gauge",
	"*_high_water":                                "a mark that stays is its purpose",
	"etcd_server_healthcheck":                     "the result of the last check",
	"troupe_store_quota_used_ratio":               "the storm writes",
	"troupe_actor_busy_age_seconds":               "the look itself keeps some actors busy",
	"troupe_lease_revoke_window":                  "how many revocations may be in flight follows the disk",
	"go_memstats_*":                               "memory goes back when the collector likes",
	"go_gc_*":                                     "the collector's settings follow the heap",
	"go_sched_gomaxprocs_threads":                 "the number of processors follows the load",
	"go_threads":                                  "Go does not end threads",
	"go_goroutines":                               "compared with an allowance",
	"process_*":                                   "descriptors are compared by themselves, the rest is memory and time",
	"os_fd_used":                                  "descriptors are compared by themselves",
	"promhttp_metric_handler_requests_in_flight":  "the look itself",
}

// matches reports whether a name is in the list, a * at the end or at the beginning of an entry standing for anything.
func matches(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		beginning, openEnd := strings.CutSuffix(entry, "*")
		ending, openBeginning := strings.CutPrefix(entry, "*")
		return entry == name || openEnd && strings.HasPrefix(name, beginning) ||
			openBeginning && strings.HasSuffix(name, ending)
	})
}

// gauges are the values of all gauges by name and labels.
type gauges map[string]float64

// readGauges scrapes the member. Every look uses a connection of its own, so that looks are alike.
func readGauges(ctx context.Context, url string) (gauges, error) {
	text, err := fetch(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	all, kinds := gauges{}, map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
			kinds[fields[2]] = fields[3]
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		series := line[:at]
		if kinds[familyOf(series)] != "gauge" {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		all[series] = value
	}
	return all, lines.Err()
}

// familyOf is a series without its labels.
func familyOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// leftovers names every gauge that is not zero, or not as it was where that is its nature.
func (g gauges) leftovers(base gauges) []string {
	free, standing := entries(freeGauges), entries(standingGauges)
	var found []string
	for series, now := range g {
		name := familyOf(series)
		switch {
		case matches(free, name):
		case matches(standing, name):
			if now != base[series] {
				found = append(found, fmt.Sprintf("%s is %v, was %v", series, now, base[series]))
			}
		case now != 0:
			found = append(found, fmt.Sprintf("%s is %v, must be 0", series, now))
		}
		if now < 0 && name != "etcd_debugging_mvcc_compact_revision" {
			found = append(found, fmt.Sprintf("%s is negative: %v", series, now))
		}
	}
	slices.Sort(found)
	return found
}

func entries(list map[string]string) []string { return slices.Collect(maps.Keys(list)) }

// fetch gets one page with a connection of its own.
func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var text strings.Builder
	if _, err := bufio.NewReader(answer.Body).WriteTo(&text); err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, answer.Status)
	}
	return text.String(), nil
}

// lookTimeout is for one page of a member that has just been through a storm.
const lookTimeout = 20 * time.Second
