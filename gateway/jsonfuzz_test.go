package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzJSON sends arbitrary bodies to the JSON gateway. Each is answered, in JSON, and leaves nothing behind.
func FuzzJSON(f *testing.F) {
	paths := []string{"/v3/kv/range", "/v3/kv/txn", "/v3/lease/keepalive", "/v3/watch", "/v3/maintenance/alarm"}
	for _, body := range []string{``, `{}`, `{`, `[]`, `null`, `{"key":"aw=="}`, `{"ID":1}{"ID":"2"}`, `{"key":"\ud800"}`,
		`{"success":[{"request_txn":{"failure":[{}]}}]}`, `{"create_request":{}}{bad`, "\xff\x00",
		`{"alarm":"NOSPACE","action":9}`, `{"cancel_request":{"watch_id":-1}}`, strings.Repeat(`[`, 100)} {
		for i := range paths {
			f.Add(i, body)
		}
	}
	e := newReadyEdge(f, nil)
	done := make(chan struct{})
	f.Cleanup(func() { close(done) })
	go func() { // nobody asks for the streams
		for {
			select {
			case <-e.room.streams:
			case <-done:
				return
			}
		}
	}()
	f.Fuzz(func(t *testing.T, path int, body string) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond) // a watch stays open
		defer cancel()
		at := paths[uint(path)%uint(len(paths))]
		w := httptest.NewRecorder()
		e.json.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body)))
		if w.Code >= http.StatusInternalServerError && w.Code != http.StatusNotImplemented &&
			w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s %q: %d %s", at, body, w.Code, w.Body)
		}
		decoder := json.NewDecoder(w.Body)
		for decoder.More() {
			var value map[string]any
			if err := decoder.Decode(&value); err != nil {
				t.Fatalf("%s %q: the answer is no JSON: %v", at, body, err)
			}
		}
		bytes, _ := e.answers.inFlight()
		inside := slices.ContainsFunc(e.gates.all(), func(g *gate) bool { return g.inside() != 0 })
		if n := e.json.bodyBytes.Load(); n != 0 || bytes != 0 || inside {
			t.Errorf("%s %q: %d bytes of bodies and %d of answers are left, calls %v", at, body, n, bytes, inside)
		}
	})
}
