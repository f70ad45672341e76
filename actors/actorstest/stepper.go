package actorstest

import (
	"math/rand/v2"
	"sync"
)

// Stepper is a dispatcher that runs one turn of one actor per Step, on the caller's goroutine, chosen by a seed. The
// same seed gives the same interleaving as long as the actors themselves are deterministic: no map order, no wall
// clock, no goroutines.
type Stepper struct {
	mu      sync.Mutex
	ready   []func()
	random  *rand.Rand
	steps   uint64
	running bool
}

// NewStepper makes a stepper for one run.
func NewStepper(seed uint64) *Stepper {
	return &Stepper{random: rand.New(rand.NewPCG(seed, 0x7472_6f75_7065))}
}

// Throughput makes every actor give way after each turn.
func (s *Stepper) Throughput() int { return 1 }

// Schedule adds a turn to choose from.
func (s *Stepper) Schedule(turn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, turn)
}

// Step runs one turn and reports whether there was one. A turn may be one that finds nothing to do. Not for use in a
// turn.
func (s *Stepper) Step() bool {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		panic("actorstest: Step called in a turn: an actor waits for an actor")
	}
	n := len(s.ready)
	if n == 0 {
		s.mu.Unlock()
		return false
	}
	i := s.random.IntN(n)
	turn := s.ready[i]
	s.ready = append(s.ready[:i], s.ready[i+1:]...)
	s.ready[:n][n-1] = nil
	s.steps++
	s.running = true
	s.mu.Unlock()
	defer s.rest()
	turn()
	return true
}

func (s *Stepper) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
}

// Run steps until nothing is left to do, and gives the number of steps. It panics after max steps: actors that never
// come to rest are a bug.
func (s *Stepper) Run(max int) int {
	for n := range max {
		if !s.Step() {
			return n
		}
	}
	panic("actorstest: the actors do not come to rest")
}

// Steps is the number of steps taken so far.
func (s *Stepper) Steps() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}
