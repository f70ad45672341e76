package fieldreports

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// createWatch is a request of the JSON gateway for a watch of a key.
func createWatch(key string) string {
	return fmt.Sprintf(`{"create_request":{"key":"%s"}}`, base64.StdEncoding.EncodeToString([]byte(key)))
}

// nothingWatched waits until no client has a watch, a stream or a connection to the JSON gateway.
func nothingWatched(t *testing.T, s *harness.Server) {
	t.Helper()
	for _, name := range []string{"etcd_debugging_mvcc_watcher_total", "etcd_debugging_mvcc_watch_stream_total",
		`troupe_gateway_open{kind="stream"}`, `troupe_gateway_open{kind="json_connection"}`,
		"troupe_gateway_json_body_bytes"} {
		awaitMetric(t, s, name, "is zero", isZero)
	}
}

// T68 (etcd#19509): JSON that is none, on /v3/watch, made the server panic.
func TestJSONGateway_InvalidJSONOnAWatchIsAnsweredAndLeaksNothing(t *testing.T) {
	harness.TroupeOnly(t, "etcd answers nothing")
	s := harness.Start(t, harness.Options{})
	for range 20 {
		for _, body := range []string{`{`, `{bad`, `]`, `"x"`, `{"create_request":5}`, `{"create_request":{"key":"!"}}`,
			strings.Repeat("[", 20_000), strings.Repeat(`{"a":`, 20_000), "\x00\xff", createWatch("k")[:20]} {
			answer, err := http.Post(s.URL+"/v3/watch", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatalf("%.30q: %v", body, err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusBadRequest {
				t.Errorf("%.30q: %s", body, answer.Status)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if !s.Running() {
		t.Fatalf("the server has died:\n%s", s.Log().Tail(20))
	}
	nothingWatched(t, s)
}

// T68 (etcd#12333): a cancellation over the gateway was never answered, and connections piled up.
func TestJSONGateway_CancellationIsAnswered(t *testing.T) {
	harness.TroupeOnly(t, "etcd answers nothing while the client may still send")
	s := harness.Start(t, harness.Options{})
	watch := s.Converse(t, "/v3/watch")
	watch.Send(createWatch("k"))
	if line := watch.Line(); !strings.Contains(line, `"created":true`) {
		t.Fatalf("created: %s", line)
	}
	watch.Send(`{"cancel_request":{"watch_id":"0"}}`)
	if line := watch.Line(); !strings.Contains(line, `"canceled":true`) {
		t.Fatalf("canceled: %s", line)
	}
	watch.End()
	if line := watch.Line(); line != "" {
		t.Errorf("after the end: %s", line)
	}
	// A cancellation in a request of its own cancels nothing: it is told so instead of being left waiting.
	lone := s.Converse(t, "/v3/watch")
	lone.Send(`{"cancel_request":{"watch_id":"0"}}`)
	lone.End()
	if status := lone.Status(); status != http.StatusBadRequest {
		t.Errorf("a lone cancellation: %d", status)
	}
	if line := lone.Line(); !strings.Contains(line, "creates no watch") {
		t.Errorf("a lone cancellation: %s", line)
	}
	nothingWatched(t, s)
}

// T68 (etcd#8237): of the messages of a streamed keepalive only the first counted.
func TestJSONGateway_EveryRenewalOfAStreamCounts(t *testing.T) {
	harness.TroupeOnly(t, "etcd reads the whole body before it answers")
	s := harness.Start(t, harness.Options{})
	alive := s.Converse(t, "/v3/lease/keepalive")
	for i := 1; i <= 3; i++ {
		id := fmt.Sprintf(`"ID":"%d"`, 100+i)
		answer, err := http.Post(s.URL+"/v3/lease/grant", "", strings.NewReader(`{"TTL":"1000",`+id+`}`))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		alive.Send(`{` + id + `}`)
		if line := alive.Line(); !strings.Contains(line, id) || !strings.Contains(line, `"TTL":"1000"`) {
			t.Fatalf("renewal %d: %s", i, line)
		}
	}
}

// T68: whoever closes the request has no watch any more, whether his body is at its end or not.
func TestJSONGateway_ClosingTheRequestFreesTheWatch(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	for _, ended := range []bool{true, false} {
		var open []*harness.Conversation
		for range 10 {
			watch := s.Converse(t, "/v3/watch")
			watch.Send(createWatch("k") + createWatch("l"))
			if ended || harness.EtcdStandsIn() {
				watch.End()
			}
			watch.Line()
			watch.Line()
			open = append(open, watch)
		}
		awaitMetric(t, s, "etcd_debugging_mvcc_watcher_total", "is 20", func(v float64) bool { return v == 20 })
		for _, watch := range open {
			watch.Close()
		}
		awaitMetric(t, s, "etcd_debugging_mvcc_watcher_total", "is zero", isZero)
		if !harness.EtcdStandsIn() {
			nothingWatched(t, s)
		}
	}
}
