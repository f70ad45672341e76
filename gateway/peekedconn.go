package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
)

// peekedConn is a connection whose protocol is known. It gives back what was read while that was looked for, and of an
// HTTP/2 connection it answers pings itself (pingSieve, ackJoiner).
type peekedConn struct {
	net.Conn
	reader *bufio.Reader // nil once it is empty
	acks   ackJoiner
	pings  *pingSieve // nil for HTTP/1.1
}

func newPeekedConn(conn net.Conn, reader *bufio.Reader, http2 bool) *peekedConn {
	c := &peekedConn{Conn: conn, reader: reader}
	if http2 {
		c.pings = newPingSieve()
	}
	return c
}

// Write implements net.Conn.
func (c *peekedConn) Write(p []byte) (int, error) {
	if c.pings == nil {
		return c.Conn.Write(p)
	}
	return c.acks.write(c.Conn, p)
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
