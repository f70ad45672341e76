package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// stuckWriter is a log reader that does not read until it is released.
type stuckWriter struct {
	release chan struct{}
	mu      sync.Mutex
	got     bytes.Buffer
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.release
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.Write(p)
}

func TestLogging_AStuckReaderCostsLinesNotRequests(t *testing.T) {
	stuck := &stuckWriter{release: make(chan struct{})}
	s := newSinkTo("json", stuck)
	log := newLogger(s, newLogLevel("info"))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for i := range 3 * logLinesBuffered {
			log.Info().Int("n", i).Msg("line")
		}
	}()
	select {
	case <-finished:
	case <-time.After(time.Minute):
		t.Fatal("logging waits for the reader")
	}
	close(stuck.release)
	s.close()
	stuck.mu.Lock()
	defer stuck.mu.Unlock()
	if s.Dropped() == 0 || !strings.Contains(stuck.got.String(), "log lines dropped") {
		t.Errorf("%d lines dropped, and the log does not say so", s.Dropped())
	}
}

func TestLogging_LineHasEtcdsFields(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(io.Writer(&out), newLogLevel("info"))
	log.Info().Str("member", "8e9e05c5").Msg("ready to serve client requests")
	var line map[string]string
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["level"] != "info" || line["msg"] != "ready to serve client requests" || line["caller"] == "" {
		t.Errorf("line %v", line)
	}
	if _, err := time.Parse(logTimeFormat, line["ts"]); err != nil {
		t.Errorf("ts: %v", err)
	}
}

func TestLogging_TimePlaceAndMessageComeFirst(t *testing.T) {
	var out bytes.Buffer
	sink := newSinkTo("json", &out)
	tricky := `quoted "key", {"level":"info","ts":"x"}, end}`
	log := newLogger(sink, newLogLevel("info"))
	log.Warn().Str("fact", tricky).Int("n", 7).Msg(tricky)
	log.Info().Msg("plain")
	sink.close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, want := range []map[string]any{
		{"level": "warn", "msg": tricky, "fact": tricky, "n": 7.0}, {"level": "info", "msg": "plain"},
	} {
		if !strings.HasPrefix(lines[i], `{"level":"`+want["level"].(string)+`","ts":"`) {
			t.Errorf("line %d does not begin with level and time: %s", i, lines[i])
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatalf("line %d: %v: %s", i, err, lines[i])
		}
		if len(got) != len(want)+2 { // ts and caller
			t.Errorf("line %d has the keys of %v", i, got)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("line %d: %s is %v, want %v", i, key, got[key], value)
			}
		}
	}
	for _, odd := range []string{"", "\n", "no json", `{"level":"info"}`, `{"a":1,"ts":"x"}`} {
		if got := string(arrange([]byte(odd))); got != odd {
			t.Errorf("%q became %q", odd, got)
		}
	}
}

// lockedBuffer is an output that a test reads when the log is closed.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
