package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// spare gives an address of this machine that nobody listens on.
func spare(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// accepted are what scrapers ask for: nothing, Prometheus 2 and 3, and what is refused or unknown.
var accepted = []string{
	"", "*/*", "text/plain", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
	"application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4," +
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
	"application/openmetrics-text; version=1.0.0",
	"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
	"text/plain;version=1.0.0;escaping=underscores", "image/png",
}

// TestMetrics_FormsAndPortsAreEtcds: content type, compression and status, on each port, whatever is asked for, and the
// times of calls only with --metrics=extensive.
func TestMetrics_FormsAndPortsAreEtcds(t *testing.T) {
	type server struct{ client, metrics, peer string }
	var servers [2]server
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		extra := spare(t)
		s := harness.Start(t, harness.Options{Kind: kind, Args: []string{"--listen-metrics-urls", extra}})
		servers[i] = server{s.URL, extra, s.PeerURL}
	}
	troupe, etcd := servers[0], servers[1]
	for _, url := range []string{troupe.client, etcd.client} {
		for series := range scrapeURL(t, url).values {
			if strings.HasPrefix(series, "grpc_server_handling_seconds") {
				t.Fatalf("--metrics=basic shows %s, one of a dozen series for each method", series)
			}
		}
	}
	for name, urls := range map[string][2]string{
		"client port":  {troupe.client, etcd.client},
		"metrics port": {troupe.metrics, etcd.metrics},
		"peer port":    {troupe.peer, etcd.peer},
	} {
		for _, accept := range accepted {
			for _, encoding := range []string{"", "gzip", "zstd", "gzip, deflate, br"} {
				got, want := form(t, http.MethodGet, urls[0], accept, encoding), form(t, http.MethodGet, urls[1], accept, encoding)
				if got != want {
					t.Errorf("%s, Accept %q, Accept-Encoding %q: %s, etcd %s", name, accept, encoding, got, want)
				}
			}
		}
		for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions} {
			if got, want := form(t, method, urls[0], "", ""), form(t, method, urls[1], "", ""); got != want {
				t.Errorf("%s, %s: %s, etcd %s", name, method, got, want)
			}
		}
	}
}

// form describes an answer without its numbers.
func form(t *testing.T, method, url, accept, encoding string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), method, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	if encoding == "" {
		encoding = "identity" // or Go's client would ask for gzip
	}
	request.Header.Set("Accept-Encoding", encoding)
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d, type %q, encoding %q, a body %v, origins %q", r.StatusCode, r.Header.Get("Content-Type"),
		r.Header.Get("Content-Encoding"), len(body) > 0, r.Header.Get("Access-Control-Allow-Origin"))
}
