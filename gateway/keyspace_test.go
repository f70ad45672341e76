package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"troupe/proto"
	"troupe/storeactor"
)

// reportingStore is a Store with reports on its keys.
type reportingStore struct {
	Store
	report func(context.Context, storeactor.KeyspaceQuery) (storeactor.Keyspace, error)
}

// Keyspace is part of Keyspaces.
func (s reportingStore) Keyspace(ctx context.Context, q storeactor.KeyspaceQuery) (storeactor.Keyspace, error) {
	return s.report(ctx, q)
}

func newReportingEdge(t *testing.T,
	report func(context.Context, storeactor.KeyspaceQuery) (storeactor.Keyspace, error)) *edge {
	t.Helper()
	return newReadyEdge(t, func(c *Config) { c.Store = reportingStore{c.Store, report} })
}

func aReport() storeactor.Keyspace {
	use := storeactor.PrefixUse{Prefix: []byte("/registry/pods/"), Keys: 3, LiveBytes: 300, Revisions: 5, Bytes: 500}
	odd := storeactor.PrefixUse{Prefix: []byte("\xfa\n/"), Cut: true, Revisions: 1, Bytes: 40}
	bare := storeactor.PrefixUse{Keys: 1, LiveBytes: 10, Revisions: 1, Bytes: 10}
	return storeactor.Keyspace{Prefixes: []storeactor.PrefixUse{use, odd, bare}, OtherPrefixes: 2,
		Others: storeactor.PrefixUse{Keys: 2, LiveBytes: 6, Revisions: 2, Bytes: 6}, From: 7, Through: 9, Compacted: 4,
		Total: storeactor.PrefixUse{Keys: 6, LiveBytes: 316, Revisions: 9, Bytes: 556},
		Sizes: storeactor.FileSizes{Total: 1 << 20, InUse: 1 << 19}}
}

func TestKeyspace_TablePageAndWhatIsAskedFor(t *testing.T) {
	var asked storeactor.KeyspaceQuery
	e := newReportingEdge(t, func(_ context.Context, q storeactor.KeyspaceQuery) (storeactor.Keyspace, error) {
		asked = q
		return aReport(), nil
	})
	status, body := get(t, e, "/debug/keyspace")
	if status != 200 || asked.Depth != keyspaceDepthDefault || asked.Top != keyspaceTopDefault || len(asked.Within) > 0 {
		t.Errorf("%d, asked %+v", status, asked)
	}
	for _, want := range []string{"database 1.0 MiB, in use 512 KiB, quota 2.0 GiB; compacted at 4; revisions 7 to 9",
		"500   89.9 %         300     3          5  /registry/pods/", `"\xfa\n/"…`, "(keys without a /)",
		"(2 other prefixes)", "(all)"} {
		if !strings.Contains(body, want) {
			t.Errorf("the table lacks %q:\n%s", want, body)
		}
	}
	get(t, e, "/debug/keyspace?depth=4&top=7&within=/registry/")
	if asked.Depth != 4 || asked.Top != 7 || string(asked.Within) != "/registry/" {
		t.Errorf("asked %+v", asked)
	}
	for _, wrong := range []string{"depth=0", "depth=17", "depth=x", "top=1001", "top=-1"} {
		name, _, _ := strings.Cut(wrong, "=")
		if status, body := get(t, e, "/debug/keyspace?"+wrong); status != 400 || !strings.Contains(body, name+"=") {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
}

// What a report lists can be asked for again, whatever its bytes are.
func TestKeyspace_AnyPrefixOfTheJSONCanBeLookedInto(t *testing.T) {
	var asked []byte
	prefixes := []string{"\xfa\n/", `"\xfa\n/"`, "\xfb\xef\xbe\xff/", "/plain/", "e\u0301/", "\x00\x00\x00"}
	e := newReportingEdge(t, func(_ context.Context, q storeactor.KeyspaceQuery) (storeactor.Keyspace, error) {
		asked = q.Within
		var k storeactor.Keyspace
		for _, p := range prefixes {
			k.Prefixes = append(k.Prefixes, storeactor.PrefixUse{Prefix: []byte(p)})
		}
		return k, nil
	})
	_, body := get(t, e, "/debug/keyspace?format=json")
	var report struct {
		Prefixes []struct {
			Bytes string `json:"prefix_base64"`
		}
	}
	if err := json.Unmarshal([]byte(body), &report); err != nil || len(report.Prefixes) != len(prefixes) {
		t.Fatalf("%v in %s", err, body)
	}
	for i, p := range prefixes {
		text := report.Prefixes[i].Bytes
		for _, form := range []string{text, url.QueryEscape(text), strings.TrimRight(text, "="),
			base64.RawURLEncoding.EncodeToString([]byte(p))} {
			asked = nil
			if status, body := get(t, e, "/debug/keyspace?within_base64="+form); status != 200 || string(asked) != p {
				t.Errorf("%q as %s: %d, asked %q: %s", p, form, status, asked, body)
			}
		}
	}
	for _, wrong := range []string{"within_base64=%25", "within_base64=A", "within_base64=QQ&within=a"} {
		if status, body := get(t, e, "/debug/keyspace?"+wrong); status != 400 || !strings.Contains(body, "within_base64=") {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
}

func TestKeyspace_JSONAndMessageAreTheSame(t *testing.T) {
	e := newReportingEdge(t, func(context.Context, storeactor.KeyspaceQuery) (storeactor.Keyspace, error) {
		return aReport(), nil
	})
	_, body := get(t, e, "/debug/keyspace?format=json")
	var want, got map[string]any
	if err := json.Unmarshal([]byte(body), &want); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	message := new(proto.KeyspaceReport)
	err := e.conn.Invoke(within(t), "/"+serviceIntrospect+"/Keyspace", &proto.KeyspaceRequest{}, message)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(wire, &got); err != nil {
		t.Fatal(err)
	}
	// JSON has text where the message has bytes; and two reports take two times.
	for i, text := range []string{"/registry/pods/", `"\xfa\n/"`, ""} {
		row := want["prefixes"].([]any)[i].(map[string]any)
		if row["prefix"] != text {
			t.Errorf("row %d has the prefix %q, want %q", i, row["prefix"], text)
		}
		row["prefix"] = got["prefixes"].([]any)[i].(map[string]any)["prefix"]
		if row["prefix_base64"] != row["prefix"] { // which the message has as base64 in JSON
			t.Errorf("row %d has the bytes %v, want %v", i, row["prefix_base64"], row["prefix"])
		}
		delete(row, "prefix_base64")
	}
	for _, name := range []string{"others", "total"} {
		row := want[name].(map[string]any)
		if row["prefix_base64"] != "" {
			t.Errorf("%s has the bytes %v", name, row["prefix_base64"])
		}
		delete(row, "prefix_base64")
	}
	want["took_seconds"] = got["took_seconds"]
	compareFields(t, "", want, got)
	if len(want) != len(got) || string(message.Prefixes[1].Prefix) != "\xfa\n/" || message.Total.Bytes != 556 {
		t.Errorf("the message is %v, the JSON %s", message, body)
	}
}

// TestKeyspace_ReportsAreMadeOneAtATime fills the places of those who wait.
func TestKeyspace_ReportsAreMadeOneAtATime(t *testing.T) {
	running, atOnce, most := make(chan struct{}), 0, 0
	var mu sync.Mutex
	e := newReportingEdge(t, func(ctx context.Context, _ storeactor.KeyspaceQuery) (storeactor.Keyspace, error) {
		mu.Lock()
		atOnce++
		most = max(most, atOnce)
		mu.Unlock()
		defer func() { mu.Lock(); atOnce--; mu.Unlock() }()
		select {
		case <-running:
			return aReport(), nil
		case <-ctx.Done():
			return storeactor.Keyspace{}, context.Cause(ctx)
		}
	})
	conn := e.conn
	ask := func(ctx context.Context) error {
		return conn.Invoke(ctx, "/"+serviceIntrospect+"/Keyspace", &proto.KeyspaceRequest{}, new(proto.KeyspaceReport))
	}
	leaving, leave := context.WithCancel(within(t))
	left := make(chan error, 1)
	go func() { left <- ask(leaving) }()
	eventually(t, "the first report is made", func() bool { mu.Lock(); defer mu.Unlock(); return atOnce == 1 })
	answers := make(chan error, keyspaceWaitersMax)
	for range keyspaceWaitersMax {
		go func() { answers <- ask(within(t)) }()
	}
	eventually(t, "the others wait", func() bool { return e.keyspace.waiting.Load() == keyspaceWaitersMax })
	if err := ask(within(t)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if status, body := get(t, e, "/debug/keyspace"); status != 429 {
		t.Errorf("one too many over HTTP: %d %s", status, body)
	}
	leave()
	if err := <-left; status.Code(err) != codes.Canceled {
		t.Errorf("who left: %v", err)
	}
	close(running)
	for range keyspaceWaitersMax {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if most != 1 {
		t.Errorf("%d reports at a time", most)
	}
}
