package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const aHealthRequest = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

// blockHealth makes the first request for /health wait until the result is called.
func blockHealth(t *testing.T, e *edge) (letGo func()) {
	t.Helper()
	var first atomic.Bool
	wait := make(chan struct{})
	letGo = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(letGo)
	e.room.set(func() {
		e.room.rangeHook = func(r *pb.RangeRequest) {
			if r.KeysOnly && first.CompareAndSwap(false, true) {
				<-wait
			}
		}
	})
	return letGo
}

// wantServed sends a request on a connection and reads its answer.
func wantServed(t *testing.T, c net.Conn, request string) {
	t.Helper()
	_, _ = io.WriteString(c, request)
	_ = c.SetReadDeadline(time.Now().Add(testPatience))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.40q: %v", request, err)
	}
	_, err = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%.40q: %s, %v", request, r.Status, err)
	}
}

// wantClosed waits for the end of a connection.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(stopTestMax))
	if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
		t.Error("the connection is still open")
	}
}

// Whoever opens connections and keeps them must not shut out probes and scrapers, whatever he has said on them.
func TestOverload_IdleConnectionsMakeRoomForNewOnes(t *testing.T) {
	const bound = 4
	aPost := "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n" + aRange
	for name, said := range map[string]string{
		"answered":                          aHealthRequest,
		"half a header":                     "GET /hea",
		"half a second header":              aHealthRequest + "GET /hea",
		"a body that never comes":           "GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
		"answered, then more than the half": aHealthRequest + aHealthRequest[:len(aHealthRequest)-1],
		"answered by the JSON gateway":      aPost,
	} {
		t.Run(name, func(t *testing.T) {
			e := newBoundedEdge(t, nil, func(s *Server) { s.gates.pages.max, s.gates.json.max = bound, bound })
			e.SetReady()
			g, request := &e.gates.pages, aHealthRequest
			if said == aPost {
				g, request = &e.gates.json, aPost
			}
			var held []net.Conn
			for range bound {
				held = append(held, say(t, e.addr, said))
				eventually(t, "it is idle in its place", func() bool { return g.idle.size() == len(held) })
			}
			for range 3 {
				wantServed(t, dial(t, e), request)
				eventually(t, "it is idle too", func() bool { return g.idle.size() == bound })
			}
			for _, c := range held[:3] {
				wantClosed(t, c)
			}
			if g.inside() != bound {
				t.Errorf("%d of %d places are taken", g.inside(), bound)
			}
			for _, text := range []string{`"kind":"` + g.name + `"`, `"bound":4`, "closing the one idle longest"} {
				if !strings.Contains(e.log.String(), text) {
					t.Errorf("the log does not say %s:\n%s", text, e.log.String())
				}
			}
		})
	}
}

// A connection with a request under way is not closed for another, and has its turn again when it is answered.
func TestOverload_BusyConnectionsAreNotClosedForNewOnes(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.pages.max = 2 })
	e.SetReady()
	letGo := blockHealth(t, e)
	busy := say(t, e.addr, aHealthRequest)
	eventually(t, "it is busy", func() bool { return e.gates.pages.inside() == 1 && e.gates.pages.idle.size() == 0 })
	const aVersion = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 5 {
		wantServed(t, dial(t, e), aVersion)
		eventually(t, "it is idle", func() bool { return e.gates.pages.idle.size() == 1 })
	}
	letGo()
	wantServed(t, busy, "")
	eventually(t, "both are idle", func() bool { return e.gates.pages.idle.size() == 2 })
	wantServed(t, busy, aVersion)
}

// What leaves a gate leaves its idle ones too: otherwise they would be kept for good.
func TestOverload_ClosedConnectionsAreForgotten(t *testing.T) {
	e := newReadyEdge(t, nil)
	for range 20 {
		c := dial(t, e)
		wantServed(t, c, aHealthRequest)
		_ = c.Close()
	}
	eventually(t, "none is left", func() bool { return e.gates.pages.inside() == 0 && e.gates.pages.idle.size() == 0 })
}
