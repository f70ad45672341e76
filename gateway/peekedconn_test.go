package gateway

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
)

// spyConn notes whether something had spoken before a write reached it.
type spyConn struct {
	net.Conn
	remote net.Addr
	spoken atomic.Bool
	before []bool
}

func (c *spyConn) RemoteAddr() net.Addr { return c.remote }

func (c *spyConn) Write(p []byte) (int, error) {
	c.before = append(c.before, c.spoken.Load())
	return len(p), nil
}

// enteredConn is a connection that a server has accepted and entered, with its client.
func enteredConn(t *testing.T) (accepted *connection, client net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entering := new(connections).listen(listener)
	defer entering.Close()
	client, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	conn, err := entering.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*connection), client
}

// TestPeekedConn_KnowsItsEntry: the streams of a connection are counted where those that were accepted are entered.
func TestPeekedConn_KnowsItsEntry(t *testing.T) {
	accepted, _ := enteredConn(t)
	if c := newPeekedConn(accepted, nil, true); c.registered != accepted {
		t.Error("a connection that was accepted does not find its entry")
	}
}

// TestPeekedConn_ManyStreamsLeaveTogether: a write of a connection with several streams lets those speak first that
// can, so that what they say leaves in the next write and not in one each. With one stream it goes at once.
func TestPeekedConn_ManyStreamsLeaveTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what can run runs only when somebody steps back
	for streams, want := range map[int64]bool{0: false, 1: false, 2: true, 100: true} {
		entry := &connection{}
		entry.streams.Store(streams)
		yielded := 0
		for range 20 { // once in 10 ms the runtime makes a goroutine step back by itself
			spy := &spyConn{remote: &connectionAddr{conn: entry}}
			conn := newPeekedConn(spy, nil, true)
			done := make(chan struct{})
			go func() {
				spy.spoken.Store(true)
				close(done)
			}()
			if _, err := conn.Write(make([]byte, steppedBytesMin)); err != nil {
				t.Fatal(err)
			}
			<-done
			if spy.before[0] {
				yielded++
			}
		}
		if got := yielded > 10; got != want {
			t.Errorf("%d streams: %d of 20 writes let others speak first, wanted all: %v", streams, yielded, want)
		}
	}
}
