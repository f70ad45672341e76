package jsongateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"troupe/integration/harness"
)

// dial opens a websocket, closed with the test.
func dial(t *testing.T, s *harness.Server, path string, options *websocket.DialOptions) *websocket.Conn {
	t.Helper()
	socket, answer, err := websocket.Dial(harness.Context(t, limit), "ws"+strings.TrimPrefix(s.URL, "http")+path, options)
	if err != nil {
		if answer != nil {
			body, _ := io.ReadAll(answer.Body)
			err = fmt.Errorf("%w: %s", err, body)
		}
		t.Fatalf("%s: websocket %s: %v", s.Kind, path, err)
	}
	socket.SetReadLimit(16 << 20)
	t.Cleanup(func() { socket.CloseNow() })
	return socket
}

// say sends messages and gives so many answers, one in each line.
func say(t *testing.T, s *harness.Server, socket *websocket.Conn, answers int, messages ...string) string {
	t.Helper()
	ctx := harness.Context(t, limit)
	for _, m := range messages {
		if err := socket.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
			t.Fatalf("%s: %v", s.Kind, err)
		}
	}
	var all strings.Builder
	for range answers {
		kind, text, err := socket.Read(ctx)
		if err != nil || kind != websocket.MessageText {
			t.Fatalf("%s: %v, %v after %s", s.Kind, kind, err, all.String())
		}
		all.WriteString(normalised(s, string(text)) + "\n")
	}
	return all.String()
}

// ends waits for the end of a websocket.
func ends(t *testing.T, socket *websocket.Conn) error {
	t.Helper()
	_, text, err := socket.Read(harness.Context(t, limit))
	if err == nil {
		t.Fatalf("another message: %s", text)
	}
	return err
}

func TestWebsocket_AnswersAreEtcds(t *testing.T) {
	p := start(t)
	for _, s := range p.servers() {
		history(t, s)
	}
	for _, one := range []struct {
		path     string
		answers  int
		messages []string
		options  *websocket.DialOptions
	}{
		{"/v3/watch", 4, []string{create(``), `{"cancel_request":{"watch_id":"0"}}`, create(`,"start_revision":"4"`)}, nil},
		{"/v3beta/watch", 1, []string{create(``)}, nil},
		{"/v3/watch?method=GET", 1, []string{create(``)}, nil},
		{"/v3/watch", 1, []string{`{"create_request":`, `{"key":"` + b64("k") + `"}}`}, nil},
		{"/v3/watch", 1, []string{create(``)}, &websocket.DialOptions{Subprotocols: []string{"Bearer", "token"}}},
		{"/v3/watch", 1, []string{create(``)},
			&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://elsewhere.example"}}}},
		{"/v3/lease/keepalive", 2, []string{`{"ID":1}`, `{"ID":2}`}, nil},
		{"/v3/kv/range", 1, []string{`{bad}`}, nil},
		{"/v3/nothing", 1, []string{`{}`}, nil},
	} {
		var got []string
		for _, s := range p.servers() {
			socket := dial(t, s, one.path, one.options)
			got = append(got, socket.Subprotocol()+say(t, s, socket, one.answers, one.messages...))
		}
		if got[0] != got[1] {
			t.Errorf("%s %v:\ntroupe: %s\netcd:   %s", one.path, one.messages, got[0], got[1])
		}
	}
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
	for _, path := range []string{"/v3alpha/watch", "/health", "/nothing"} {
		p.same(t, request{method: http.MethodGet, path: path, headers: upgrade})
	}
}

// etcd answers a single call over a websocket when the client closes it, when nobody reads the answer any more.
func TestWebsocket_SingleCallsAreAnsweredAndTheSocketIsClosed(t *testing.T) {
	harness.TroupeOnly(t, "etcd does not answer them")
	s := harness.Start(t, harness.Options{})
	put(t, s, "k", strings.Repeat("v", 1<<20))
	for path, one := range map[string][2]string{
		"/v3/kv/range":            {`{"key":"` + b64("k") + `"}`, `"kvs":[{"`},
		"/v3/kv/put":              {`{}`, `"message":"etcdserver: key is not provided"`},
		"/v3/lock/lock":           {`{"name":"` + b64("n") + `"}`, `"key":"`},
		"/v3/maintenance/status":  {`{}`, `"version":"3.7`},
		"/v3/cluster/member/list": {``, `"members":[`},
	} {
		socket := dial(t, s, path, nil)
		if one[0] == "" {
			one[0] = `{}`
		}
		if got := say(t, s, socket, 1, one[0]); !strings.Contains(got, one[1]) {
			t.Errorf("%s: %.300s", path, got)
		}
		if err := ends(t, socket); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%s: the end is %v", path, err)
		}
	}
	// Nonsense in a stream is answered, and ends it.
	for _, path := range []string{"/v3/watch", "/v3/lease/keepalive"} {
		socket := dial(t, s, path, nil)
		if got := say(t, s, socket, 1, `{bad`); !strings.Contains(got, `{"error":{"code":3,`) {
			t.Errorf("%s: %s", path, got)
		}
		if err := ends(t, socket); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%s: the end is %v", path, err)
		}
	}
	// So is a message that is too large.
	for _, path := range []string{"/v3/watch", "/v3/kv/put"} {
		socket := dial(t, s, path, nil)
		if got := say(t, s, socket, 1, `{"key":`+strings.Repeat(" ", 8<<20)); !strings.Contains(got, `larger than max`) {
			t.Errorf("%s: %s", path, got)
		}
		if err := ends(t, socket); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%s: the end is %v", path, err)
		}
	}
}

// A message may come in frames, the last of which may be empty, and with white space behind its JSON: nothing of it is
// taken for the end of the client or for a second message.
func TestWebsocket_TheRestOfAMessageInFramesEndsNoCall(t *testing.T) {
	harness.TroupeOnly(t, "etcd does not answer single calls over a websocket")
	s := harness.Start(t, harness.Options{})
	body := `{"key":"` + b64("k") + `","value":"` + b64("v") + `"}`
	for _, frames := range [][]string{{body}, {body, "\n"}, {body[:9], body[9:] + strings.Repeat(" ", 100<<10)}} {
		socket := dial(t, s, "/v3/kv/put", nil)
		message, err := socket.Writer(harness.Context(t, limit), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		for _, frame := range frames {
			if _, err := io.WriteString(message, frame); err != nil {
				t.Fatal(err)
			}
		}
		if err := message.Close(); err != nil {
			t.Fatal(err)
		}
		if got := say(t, s, socket, 1); !strings.Contains(got, `"revision"`) {
			t.Errorf("%d frames: %s", len(frames), got)
		}
		if err := ends(t, socket); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%d frames: the end is %v", len(frames), err)
		}
	}
}

// Browsers let every page open websockets, so that --cors must be looked at by the server.
func TestWebsocket_PagesOfOtherOriginsGetNone(t *testing.T) {
	harness.TroupeOnly(t, "etcd does not look at the origin of a websocket")
	s := harness.Start(t, harness.Options{Args: []string{"--cors=http://good.example:8080"}})
	for origin, allowed := range map[string]bool{"http://good.example:8080": true, "http://evil.example": false,
		"null": false, s.URL: true} {
		socket, _, err := websocket.Dial(harness.Context(t, limit), "ws"+strings.TrimPrefix(s.URL, "http")+"/v3/watch",
			&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if (err == nil) != allowed {
			t.Errorf("origin %s: %v", origin, err)
		}
		if err == nil {
			socket.CloseNow()
		}
	}
	// What is no page has no origin.
	say(t, s, dial(t, s, "/v3/watch", nil), 1, create(``))
}

// A client that is gone, however it went, has no watch left and no place in a line.
func TestWebsocket_ClosingItFreesWhatItHad(t *testing.T) {
	harness.TroupeOnly(t, "etcd counts in another way")
	s := harness.Start(t, harness.Options{})
	ask(t, s, post("/v3/lock/lock", `{"name":"`+b64("n")+`"}`))
	base := settledGauges(t, s)
	leave := map[string]func(*websocket.Conn){
		"closing":    func(c *websocket.Conn) { _ = c.Close(websocket.StatusGoingAway, "") },
		"hanging up": func(c *websocket.Conn) { c.CloseNow() },
		"a second message": func(c *websocket.Conn) {
			_ = c.Write(context.Background(), websocket.MessageText, []byte(`{}{bad`))
			for {
				if _, _, err := c.Read(context.Background()); err != nil {
					return
				}
			}
		},
	}
	for how, end := range leave {
		watching, waiting := dial(t, s, "/v3/watch", nil), dial(t, s, "/v3/lock/lock", nil)
		say(t, s, watching, 2, create(``), create(``))
		say(t, s, waiting, 0, `{"name":"`+b64("n")+`"}`)
		harness.Eventually(t, limit, "the call waits", func() error {
			if got := held(t, s); !strings.Contains(got, `troupe_gateway_open{kind="turn"} 1`) {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
		end(watching)
		end(waiting)
		harness.Eventually(t, limit, how+" frees everything", func() error {
			if got := held(t, s); got != base {
				return fmt.Errorf("%s\nbefore: %s", got, base)
			}
			return nil
		})
	}
}
