package gateway

import (
	"net"
	"sync"
	"time"

	"troupe/actors"
)

// ackJoiner lets the answers to HTTP/2 pings travel with the next write of a connection. Clients measure the connection
// with a ping for nearly every answer they get, and the ping comes together with their next request: answered at once,
// it costs a system call, and the client a wake-up, for each request. The first answer that follows takes it along, or
// a timer does.
//
// What is held back goes out between two frames. gRPC does not write frame by frame: a buffer may end within one.
// The zero value is ready.
type ackJoiner struct {
	mu    sync.Mutex
	place framePlace // of what gRPC writes
	// held are answers that are due, no more than ackBytesMax; the storage is kept. A timer runs while there are any.
	held   []byte
	joined []byte // scratch: the answers and what follows them
	timer  *time.Timer
	armed  bool
	spoke  bool // gRPC has sent something since a ping was last answered here
	ended  bool // closed or broken
}

// ackBytesMax is one answer of gRPC's own and one of those that are given here: the next one is given only after a
// write that takes these along.
const ackBytesMax = 2 * (frameHeaderBytes + pingBytes)

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
	if !between {
		return a.send(conn, p) // it goes on with a frame, before anything else
	}
	if len(p) > frameHeaderBytes && (p[3] == dataType || p[3] == headersType) {
		a.spoke = true // what gRPC counts as having been sent; of frames that leave together the first decides
	}
	switch {
	case len(a.held) == 0 && isPingAck(p):
		a.hold(conn, p)
		return len(p), nil
	case len(a.held) == 0:
		return a.send(conn, p)
	case len(p) > joinedBytesMax:
		if err := a.flush(conn); err != nil {
			return 0, err
		}
		return a.send(conn, p)
	default:
		a.joined = append(append(a.joined[:0], a.held...), p...)
		before := len(a.held)
		a.held = a.held[:0]
		n, err := a.send(conn, a.joined)
		return max(0, n-before), err
	}
}

// send writes to the connection. After an error nothing is ever written again, so that nothing is held either.
func (a *ackJoiner) send(conn net.Conn, p []byte) (int, error) {
	n, err := conn.Write(p)
	if err != nil {
		a.stop()
	}
	return n, err
}

// answer answers a ping that does not come to gRPC, if that has sent something since the last one, and reports whether
// it has. It does not wait for a write, which lasts for as long as the client does not read.
func (a *ackJoiner) answer(conn net.Conn, payload []byte) bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	if !a.spoke || a.ended {
		return false
	}
	a.spoke = false
	a.hold(conn, []byte{2: pingBytes, 3: pingType, 4: ackFlag, 8: 0}, payload)
	return true
}

// hold keeps the parts of an answer and has it written when nothing takes it along. A timer that still runs for an
// earlier one comes sooner, which does no harm. The lock is held.
func (a *ackJoiner) hold(conn net.Conn, parts ...[]byte) {
	if a.ended {
		return
	}
	for _, p := range parts {
		a.held = append(a.held, p...)
	}
	actors.Must(len(a.held) <= ackBytesMax, "more answers to pings are held than two")
	a.arm(conn)
}

// arm starts the timer unless it runs. The lock is held.
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

// end is the end of the connection.
func (a *ackJoiner) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
}

// stop drops what is held, for good. The lock is held.
func (a *ackJoiner) stop() {
	a.ended = true
	a.held, a.joined = nil, nil
	if a.timer != nil {
		a.timer.Stop()
	}
}

// due is the timer. An error shows in the next write of the connection, or in its next read.
func (a *ackJoiner) due(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.armed = false; {
	case len(a.held) == 0:
	case a.place.between():
		_ = a.flush(conn)
	default: // the rest of a frame is about to be written
		a.arm(conn)
	}
}

// flush writes what is held. The lock is held.
func (a *ackJoiner) flush(conn net.Conn) error {
	if len(a.held) == 0 {
		return nil
	}
	p := a.held
	a.held = a.held[:0]
	_, err := a.send(conn, p)
	return err
}
