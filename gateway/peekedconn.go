package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"runtime"
)

// peekedConn is a connection whose protocol is known. It gives back what was read while that was looked for, and of an
// HTTP/2 connection it answers pings itself (pingSieve, ackJoiner).
type peekedConn struct {
	net.Conn
	reader *bufio.Reader // nil once it is empty
	acks   ackJoiner
	pings  *pingSieve // nil for HTTP/1.1
	// registered is the connection's entry among those of the server; nil for HTTP/1.1.
	registered *connection
}

func newPeekedConn(conn net.Conn, reader *bufio.Reader, http2 bool) *peekedConn {
	c := &peekedConn{Conn: conn, reader: reader}
	if http2 {
		c.pings, c.registered = newPingSieve(), connectionAt(conn.RemoteAddr())
	}
	return c
}

// Write implements net.Conn.
func (c *peekedConn) Write(p []byte) (int, error) {
	if c.pings == nil {
		return c.Conn.Write(p)
	}
	if c.sharesNext(len(p)) {
		// One event often goes to many streams, and the scheduler runs a goroutine that was just woken, such as this one,
		// ahead of all others that can run. Stepping back lets the other streams hand over what they have: it leaves in one
		// write after this one, not in one each. gRPC does so before small writes only.
		runtime.Gosched()
	}
	return c.acks.write(c.Conn, p)
}

// sharesNext reports whether it is worth waiting for what other streams have: not when there is much to write already.
func (c *peekedConn) sharesNext(bytes int) bool {
	return bytes >= steppedBytesMin && bytes < steppedBytesMax && c.registered != nil && c.registered.streams.Load() > 1
}

// Close implements net.Conn. It ends a write that is waiting for the client, too.
func (c *peekedConn) Close() error {
	err := c.Conn.Close()
	c.acks.end()
	return err
}

// Read implements net.Conn. It is called by one goroutine.
func (c *peekedConn) Read(p []byte) (int, error) {
	for {
		came, err := c.read(p)
		if n := len(c.sift(p[:came])); n > 0 || came == 0 || err != nil {
			return n, err
		}
	}
}

func (c *peekedConn) read(p []byte) (int, error) {
	if c.reader == nil {
		return c.Conn.Read(p)
	}
	n, err := c.reader.Read(p[:min(len(p), c.reader.Buffered())])
	if c.reader.Buffered() == 0 {
		c.reader = nil
	}
	if errors.Is(err, io.EOF) {
		err = nil // an empty buffer, not the end of the connection
	}
	return n, err
}

// sift is what the reader of the connection gets of bytes that have come.
func (c *peekedConn) sift(p []byte) []byte {
	if c.pings == nil {
		return p
	}
	return c.pings.sift(p, func(payload []byte) bool { return c.acks.answer(c.Conn, payload) })
}
