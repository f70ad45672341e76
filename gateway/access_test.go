package gateway

import (
	"net/http"
	"testing"
)

// askAs sends a GET with a Host and an Origin, and gives the head of the answer.
func askAs(t *testing.T, addr, path, host, origin string) (int, http.Header) {
	t.Helper()
	q, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Host = host
	if origin != "" {
		q.Header.Set("Origin", origin)
	}
	got, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	return got.StatusCode, got.Header
}

func TestAccess_PagesAnswerListedHostsOnly(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.Hosts = []string{"good.example"} })
	for _, path := range []string{"/health", "/metrics", "/version", "/debug/actors", "/nothing", "/v3/kv/range"} {
		if got, _ := askAs(t, e.addr, path, "evil.example:2379", ""); got != http.StatusMisdirectedRequest {
			t.Errorf("%s for another host: %d", path, got)
		}
		if got, _ := askAs(t, e.addr, path, "good.example:2379", ""); got == http.StatusMisdirectedRequest {
			t.Errorf("%s for a listed host: %d", path, got)
		}
	}
}

func TestAccess_ListedOriginsReadAnswersButNoDebugPages(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.Origins = []string{"http://a.example:80", "http://b.example:8080"} })
	for origin, allowed := range map[string]bool{"http://a.example": true, "http://b.example:8080": true,
		"http://b.example": false, "https://a.example": false, "": false} {
		_, header := askAs(t, e.addr, "/health", "x", origin)
		got := header.Get("Access-Control-Allow-Origin")
		if allowed && got != origin || !allowed && got != "" {
			t.Errorf("origin %q is told %q", origin, got)
		}
		_, header = askAs(t, e.addr, "/debug/clients", "x", origin)
		if got := header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("debug page: origin %q is told %q", origin, got)
		}
	}
}

func TestAccess_AStarAmongOthersAllowsAll(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.Hosts, c.Origins = []string{"*", "a"}, []string{"*"} })
	code, header := askAs(t, e.addr, "/health", "anything", "http://a.example")
	if code != http.StatusOK || header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%d, %v", code, header)
	}
}
