package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// note is the message of these tests. It counts its answers, so that a request answered twice or never is found
// whatever the Reply does.
type note struct {
	from, id int
	size     int
	key      string
	count    int // notes merged into this one
	do       func(self actors.Self[*note])
	reply    actors.Reply[int]
	answers  atomic.Int32
	failure  atomic.Pointer[error]
}

func (n *note) Size() int { return n.size }

func (n *note) Abort(err error) { n.reply.Fail(err) }

// asked makes a note that counts its answers.
func asked(from, id int) *note {
	n := &note{from: from, id: id, size: 10}
	n.reply = actors.ReplyTo(func(_ int, err error) {
		n.answers.Add(1)
		if err != nil {
			n.failure.Store(&err)
		}
	})
	return n
}

// failed is the error the note was answered with.
func (n *note) failed() error {
	if p := n.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// script is a behaviour made of functions; all may be nil. By default it answers every note.
type script struct {
	start  func(self actors.Self[*note]) error
	handle func(self actors.Self[*note], batch []*note)
	stop   func()
}

func (s *script) Start(self actors.Self[*note]) error {
	if s.start == nil {
		return nil
	}
	return s.start(self)
}

func (s *script) Handle(self actors.Self[*note], batch []*note) {
	if s.handle != nil {
		s.handle(self, batch)
		return
	}
	for _, n := range batch {
		if n.do != nil {
			n.do(self)
		}
		n.reply.Send(n.id)
	}
}

func (s *script) Stop() {
	if s.stop != nil {
		s.stop()
	}
}

// bound is a bound in messages only.
func bound(messages int) actors.Bound { return actors.Bound{Messages: messages, Bytes: 1 << 40} }

// stage is a system under a stepper: nothing runs until the test steps, so mailboxes can be filled at leisure.
type stage struct {
	t     testing.TB
	steps *actorstest.Stepper
	clock *actorstest.ManualClock
	sys   *actors.System
	fatal []string
}

func newStage(t testing.TB, seed uint64) *stage {
	s := &stage{t: t, steps: actorstest.NewStepper(seed), clock: actorstest.NewManualClock()}
	s.sys = actors.NewSystem(actors.Config{
		Name: "stage", Dispatcher: s.steps, Clock: s.clock,
		Fatal: func(actor string, reason any, stack []byte) {
			s.fatal = append(s.fatal, fmt.Sprintf("%s: %v\n%s", actor, reason, stack))
		},
	})
	return s
}

// run steps until the actors rest.
func (s *stage) run() { s.steps.Run(1_000_000) }

// spawn starts an actor and lets it come to rest.
func (s *stage) spawn(spec actors.Spec[*note]) actors.Ref[*note] {
	s.t.Helper()
	ref := mustSpawn(s.t, s.sys, spec)
	s.run()
	return ref
}

func mustSpawn(t testing.TB, sys *actors.System, spec actors.Spec[*note]) actors.Ref[*note] {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "actor"
	}
	if spec.Behavior == nil {
		spec.Behavior = func() actors.Behavior[*note] { return &script{} }
	}
	ref, err := actors.Spawn(sys, spec)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// tell sends and expects an outcome.
func tell(t testing.TB, ref actors.Ref[*note], lane actors.Lane, n *note, want error) {
	t.Helper()
	if err := ref.Tell(lane, n); !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Fatalf("note %d: Tell gave %v, want %v", n.id, err, want)
	}
}

// recorder makes a behaviour that records the ids of each turn as text: "1 2|3" is two turns.
type recorder struct {
	mu   sync.Mutex
	text string
}

func (r *recorder) behavior() actors.Behavior[*note] {
	return &script{handle: func(_ actors.Self[*note], batch []*note) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.text != "" {
			r.text += "|"
		}
		for i, n := range batch {
			if i > 0 {
				r.text += " "
			}
			r.text += fmt.Sprint(n.id)
			if n.count > 0 {
				r.text += fmt.Sprintf("+%d", n.count)
			}
			n.reply.Send(n.id)
		}
	}}
}

func (r *recorder) want(t testing.TB, text string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text != text {
		t.Fatalf("turns were %q, want %q", r.text, text)
	}
	r.text = ""
}

// soon is a context that fails a hanging test.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// statsOf finds an actor in the snapshot.
func statsOf(t testing.TB, sys *actors.System, name string) actors.Stats {
	t.Helper()
	for _, s := range sys.Snapshot() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no actor %s in the snapshot", name)
	return actors.Stats{}
}

// merged is a coalescing policy by key; the fresh note counts the ones merged into it.
func merged(b actors.Bound) actors.Policy[*note] {
	return actors.Coalesce(b,
		func(n *note) (string, bool) { return n.key, n.key != "" },
		func(waiting, fresh *note) *note {
			fresh.count = waiting.count + 1
			return fresh
		})
}

// resynced is a resync policy; the marker has id -1 and counts what was lost.
func resynced(b actors.Bound) actors.Policy[*note] {
	return actors.Resync(b,
		func(*note) *note { return &note{id: -1, count: 1} },
		func(marker, _ *note) *note {
			marker.count++
			return marker
		})
}
