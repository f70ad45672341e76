package gateway

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent is how many bytes the system has of what was written to a connection and the client has not taken. 0 also if
// that is not known.
func unsent(conn net.Conn) (bytes int64) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			bytes = int64(n)
		}
	})
	return bytes
}
