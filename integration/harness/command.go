package harness

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// settleTime is how long a program must be silent to be taken as done with an answer.
const settleTime = 150 * time.Millisecond

// Output is what one run of a program left.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// Command is one run of a tool.
type Command struct {
	Program string
	Args    []string
	Stdin   string
	Env     []string
	// Until ends a program that would run on: it is interrupted (SIGINT) when its standard output holds this text.
	Until string
	// Limit is when the program is killed; zero: two minutes.
	Limit time.Duration
}

// Run runs a tool to its end and gives its output. A tool that does not end in time fails the test.
func Run(t testing.TB, c Command) Output {
	t.Helper()
	limit := c.Limit
	if limit == 0 {
		limit = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Program, c.Args...)
	cmd.SysProcAttr = childAttributes()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.Env...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	stdout := &watchedBuffer{until: c.Until, seen: make(chan struct{})}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("harness: %s: %v", c.Program, err)
	}
	if c.Until != "" {
		go func() {
			select {
			case <-stdout.seen:
				stdout.settle()
				cmd.Process.Signal(syscall.SIGINT)
			case <-ctx.Done():
			}
		}()
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		t.Fatalf("harness: %s %q did not end within %v\nstdout: %s\nstderr: %s",
			c.Program, c.Args, limit, stdout.String(), stderr.String())
	}
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("harness: %s: %v", c.Program, err)
	}
	return Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// Ctl runs etcdctl against the server.
func (s *Server) Ctl(t testing.TB, args ...string) Output {
	t.Helper()
	return Run(t, Command{Program: Peer(t, "etcdctl"), Args: append([]string{"--endpoints", s.Endpoint()}, args...)})
}

// MustCtl runs etcdctl and fails the test unless it succeeds; it gives standard output.
func (s *Server) MustCtl(t testing.TB, args ...string) string {
	t.Helper()
	out := s.Ctl(t, args...)
	if out.Code != 0 {
		t.Fatalf("etcdctl %q on %s: exit code %d: %s%s", args, s.Kind, out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// watchedBuffer is a buffer that tells when it holds a text.
type watchedBuffer struct {
	mu    sync.Mutex
	data  bytes.Buffer
	until string
	told  bool
	seen  chan struct{}
}

func (b *watchedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data.Write(p)
	if b.until != "" && !b.told && strings.Contains(b.data.String(), b.until) {
		b.told = true
		close(b.seen)
	}
	return len(p), nil
}

// settle waits until nothing was written for a while: a program may print one answer in several pieces, and nothing
// shows which is the last.
func (b *watchedBuffer) settle() {
	for length := -1; length != len(b.String()); <-time.After(settleTime) {
		length = len(b.String())
	}
}

func (b *watchedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
