package harness

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"sync"
)

// logLinesKept bounds what is kept of one process's log in memory; the tail is what a failing test shows.
const logLinesKept = 20000

// endingLines is how much of a log a failing test shows.
const endingLines = 15

// Log holds the output lines of one process and lets a test wait for one of them.
type Log struct {
	mu    sync.Mutex
	lines []string
	grown chan struct{} // closed and replaced when lines were added
	done  bool
	stall chan struct{} // closed when reading may go on; nil while nothing holds it
	bytes int
}

func newLog() *Log { return &Log{grown: make(chan struct{})} }

// consume reads lines until the stream ends and copies them to the file, if there is one.
func (l *Log) consume(r io.Reader, file *os.File) {
	scanner := bufio.NewReader(r)
	for {
		l.waitStall()
		line, err := scanner.ReadString('\n')
		if line != "" {
			l.add(strings.TrimRight(line, "\n"))
			if file != nil {
				_, _ = file.WriteString(line) // a copy for who looks at the run later; the lines are kept as well
			}
		}
		if err != nil {
			l.finish()
			return
		}
	}
}

func (l *Log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == logLinesKept {
		l.lines = append(l.lines[:0], l.lines[logLinesKept/2:]...)
	}
	l.lines = append(l.lines, line)
	l.bytes += len(line) + 1
	close(l.grown)
	l.grown = make(chan struct{})
}

// Stall stops the reading of the process's output, so that its pipe fills up; the function that it gives ends that.
func (l *Log) Stall() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stall := make(chan struct{})
	l.stall = stall
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stall = nil
		close(stall)
	})
}

func (l *Log) waitStall() {
	l.mu.Lock()
	stall := l.stall
	l.mu.Unlock()
	if stall != nil {
		<-stall
	}
}

// Bytes gives the number of bytes read so far.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

func (l *Log) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	close(l.grown)
	l.grown = make(chan struct{})
}

// Lines gives a copy of the lines so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// Tail gives the last n lines in one string.
func (l *Log) Tail(n int) string {
	lines := l.Lines()
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// Ending gives what says most about a process's end: its last panic with the top of the stack, else the last lines.
func (l *Log) Ending() string {
	lines := l.Lines()
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "panic") && !strings.HasPrefix(lines[i], "panic(") ||
			strings.Contains(lines[i], `"level":"fatal"`) {
			return strings.Join(lines[i:min(i+endingLines, len(lines))], "\n")
		}
	}
	return l.Tail(endingLines)
}

// Contains reports whether a line so far holds the text.
func (l *Log) Contains(text string) bool {
	for _, line := range l.Lines() {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// Wait waits until a line holds the text. It reports false when the process closed its output or ctx ended first.
func (l *Log) Wait(ctx context.Context, text string) bool {
	for {
		l.mu.Lock()
		grown, done := l.grown, l.done
		l.mu.Unlock()
		if l.Contains(text) {
			return true
		}
		if done {
			return false
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return false
		}
	}
}
