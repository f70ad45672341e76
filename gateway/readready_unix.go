//go:build unix

package gateway

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/mem"
)

// readiness is what a connection needs to wait for bytes without a buffer. One goroutine uses it.
type readiness struct {
	raw  syscall.RawConn
	read func(fd uintptr) bool

	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
}

// ReadOnReady implements readyReader. It is called by one goroutine.
func (c *connection) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	r := &c.ready
	if r.read == nil && !r.open(c.Conn) {
		return readInto(c, size, pool)
	}
	r.size, r.pool = size, pool
	err := r.raw.Read(r.read)
	buffer, n := r.buffer, r.n
	if err == nil {
		err = r.err
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	r.buffer, r.pool, r.n, r.err = nil, nil, 0, nil
	if err != nil {
		if buffer != nil {
			pool.Put(buffer)
		}
		return nil, 0, err
	}
	return buffer, n, nil
}

// open prepares the waiting; false for a connection that is not a socket itself, such as an encrypted one.
func (r *readiness) open(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return false
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	r.raw = raw
	r.read = func(fd uintptr) bool {
		b := r.pool.Get(r.size)
		n, err := syscall.Read(int(fd), *b)
		for errors.Is(err, syscall.EINTR) {
			n, err = syscall.Read(int(fd), *b)
		}
		if err != nil {
			r.pool.Put(b)
			if errors.Is(err, syscall.EAGAIN) {
				return false // wait, without a buffer
			}
			r.err = os.NewSyscallError("read", err)
			return true
		}
		r.buffer, r.n = b, n
		return true
	}
	return true
}

// unread reports whether something has come on a connection that nobody has read: bytes, or its end.
func unread(conn net.Conn) (waits bool) {
	if c, ok := conn.(*connection); ok {
		conn = c.Conn
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		waits = err == nil // the descriptor does not block: nothing there is EAGAIN
	})
	return waits
}
