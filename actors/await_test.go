package actors_test

import (
	"context"
	"errors"
	"testing"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// question is a request that its actor answers later, in another turn, or never.
type question struct {
	reply actors.Reply[int]
	never bool
}

// Abort is part of actors.Aborter.
func (a question) Abort(err error) { a.reply.Fail(err) }

type answering struct{ waiting []question }

func (*answering) Start(actors.Self[question]) error { return nil }

func (a *answering) Handle(self actors.Self[question], batch []question) {
	for _, m := range a.waiting {
		m.reply.Send(7)
	}
	a.waiting = nil
	if m := batch[0]; !m.never {
		a.waiting = append(a.waiting, m)
		_ = self.Ref().Tell(actors.Normal, question{never: true})
	}
}

func (*answering) Stop() {}

// Await steps a seeded system until the answer is there, and says so when nobody is left to give it.
func TestAwait_StepsASeededSystem(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t", Dispatcher: actorstest.NewStepper(1)})
	ref, err := actors.Spawn(sys, actors.Spec[question]{
		Name: "answering", Policy: actors.Reject[question](actors.Bound{Messages: 10, Bytes: 1000}),
		Behavior: func() actors.Behavior[question] { return &answering{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		never bool
		want  int
		err   error
	}{{want: 7}, {never: true, err: actors.ErrStopped}} {
		m := question{reply: actors.NewReply[int](), never: c.never}
		if err := ref.Tell(actors.Normal, m); err != nil {
			t.Fatal(err)
		}
		if got, err := actors.Await(context.Background(), ref, m.reply); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("never %v: got %d, %v", c.never, got, err)
		}
	}
}
