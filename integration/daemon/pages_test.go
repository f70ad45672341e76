package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"

	"troupe/integration/harness"
)

// page is what one HTTP request got.
type page struct {
	status      int
	contentType string
	body        string
}

func fetch(t *testing.T, s *harness.Server, method, path string) page {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return page{status: r.StatusCode, contentType: r.Header.Get("Content-Type"), body: string(body)}
}

func TestDaemon_HealthPagesAreEtcds(t *testing.T) {
	troupe := harness.Start(t, harness.Options{Kind: harness.Troupe})
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	for _, path := range []string{
		"/health", "/health?serializable=true", "/health?exclude=NOSPACE", "/livez", "/readyz", "/livez?verbose",
		"/readyz?verbose", "/readyz/data_corruption", "/readyz/serializable_read", "/readyz/linearizable_read",
		"/readyz/non_learner", "/livez/serializable_read", "/readyz?exclude=data_corruption&verbose", "/readyz/nothing",
		"/no-such-page",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			got, want := fetch(t, troupe, method, path), fetch(t, etcd, method, path)
			got.body, want.body = sortedLines(got.body), sortedLines(want.body) // the checks run in any order
			got.body = oursOnly.Replace(got.body)
			if got != want {
				t.Errorf("%s %s:\ntroupe: %+v\netcd:   %+v", method, path, got, want)
			}
		}
	}
}

// oursOnly takes out the checks that only troupe has.
var oursOnly = strings.NewReplacer("[+]disk ok\n", "", "[+]space ok\n", "")

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestDaemon_VersionPageTellsTheCompatibilityVersion(t *testing.T) {
	troupe := harness.Start(t, harness.Options{Kind: harness.Troupe})
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	var got, want map[string]string
	for s, into := range map[*harness.Server]*map[string]string{troupe: &got, etcd: &want} {
		body := fetch(t, s, http.MethodGet, "/version").body
		if err := json.Unmarshal([]byte(body), into); err != nil {
			t.Fatalf("%s: %v in %q", s.Kind, err, body)
		}
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("/version has %s=%q, etcd %q", key, got[key], value)
		}
	}
}

func TestDaemon_GRPCHealthServiceSaysServing(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	health := grpc_health_v1.NewHealthClient(s.Conn(t))
	r, err := health.Check(harness.Context(t, limit), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}
}

// series gives the names of a page's series with their labels, without values, and the type of each metric.
func series(text string) (names map[string]bool, types map[string]string) {
	names, types = map[string]bool{}, map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			types[name] = kind
		} else if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") {
			names[line[:i]] = true
		}
	}
	return names, types
}

func TestDaemon_DebugPageShowsEveryActorsMailbox(t *testing.T) {
	harness.TroupeOnly(t, "etcd has no actors")
	s := harness.Start(t, harness.Options{})
	harness.Serves(t, s)
	text := fetch(t, s, http.MethodGet, "/debug/actors")
	if text.status != http.StatusOK {
		t.Fatalf("/debug/actors: %+v", text)
	}
	for _, actor := range []string{"raft", "store", "watch", "lease"} {
		if !strings.Contains(text.body, actor) {
			t.Errorf("no actor %q in\n%s", actor, text.body)
		}
	}
	data := fetch(t, s, http.MethodGet, "/debug/actors?format=json")
	if !strings.HasPrefix(data.contentType, "application/json") || !json.Valid([]byte(data.body)) {
		t.Errorf("/debug/actors?format=json is no JSON: %+v", data)
	}
	names, _ := series(fetch(t, s, http.MethodGet, "/metrics").body)
	found := 0
	for name := range names {
		if strings.HasPrefix(name, "troupe_actor_") {
			found++
		}
		if strings.Contains(name, "/stream/") {
			t.Errorf("an instance's id is a label: %s", name)
		}
	}
	if found == 0 {
		t.Errorf("no actor metrics (troupe_actor_...) on /metrics")
	}
}
