package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// A change of the level holds for every logger that was made before it, and an unknown level changes nothing.
func TestLogLevel_ChangesWhileTheProcessRuns(t *testing.T) {
	var out bytes.Buffer
	level := newLogLevel("warn")
	log := newLogger(&out, level)
	child := log.With().Str("room", "store").Logger()
	wrote := func() string {
		out.Reset()
		for _, l := range []zerolog.Logger{log, child} {
			l.Debug().Msg("d")
			l.Info().Msg("i")
			l.Warn().Msg("w")
			l.Error().Msg("e")
		}
		var said strings.Builder
		for line := range strings.Lines(out.String()) {
			said.WriteByte(line[strings.Index(line, `"msg":"`)+len(`"msg":"`)])
		}
		return said.String()
	}
	for _, c := range []struct{ set, want string }{
		{"", "wewe"}, {"debug", "diwediwe"}, {"error", "ee"}, {"info", "iweiwe"}, {"loud", "iweiwe"}, {"", "iweiwe"},
	} {
		err := level.SetLevel(c.set)
		if known := c.set != "" && c.set != "loud"; (err == nil) != known {
			t.Errorf("set %q: %v", c.set, err)
		}
		if got := wrote(); got != c.want {
			t.Errorf("after %q: %q was written, want %q", c.set, got, c.want)
		}
	}
	if level.Level() != "info" {
		t.Errorf("the level is called %q", level.Level())
	}
}
