package actorstest

import (
	"context"
	"sync"
	"testing"
	"time"

	"troupe/actors"
)

// probeWaitMax is how long Wait gives the actors before it fails the test.
const probeWaitMax = 20 * time.Second

// Probe is an actor that records what it is told.
type Probe[M any] struct {
	t     testing.TB
	ref   actors.Ref[M]
	mu    sync.Mutex
	got   []M
	fresh chan struct{} // closed and replaced when something arrives
}

// NewProbe spawns a probe with room for a million messages. It is stopped at the end of the test.
func NewProbe[M any](t testing.TB, sys *actors.System, name string) *Probe[M] {
	t.Helper()
	p := &Probe[M]{t: t, fresh: make(chan struct{})}
	room := actors.Bound{Messages: 1_000_000, Bytes: 1 << 40}
	ref, err := actors.Spawn(sys, actors.Spec[M]{
		Name:     name,
		Kind:     "probe",
		Policy:   actors.Reject[M](room),
		Behavior: func() actors.Behavior[M] { return recording[M]{p} },
	})
	if err != nil {
		t.Fatalf("spawn probe %s: %v", name, err)
	}
	p.ref = ref
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), probeWaitMax)
		defer cancel()
		if err := ref.Stop(ctx); err != nil {
			t.Errorf("stop probe %s: %v", name, err)
		}
	})
	return p
}

// Ref is what the actors under test are given.
func (p *Probe[M]) Ref() actors.Ref[M] { return p.ref }

// Messages gives what has been recorded so far.
func (p *Probe[M]) Messages() []M {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]M(nil), p.got...)
}

// Wait waits until n messages are recorded and gives all of them; it fails the test if they do not come. Under a
// Stepper nothing happens while one waits: step, then use Messages.
func (p *Probe[M]) Wait(n int) []M {
	p.t.Helper()
	late := time.After(probeWaitMax)
	for {
		p.mu.Lock()
		count, fresh := len(p.got), p.fresh
		p.mu.Unlock()
		if count >= n {
			return p.Messages()
		}
		select {
		case <-fresh:
		case <-late:
			p.t.Fatalf("probe %s has %d messages, waits for %d", p.ref.Name(), count, n)
		}
	}
}

// recording is the probe's behaviour.
type recording[M any] struct{ p *Probe[M] }

func (recording[M]) Start(actors.Self[M]) error { return nil }

func (r recording[M]) Handle(_ actors.Self[M], batch []M) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.got = append(r.p.got, batch...)
	close(r.p.fresh)
	r.p.fresh = make(chan struct{})
}

func (recording[M]) Stop() {}
