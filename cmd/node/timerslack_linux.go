package node

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// timerSlack is how much later than asked for the kernel may end a thread's sleep, to end several at once. Go's
	// monitor thread sleeps for 20 us at a time while anything runs; with Linux's default of 50 us it is awake every
	// 70 us, a fifth of the CPU of a lone client's puts and 5 % of that of a hundred clients'. Nothing here needs a timer
	// to be more exact than this.
	//
	// What it costs: the monitor takes the processor of a thread that is in a long system call (an fsync) away up to
	// twice this later. Three times as much would save a lone client another tenth.
	timerSlack = 300 * time.Microsecond
	// timerSlackDefault is what Linux gives a process. Another value was set by whoever started it, and stays.
	timerSlackDefault = 50 * time.Microsecond
)

// coarsenTimers sets the slack of all threads, and so of those they will make, to timerSlack, unless somebody else has
// chosen one for this process. It gives what is in force; an error says that it could not be set, which costs nothing
// but CPU: a program built with cgo cannot reach all its threads.
func coarsenTimers() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	now := time.Duration(ns)
	if err != nil || now != timerSlackDefault {
		return now, err
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(timerSlack.Nanoseconds()), 0)
	if errno != 0 {
		return now, errno
	}
	return timerSlack, nil
}
