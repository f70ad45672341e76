package gateway

import (
	"io"
	"net"
	"net/http"
	"time"
)

// closeSpent closes a connection of which a request was answered and not read to its end. The server of HTTP would wait
// for the next request, in the middle of the last, until the connection has been idle for long; its place is one of
// few. It runs in the connection's own goroutine, behind the answer.
func closeSpent(conn net.Conn, state http.ConnState) {
	if peeked, ok := conn.(*peekedConn); ok {
		conn = peeked.Conn
	}
	c, ok := conn.(*connection)
	if !ok || state != http.StateIdle {
		return
	}
	_ = c.SetWriteDeadline(time.Time{}) // that was for the last answer (answerpace.go)
	if c.spent.Load() {
		c.hangUp()
	}
}

// hangUp closes a connection whose client may be sending: first the own half, then, when the client has seen that or
// has had time to, the rest. Closed at once, the kernel would answer what still comes by taking back what was sent.
func (c *connection) hangUp() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(hangUpMax))
		_, _ = io.CopyN(io.Discard, c.Conn, hangUpBytesMax)
	}
	_ = c.Close()
}
