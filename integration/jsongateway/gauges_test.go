package jsongateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// heldGauges are the gauges of what clients make a member hold.
var heldGauges = []string{"etcd_debugging_mvcc_watch_stream_total", "etcd_debugging_mvcc_watcher_total",
	"troupe_gateway_answer_bytes_in_flight", "troupe_gateway_json_body_bytes", "troupe_watch_outbox_bytes",
	"troupe_watch_groups", "troupe_gateway_open"}

// held gives the lines of those gauges.
func held(t *testing.T, s *harness.Server) string {
	t.Helper()
	got := ask(t, s, request{method: http.MethodGet, path: "/metrics"})
	var out []string
	missing := slices.Clone(heldGauges)
	for line := range strings.SplitSeq(got.body, "\n") {
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		if slices.Contains(heldGauges, name) {
			out = append(out, line)
			missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
		}
	}
	if len(missing) > 0 {
		t.Fatalf("there is no %v", missing)
	}
	return strings.Join(out, "\n")
}

// settledGauges gives those gauges once the connections of requests that have ended are gone.
func settledGauges(t *testing.T, s *harness.Server) (now string) {
	t.Helper()
	harness.Eventually(t, limit, "the member is at rest", func() error {
		now = held(t, s)
		if !strings.Contains(now, `troupe_gateway_open{kind="json_connection"} 0`) {
			return fmt.Errorf("%s", now)
		}
		return nil
	})
	return now
}
