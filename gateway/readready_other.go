//go:build !unix

package gateway

import "google.golang.org/grpc/mem"

// readiness is not known here.
type readiness struct{}

// ReadOnReady implements readyReader.
func (c *connection) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	return readInto(c, size, pool)
}
