package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/rs/zerolog"
)

func TestLogOptions_WrongOnesAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--logger=capnslog"}, "--logger=capnslog is removed in v3.5"},
		{[]string{"--logger=x"}, `unknown logger option "x"`},
		{[]string{"--log-format=x"}, "unknown log format: x, supported values json, console"},
		{[]string{"--log-level=x"}, `unrecognized level: "x"`},
		{[]string{"--log-outputs="}, "empty name"},
		{[]string{"--log-outputs=default,stderr"}, `multi logoutput for "default" is not supported yet`},
		{[]string{"--enable-log-rotation"}, "--log-outputs requires a single file path when"},
		{[]string{"--enable-log-rotation", "--log-outputs=a,b"}, "--log-outputs requires a single file path when"},
		{[]string{"--enable-log-rotation", "--log-outputs=stderr,stdout"}, "--log-outputs requires a single file path when"},
		{rotation(`{`), "improperly formatted log rotation config: unexpected end of JSON input"},
		{rotation(``), "improperly formatted log rotation config: unexpected end of JSON input"},
		{rotation(`{"maxsize": "x"}`), "invalid log rotation config: maxsize"},
		{rotation(`{"maxage": -1}`), "maxage must not be negative"},
		{rotation(`{"maxsze": 1}`), `unknown key "maxsze"; did you mean maxsize?`},
		{rotation(`{"nonsense": 1}`), `unknown key "nonsense"; known are compress, localtime, maxage, maxbackups, maxsize`},
	} {
		if _, err := parse(c.args, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v does not contain %q", c.args, err, c.want)
		}
	}
	o, err := parse([]string{`--log-rotation-config-json={"maxsize": 1}`}, nil)
	if err != nil || !strings.Contains(fmt.Sprint(o.warnings), "no effect without --enable-log-rotation") {
		t.Errorf("rotation that is not on: warnings %q, error %v", o.warnings, err)
	}
}

// Words that etcd takes though its help does not list them; manifests have them, and empty ones too.
func TestLogOptions_LevelsAreReadAsEtcdReadsThem(t *testing.T) {
	for word, want := range map[string]zerolog.Level{
		"DEBUG": zerolog.DebugLevel, "Warn": zerolog.WarnLevel, "warning": zerolog.WarnLevel, "": zerolog.InfoLevel,
		"dpanic": zerolog.PanicLevel, "fatal": zerolog.FatalLevel,
	} {
		o, err := parse([]string{"--log-level=" + word, "--log-format="}, nil)
		if err != nil {
			t.Errorf("%q: %v", word, err)
			continue
		}
		if got := newLogLevel(o.log.level).Level(); got != want.String() {
			t.Errorf("--log-level=%q is %v, want %v", word, got, want)
		}
	}
}

func rotation(config string) []string {
	return []string{"--enable-log-rotation", "--log-outputs=a,stderr", "--log-rotation-config-json=" + config}
}

func TestLogSink_RotatesTheFileAndKeepsAsManyAsAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "troupe.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l := defaultLogOptions()
	l.outputs, l.rotate, l.rotation = path, true, `{"maxsize": 1, "maxbackups": 1}`
	if err := l.validate(); err != nil {
		t.Fatal(err)
	}
	sink, err := newLogSink(&l)
	if err != nil {
		t.Fatal(err)
	}
	log := newLogger(sink, newLogLevel("info"))
	for i := range 300 {
		log.Info().Int("line", i).Str("long", strings.Repeat("x", 8<<10)).Msg("a line")
	}
	sink.close()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 2 || len(entries) > 3 { // the surplus goes in the background
		t.Errorf("%d files after 2.4 MiB with 1 MB each and one old one kept: %v", len(entries), entries)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"line":299`) {
		t.Errorf("the newest line is not in the file: %v", err)
	}
}

func TestLogSink_FileThatCannotBeOpenedIsRefused(t *testing.T) {
	dir := t.TempDir()
	noDirectory := filepath.Join(dir, "file")
	if err := os.WriteFile(noDirectory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := defaultLogOptions()
	for _, c := range []struct {
		path   string
		rotate bool
	}{{filepath.Join(dir, "missing", "log"), false}, {filepath.Join(noDirectory, "log"), true}} {
		l.outputs, l.rotate = c.path, c.rotate
		if _, err := newLogSink(&l); err == nil || !strings.Contains(err.Error(), "open sink") {
			t.Errorf("%s, rotation %t: %v", c.path, c.rotate, err)
		}
	}
}

// Rotation makes the directory, at the start as later.
func TestLogSink_RotationMakesTheDirectory(t *testing.T) {
	l := defaultLogOptions()
	l.outputs, l.rotate = filepath.Join(t.TempDir(), "made", "log"), true
	sink, err := newLogSink(&l)
	if err != nil {
		t.Fatal(err)
	}
	sink.close()
	if _, err := os.Stat(l.outputs); err != nil {
		t.Error(err)
	}
}

// brokenWriter is an output on a full disk.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

// healingWriter is an output on a disk that has space again after some lines.
type healingWriter struct {
	lockedBuffer
	failures int
}

func (w *healingWriter) Write(p []byte) (int, error) {
	if w.failures > 0 {
		w.failures--
		return 0, os.ErrClosed
	}
	return w.lockedBuffer.Write(p)
}

func TestLogSink_LinesLostToAFullDiskAreCountedAndTold(t *testing.T) {
	out := &healingWriter{failures: 3}
	sink := newSinkTo("json", out)
	log := newLogger(sink, newLogLevel("info"))
	for i := range 10 {
		log.Info().Int("n", i).Msg("line")
	}
	sink.close()
	if text := out.String(); sink.Dropped() != 3 || !strings.Contains(text, `"dropped":3`) ||
		strings.Count(text, `"msg":"line"`) != 7 {
		t.Errorf("%d lines counted as lost, the output is\n%s", sink.Dropped(), text)
	}
}

func TestLogSink_AnOutputThatFailsOrSticksCostsTheOthersNothing(t *testing.T) {
	stuck := &stuckWriter{release: make(chan struct{})}
	defer close(stuck.release)
	var good lockedBuffer
	sink := newSinkTo("json", brokenWriter{}, stuck, &good)
	log := newLogger(sink, newLogLevel("info"))
	for i := range 100 {
		log.Info().Int("n", i).Msg("line")
	}
	sink.close()
	if n := strings.Count(good.String(), "\n"); n != 100 {
		t.Errorf("%d of 100 lines beside outputs that fail", n)
	}
}

func TestLogSink_ConsoleFormIsEtcds(t *testing.T) {
	var out lockedBuffer
	sink := newSinkTo("console", &out)
	log := newLogger(sink, newLogLevel("info"))
	log.Warn().Str("fact", `a "quoted" one`).Int("n", 7).Msg("a\ttab")
	log.Info().Msg("plain")
	sink.close()
	lines := strings.Split(out.String(), "\n")
	fields := strings.Split(lines[0], "\t")
	if len(lines) != 3 || len(fields) != 6 || fields[1] != "warn" || !strings.Contains(fields[2], "logoptions_test.go:") ||
		fields[3] != "a" || fields[5] != `{"fact":"a \"quoted\" one","n":7}` {
		t.Errorf("lines %q", lines)
	}
	if fields := strings.Split(lines[1], "\t"); len(fields) != 4 || fields[3] != "plain" {
		t.Errorf("a line without facts is %q", lines[1])
	}
	for _, odd := range []string{"", "\n", "{}", "no json", `{"level":"info"}`, `{"level":1,"ts":"x"}`} {
		if got := string(consoleLine([]byte(odd))); got != odd {
			t.Errorf("%q became %q", odd, got)
		}
	}
}

func TestJournal_EntriesHaveThePriorityOfTheLine(t *testing.T) {
	var got []journal.Priority
	w := journalWriter{send: func(_ string, p journal.Priority, _ map[string]string) error {
		got = append(got, p)
		return nil
	}}
	for _, level := range []string{"debug", "info", "warn", "error", "fatal", "odd"} {
		if _, err := fmt.Fprintf(w, `{"level":%q,"msg":"m"}`, level); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprint([]journal.Priority{journal.PriDebug, journal.PriInfo, journal.PriWarning, journal.PriErr,
		journal.PriCrit, journal.PriInfo})
	if fmt.Sprint(got) != want {
		t.Errorf("priorities %v, want %v", got, want)
	}
	if !journal.Enabled() {
		if _, err := openJournal(); err == nil || !strings.Contains(err.Error(), "can't find journal") {
			t.Errorf("a machine without a journal: %v", err)
		}
	}
}
