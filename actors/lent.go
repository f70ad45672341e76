package actors

import (
	"context"
	"runtime/pprof"
)

// lent lets the turns of an actor run where somebody is waiting for what they make: one goroutine is woken then instead
// of two, one after the other. Nobody waits: a goroutine is started for the turn.
type lent struct {
	offer func(turn func()) (taken bool)
}

// Schedule offers the turn, once.
func (l lent) Schedule(turn func()) {
	if !l.offer(turn) {
		go turn()
	}
}

// Throughput is how many turns run before the actor is scheduled anew, which offers the next one again.
func (l lent) Throughput() int { return turnsPerRun }

// RunLent runs a turn that Spec.Lend has taken; the goroutine has no profile labels afterwards. What a turn does not
// recover from ends the process here too, whatever the caller would recover from.
func RunLent(turn func()) {
	whole := false
	defer func() {
		if whole {
			return
		}
		if reason := recover(); reason != nil { // nil: runtime.Goexit
			go panic(reason) // the actor's log line has the stack
			select {}
		}
	}()
	turn()
	whole = true
	pprof.SetGoroutineLabels(context.Background())
}
