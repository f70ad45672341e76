package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"troupe/actors"
)

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}

func TestReply_AnsweredOnce(t *testing.T) {
	r := actors.NewReply[string]()
	if _, _, ok := r.Poll(); ok || !r.Valid() {
		t.Fatal("a fresh reply is answered or invalid")
	}
	r.Send("yes")
	for range 2 { // reading does not consume it
		if v, err := r.Wait(soon(t)); v != "yes" || err != nil {
			t.Errorf("Wait gave %q, %v", v, err)
		}
	}
	if v, err, ok := r.Poll(); v != "yes" || err != nil || !ok {
		t.Errorf("Poll gave %q, %v, %v", v, err, ok)
	}
	mustPanic(t, "a second answer", func() { r.Send("no") })
	mustPanic(t, "an error after an answer", func() { r.Fail(errors.New("no")) })
	mustPanic(t, "an abort after an answer", func() { r.Fail(actors.ErrStopped) })
	mustPanic(t, "a failure without an error", func() { actors.NewReply[int]().Fail(nil) })
}

func TestReply_Zero(t *testing.T) {
	var r actors.Reply[int]
	r.Send(1)
	r.Send(2)
	r.Fail(actors.ErrStopped)
	if r.Valid() {
		t.Error("the zero Reply is valid")
	}
	mustPanic(t, "waiting for nothing", func() { _, _ = r.Wait(soon(t)) })
	mustPanic(t, "polling nothing", func() { _, _, _ = r.Poll() })
}

func TestReply_WaitEndsWithItsContext(t *testing.T) {
	r := actors.NewReply[int]()
	cause := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := r.Wait(ctx); !errors.Is(err, cause) {
		t.Errorf("Wait gave %v", err)
	}
	r.Send(7) // nobody waits, and that is fine
	if v, err := r.Wait(ctx); v != 7 || err != nil {
		t.Errorf("the answer is there, but Wait gave %d, %v", v, err)
	}
}

func TestReply_ToAFunction(t *testing.T) {
	var got []string
	f := func(v int, err error) { got = append(got, fmt.Sprint(v, err)) }
	actors.ReplyTo(f).Send(1)
	failed := actors.ReplyTo(f)
	failed.Fail(actors.ErrFull)
	mustPanic(t, "a second answer", func() { failed.Send(2) })
	if len(got) != 2 || got[0] != "1 <nil>" || got[1] != "0 "+actors.ErrFull.Error() {
		t.Errorf("the function got %q", got)
	}
	mustPanic(t, "a nil function", func() { actors.ReplyTo[int](nil) })
}

func TestReply_Raced(t *testing.T) {
	for i := range 2000 {
		r := actors.NewReply[int]()
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() {
				if v, err := r.Wait(context.Background()); v != i || err != nil {
					t.Errorf("Wait gave %d, %v", v, err)
				}
			})
		}
		wait.Go(func() { r.Send(i) })
		wait.Wait()
	}
}

func TestReply_InASlotIsNoObjectOfItsOwn(t *testing.T) {
	ctx := context.Background()
	var slots [1000]actors.ReplySlot[*int]
	next := 0
	allocs := testing.AllocsPerRun(len(slots)-1, func() {
		r := slots[next].Reply()
		next++
		r.Send(nil)
		_, _ = r.Wait(ctx)
	})
	if allocs != 0 {
		t.Errorf("a reply in a slot allocates %v times", allocs)
	}
}
