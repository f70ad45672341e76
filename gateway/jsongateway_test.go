package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor"
)

// postJSON sends a request to the JSON gateway on a connection of its own.
func postJSON(t *testing.T, e *edge, path, body string) (code int, answer string) {
	t.Helper()
	q, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+e.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// wantJSON checks a request whose answer has a code and a text in it.
func wantJSON(t *testing.T, e *edge, path, body string, code int, text string) {
	t.Helper()
	if got, answer := postJSON(t, e, path, body); got != code || !strings.Contains(answer, text) {
		t.Errorf("POST %s %.60s: %d %s, want %d with %q", path, body, got, answer, code, text)
	}
}

// openJSON sends a raw request with a body, of which only a part is sent, and leaves the connection open.
func openJSON(t *testing.T, e *edge, path, body string, length int) net.Conn {
	t.Helper()
	return say(t, e.addr, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, length, body))
}

const aRange = `{"key":"aw=="}`

// Clients of the gateway leave the connections of probes alone.
func TestJSON_ConnectionsHaveABoundOfTheirOwn(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.json.max = 2 })
	e.SetReady()
	first := openJSON(t, e, "/v3/watch", "{", 100)
	openJSON(t, e, "/v3/watch", "{", 100)
	eventually(t, "both are in", func() bool { return e.gates.json.inside() == 2 })
	wantJSON(t, e, "/v3/kv/range", aRange, http.StatusTooManyRequests, tooManyRequests)
	if code, _ := get(t, e, "/health"); code != http.StatusOK {
		t.Errorf("/health: %d", code)
	}
	if n := testutil.ToFloat64(e.gates.json.rejected); n != 1 {
		t.Errorf("%v are counted as rejected", n)
	}
	if got := e.Clients(10); len(got) < 2 || got[0].Protocol != "json" && got[1].Protocol != "json" {
		t.Errorf("the clients are %+v", got)
	}
	first.Close()
	eventually(t, "one is out", func() bool { return e.gates.json.inside() == 1 })
	wantJSON(t, e, "/v3/kv/range", aRange, http.StatusOK, `"header"`)
}

// However many send however much, what is read and not decoded is bounded; small requests pass all the same.
func TestJSON_BodiesAreBoundedTogether(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.json.bodyBytesMax = 64 << 10 })
	e.SetReady()
	large := `{"key":"` + strings.Repeat("A", 50<<10)
	hoarder := openJSON(t, e, "/v3/kv/put", large, len(large)+2)
	eventually(t, "the body is read", func() bool { return e.json.bodyBytes.Load() == int64(len(large)) })
	wantJSON(t, e, "/v3/kv/put", large+`"}`, http.StatusTooManyRequests, tooManyRequests)
	wantJSON(t, e, "/v3/watch", large+`"}`, http.StatusTooManyRequests, tooManyRequests)
	wantJSON(t, e, "/v3/kv/range", aRange, http.StatusOK, `"header"`)
	hoarder.Close()
	eventually(t, "the bytes are given back", func() bool { return e.json.bodyBytes.Load() == 0 })
	wantJSON(t, e, "/v3/kv/put", large+`"}`, http.StatusOK, `"header"`)
	if n := e.json.bodyBytes.Load(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// An object of two bytes makes a message of many: what is decoded counts, not only what is read.
func TestJSON_BodiesCountWithWhatTheyAreDecodedTo(t *testing.T) {
	const objects = 3000
	e := newBoundedEdge(t, nil, func(s *Server) { s.json.bodyBytesMax = 3 * objects / 2 * jsonObjectBytes })
	e.SetReady()
	put := func(n int) string { return `{"key":"aw==","nothing":[{}` + strings.Repeat(`,{}`, n-1) + `]}` }
	wantJSON(t, e, "/v3/kv/put", put(2*objects), http.StatusBadRequest, "etcdserver: request is too large")
	wantJSON(t, e, "/v3/watch", put(2*objects), http.StatusBadRequest, "etcdserver: request is too large")
	waiting, letGo := slowPut(e)
	hoarder := openJSON(t, e, "/v3/kv/put", put(objects), len(put(objects)))
	<-waiting
	if n := e.json.bodyBytes.Load(); n < objects*jsonObjectBytes {
		t.Errorf("%d bytes are counted", n)
	}
	wantJSON(t, e, "/v3/kv/put", put(objects), http.StatusTooManyRequests, tooManyRequests)
	close(letGo)
	answer, err := http.ReadResponse(bufio.NewReader(hoarder), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the put: %s", answer.Status)
	}
	eventually(t, "the bytes are given back", func() bool { return e.json.bodyBytes.Load() == 0 })
}

func TestJSON_ABodyThatNeverComesIsNotWaitedFor(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.json.bodyTimeout = 50 * time.Millisecond })
	e.SetReady()
	answer, err := io.ReadAll(openJSON(t, e, "/v3/kv/put", `{"key":`, 100))
	if err != nil || !bytes.Contains(answer, []byte("504 Gateway Timeout")) ||
		!bytes.Contains(answer, []byte("took longer than 50ms")) {
		t.Errorf("%v, %s", err, answer)
	}
	eventually(t, "the connection is closed", func() bool { return e.conns.size() == 0 })
}

// A call that never says what it wants must not hold its connection for good; one that has may be silent.
func TestJSON_AFirstMessageThatNeverComesIsNotWaitedFor(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.json.bodyTimeout = 500 * time.Millisecond })
	e.SetReady()
	create := `{"create_request":{"key":"aw=="}}`
	watch := openJSON(t, e, "/v3/watch", create, len(create)+100)
	<-e.room.streams
	go func() {
		for range 3 { // the fake waits for them to be taken
			<-e.room.streams
		}
	}()
	for _, path := range []string{"/v3/watch", "/v3/lease/keepalive"} {
		for _, begun := range []string{`{`, ``} {
			answer, err := io.ReadAll(openJSON(t, e, path, begun, 100)) // until the connection is closed
			if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 504 ")) ||
				!bytes.Contains(answer, []byte("\r\nConnection: close\r\n")) ||
				!bytes.Contains(answer, []byte(`"message":"etcdserver: the first message of the request took longer than 500ms"`)) {
				t.Errorf("%s %q: %v, %s", path, begun, err, answer)
			}
		}
	}
	for _, path := range []string{"/v3/watch", "/v3/lease/keepalive", "/v3/kv/range"} {
		socket, _, err := websocket.Dial(within(t), "ws://"+e.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = socket.Read(within(t))
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation || !strings.Contains(err.Error(), "500ms") {
			t.Errorf("websocket %s: %v", path, err)
		}
		_ = socket.CloseNow()
	}
	eventually(t, "only the watch is left", func() bool { return e.gates.json.inside() == 1 })
	_ = watch.Close()
}

// Of a stream that has ended while its client may go on, the connection is of no more use, and its place is free.
func TestJSON_AConnectionWhoseBodyNobodyReadsAnyMoreIsClosed(t *testing.T) {
	e := newReadyEdge(t, nil)
	create := `{"create_request":{"key":"aw=="}}`
	ended := func(length int) (net.Conn, *bufio.Reader) {
		c := openJSON(t, e, "/v3/watch", create, length)
		_ = c.SetReadDeadline(time.Now().Add(testPatience))
		stream := <-e.room.streams
		from := bufio.NewReader(c)
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		lines := bufio.NewReader(r.Body)
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"created":true`) {
			t.Fatalf("%v, %s", err, line)
		}
		stream.failed <- ErrNoLeader
		if rest, err := io.ReadAll(lines); err != nil || !bytes.Contains(rest, []byte(`"error":{`)) {
			t.Errorf("%v, %s", err, rest)
		}
		return c, from
	}
	_, unread := ended(len(create) + 100)
	if more, err := io.ReadAll(unread); err != nil || len(more) > 0 { // until the connection is closed
		t.Errorf("%v, %s", err, more)
	}
	eventually(t, "the place is free", func() bool { return e.gates.json.inside() == 0 })
	whole, _ := ended(len(create))
	wantServed(t, whole, aHealthRequest)
}

func TestJSON_ABodyThatIsTooLargeIsReadUpToABound(t *testing.T) {
	e := newBoundedEdge(t, func(c *Config) { c.RequestBytesMax = 1024 }, func(s *Server) { s.json.discardedMax = 1 << 20 })
	e.SetReady()
	most := jsonBodyFactor * (1024 + grpcOverheadBytes)
	wantJSON(t, e, "/v3/kv/put", `{"key":"`+strings.Repeat("A", most)+`"}`, http.StatusTooManyRequests, "larger than max")
	c := openJSON(t, e, "/v3/kv/put", `{"key":"`, 1<<40)
	sent, err := io.Copy(c, neverEnding{})
	if err == nil || sent > 16<<20 {
		t.Errorf("it took %d bytes: %v", sent, err)
	}
}

// neverEnding is a text without an end.
type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'A'
	}
	return len(p), nil
}

// largeRange makes every range of the fake answer with a value of that size.
func largeRange(e *edge, size int) {
	e.room.set(func() {
		e.room.rangeFn = func(*pb.RangeRequest) (*proto.Result, error) {
			return e.room.result(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("k"), Value: make([]byte, size)}}}), nil
		}
	})
}

// A large answer is in the ledger with what it takes as text, until its client has read it or is gone.
func TestJSON_LargeAnswersCountUntilTheyAreRead(t *testing.T) {
	const size = 16 << 20 // more than the kernel keeps for a connection
	e := newReadyEdge(t, nil)
	largeRange(e, size)
	inUse := func() int64 {
		bytes, _ := e.answers.inFlight()
		return bytes
	}
	reader := openJSON(t, e, "/v3/kv/range", aRange, len(aRange))
	quitter := openJSON(t, e, "/v3/kv/range", aRange, len(aRange))
	eventually(t, "both answers are in flight", func() bool { return inUse() >= 2*jsonAnswerWeight*size })
	quitter.Close()
	eventually(t, "one is given back", func() bool { return inUse() < 2*size*jsonAnswerWeight })
	answer, err := http.ReadResponse(bufio.NewReader(reader), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); err != nil || n < size {
		t.Errorf("read %d bytes, %v", n, err)
	}
	eventually(t, "the other is too", func() bool { return inUse() == 0 })
}

// A watch whose client does not read takes one response from the room and waits with it, however many there are.
func TestJSON_AWatchThatIsNotReadTakesOneResponse(t *testing.T) {
	e := newReadyEdge(t, nil)
	body := `{"create_request":{"key":"aw=="}}`
	reader := openJSON(t, e, "/v3/watch", body, len(body))
	stream := <-e.room.streams
	event := make([]byte, 2<<20)
	frame := WatchFrame{Revision: 5, Events: [][]byte{{15<<3 | 2, 0x80, 0x80, 0x80, 0x01}, event}}
	stream.frames <- frame // field 15, which a client skips, takes no JSON
	eventually(t, "what takes no JSON is passed", func() bool { return len(stream.frames) == 0 })
	value := &pb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: event}}}}
	frame.Events = [][]byte{encode(t, value)}
	go func() {
		for range 16 {
			stream.frames <- frame
		}
	}()
	eventually(t, "the client holds it up", func() bool {
		inUse, _ := e.answers.inFlight()
		return len(stream.frames) > 4 && inUse > jsonAnswerWeight*int64(len(event))/2
	})
	reader.Close()
	<-stream.closed
	eventually(t, "it is given back", func() bool {
		inUse, _ := e.answers.inFlight()
		return inUse == 0 && e.gates.streams.inside() == 0 && e.gates.json.inside() == 0
	})
}

// The log and the pages name the client, not the gateway.
func TestJSON_TheClientIsSeenAsItself(t *testing.T) {
	e := newSlowEdge(t, &slowRoom{propose: 2 * time.Millisecond})
	put := `{"key":"aw==","value":"dg=="}`
	c := openJSON(t, e, "/v3/kv/put", put, len(put))
	if got := awaitStats(t, e)["remote"]; got != c.LocalAddr().String() {
		t.Errorf("the log names %v, the client is %v", got, c.LocalAddr())
	}
	create := `{"create_request":{"key":"aw=="}}`
	watch := openJSON(t, e, "/v3/watch", create, len(create))
	eventually(t, "the page shows the stream", func() bool {
		for _, client := range e.Clients(10) {
			if client.Remote == watch.LocalAddr().String() && client.Streams == 1 && client.Protocol == "json" {
				return true
			}
		}
		return false
	})
}

// A stop answers what was admitted and ends streams with the reason, be they of HTTP or of a websocket.
func TestJSON_AStopAnswersAndEndsStreams(t *testing.T) {
	e := newReadyEdge(t, nil)
	waiting, letGo := slowPut(e)
	create := `{"create_request":{"key":"aw=="}}`
	watch := bufio.NewReader(openJSON(t, e, "/v3/watch", create, len(create)))
	watching, err := http.ReadResponse(watch, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Body.Close()
	put := openJSON(t, e, "/v3/kv/put", aRange, len(aRange))
	<-waiting
	stopped := stopHolds(t, e)
	if lines, err := io.ReadAll(watching.Body); err != nil ||
		!bytes.Contains(lines, []byte(`"message":"etcdserver: server stopped"`)) {
		t.Errorf("the watch: %v, %s", err, lines)
	}
	close(letGo)
	if answer, err := io.ReadAll(put); err != nil || !bytes.Contains(answer, []byte("200 OK")) {
		t.Errorf("the put: %v, %s", err, answer)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// encode encodes a message.
func encode(t *testing.T, m protobuf.Message) []byte {
	t.Helper()
	b, err := protobuf.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The gateway's calls are calls like any other: they take places, and are counted. An overload is no fault of the
// member's: the status of HTTP says so, whatever the code of gRPC is.
func TestJSON_CallsAreUnderTheLimitsOfGRPC(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.requests.max, s.gates.streams.max = 1, 1 })
	e.SetReady()
	letGo := blockReads(t, e)
	ended := flood(t, e, 1)
	const refused = `"code":2,"message":"etcdserver: too many requests"`
	wantJSON(t, e, "/v3/kv/range", aRange, http.StatusTooManyRequests, refused)
	letGo()
	ended()
	wantJSON(t, e, "/v3/kv/range", aRange, http.StatusOK, `"header"`)
	create := `{"create_request":{"key":"aw=="}}`
	watch := openJSON(t, e, "/v3/watch", create, len(create))
	eventually(t, "the watch has its place", func() bool { return e.gates.streams.inside() == 1 })
	wantJSON(t, e, "/v3/watch", create, http.StatusTooManyRequests, refused)
	watch.Close()
	eventually(t, "the place is free", func() bool { return e.gates.streams.inside() == 0 })
	e.room.set(func() {
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*proto.Result, error) {
			return nil, raftactor.ErrTooManyRequests
		}
	})
	lock := `{"name":"bg=="}`
	wantJSON(t, e, "/v3/lock/lock", lock, http.StatusTooManyRequests, `"message":"etcdserver: too many requests"`)
	e.room.set(func() {
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*proto.Result, error) { return nil, raftactor.ErrTimeout }
	})
	wantJSON(t, e, "/v3/lock/lock", lock, http.StatusServiceUnavailable, `"message":"etcdserver: request timed out"`)
	wantPage(t, e, "/metrics", `grpc_server_handled_total{grpc_code="OK",grpc_method="Range",`+
		`grpc_service="etcdserverpb.KV",grpc_type="unary"} 2`, `troupe_gateway_rejected_total{kind="stream"} 1`)
}
