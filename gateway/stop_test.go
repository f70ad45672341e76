package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"troupe/proto"
)

// stopTestMax is far more than a stop takes with nothing admitted, and less than any time-out that it could wait for by
// mistake: 5 s of net/http for a silent connection and of gRPC for a ping, 10 s of the handshake.
const stopTestMax = 4 * time.Second

// http2Hello is all that an HTTP/2 client must send first: the preface and an empty SETTINGS frame.
const http2Hello = http2Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// stopInTime stops the server with more time than the test has, and checks that none of it was used up, and that
// nothing is left.
func stopInTime(t *testing.T, e *edge) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > stopTestMax {
		t.Errorf("the stop took %v", took)
	}
	if conns, work, pages := e.conns.size(), e.work.count.Load(), e.pages.count.Load(); conns+int(work+pages) != 0 {
		t.Errorf("left after the stop: %d connections, %d calls, %d pages", conns, work, pages)
	}
}

// serveAlso serves one more listener and gives its address. It checks that serving ends without an error.
func serveAlso(t *testing.T, serve func(net.Listener) error) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// say connects, sends and says no more.
func say(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// Each of these once held the end of the process for 5 to 10 seconds.
func TestStop_HalfOpenConnectionsDoNotHoldIt(t *testing.T) {
	const half, body = "GET /version HTTP/1.1\r\nHost: x\r\n", " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
	for name, c := range map[string]struct{ port, text string }{
		"client: silence":                           {"client", ""},
		"client: half an HTTP/1.1 request":          {"client", half},
		"client: a POST without its body":           {"client", "POST /health" + body},
		"client: half a preface":                    {"client", http2Preface[:10]},
		"client: a preface without SETTINGS":        {"client", http2Preface},
		"client: half of a small SETTINGS":          {"client", http2Preface + "\x00\x00\x0c\x04\x00\x00\x00\x00\x00abc"},
		"client: half of a SETTINGS too large":      {"client", http2Preface + "\x00\x20\x04\x04\x00\x00\x00\x00\x00abc"},
		"client: HTTP/2 that does not answer pings": {"client", http2Hello},
		"client: half a HEADERS frame":              {"client", http2Hello + "\x00\x00\x20\x01\x04\x00\x00\x00\x01abc"},
		"peer: silence":                             {"peer", ""},
		"peer: half an HTTP/1.1 request":            {"peer", half},
		"peer: a POST without its body":             {"peer", "POST /members" + body},
		"metrics: silence":                          {"metrics", ""},
		"metrics: half an HTTP/1.1 request":         {"metrics", half},
		"metrics: a POST without its body":          {"metrics", "POST /metrics" + body},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newReadyEdge(t, nil)
			addr := map[string]string{"client": e.addr, "peer": serveAlso(t, e.ServePeers),
				"metrics": serveAlso(t, e.ServeMetrics)}[c.port]
			conn := say(t, addr, c.text)
			eventually(t, "the connection is accepted", func() bool { return e.conns.size() == 1 })
			stopInTime(t, e)
			_ = conn.SetReadDeadline(time.Now().Add(stopTestMax))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestStop_PagesThatNobodyReadsDoNotHoldIt(t *testing.T) {
	e := newReadyEdge(t, nil)
	for _, addr := range []string{e.addr, serveAlso(t, e.ServeMetrics)} {
		c := say(t, addr, "")
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		requests := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 1000)
		eventually(t, "the server writes and does not read any more", func() bool {
			_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			_, err := io.WriteString(c, requests)
			return errors.Is(err, os.ErrDeadlineExceeded)
		})
	}
	stopInTime(t, e)
}

// A page that takes its time ends with the stop, even one whose request is not whole, so that net/http does not see
// that its connection is gone.
func TestStop_PagesThatTakeLongAreCutAndWaitedFor(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.Profiling = true })
	for _, request := range []string{
		"GET /debug/pprof/trace?seconds=300 HTTP/1.1\r\nHost: x\r\n\r\n",
		"PUT /debug/pprof/profile?seconds=300 HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n" +
			"Content-Length: 100\r\n\r\n"} {
		say(t, e.addr, request)
	}
	eventually(t, "both run", func() bool { return e.pages.count.Load() == 2 })
	stopInTime(t, e)
}

// A client whose windows do not grow and who does not read blocks the stream's handler in a send.
func TestStop_WatchStreamThatNobodyReadsDoesNotHoldIt(t *testing.T) {
	e := newReadyEdge(t, nil)
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pb.NewWatchClient(conn).Watch(within(t)); err != nil {
		t.Fatal(err)
	}
	stream := <-e.room.streams
	const frames, accepted = 10, 3 // what the window and gRPC's quota hold, and one that waits
	for range frames {
		stream.frames <- WatchFrame{Events: [][]byte{make([]byte, 64<<10)}}
	}
	eventually(t, "the handler waits for the client", func() bool { return len(stream.frames) <= frames-accepted })
	stopInTime(t, e)
	if len(stream.frames) == 0 {
		t.Error("the client's windows took everything: this tests nothing")
	}
}

// Calls that were opened and whose request never came are not admitted.
func TestStop_CallsWithoutTheirRequestDoNotHoldIt(t *testing.T) {
	e := newReadyEdge(t, nil)
	for _, method := range []string{"/etcdserverpb.KV/Put", "/etcdserverpb.KV/RangeStream"} {
		if _, err := e.conn.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, method); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err) // it has come after them on their connection
	}
	stopInTime(t, e)
}

// stopHolds starts a stop and checks that it waits for something longer than its grace.
func stopHolds(t *testing.T, e *edge) (stopped <-chan error) {
	t.Helper()
	out := make(chan error, 1)
	ctx := within(t)
	go func() { out <- e.Stop(ctx) }()
	select {
	case err := <-out:
		t.Fatalf("stopped with a request admitted: %v", err)
	case <-time.After(2 * stopGrace):
	}
	return out
}

func TestStop_AdmittedRequestIsAnsweredBesideHalfOpenConnections(t *testing.T) {
	e := newReadyEdge(t, nil)
	waiting, letGo := slowPut(e)
	say(t, e.addr, http2Preface)
	say(t, e.addr, "POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")})
		answered <- err
	}()
	<-waiting
	stopped := stopHolds(t, e)
	close(letGo)
	if err := <-answered; err != nil {
		t.Errorf("the admitted request: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// openCall sends the request of a call and leaves its answer unread.
func openCall(t *testing.T, e *edge, method string, request any) grpc.ClientStream {
	t.Helper()
	stream, err := e.conn.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, method,
		grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(request); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// awaitInFlight waits until that many bytes of answers are in flight.
func awaitInFlight(t *testing.T, e *edge, bytes int64) {
	t.Helper()
	eventually(t, "the answers are made", func() bool {
		inUse, _ := e.answers.inFlight()
		return inUse >= bytes
	})
}

// A large answer is in flight until it is written, not until it is made, be it that of a read or of a write.
func TestStop_LargeAnswerThatIsReadSlowlyArrives(t *testing.T) {
	e := newReadyEdge(t, nil)
	large := func() (*proto.Result, error) {
		// Field 15 with its length, which neither answer has: a client skips it.
		body := [][]byte{{15<<3 | 2, 0x80, 0x80, 0x80, 0x04}, make([]byte, 8<<20)}
		return &proto.Result{Revision: 2, Body: proto.Body{Pieces: body}}, nil
	}
	e.room.set(func() {
		e.room.rangeFn = func(*pb.RangeRequest) (*proto.Result, error) { return large() }
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*proto.Result, error) { return large() }
	})
	read := openCall(t, e, "/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("a")})
	write := openCall(t, e, "/etcdserverpb.KV/Put", &pb.PutRequest{Key: []byte("a"), PrevKv: true})
	awaitInFlight(t, e, 16<<20)
	stopped := stopHolds(t, e)
	if err := read.RecvMsg(new(pb.RangeResponse)); err != nil {
		t.Error(err)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with the write's answer unread: %v", err)
	case <-time.After(2 * stopGrace):
	}
	if err := write.RecvMsg(new(pb.PutResponse)); err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// An answer that nobody takes is cut at the end of the context.
func TestStop_LargeAnswerThatNobodyReadsIsCutAtTheEnd(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() {
		e.room.rangeFn = func(*pb.RangeRequest) (*proto.Result, error) {
			return &proto.Result{Body: proto.Body{Pieces: [][]byte{make([]byte, 8<<20)}}}, nil
		}
	})
	openCall(t, e, "/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("a")})
	awaitInFlight(t, e, 8<<20)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := e.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if bytes, _ := e.answers.inFlight(); bytes != 0 {
		t.Errorf("%d bytes are counted after the stop", bytes)
	}
}

// A streamed range is one request with a long answer: the drain does not end it as it ends watches.
func TestStop_StreamedRangeGoesOnToItsEnd(t *testing.T) {
	e := newReadyEdge(t, nil)
	waiting, letGo := make(chan struct{}, 16), make(chan struct{})
	e.room.set(func() {
		e.room.chunkKeys = 100
		e.room.chunkHook = func() {
			waiting <- struct{}{}
			<-letGo
		}
	})
	call := openCall(t, e, "/etcdserverpb.KV/RangeStream",
		&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}})
	<-waiting
	stopped := stopHolds(t, e)
	close(letGo)
	keys, last := 0, new(pb.RangeStreamResponse)
	for {
		chunk := new(pb.RangeStreamResponse)
		err := call.RecvMsg(chunk)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		keys, last = keys+len(chunk.RangeResponse.Kvs), chunk
	}
	if keys != 100 || last.RangeResponse.Count != 100 {
		t.Errorf("%d keys, the last message is %v", keys, last)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// What Stop has cut leaves no goroutine either.
func TestStop_LeavesNoGoroutineOfHalfOpenConnections(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("stop", func(t *testing.T) {
		e := newReadyEdge(t, nil)
		peer := serveAlso(t, e.ServePeers)
		for addr, texts := range map[string][]string{
			e.addr: {http2Preface, http2Hello, http2Preface + "\x00\x20\x04\x04\x00\x00\x00\x00\x00",
				"GET /version HTTP/1.1\r\n", "POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"},
			peer: {"", "GET /version HTTP/1.1\r\n"},
		} {
			for _, text := range texts {
				say(t, addr, text)
			}
		}
		eventually(t, "all are accepted", func() bool { return e.conns.size() == 7 })
		stopInTime(t, e)
	})
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// The first zero of a drain is the end, whatever enters afterwards only to find itself refused.
func TestDrain_IdleComesWithTheLastAdmittedCall(t *testing.T) {
	f := newInFlight()
	f.enter()
	f.leave()
	if isClosed(f.whenIdle()) {
		t.Fatal("idle before the drain")
	}
	f.enter()
	f.drain()
	if isClosed(f.whenIdle()) {
		t.Fatal("idle with a call in flight")
	}
	f.leave()
	<-f.whenIdle()
	f.enter()
	f.leave() // a late one closes nothing again
	f.drain()
}

func TestDrain_LedgerTellsWhenItsLastAnswerIsWritten(t *testing.T) {
	l := newLedger(100)
	<-l.whenEmpty()
	l.enterNow(150) // more than the bound
	if err := l.enter(canceled(), 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("a reader was admitted beside it: %v", err)
	}
	empty := l.whenEmpty()
	l.leave(50)
	if isClosed(empty) {
		t.Fatal("empty with 100 bytes in use")
	}
	l.leave(100)
	<-empty
	<-l.whenEmpty()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
