package jsongateway

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// b64 is how JSON has bytes.
func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// served is the path with a body, and whether troupe serves the method behind it. Those that it does not serve yet must
// be reached all the same.
type served struct {
	path, body string
	later      bool
}

// everyPath calls each path of the gateway at least once, in an order in which all of them have something to do.
var everyPath = []served{
	{path: "/v3/kv/put", body: `{"key":"` + b64("foo") + `","value":"` + b64("bar") + `"}`},
	{path: "/v3/kv/put", body: `{"key":"` + b64("foo") + `","value":"` + b64("baz") + `","prev_kv":true}`},
	{path: "/v3/kv/range", body: `{"key":"` + b64("foo") + `"}`},
	{path: "/v3/kv/range", body: `{"key":"` + b64("a") + `","range_end":"` + b64("z") + `","limit":1}`},
	{path: "/v3/kv/txn", body: `{"compare":[{"target":"VALUE","key":"` + b64("foo") + `","value":"` + b64("baz") +
		`"}],"success":[{"requestRange":{"key":"` + b64("foo") + `"}},{"request_put":{"key":"` + b64("t") + `"}}]}`},
	{path: "/v3/kv/txn", body: `{"compare":[{"target":"CREATE","key":"` + b64("foo") + `","createRevision":"7"}],` +
		`"failure":[{"request_delete_range":{"key":"` + b64("t") + `","prev_kv":true}}]}`},
	{path: "/v3/kv/deleterange", body: `{"key":"` + b64("foo") + `","prev_kv":true}`},
	{path: "/v3/kv/compaction", body: `{"revision":3,"physical":true}`},
	{path: "/v3/lease/grant", body: `{"TTL":1000,"ID":77}`},
	{path: "/v3/lease/grant", body: `{"TTL":"1000","ID":"78"}`},
	{path: "/v3/lease/grant", body: `{"TTL":1000}`},
	{path: "/v3/lease/keepalive", body: `{"ID":77}`},
	{path: "/v3/lease/keepalive", body: `{"ID":77}{"ID":"1"} {"ID":78}`},
	{path: "/v3/lease/timetolive", body: `{"ID":1,"keys":true}`},
	{path: "/v3/kv/lease/timetolive", body: `{"ID":1}`},
	{path: "/v3/lease/revoke", body: `{"ID":77}`},
	{path: "/v3/kv/lease/revoke", body: `{"ID":78}`},
	{path: "/v3/lease/leases"},
	{path: "/v3/kv/lease/leases", body: `{}`},
	{path: "/v3/cluster/member/list", body: `{}`},
	{path: "/v3/cluster/member/list", body: `{"linearizable":true}`},
	{path: "/v3/cluster/member/add", body: `{"peerURLs":["nonsense"]}`, later: true},
	{path: "/v3/cluster/member/remove", body: `{"ID":"1"}`, later: true},
	{path: "/v3/cluster/member/update", body: `{"ID":"1","peerURLs":["http://127.0.0.1:1"]}`, later: true},
	{path: "/v3/cluster/member/promote", body: `{"ID":"1"}`, later: true},
	{path: "/v3/maintenance/alarm", body: `{}`},
	{path: "/v3/maintenance/alarm", body: `{"action":"DEACTIVATE","memberID":"1","alarm":"NOSPACE"}`},
	{path: "/v3/maintenance/status", body: `{}`},
	{path: "/v3/maintenance/defragment", body: `{}`},
	{path: "/v3/maintenance/hash", body: `{}`},
	{path: "/v3/maintenance/hashkv", body: `{}`},
	{path: "/v3/maintenance/hashkv", body: `{"revision":"4"}`},
	{path: "/v3/maintenance/transfer-leadership", body: `{"targetID":"1"}`, later: true},
	{path: "/v3/maintenance/downgrade", body: `{"action":"VALIDATE","version":"nonsense"}`, later: true},
	{path: "/v3/auth/enable", body: `{}`, later: true},
	{path: "/v3/auth/disable", body: `{}`, later: true},
	{path: "/v3/auth/status", body: `{}`, later: true},
	{path: "/v3/auth/authenticate", body: `{"name":"a","password":"b"}`, later: true},
	{path: "/v3/auth/user/add", body: `{}`, later: true},
	{path: "/v3/auth/user/get", body: `{"name":"nobody"}`, later: true},
	{path: "/v3/auth/user/list", body: `{}`, later: true},
	{path: "/v3/auth/user/delete", body: `{"name":"nobody"}`, later: true},
	{path: "/v3/auth/user/changepw", body: `{"name":"nobody","password":"x"}`, later: true},
	{path: "/v3/auth/user/grant", body: `{"user":"nobody","role":"x"}`, later: true},
	{path: "/v3/auth/user/revoke", body: `{"name":"nobody","role":"x"}`, later: true},
	{path: "/v3/auth/role/add", body: `{}`, later: true},
	{path: "/v3/auth/role/get", body: `{"role":"none"}`, later: true},
	{path: "/v3/auth/role/list", body: `{}`, later: true},
	{path: "/v3/auth/role/delete", body: `{"role":"none"}`, later: true},
	{path: "/v3/auth/role/grant", body: `{"name":"none"}`, later: true},
	{path: "/v3/auth/role/revoke", body: `{"role":"none","key":"` + b64("a") + `"}`, later: true},
}

func TestUnary_EveryPathAnswersAsEtcdDoes(t *testing.T) {
	p := start(t)
	for _, call := range everyPath {
		r := post(call.path, call.body)
		got, want := ask(t, p.troupe, r), ask(t, p.etcd, r)
		if call.later && got.status == http.StatusNotImplemented {
			if !strings.Contains(got.body, `"code":12,"message":"etcdserver: not implemented`) {
				t.Errorf("%s is not there yet, but says %+v", r, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%s:\ntroupe: %d %s\n%s\netcd:   %d %s\n%s", r, got.status, got.headers, got.body,
				want.status, want.headers, want.body)
		}
	}
	// The old prefix is the same, the one before is gone.
	p.same(t, post("/v3beta/kv/range", `{"key":"`+b64("foo")+`"}`))
	p.same(t, post("/v3alpha/kv/range", `{"key":"`+b64("foo")+`"}`))

	p.errors(t)
	p.metadata(t)
	p.http2(t)
}

// errors compares refusals.
func (p pair) errors(t *testing.T) {
	const read = "/v3/kv/range"
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `7`, `"x"`, `{`, `{"key"`, `{"key":"Zm9`, `{"key":"Zm9***"}`, `{"key":"Zm8"}`,
		`{"key":"_-8="}`, `{"key":1}`, `{"key":null}`, `{"key":"Zm9v","key":"Zm9v"}`, `{"key":"Zm9v"}garbage`,
		`{"key":"Zm9v"}{"key":"Zm9w"}`, `{"key":"Zm9v","limit":"abc"}`, `{"key":"Zm9v","limit":1.5}`,
		`{"key":"Zm9v","limit":1e3}`, `{"key":"Zm9v","limit":"99999999999999999999"}`, `{"key":"Zm9v","revision":1000}`,
		`{"key":"Zm9v","revision":2}`, `{"key":"Zm9v","revision":-1}`, `{"key":"Zm9v","sort_order":"BOGUS"}`,
		`{"key":"Zm9v","sort_order":77}`, `{"key":"Zm9v","sort_order":"DESCEND"}`, `{"key":"Zm9v","sortOrder":2}`,
		`{"key":"Zm9v","unknown":{"a":[1]}}`, `{"KEY":"Zm9v"}`, `{"key":"Zm9v","serializable":"yes"}`, "\xff\xfe",
		`{"key":"\ud800"}`, strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20), `{"key":"Zm9v",}`,
	} {
		p.same(t, post(read, body))
	}
	for _, r := range []request{
		post("/v3/kv/put", `{}`), post("/v3/kv/put", `{"key":"Zm9v","lease":"9"}`),
		post("/v3/kv/put", `{"key":"Zm9v","ignore_value":true,"value":"Zm9v"}`),
		post("/v3/kv/txn", `{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}`),
		post("/v3/kv/txn", `{"success":[{}]}`),
		post("/v3/kv/txn", `{"success":[{"request_put":{"key":"YQ=="},"request_range":{"key":"YQ=="}}]}`),
		post("/v3/kv/compaction", `{"revision":1}`), post("/v3/kv/compaction", `{"revision":"100000"}`),
		post("/v3/lease/grant", `{"TTL":"9000000001"}`), post("/v3/lease/revoke", `{"ID":"4711"}`),
		post("/v3/lease/grant", `{"ID":5,"TTL":100}`), post("/v3/lease/grant", `{"ID":5,"TTL":100}`),
		post("/v3/nothing", `{}`), post("/v3/", `{}`), post("/v3", `{}`), post("/v3/kv", `{}`),
		post("/v3/kv/range/", `{}`), post("/v3/kv/range:x", `{}`), post("/v3/KV/range", `{}`),
		post("//v3/kv/range", `{}`), post("/v3/kv/../kv/range", `{}`), post("/v3/kv/range?a=b&key=x", `{"key":"Zm9v"}`),
		post("/v3/kv/rangestream", `{"key":"Zm9v"}`), post("/v3beta/nothing", `{}`), post("/v3%2fkv/range", `{}`),
		post("/v3/maintenance/alarm", `{"action":"GET","alarm":"CORRUPT"}`),
	} {
		p.same(t, r)
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodHead,
		http.MethodPatch, "NONSENSE"} {
		p.same(t, request{method: method, path: "/v3/kv/range", body: `{}`})
		p.same(t, request{method: method, path: "/v3/nothing", body: `{}`})
	}
	value := func(bytes int) string {
		return fmt.Sprintf(`{"key":"%s","value":"%s"}`, b64("big"), b64(strings.Repeat("x", bytes)))
	}
	p.same(t, post("/v3/kv/put", value(1_572_000)))
	p.same(t, post("/v3/kv/put", value(1_600_000)))
	p.same(t, post("/v3/kv/put", value(3_000_000)))
	p.same(t, post("/v3/kv/range", `{"key":"`+b64("big")+`"}`))
	r := post("/v3/kv/put", value(8<<20))
	got, want := ask(t, p.troupe, r), ask(t, p.etcd, r)
	const text = `{"code":8,"message":"grpc: received message larger than max (`
	if got.status != want.status || !strings.HasPrefix(got.body, text) || !strings.HasPrefix(want.body, text) {
		t.Errorf("%s: troupe %+v, etcd %+v", r, got, want)
	}
}

// metadata compares what headers of a request do.
func (p pair) metadata(t *testing.T) {
	for _, header := range []string{"Grpc-Timeout: 1n", "Grpc-Timeout: nonsense", "Grpc-Timeout: 20S", "TE: trailers",
		"Accept: text/plain", "Accept: application/octet-stream", "Content-Type: application/x-nonsense",
		"X-HTTP-Method-Override: GET", "Grpc-Metadata-Hasleader: true", "Grpc-Metadata-Client-Api-Version: 3.7.3",
		"Grpc-Metadata-X-Bin: !!", "Authorization: nobody", "Grpc-Metadata-Token: nobody", "Upgrade: h2c"} {
		r := post("/v3/kv/range", `{"key":"`+b64("foo")+`"}`)
		r.headers = []string{header}
		p.same(t, r)
	}
}

// http2 compares what HTTP/2 without TLS gets: that is gRPC's, and JSON is refused.
func (p pair) http2(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	defer client.CloseIdleConnections()
	var seen []string
	for _, s := range p.servers() {
		got, err := client.Post(s.URL+"/v3/kv/range", "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		seen = append(seen, fmt.Sprint(got.Status, got.Header["Content-Type"], got.Header["Grpc-Status"]))
	}
	if seen[0] != seen[1] {
		t.Errorf("JSON over HTTP/2: troupe %s, etcd %s", seen[0], seen[1])
	}
}

func TestUnary_WithoutTheGatewayItsPathsAreUnknown(t *testing.T) {
	p := start(t, "--enable-grpc-gateway=false")
	for _, r := range []request{post("/v3/kv/range", `{"key":"Zm9v"}`), post("/v3/nothing", ``), post("/v3beta/watch", ``),
		{method: http.MethodGet, path: "/health"}} {
		p.same(t, r)
	}
	if ask(t, p.troupe, post("/v3/kv/range", `{"key":"Zm9v"}`)).status != http.StatusNotFound {
		t.Error("the gateway is there")
	}
}
