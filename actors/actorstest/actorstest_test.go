package actorstest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
)

func TestManualClock_FiresInOrder(t *testing.T) {
	c := actorstest.NewManualClock()
	began := c.Now()
	var fired []string
	arm := func(name string, d time.Duration) func() bool {
		return c.AfterFunc(d, func() { fired = append(fired, fmt.Sprint(name, c.Now().Sub(began))) })
	}
	arm("b", 2*time.Second)
	arm("a", time.Second)
	arm("c", 2*time.Second)
	cancelled := arm("x", time.Second)
	c.AfterFunc(time.Second, func() { arm("nested", time.Second) })
	if !cancelled() || cancelled() {
		t.Error("stop does not tell whether it stopped something")
	}
	c.Advance(time.Second - 1)
	if len(fired) != 0 {
		t.Errorf("fired too early: %v", fired)
	}
	if next, ok := c.Next(); !ok || next != began.Add(time.Second) {
		t.Errorf("the next timer is said to be due at %v", next)
	}
	c.Advance(10 * time.Second)
	if got := strings.Join(fired, " "); got != "a1s b2s c2s nested2s" {
		t.Errorf("fired %q", got)
	}
	if c.Now().Sub(began) != 11*time.Second-1 {
		t.Errorf("the clock stands at %v", c.Now().Sub(began))
	}
	late := arm("d", -time.Hour)
	c.Advance(0)
	if late() || fired[len(fired)-1] != "d10.999999999s" {
		t.Errorf("a timer due in the past: %v", fired)
	}
}

func TestStepper_FindsActorsThatNeverRest(t *testing.T) {
	s := actorstest.NewStepper(1)
	var again func()
	again = func() { s.Schedule(again) }
	s.Schedule(again)
	defer func() {
		if recover() == nil {
			t.Error("Run went on for ever, or thought it was done")
		}
		if s.Steps() != 100 {
			t.Errorf("%d steps", s.Steps())
		}
	}()
	s.Run(100)
}

func TestProbe_Records(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	p := actorstest.NewProbe[string](t, sys, "probe")
	go func() {
		for i := range 100 {
			_ = p.Ref().Tell(actors.Normal, fmt.Sprint(i))
		}
	}()
	for i, m := range p.Wait(100) {
		if m != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m)
		}
	}
}

func TestProbe_UnderAStepper(t *testing.T) {
	s := actorstest.NewStepper(1)
	sys := actors.NewSystem(actors.Config{Name: "t", Dispatcher: s})
	p := actorstest.NewProbe[int](t, sys, "probe")
	_ = p.Ref().Tell(actors.Normal, 7)
	s.Run(10)
	if got := p.Messages(); len(got) != 1 || got[0] != 7 {
		t.Errorf("recorded %v", got)
	}
}

func TestMember_CrashesAlone(t *testing.T) {
	s := actorstest.NewStepper(1)
	machines := []*actorstest.Member{actorstest.NewMember(s), actorstest.NewMember(s)}
	counts := make([]int, len(machines))
	var refs []actors.Ref[int]
	for i, m := range machines {
		ref, err := actors.Spawn(actors.NewSystem(actors.Config{Name: fmt.Sprint(i), Dispatcher: m}), actors.Spec[int]{
			Name: "counter", Policy: actors.Reject[int](actors.Bound{Messages: 10, Bytes: 1 << 20}),
			Behavior: func() actors.Behavior[int] { return counting{&counts[i]} },
		})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	tellBoth := func() {
		for _, r := range refs {
			if err := r.Tell(actors.Normal, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	tellBoth()
	s.Run(100)
	tellBoth() // scheduled before the crash, but not run
	machines[0].Crash()
	s.Run(100)
	tellBoth()
	s.Run(100)
	if counts[0] != 1 || counts[1] != 3 {
		t.Errorf("the crashed machine took %d turns, the other one %d; want 1 and 3", counts[0], counts[1])
	}
}

type counting struct{ n *int }

func (counting) Start(actors.Self[int]) error { return nil }

func (c counting) Handle(_ actors.Self[int], batch []int) { *c.n += len(batch) }

func (counting) Stop() {}
