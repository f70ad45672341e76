package jsongateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

// limit is for whatever a test waits for, on a slow machine.
const limit = 30 * time.Second

// pair is troupe and etcd, in the same state.
type pair struct{ troupe, etcd *harness.Server }

// start starts a pair with the same further flags.
func start(t *testing.T, args ...string) pair {
	t.Helper()
	p := pair{
		troupe: harness.New(t, harness.Options{Kind: harness.Troupe, Args: args}),
		etcd:   harness.New(t, harness.Options{Kind: harness.Etcd, Args: args}),
	}
	failed := make(chan error, 1)
	go func() { failed <- p.etcd.Run() }()
	p.troupe.Start(t)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return p
}

// servers are both.
func (p pair) servers() []*harness.Server { return []*harness.Server{p.troupe, p.etcd} }

// request is one HTTP request.
type request struct {
	method, path, body string
	// headers are "Name: value"; Host is one of them.
	headers []string
}

func (r request) String() string {
	body := r.body
	if len(body) > 100 {
		body = fmt.Sprintf("%s... (%d bytes)", body[:100], len(body))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.method, r.path, body, strings.Join(r.headers, " ")))
}

// post is a request of the JSON gateway.
func post(path, body string) request { return request{method: http.MethodPost, path: path, body: body} }

// answer is what a client can see of an answer, as far as it should be the same.
type answer struct {
	status  int
	headers string
	body    string
}

// comparedHeaders are those by which clients go. Date, and what Go adds by itself, are not theirs to choose.
var comparedHeaders = []string{"Content-Type", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Headers", "Allow", "Location", "Grpc-Metadata-Content-Type", "Www-Authenticate"}

// ask sends a request over a connection of its own and reads the whole answer.
func ask(t *testing.T, s *harness.Server, r request) answer {
	t.Helper()
	got := open(t, s, r)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.Kind, r, err)
	}
	return seen(s, got, string(body))
}

// open sends a request over a connection of its own; the caller reads the answer and closes it.
func open(t *testing.T, s *harness.Server, r request) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(harness.Context(t, limit), r.method, s.URL+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range r.headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			q.Host = value
			continue
		}
		q.Header.Add(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	got, err := transport.RoundTrip(q)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.Kind, r, err)
	}
	return got
}

// seen makes an answer of what was read.
func seen(s *harness.Server, got *http.Response, body string) answer {
	var headers strings.Builder
	for _, name := range comparedHeaders {
		if values := got.Header.Values(name); len(values) > 0 {
			fmt.Fprintf(&headers, "%s=%q ", name, values)
		}
	}
	return answer{status: got.StatusCode, headers: headers.String(), body: normalised(s, body)}
}

// normalised writes every line of JSON in one way and takes out what differs between any two clusters.
func normalised(s *harness.Server, body string) string {
	// The protobuf library writes one kind of space or another into its errors, so that nobody compares them.
	body = strings.NewReplacer(s.URL, "CLIENT-URL", s.PeerURL, "PEER-URL", "\u00a0", " ").Replace(body)
	var out []string
	for line := range strings.SplitSeq(body, "\n") {
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		var value any
		if decoder.Decode(&value) != nil {
			out = append(out, line)
			continue
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(anonymous(value)); err != nil {
			return err.Error()
		}
		out = append(out, strings.TrimSpace(text.String()))
	}
	return strings.Join(out, "\n")
}

// ownFields differ between clusters, or between moments of one.
var ownFields = []string{"cluster_id", "member_id", "memberID", "leader", "raftIndex", "raftAppliedIndex", "dbSize",
	"dbSizeInUse", "hash", "blob", "remaining_bytes"}

// anonymous replaces the values of such fields, and large numbers, which are ids that a server has chosen, by marks:
// that they are there is compared.
func anonymous(value any) any {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "troupe") // of /version
		for _, name := range slices.Collect(maps.Keys(v)) {
			if _, nested := v[name].(map[string]any); !nested && slices.Contains(ownFields, name) {
				v[name] = "OWN"
				continue
			}
			v[name] = anonymous(v[name])
		}
	case []any:
		for i := range v {
			v[i] = anonymous(v[i])
		}
	case string:
		if len(v) >= 16 && strings.Trim(v, "0123456789") == "" {
			return "ID"
		}
	}
	return value
}

// same sends a request to both and compares the answers.
func (p pair) same(t *testing.T, r request) {
	t.Helper()
	got, want := ask(t, p.troupe, r), ask(t, p.etcd, r)
	if got != want {
		t.Errorf("%s:\ntroupe: %d %s\n%s\netcd:   %d %s\n%s", r, got.status, got.headers, got.body,
			want.status, want.headers, want.body)
	}
}
