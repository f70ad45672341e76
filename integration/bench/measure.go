package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"troupe/integration/harness"
)

// sample is what one row on one server gave in one round, or in a piece of it.
type sample struct {
	rate     float64 // requests per second
	p50, p99 float64 // ms
	cpu      float64 // server CPU per request, us
	peak     float64 // peak resident set, MiB
}

// merge makes one sample of the pieces of a row, which have equally many requests: rate and CPU of them all, the mean
// of their percentiles, and the highest peak.
func merge(pieces []sample) sample {
	var all sample
	n, seconds := float64(len(pieces)), 0.0
	for _, p := range pieces {
		seconds += 1 / p.rate
		all.p50 += p.p50 / n
		all.p99 += p.p99 / n
		all.cpu += p.cpu / n
		all.peak = max(all.peak, p.peak)
	}
	all.rate = n / seconds
	return all
}

var errNoReport = errors.New("the benchmark tool printed no report")

// workBehind is how long a server's CPU is counted after the last answer: what was put is written to the database file
// a little later, and must neither be left out nor run beside the other server's piece.
const workBehind = 600 * time.Millisecond

// measure runs one row against a server.
func measure(s *harness.Server, r row, scale float64) (sample, error) {
	tool, err := harness.PeerPath("benchmark")
	if err != nil {
		return sample{}, err
	}
	total := max(int(float64(r.total)*scale), 1)
	args := append([]string{"--endpoints", s.Endpoint()}, r.args...)
	cmd := exec.Command(tool, append(args, "--total", strconv.Itoa(total))...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	resetPeak(s.Pid())
	before, err := cpuTime(s.Pid())
	if err != nil {
		return sample{}, err
	}
	if err := cmd.Run(); err != nil {
		return sample{}, fmt.Errorf("%w\n%.2000s", err, stderr.String())
	}
	time.Sleep(workBehind)
	after, err := cpuTime(s.Pid())
	if err != nil {
		return sample{}, err
	}
	result, err := parseReport(stdout.String())
	if err != nil {
		return sample{}, fmt.Errorf("%w:\n%.2000s", err, stdout.String())
	}
	result.cpu = float64((after - before).Microseconds()) / float64(total)
	result.peak, err = peakMemory(s.Pid())
	return result, err
}

var (
	rateLine    = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	percentile  = regexp.MustCompile(`(50|99)% in ([0-9.]+) secs`)
	errorsBlock = regexp.MustCompile(`Error distribution:\s*\n(.*)`)
)

// parseReport reads the tool's report. txn-mixed prints two, for reads and for writes: their rates add up, and of the
// percentiles the worse one counts.
func parseReport(text string) (sample, error) {
	var r sample
	for _, m := range rateLine.FindAllStringSubmatch(text, -1) {
		rate, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return r, err
		}
		r.rate += rate
	}
	for _, m := range percentile.FindAllStringSubmatch(text, -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return r, err
		}
		if m[1] == "50" {
			r.p50 = max(r.p50, seconds*1000)
		} else {
			r.p99 = max(r.p99, seconds*1000)
		}
	}
	if m := errorsBlock.FindStringSubmatch(text); m != nil {
		return r, fmt.Errorf("requests failed: %s", strings.TrimSpace(m[1]))
	}
	if r.rate == 0 {
		return r, errNoReport
	}
	return r, nil
}
