package raftactor

import (
	"fmt"
	"os"

	"github.com/rs/zerolog"
)

// raftLogger gives the raft library's lines to our log. Its Info is about each vote and each message that is ignored,
// so it becomes Debug here; what an operator needs is said by noteLeader.
type raftLogger struct{ log zerolog.Logger }

// Debug is part of raft.Logger, as are all the others.
func (l raftLogger) Debug(v ...any)                 { l.log.Debug().Msg(fmt.Sprint(v...)) }
func (l raftLogger) Debugf(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l raftLogger) Info(v ...any)                  { l.log.Debug().Msg(fmt.Sprint(v...)) }
func (l raftLogger) Infof(format string, v ...any)  { l.log.Debug().Msgf(format, v...) }
func (l raftLogger) Warning(v ...any)               { l.log.Warn().Msg(fmt.Sprint(v...)) }
func (l raftLogger) Warningf(format string, v ...any) {
	l.log.Warn().Msgf(format, v...)
}
func (l raftLogger) Error(v ...any)                 { l.log.Error().Msg(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any) { l.log.Error().Msgf(format, v...) }

// Panic says that raft's state is broken. It must not return.
func (l raftLogger) Panic(v ...any) { panic("raft: " + fmt.Sprint(v...)) }

// Panicf is Panic with a format.
func (l raftLogger) Panicf(format string, v ...any) { panic("raft: " + fmt.Sprintf(format, v...)) }

// Fatal ends the process; the library does not use it today.
func (l raftLogger) Fatal(v ...any) {
	l.log.Error().Msg(fmt.Sprint(v...))
	os.Exit(1)
}

// Fatalf is Fatal with a format.
func (l raftLogger) Fatalf(format string, v ...any) { l.Fatal(fmt.Sprintf(format, v...)) }
