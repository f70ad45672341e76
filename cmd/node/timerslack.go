package node

import "github.com/rs/zerolog"

// tuneTimers lets the threads' sleeps be less exact, and says once what is in force.
func tuneTimers(log *zerolog.Logger) {
	slack, err := coarsenTimers()
	line := log.Info()
	if slack > 0 {
		line.Str("timer-slack", slack.String())
	}
	if err != nil {
		line.Str("not-coarsened", err.Error())
	}
	line.Msg("timer settings")
}
