package actors

import (
	"context"
	"runtime/pprof"
)

// offering is the dispatcher of an actor whose turns somebody may take who waits for what they make: one goroutine is
// woken then instead of two, one after the other. Nobody takes a turn: a goroutine is started for it.
type offering struct {
	take func(turn func()) (taken bool)
}

// Schedule offers the turn, once.
func (o offering) Schedule(turn func()) {
	if !o.take(turn) {
		go turn()
	}
}

// Throughput is small, so that whoever has taken a turn soon sees what it made. What is left then gets a goroutine.
func (o offering) Throughput() int { return turnsPerTaken }

// RunTurn runs a turn that Spec.TakeTurn has taken, once, on the calling goroutine, which has no profile labels
// afterwards. What a turn does not recover from ends the process here too, whatever the caller would recover from; a
// runtime.Goexit in it ends the caller.
func RunTurn(turn func()) {
	whole := false
	defer func() {
		if whole {
			return
		}
		if reason := recover(); reason != nil {
			go panic(reason) // the actor's log line has the stack
			select {}
		}
	}()
	turn()
	whole = true
	pprof.SetGoroutineLabels(context.Background())
}
