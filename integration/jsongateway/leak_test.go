package jsongateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"troupe/integration/harness"
)

// goroutinesAllowed is how many goroutines more than before are no leak: those of the look itself, and timers.
const goroutinesAllowed = 6

// rude clients do something and leave in the middle of it.
var rude = map[string]func(context.Context, *harness.Server) error{
	"half a body":        raw(part("/v3/kv/put", strings.Repeat(" ", 40_000), 100_000), 0),
	"half a stream":      raw(part("/v3/watch", create(``)+"{", 100_000), 300),
	"an open body":       raw(chunked("/v3/watch", create(``)+create(``)), 300),
	"half a chunk":       raw(chunked("/v3/lease/keepalive", `{"ID":1}`)+"fff\r\n{", 0),
	"an ended body":      raw(whole("/v3/watch", create(`,"start_revision":"1"`)), 300),
	"nonsense":           raw(whole("/v3/watch", `{bad`), 100),
	"a lock":             raw(whole("/v3/lock/lock", `{"name":"`+b64("n")+`"}`), 0),
	"an election":        raw(whole("/v3/election/observe", `{"name":"`+b64("n")+`"}`), 0),
	"a large answer":     raw(whole("/v3/kv/range", `{"key":"`+b64("large")+`"}`), 1000),
	"a snapshot":         raw(whole("/v3/maintenance/snapshot", `{}`), 100),
	"a websocket":        socket("/v3/watch", create(``), 1),
	"half a message":     socket("/v3/watch", create(``)+"{", 1),
	"a call by socket":   socket("/v3/lock/lock", `{"name":"`+b64("n")+`"}`, 0),
	"an answer unread":   socket("/v3/kv/range", `{"key":"`+b64("large")+`"}`, 0),
	"a socket's silence": socket("/v3/kv/range", "", 0),
}

func whole(path, body string) string { return part(path, body, len(body)) }

func part(path, body string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, length, body)
}

func chunked(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n",
		path, len(body), body)
}

// raw sends bytes, reads some of the answer, and hangs up.
func raw(text string, answer int64) func(context.Context, *harness.Server) error {
	return func(ctx context.Context, s *harness.Server) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Endpoint())
		if err != nil {
			return err
		}
		defer c.Close()
		if end, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(end)
		}
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c, answer); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
}

// socket opens a websocket, sends a message, reads some answers, and hangs up.
func socket(path, message string, answers int) func(context.Context, *harness.Server) error {
	return func(ctx context.Context, s *harness.Server) error {
		c, _, err := websocket.Dial(ctx, "ws://"+s.Endpoint()+path, nil)
		if err != nil {
			return err
		}
		defer c.CloseNow()
		if message != "" {
			if err := c.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
				return err
			}
		}
		for range answers {
			if _, _, err := c.Read(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// number reads a metric without labels.
func number(t *testing.T, s *harness.Server, name string) float64 {
	t.Helper()
	for line := range strings.SplitSeq(ask(t, s, request{method: "GET", path: "/metrics"}).body, "\n") {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestLeaks_NothingIsLeftOfClientsThatLeaveInTheMiddle(t *testing.T) {
	harness.TroupeOnly(t, "the gauges are troupe's")
	s := harness.Start(t, harness.Options{})
	put(t, s, "large", strings.Repeat("v", 1<<20))
	ask(t, s, post("/v3/lock/lock", `{"name":"`+b64("n")+`"}`))
	base, goroutines := settledGauges(t, s), number(t, s, "go_goroutines")
	ctx := harness.Context(t, limit)
	var wait sync.WaitGroup
	for what, leave := range rude {
		for range 8 {
			wait.Go(func() {
				if err := leave(ctx, s); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
	}
	wait.Wait()
	harness.Eventually(t, limit, "nothing is left", func() error {
		if now := held(t, s); now != base {
			return fmt.Errorf("%s\nbefore: %s", now, base)
		}
		if n := number(t, s, "go_goroutines"); n > goroutines+goroutinesAllowed {
			return fmt.Errorf("%v goroutines, before %v", n, goroutines)
		}
		return nil
	})
	// And it still serves.
	if got := ask(t, s, post("/v3/kv/range", `{"key":"`+b64("large")+`","keys_only":true}`)); got.status != 200 {
		t.Errorf("afterwards: %+v", got)
	}
}
