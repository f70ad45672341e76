package gateway

import (
	"net"
	"sync"
	"time"
)

// ackJoiner lets the answers to HTTP/2 pings travel with the next write of a connection. Clients measure the connection
// with a ping for nearly every answer they get, and the ping comes together with their next request: answered at once,
// it costs a system call, and the client a wake-up, for each request. The first answer that follows takes it along, or
// a timer does.
//
// What is held back goes out between two frames. gRPC does not write frame by frame: a buffer may end within one.
// The zero value is ready.
type ackJoiner struct {
	mu     sync.Mutex
	place  framePlace // of what gRPC writes
	held   []byte     // answers that are due; the storage is kept. A timer runs while there are any
	joined []byte     // scratch: the answer and what follows it
	timer  *time.Timer
	armed  bool
	spoke  bool // something else than answers to pings was written since a ping was last answered here
}

// The frame of an answered ping (RFC 9113, section 6.7): the header with length 8, type and flag, and 8 bytes.
const (
	frameHeaderBytes = 9
	pingBytes        = 8
	pingType         = 0x6
	ackFlag          = 0x1
	dataType         = 0x0
	headersType      = 0x1
)

// isPingAck reports whether the bytes are the answer to one ping and nothing else.
func isPingAck(p []byte) bool {
	return len(p) == frameHeaderBytes+pingBytes && p[3] == pingType && p[4] == ackFlag && p[2] == pingBytes
}

// write writes p to the connection, or keeps it for a moment.
func (a *ackJoiner) write(conn net.Conn, p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	between := a.place.between()
	a.place.walk(p)
	if between && len(p) > frameHeaderBytes && (p[3] == dataType || p[3] == headersType) {
		a.spoke = true // what gRPC counts as having been sent; of frames that leave together the first decides
	}
	switch {
	case len(a.held) > 0 && between: // they go first
	case between && isPingAck(p):
		a.held = append(a.held, p...)
		a.arm(conn)
		return len(p), nil
	default:
		return conn.Write(p)
	}
	if len(p) > joinedBytesMax {
		if err := a.flush(conn); err != nil {
			return 0, err
		}
		return conn.Write(p)
	}
	a.joined = append(append(a.joined[:0], a.held...), p...)
	before := len(a.held)
	a.held = a.held[:0]
	n, err := conn.Write(a.joined)
	return max(0, n-before), err
}

// answer answers a ping that does not come to gRPC, if that has sent something since the last one, and reports whether
// it has. It does not wait for a write, which lasts for as long as the client does not read.
func (a *ackJoiner) answer(conn net.Conn, payload []byte) bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	if !a.spoke {
		return false
	}
	a.spoke = false
	a.held = append(append(a.held, 0, 0, pingBytes, pingType, ackFlag, 0, 0, 0, 0), payload...)
	a.arm(conn)
	return true
}

// arm has the answer written when nothing takes it along. A timer that still runs for an earlier one comes sooner,
// which does no harm. The lock is held.
func (a *ackJoiner) arm(conn net.Conn) {
	switch {
	case a.armed:
		return
	case a.timer == nil:
		a.timer = time.AfterFunc(pingAckHeldMax, func() { a.due(conn) })
	default:
		a.timer.Reset(pingAckHeldMax)
	}
	a.armed = true
}

// due is the timer. An error shows in the next write of the connection, or in its next read.
func (a *ackJoiner) due(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	if !a.place.between() { // the rest of a frame is about to be written
		a.arm(conn)
		return
	}
	_ = a.flush(conn)
}

// flush writes what is held. The lock is held.
func (a *ackJoiner) flush(conn net.Conn) error {
	if len(a.held) == 0 {
		return nil
	}
	_, err := conn.Write(a.held)
	a.held = a.held[:0]
	return err
}
