package jsongateway

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// put writes a key through the gateway.
func put(t *testing.T, s *harness.Server, key, value string) {
	t.Helper()
	got := ask(t, s, post("/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s"}`, b64(key), b64(value))))
	if got.status != http.StatusOK {
		t.Fatalf("%s: put: %+v", s.Kind, got)
	}
}

// lines reads so many lines of an answer that stays open.
func lines(t *testing.T, s *harness.Server, r request, n int) answer {
	t.Helper()
	got := open(t, s, r)
	defer got.Body.Close()
	reader := bufio.NewReader(got.Body)
	var body strings.Builder
	for range n {
		line, err := reader.ReadString('\n')
		body.WriteString(line)
		if err != nil {
			t.Errorf("%s: %s: %v after %q", s.Kind, r, err, body.String())
			break
		}
	}
	return seen(s, got, body.String())
}

// sameLines compares the first lines of a stream.
func (p pair) sameLines(t *testing.T, r request, n int) {
	t.Helper()
	got, want := lines(t, p.troupe, r, n), lines(t, p.etcd, r, n)
	if got != want {
		t.Errorf("%s:\ntroupe: %d %s\n%s\netcd:   %d %s\n%s", r, got.status, got.headers, got.body,
			want.status, want.headers, want.body)
	}
}

// history gives a fresh server a history: puts at the revisions 2 to 6, a deletion at 7, a compaction at 3.
func history(t *testing.T, s *harness.Server) {
	t.Helper()
	for i := range 5 {
		put(t, s, "k", fmt.Sprint("v", i))
	}
	ask(t, s, post("/v3/kv/deleterange", `{"key":"`+b64("k")+`"}`))
	ask(t, s, post("/v3/kv/compaction", `{"revision":3,"physical":true}`))
}

// create is the body that creates a watch of the key k, with further fields.
func create(fields string) string {
	return `{"create_request":{"key":"` + b64("k") + `"` + fields + `}}`
}

func TestStream_WatchesAnswerAsEtcdsDo(t *testing.T) {
	p := start(t)
	for _, s := range p.servers() {
		history(t, s)
	}
	for _, one := range []struct {
		body  string
		lines int
	}{
		{create(``), 1},
		{create(`,"start_revision":"4"`), 2},
		{create(`,"start_revision":"4","prev_kv":true`), 2},
		{create(`,"start_revision":"4","filters":["NOPUT"]`), 2},
		{create(`,"start_revision":"4","watch_id":"7","progress_notify":true`), 2},
		{create(`,"start_revision":"2"`), 2},    // compacted
		{create(`,"start_revision":"1000"`), 1}, // of the future
		{create(`,"watch_id":"7"`) + create(`,"watch_id":"7"`), 2},
		{create(``) + `{"cancel_request":{"watch_id":"0"}}`, 2},
		{`{"unknown":1}` + create(``), 1},
	} {
		p.sameLines(t, post("/v3/watch", one.body), one.lines)
		p.sameLines(t, post("/v3beta/watch", one.body), one.lines)
	}
	p.same(t, request{method: http.MethodGet, path: "/v3/watch", body: create(``)})
	late := post("/v3/watch", create(``))
	late.headers = []string{"Grpc-Timeout: 200m"}
	for _, s := range p.servers() { // etcd's text is one of two
		if got := ask(t, s, late); got.status != http.StatusOK || !strings.Contains(got.body, `{"error":{"code":4,`) {
			t.Errorf("%s: a watch with a deadline: %+v", s.Kind, got)
		}
	}
}

func TestStream_SnapshotIsAWholeFile(t *testing.T) {
	harness.TroupeOnly(t, "its own file is compared with its own checksum")
	s := harness.Start(t, harness.Options{})
	put(t, s, "k", strings.Repeat("v", 100_000))
	got := open(t, s, post("/v3/maintenance/snapshot", `{}`))
	defer got.Body.Close()
	var file []byte
	decoder := json.NewDecoder(got.Body)
	for decoder.More() {
		var piece struct {
			Result struct{ Blob []byte }
			Error  json.RawMessage
		}
		if err := decoder.Decode(&piece); err != nil || piece.Error != nil {
			t.Fatalf("after %d bytes: %v, %s", len(file), err, piece.Error)
		}
		file = append(file, piece.Result.Blob...)
	}
	if len(file) < 100_000 {
		t.Fatalf("the snapshot has %d bytes", len(file))
	}
	data, sum := file[:len(file)-sha256.Size], file[len(file)-sha256.Size:]
	if want := sha256.Sum256(data); !bytes.Equal(sum, want[:]) {
		t.Error("the checksum is not that of the file")
	}
}

// etcd never answers what follows; troupe does.
func TestStream_EveryRequestIsAnsweredWhateverItIs(t *testing.T) {
	harness.TroupeOnly(t, "etcd leaves these requests open for ever")
	s := harness.Start(t, harness.Options{})
	history(t, s)
	for body, want := range map[string]string{
		`{bad`:                                `invalid character 'b'`,
		`{"create_request":{"key":"***"}}`:    `invalid value for bytes field key`,
		`[]`:                                  `unexpected token [`,
		``:                                    `the request creates no watch`,
		`{}`:                                  `the request creates no watch`,
		`{"cancel_request":{"watch_id":"0"}}`: `the request creates no watch`,
		`{"progress_request":{}}`:             `the request creates no watch`,
		`{"create_request":{"key":"Zm9v"}`:    `unexpected EOF`,
		`{"create_request":` + strings.Repeat(" ", 8<<20): `larger than max`,
	} {
		got := ask(t, s, post("/v3/watch", body))
		if got.status/100 != 4 || !strings.HasPrefix(got.body, `{"error":{"code":`) || !strings.Contains(got.body, want) {
			t.Errorf("%.50s: %+v, want an error with %q", body, got, want)
		}
	}
	// Streams that end by themselves.
	got := ask(t, s, post("/v3/watch", create(``)+`{"cancel_request":{"watch_id":"0"}}`))
	if !strings.HasSuffix(got.body, `"canceled":true}}`+"\n") && !strings.Contains(got.body, `"canceled":true`) {
		t.Errorf("create and cancel: %+v", got)
	}
	got = ask(t, s, post("/v3/watch", create(`,"start_revision":"2"`)))
	if !strings.Contains(got.body, `"compact_revision":"3"`) {
		t.Errorf("a compacted watch: %+v", got)
	}
	got = ask(t, s, post("/v3/watch", create(`,"start_revision":"4"`)+`{bad`))
	if got.status != http.StatusOK || !strings.Contains(got.body, `"created":true`) ||
		!strings.Contains(got.body, `{"error":{"code":3,"message":"invalid character 'b'`) {
		t.Errorf("a watch, then nonsense: %+v", got)
	}
	got = ask(t, s, post("/v3/lease/keepalive", `{"ID":"9"}{bad`))
	if got.status != http.StatusOK || !strings.HasPrefix(got.body, `{"result":{"ID":"9"`) ||
		!strings.Contains(got.body, `{"error":{"code":3,"message":"invalid character 'b'`) {
		t.Errorf("a renewal, then nonsense: %+v", got)
	}
	got = ask(t, s, post("/v3/lease/keepalive", `{bad`))
	if got.status != http.StatusBadRequest || !strings.HasPrefix(got.body, `{"error":{"code":3`) {
		t.Errorf("nonsense instead of a renewal: %+v", got)
	}
}

// A client that waits for each answer before it sends the next message gets all of them.
func TestStream_MessagesAreAnsweredAsTheyCome(t *testing.T) {
	harness.TroupeOnly(t, "etcd reads the whole body before it answers")
	s := harness.Start(t, harness.Options{})
	alive := s.Converse(t, "/v3/lease/keepalive")
	for i := range 5 {
		alive.Send(fmt.Sprintf(`{"ID":"%d"}`, i+1))
		if line := alive.Line(); !strings.Contains(line, fmt.Sprintf(`"ID":"%d"`, i+1)) {
			t.Fatalf("renewal %d: %s", i, line)
		}
	}
	alive.End()
	if line := alive.Line(); line != "" {
		t.Errorf("after the last renewal: %s", line)
	}

	watch := s.Converse(t, "/v3/watch")
	expect := func(what string) {
		t.Helper()
		if line := watch.Line(); !strings.Contains(line, what) {
			t.Fatalf("got %s, want %s", line, what)
		}
	}
	watch.Send(create(``))
	expect(`"created":true`)
	put(t, s, "k", "v")
	expect(`"key":"` + b64("k") + `"`)
	watch.Send(create(``))
	expect(`"watch_id":"1"`)
	watch.Send(`{"progress_request":{}}`)
	expect(`"watch_id":"-1"`)
	watch.Send(`{"cancel_request":{"watch_id":"0"}}`)
	expect(`"canceled":true`)
	put(t, s, "k", "w")
	expect(`"watch_id":"1"`)
	watch.End()
	put(t, s, "k", "x")
	expect(`"watch_id":"1"`)
}
