package harness

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes make the kernel kill a server whose test process died, by a panic or a timeout of go test.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// shrinkPipe makes a pipe hold one page, so that a test fills it soon. If that fails the pipe stays large, and the test
// that asked for it says that it proved nothing.
func shrinkPipe(pipe *os.File) {
	_, _ = unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, SmallPipeBytes)
}
