package gateway

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// writesRecorder is a connection that records what is written to it.
type writesRecorder struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
	broken error
}

func (w *writesRecorder) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return 0, w.broken
	}
	w.writes = append(w.writes, bytes.Clone(p))
	return len(p), nil
}

func (w *writesRecorder) written() (writes int, all []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes), bytes.Join(w.writes, nil)
}

// pingAck is the answer to a ping with that payload.
func pingAck(payload byte) []byte {
	return append([]byte{0, 0, pingBytes, pingType, ackFlag, 0, 0, 0, 0}, bytes.Repeat([]byte{payload}, pingBytes)...)
}

func TestPingAcks_TravelWithTheNextWrite(t *testing.T) {
	conn, joiner := &writesRecorder{}, &ackJoiner{}
	answer := []byte("an answer")
	for _, p := range [][]byte{pingAck(1), answer} {
		if n, err := joiner.write(conn, p); n != len(p) || err != nil {
			t.Fatalf("wrote %d of %d bytes, %v", n, len(p), err)
		}
	}
	if n, all := conn.written(); n != 1 || !bytes.Equal(all, append(pingAck(1), answer...)) {
		t.Errorf("%d writes of %q", n, all)
	}
}

func TestPingAcks_WithoutAWriteGoOutBySelf(t *testing.T) {
	conn, joiner := &writesRecorder{}, &ackJoiner{}
	for i := range byte(3) { // the timer is used again
		if _, err := joiner.write(conn, pingAck(i)); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(30 * time.Second)
		for {
			if n, _ := conn.written(); n == int(i)+1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("ping %d is not answered", i)
			}
			<-time.After(time.Millisecond)
		}
	}
}

// Whatever is written, looking like the answer to a ping or not, goes out in order and whole.
func TestPingAcks_NoByteChangesItsPlace(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		conn, joiner := &writesRecorder{}, &ackJoiner{}
		var want []byte
		for i := range 50 {
			p := pingAck(byte(i))
			switch random.IntN(4) {
			case 0:
				p = frame(dataType, 0, random.IntN(2*joinedBytesMax))
			case 1:
				p = frame(byte(10+i), ackFlag, random.IntN(30))
			}
			want = append(want, p...)
			if n, err := joiner.write(conn, p); n != len(p) || err != nil {
				t.Fatalf("seed %d: wrote %d of %d bytes, %v", seed, n, len(p), err)
			}
		}
		joiner.due(conn)
		if _, all := conn.written(); !bytes.Equal(all, want) {
			t.Fatalf("seed %d: what was written has changed", seed)
		}
		if cap(joiner.joined) > 4*joinedBytesMax {
			t.Errorf("seed %d: %d bytes are kept", seed, cap(joiner.joined))
		}
		joiner.end()
	}
}

// A connection that is gone says so in the write that follows, whose bytes did not go out.
func TestPingAcks_ABrokenConnectionFailsTheNextWrite(t *testing.T) {
	gone := errors.New("gone")
	for _, size := range []int{1, joinedBytesMax + 1} { // joined with the answer, and behind it
		conn, joiner := &writesRecorder{broken: gone}, &ackJoiner{}
		if _, err := joiner.write(conn, pingAck(1)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n, err := joiner.write(conn, frame(dataType, 0, size)); n != 0 || !errors.Is(err, gone) {
				t.Errorf("%d bytes: wrote %d, %v", size, n, err)
			}
		}
	}
}

// A client that pings and asks nothing gets its answer.
func TestPingAcks_AnIdleConnectionIsAnswered(t *testing.T) {
	c := dial(t, newReadyEdge(t, nil))
	settings := make([]byte, frameHeaderBytes)
	settings[3] = 0x4
	ping := pingAck(7)
	ping[4] = 0
	if _, err := c.Write(bytes.Join([][]byte{[]byte(http2Preface), settings, ping}, nil)); err != nil {
		t.Fatal(err)
	}
	for {
		header := make([]byte, frameHeaderBytes)
		if _, err := io.ReadFull(c, header); err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			t.Fatal(err)
		}
		if header[3] == pingType {
			if got := append(header, payload...); !bytes.Equal(got, pingAck(7)) {
				t.Errorf("answered %x", got)
			}
			return
		}
	}
}
