//go:build unix

package node

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketOptions makes the sockets of a member as its flags ask. Go sets SO_REUSEADDR by itself on most systems; that is
// not left to it when the flag is given.
func socketOptions(cfg *Config) net.ListenConfig {
	if !cfg.ReusePort && !cfg.ReuseAddress {
		return net.ListenConfig{}
	}
	return net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) {
			if cfg.ReusePort {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
			if cfg.ReuseAddress && failed == nil {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
		})
		if err != nil {
			return err
		}
		return failed
	}}
}
