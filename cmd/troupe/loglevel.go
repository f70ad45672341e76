package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// logLevel is the level of the log, which may change while the process runs. A logger asks it for each line, by way of
// the library's sampling, before anything of the line is made.
type logLevel struct{ least atomic.Int32 }

// newLogLevel begins with a level that has been checked.
func newLogLevel(name string) *logLevel {
	l := &logLevel{}
	if l.SetLevel(plainLevel(name)) != nil {
		l.least.Store(int32(zerolog.InfoLevel))
	}
	return l
}

// Sample is part of zerolog.Sampler.
func (l *logLevel) Sample(level zerolog.Level) bool { return int32(level) >= l.least.Load() }

// Level is part of gateway.LogLevel.
func (l *logLevel) Level() string { return zerolog.Level(l.least.Load()).String() }

// SetLevel is part of gateway.LogLevel.
func (l *logLevel) SetLevel(name string) error {
	if !slices.Contains(logLevels, name) {
		return fmt.Errorf("%q is no level of the log, which are %s", name, strings.Join(logLevels, ", "))
	}
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		return err
	}
	l.least.Store(int32(level))
	return nil
}
