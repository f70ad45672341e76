//go:build !unix

package node

import (
	"errors"
	"net"
	"syscall"
)

// socketOptions refuses what only Unix has.
func socketOptions(cfg *Config) net.ListenConfig {
	if !cfg.ReusePort && !cfg.ReuseAddress {
		return net.ListenConfig{}
	}
	return net.ListenConfig{Control: func(_, _ string, _ syscall.RawConn) error {
		return errors.New("--socket-reuse-port and --socket-reuse-address are not there on this system: leave them out")
	}}
}
