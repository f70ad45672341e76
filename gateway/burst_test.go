package gateway

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// In a burst the oldest half-open connections are not silent: they have sent their request and wait for a processor.
// Whatever the bound, none of them is closed; the next is accepted when one of them has been looked at.
func TestListener_ABurstOfClientsThatHaveSpokenLosesNone(t *testing.T) {
	const burst = 300
	base, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newSplitter(base)
	s.most = 4
	s.refused = func(c net.Conn) { t.Errorf("%v was closed", c.RemoteAddr()) }
	for range burst { // they wait in the kernel with all they have to say
		say(t, base.Addr().String(), "GET / HTTP/1.1\r\n\r\n")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.run() }()
	for range burst {
		if n := s.halfOpen(); n > s.most {
			t.Errorf("%d are half open", n)
		}
		c, err := s.http1.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	s.close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// The silent ones make room, one for each new connection, and it is counted and said.
func TestListener_SilentConnectionsThatMakeRoomAreCounted(t *testing.T) {
	e := newReadyEdge(t, nil)
	for range sniffedConnectionsMax + 3 {
		say(t, e.addr, "")
	}
	for range 2 { // not more than the first: he who says nothing goes before he who comes
		if code, _ := get(t, e, "/health"); code != 200 {
			t.Fatalf("/health: %d", code)
		}
	}
	eventually(t, "they are counted", func() bool {
		_, page := get(t, e, "/metrics")
		return strings.Contains(page, fmt.Sprintf("troupe_gateway_rejected_total{kind=%q} ", halfOpenKind)) &&
			!strings.Contains(page, fmt.Sprintf("troupe_gateway_rejected_total{kind=%q} 0\n", halfOpenKind))
	})
	if !strings.Contains(e.log.String(), "silent longest") {
		t.Errorf("the log says nothing: %s", e.log)
	}
}

// A request that has come and waits to be read makes its connection busy, though nobody works for it yet.
func TestOverload_AConnectionWithAnUnreadRequestIsNotIdle(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := say(t, l.Addr().String(), "")
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conns := new(connections)
	closed := 0
	g := &gate{max: 1, idle: &idleConnections{closing: func(*gate, *connection) { closed++ }}}
	conn := conns.add(accepted)
	if !conn.pass(g, false) {
		t.Fatal("there was a place")
	}
	if _, err := io.WriteString(client, "G"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the byte has come", func() bool { return unread(conn) })
	if g.idle.closeOldest(g) || closed > 0 {
		t.Error("a connection with a request was closed")
	}
	if _, err := conn.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if !g.idle.closeOldest(g) || closed != 1 || g.inside() != 0 {
		t.Errorf("the idle one was not closed: %d, %d inside", closed, g.inside())
	}
}

// A burst of clients of the JSON gateway passes by the places of probes: their connections stay, though they are idle
// and there is room for one only.
func TestJSON_ABurstOfClientsLeavesIdleProbesAlone(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.pages.max = 1 })
	e.SetReady()
	probe := say(t, e.addr, "")
	wantServed(t, probe, aHealthRequest)
	for range 20 {
		c := openJSON(t, e, "/v3/kv/range", aRange, len(aRange))
		wantServed(t, c, "")
	}
	if n := e.gates.json.inside(); n != 20 {
		t.Errorf("%d have places of the gateway's", n)
	}
	wantServed(t, probe, aHealthRequest)
}
