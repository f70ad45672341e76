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
// What is held back goes out before everything that is written later, so that no byte changes its place: it is enough
// that what is held back looks like such an answer. The zero value is ready.
type ackJoiner struct {
	mu     sync.Mutex
	held   []byte // an answer that is due; its storage is kept
	joined []byte // scratch: the answer and what follows it
	timer  *time.Timer
	armed  bool
}

// The frame of an answered ping (RFC 9113, section 6.7): the header with length 8, type and flag, and 8 bytes.
const (
	frameHeaderBytes = 9
	pingBytes        = 8
	pingType         = 0x6
	ackFlag          = 0x1
)

// isPingAck reports whether the bytes are the answer to one ping and nothing else.
func isPingAck(p []byte) bool {
	return len(p) == frameHeaderBytes+pingBytes && p[3] == pingType && p[4] == ackFlag && p[2] == pingBytes
}

// write writes p to the connection, or keeps it for a moment.
func (a *ackJoiner) write(conn net.Conn, p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) == 0 {
		if !isPingAck(p) {
			return conn.Write(p)
		}
		a.held = append(a.held, p...)
		a.arm(conn)
		return len(p), nil
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
