package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/rs/zerolog/diode"
)

// logLinesBuffered is how many lines wait for a slow log reader before the oldest are dropped. A line is a few hundred
// bytes, so this is well under a megabyte, and more than any burst the daemon logs in normal operation.
const logLinesBuffered = 4096

// logFlushMax is how long the end of the process waits for a reader that does not read.
const logFlushMax = 500 * time.Millisecond

// logTimeFormat is the form of etcd's `ts` field.
const logTimeFormat = "2006-01-02T15:04:05.999999Z0700"

// logSink is where log lines go: to each output through a ring of its own. Writing to it never blocks: a reader that
// stops reading, a full pipe for instance, costs lines of its own output, never a request and not the others' lines.
// What was lost is counted and said once there is room again.
type logSink struct {
	rings   []diode.Writer
	close   func()
	dropped atomic.Uint64
}

// Dropped is how many lines were lost so far, of all outputs together.
func (s *logSink) Dropped() uint64 { return s.dropped.Load() }

// Write gives a line to every output. The line may be reused afterwards.
func (s *logSink) Write(line []byte) (int, error) {
	for i := range s.rings {
		_, _ = s.rings[i].Write(line)
	}
	return len(line), nil
}

// newLogSink opens the outputs that validated options name.
func newLogSink(l *logOptions) (*logSink, error) {
	var outs []io.Writer
	targets, files := l.targets()
	for _, target := range targets {
		w, err := l.open(target, slices.Contains(files, target))
		if err != nil {
			return nil, err
		}
		outs = append(outs, w)
	}
	return newSinkTo(l.format, outs...), nil
}

// newSinkTo puts a ring between the logger and each of the outputs.
func newSinkTo(format string, outs ...io.Writer) *logSink {
	s := &logSink{}
	for _, out := range outs {
		lines := &lineWriter{format: format, out: out}
		lines.lose = func(missed int) {
			lines.dropped.Add(uint64(missed))
			s.dropped.Add(uint64(missed))
		}
		s.rings = append(s.rings, diode.NewWriter(lines, logLinesBuffered, 0, lines.lose))
	}
	s.close = sync.OnceFunc(func() { closeWithin(s.rings, logFlushMax) })
	return s
}

// open opens one output.
func (l *logOptions) open(target string, isFile bool) (io.Writer, error) {
	switch {
	case target == outputStdout:
		return os.Stdout, nil
	case target == outputJournal:
		return openJournal()
	case !isFile:
		return os.Stderr, nil
	}
	if l.rotate { // as etcd, and as the rotation does later when the directory is gone
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return nil, fmt.Errorf("open sink %q: %w: give --log-outputs a file that can be written", target, err)
		}
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open sink %q: %w: give --log-outputs a file that can be written", target, err)
	}
	if !l.rotate {
		return f, nil
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open sink %q: %w", target, err)
	}
	return l.rotationOf(target)
}

// closeWithin flushes what waits, but lets no reader hold the process up.
func closeWithin(rings []diode.Writer, limit time.Duration) {
	var flushed sync.WaitGroup
	for i := range rings {
		flushed.Go(func() { _ = rings[i].Close() })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		flushed.Wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// lineWriter writes the lines of one output in the form asked for, and says how many were lost before the next one
// that gets through. It is used by the goroutine of the output's ring.
type lineWriter struct {
	format string
	out    io.Writer
	// lose counts lines that nobody got; dropped is how many there were on this output, reported how many were told.
	lose     func(lines int)
	dropped  atomic.Uint64
	reported uint64
}

func (w *lineWriter) Write(line []byte) (int, error) {
	err := w.report()
	if err == nil {
		_, err = w.out.Write(w.form(arrange(line)))
	}
	if err != nil { // a full disk, for instance
		w.lose(1)
	}
	return len(line), err
}

// report says how many lines were lost since it was said last.
func (w *lineWriter) report() error {
	lost := w.dropped.Load()
	if lost == w.reported {
		return nil
	}
	line := fmt.Appendf(nil, `{"level":"warn","ts":"%s","caller":"troupe/logging.go","msg":"log lines dropped: this `+
		`output of the log is too slow, or fails","dropped":%d}`+"\n", time.Now().Format(logTimeFormat), lost-w.reported)
	if _, err := w.out.Write(w.form(line)); err != nil {
		return err
	}
	w.reported = lost
	return nil
}

func (w *lineWriter) form(line []byte) []byte {
	if w.format == formatConsole {
		return consoleLine(line)
	}
	return line
}

// consoleLine is a line in the form of etcd's console format: time, level, place, message and the facts as JSON, with
// tabs between. What is no line of ours stays as it is.
func consoleLine(line []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(line))
	var head [4]string
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return line
	}
	for i, want := range []string{"level", "ts", "caller", "msg"} {
		key, err := decoder.Token()
		if err != nil || key != want {
			return line
		}
		value, err := decoder.Token()
		text, ok := value.(string)
		if err != nil || !ok {
			return line
		}
		head[i] = text
	}
	facts := bytes.TrimRight(line[decoder.InputOffset():], "\n")
	out := strings.Join([]string{head[1], head[0], head[2], head[3]}, "\t")
	if len(facts) > len("}") {
		out += "\t{" + string(facts[1:])
	}
	return []byte(out + "\n")
}

// arrange brings time, place and message of a line, which zerolog writes behind the facts, to the front, as in etcd's
// lines: whoever reads them wants to know first when and what. It runs beside the daemon's work, in the goroutine that
// writes the log. A quote within a value is escaped, so the last unescaped `,"ts":"` is the key.
func arrange(line []byte) []byte {
	facts := bytes.IndexByte(line, ',')
	moment := bytes.LastIndex(line, []byte(`,"ts":"`))
	end := bytes.LastIndexByte(line, '}')
	if !bytes.HasPrefix(line, []byte(`{"level":"`)) || facts < 0 || moment <= facts || end < moment {
		return line
	}
	return slices.Concat(line[:facts], line[moment:end], line[facts:moment], line[end:])
}

// newLogger makes lines in the form of etcd's: level, ts, caller, msg and then the facts.
func newLogger(w io.Writer, level *logLevel) zerolog.Logger {
	zerolog.TimestampFieldName = "ts"
	zerolog.MessageFieldName = "msg"
	zerolog.TimeFieldFormat = logTimeFormat
	zerolog.CallerMarshalFunc = func(_ uintptr, file string, line int) string {
		return filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file) + ":" + strconv.Itoa(line)
	}
	return zerolog.New(w).Sample(level).With().Timestamp().Caller().Logger()
}
