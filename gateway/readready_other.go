//go:build !unix

package gateway

import (
	"net"

	"google.golang.org/grpc/mem"
)

// readiness is not known here.
type readiness struct{}

// ReadOnReady implements readyReader.
func (c *connection) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	return readInto(c, size, pool)
}

// unread reports whether something has come on a connection that nobody has read; it is not known here.
func unread(net.Conn) bool { return false }
