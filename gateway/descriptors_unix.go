//go:build unix

package gateway

import "golang.org/x/sys/unix"

// descriptorLimit is the number of file descriptors the process may have, 0 when it cannot be told.
func descriptorLimit() float64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return float64(limit.Cur)
}
