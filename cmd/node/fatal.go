package node

import (
	"fmt"
	"os"

	"github.com/rs/zerolog"
)

// exitBrokenInvariant is the exit code after a broken invariant or a failed fsync; it is that of a Go panic.
const exitBrokenInvariant = 2

// exitWithStack ends the process the way a panic does, with the stack in
// the log's last line, so that every line stays JSON, and lets that line reach its reader. Nothing is
// recovered: after a broken invariant the memory is suspect, after a failed fsync the file is. The log and the file on
// disk are what the next start goes by.
func exitWithStack(log zerolog.Logger, beforeExit func()) func(string, any, []byte) {
	return func(actor string, reason any, stack []byte) {
		log.Error().Str("actor", actor).Str("reason", fmt.Sprint(reason)).Bytes("stack", stack).
			Msg("the process ends: a disk has failed or is full, or an invariant is broken; what was " +
				"acknowledged is in the log; start it again when the reason is gone")
		beforeExit()
		os.Exit(exitBrokenInvariant)
	}
}
