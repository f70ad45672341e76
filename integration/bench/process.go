package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of utime and stime in /proc/PID/stat; Linux gives user space 100 per second everywhere.
const clockTick = 10 * time.Millisecond

// cpuTime gives the user and system time of a process so far.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses and may hold spaces; utime and stime are fields 14 and 15.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("unreadable /proc/%d/stat", pid)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(errUser, errSystem)
}

// resetPeak sets the process's memory high-water mark to what it uses now. Where that is not allowed the mark stays the
// one since the start of the process.
func resetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peakMemory gives the high-water mark of the resident set in MiB.
func peakMemory(pid int) (float64, error) { return memoryLine(pid, "VmHWM:") }

// residentMemory gives the resident set in MiB, with what the process has of mapped files.
func residentMemory(pid int) (float64, error) { return memoryLine(pid, "VmRSS:") }

// anonymousMemory gives the part of the resident set that is not a mapped file, in MiB: what the kernel cannot drop.
func anonymousMemory(pid int) (float64, error) { return memoryLine(pid, "RssAnon:") }

func memoryLine(pid int, name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kilobytes / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", name, pid)
}
