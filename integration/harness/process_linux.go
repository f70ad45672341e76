package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// frozen is nil when every thread of the process is stopped.
func frozen(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		return fmt.Errorf("process %d has no threads", pid)
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			return err
		}
		// PID (name) STATE ..., and the name may hold anything.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		if !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("%s: %.20q is no stopped thread", task, rest)
		}
	}
	return nil
}
