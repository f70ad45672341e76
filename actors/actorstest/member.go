package actorstest

import "troupe/actors"

// Member is one machine's share of a Stepper: the dispatcher of one System in a simulation of several. Its turns
// interleave with those of the others by the common seed, and it can be made to crash.
type Member struct {
	steps   *Stepper
	crashed bool
}

var _ actors.Stepping = (*Member)(nil)

// NewMember makes a running machine.
func NewMember(steps *Stepper) *Member { return &Member{steps: steps} }

// Schedule adds a turn to choose from; it will do nothing if the machine has crashed by then.
func (m *Member) Schedule(turn func()) {
	if m.crashed {
		return
	}
	m.steps.Schedule(func() {
		if !m.crashed {
			turn()
		}
	})
}

// Throughput makes every actor give way after each turn.
func (m *Member) Throughput() int { return 1 }

// Step runs one turn of any machine.
func (m *Member) Step() bool { return m.steps.Step() }

// Crash stops the machine between two turns: no actor of its System runs again, nothing is answered and nothing is
// closed. The System is then left to the collector; its successor is a new System on a new Member.
func (m *Member) Crash() { m.crashed = true }
