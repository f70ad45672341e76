package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// get fetches a page over HTTP/1.1.
func get(t testing.TB, e *edge, path string) (code int, body string) {
	t.Helper()
	r, err := pages.Get("http://" + e.addr + path)
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

func dial(t *testing.T, e *edge) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func TestListener_GarbageIsRefusedAndTheServerLives(t *testing.T) {
	e := newReadyEdge(t, nil)
	for _, garbage := range []string{"\x00\x01\x02\x03\r\n\r\n", "PRI * HTTP/9.9\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\r\n\r\n",
		strings.Repeat("A", 200000) + "\r\n\r\n", "\r\n\r\n\r\nX\r\n\r\n"} {
		c := dial(t, e)
		_, _ = io.WriteString(c, garbage)
		answer, _ := bufio.NewReader(c).ReadString('\n')
		if answer != "" && !strings.HasPrefix(answer, "HTTP/1.1 4") && !strings.HasPrefix(answer, "HTTP/1.1 5") {
			t.Errorf("%.20q: answered %q", garbage, answer)
		}
	}
	// The preface and then nonsense: gRPC's transport must refuse it.
	c := dial(t, e)
	_, _ = io.WriteString(c, http2Preface+strings.Repeat("garbage!", 100))
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection was not ended: %v", err)
	}
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
}

func TestListener_PrefaceMayComeInPieces(t *testing.T) {
	e := newReadyEdge(t, nil)
	c := dial(t, e)
	for _, b := range []byte(http2Preface) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	// An empty SETTINGS frame completes the client's side; the server's first frame is its SETTINGS.
	if _, err := c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 9)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	if head[3] != 4 {
		t.Fatalf("first frame has type %d", head[3])
	}
	// HTTP/1.1 that begins like the preface is HTTP/1.1.
	p := dial(t, e)
	if _, err := fmt.Fprintf(p, "PROPFIND /version HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(p).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 405") {
		t.Fatalf("%q %v", line, err)
	}
}

// A few silent connections must not shut others out, however many there are: the oldest go.
func TestListener_HalfOpenConnectionsAreBounded(t *testing.T) {
	base, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newSplitter(base)
	ended := make(chan error, 1)
	go func() { ended <- s.run() }()
	open := func() net.Conn {
		c, err := net.Dial("tcp", base.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	oldest := open()
	eventually(t, "the oldest is accepted", func() bool { return s.halfOpen() == 1 })
	for range sniffedConnectionsMax + 20 {
		open()
	}
	_ = oldest.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := oldest.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Fatalf("the oldest half-open connection was not closed: %v", err)
	}
	eventually(t, "the bound holds", func() bool { return s.halfOpen() <= sniffedConnectionsMax })
	late := open()
	if _, err := io.WriteString(late, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c, err := s.http1.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "GET / HTTP/1.1\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	s.close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := s.halfOpen(); n != 0 {
		t.Fatalf("%d half-open connections after the end", n)
	}
}

// The drain closes what is half open at once. That must be so for a preface without its SETTINGS too: gRPC would wait
// 10 s for them, and tell no other client of the drain until then.
func TestListener_DrainEndsHalfOpenConnections(t *testing.T) {
	e := newReadyEdge(t, nil)
	var conns []net.Conn
	for _, text := range []string{"", "PR", http2Preface, http2Preface + "\x00\x00\x0c\x04\x00\x00\x00\x00\x00abc"} {
		conns = append(conns, say(t, e.addr, text))
	}
	eventually(t, "all are accepted", func() bool { return e.conns.size() == len(conns) })
	e.Drain()
	for i, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(stopTestMax))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d is still open", i)
		}
	}
}
