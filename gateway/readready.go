package gateway

import (
	"io"

	"google.golang.org/grpc/mem"
)

// readyReader reads into a buffer that it takes only when there is something to read. gRPC looks for it on connections:
// with it an idle connection holds no read buffer, which at connectionBufferBytes each is most of what it would cost.
type readyReader interface {
	ReadOnReady(size int, pool mem.BufferPool) (buffer *[]byte, n int, err error)
}

var (
	_ readyReader = (*connection)(nil)
	_ readyReader = (*peekedConn)(nil)
)

// ReadOnReady implements readyReader.
func (c *peekedConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	inner, ok := c.Conn.(readyReader)
	if !ok || c.reader != nil {
		return readInto(c, size, pool)
	}
	for {
		b, n, err := inner.ReadOnReady(size, pool)
		if n == 0 || err != nil {
			return b, n, err
		}
		if n = len(c.sift((*b)[:n])); n > 0 {
			return b, n, nil
		}
		pool.Put(b)
	}
}

// readInto is ReadOnReady of what can only wait with a buffer in its hand.
func readInto(from io.Reader, size int, pool mem.BufferPool) (*[]byte, int, error) {
	b := pool.Get(size)
	n, err := from.Read(*b)
	if n == 0 && err != nil {
		pool.Put(b)
		return nil, 0, err
	}
	return b, n, nil // an error that came with bytes comes again
}
