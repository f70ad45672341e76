package jsongateway

import (
	"net/http"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// sameButText compares everything but the text of a refusal, which is written for people.
func (p pair) sameButText(t *testing.T, r request) {
	t.Helper()
	got, want := ask(t, p.troupe, r), ask(t, p.etcd, r)
	got.body, want.body = "", ""
	if got != want {
		t.Errorf("%s:\ntroupe: %+v\netcd:   %+v", r, got, want)
	}
}

func TestAccess_OnlyWhitelistedHostsAreAnswered(t *testing.T) {
	p := start(t, "--host-whitelist=localhost,good.example,127.0.0.1", "--enable-pprof")
	for _, host := range []string{"localhost", "localhost:1234", "good.example:99", "GOOD.example", "evil.example",
		"evil.example:99", "[::1]:2379", "127.0.0.1:2379", "a:b:c"} {
		for _, path := range []string{"/version", "/health", "/readyz", "/nothing", "/v3/kv/range"} {
			p.sameButText(t, request{method: http.MethodGet, path: path, headers: []string{"Host: " + host}})
		}
	}
	evil := []string{"Host: evil.example"}
	for _, path := range []string{"/metrics", "/debug/vars", "/debug/pprof/cmdline", "/v3/watch"} {
		p.sameButText(t, request{method: http.MethodGet, path: path, headers: evil})
		p.sameButText(t, request{method: http.MethodOptions, path: path, headers: append(evil, "Origin: http://a.b")})
	}
	p.sameButText(t, request{method: http.MethodGet, path: "/metrics", headers: []string{"Host: good.example"}})
	if harness.EtcdStandsIn() {
		return // it has no such pages
	}
	for _, path := range []string{"/debug/actors", "/debug/clients?format=json"} {
		got := ask(t, p.troupe, request{method: http.MethodGet, path: path, headers: evil})
		if got.status != http.StatusMisdirectedRequest || !strings.Contains(got.body, "evil.example") {
			t.Errorf("GET %s for another host: %+v", path, got)
		}
		got = ask(t, p.troupe, request{method: http.MethodGet, path: path, headers: []string{"Host: localhost:1"}})
		if got.status != http.StatusOK {
			t.Errorf("GET %s for a host in the list: %+v", path, got)
		}
	}
}

func TestAccess_OnlyListedOriginsMayReadAnswers(t *testing.T) {
	p := start(t, "--cors=http://a.example:8080,https://b.example:9443,http://c.example:80")
	for _, origin := range []string{"http://a.example:8080", "https://b.example:9443", "http://evil.example",
		"http://a.example", "https://a.example:8080", "null", "http://c.example:80", ""} {
		headers := []string{"Origin: " + origin}
		if origin == "" {
			headers = nil
		}
		for _, path := range []string{"/version", "/health", "/nothing", "/v3/kv/range", "//v3/kv/range"} {
			for _, method := range []string{http.MethodGet, http.MethodOptions} {
				p.same(t, request{method: method, path: path, headers: headers})
			}
		}
	}
	// Browsers leave the default port out, and etcd does not know them then.
	got := ask(t, p.troupe, request{method: http.MethodOptions, path: "/health",
		headers: []string{"Origin: http://c.example"}})
	if !strings.Contains(got.headers, `Access-Control-Allow-Origin=["http://c.example"]`) && !harness.EtcdStandsIn() {
		t.Errorf("an origin on the default port, as browsers write it: %+v", got)
	}
}

func TestAccess_AllOriginsAndHostsByDefault(t *testing.T) {
	p := start(t)
	for _, headers := range [][]string{nil, {"Origin: http://a.example"}, {"Host: whatever.example"}} {
		for _, path := range []string{"/health", "/nothing", "/v3/kv/range"} {
			p.same(t, request{method: http.MethodOptions, path: path, headers: headers})
			p.same(t, request{method: http.MethodGet, path: path, headers: headers})
		}
	}
}

func TestAccess_FlagsThatEtcdRefusesAreRefused(t *testing.T) {
	for _, arg := range []string{"--cors=foo", "--cors=", "--cors=http://a.example", "--cors=http://a:1/path",
		"--cors=*,http://a:1", "--enable-grpc-gateway=maybe"} {
		for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
			binary, err := harness.BinaryPath(kind)
			if err != nil {
				t.Fatal(err)
			}
			out := harness.Run(t, harness.Command{Program: binary, Args: []string{arg}, Limit: limit})
			if out.Code == 0 {
				t.Errorf("%s starts with %s", kind, arg)
			}
		}
	}
}
