package actors_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// ticking is a spec whose ticks show up in the recorder as "0+count".
func ticking(r *recorder, policy actors.Policy[*note]) actors.Spec[*note] {
	return actors.Spec[*note]{
		Policy: policy, Behavior: r.behavior,
		Tick: func(count int) *note { return &note{count: count} },
	}
}

func TestTick_OneMessageWithTheCount(t *testing.T) {
	batch := actors.Batch[*note](bound(5), bound(5))
	single := actors.Reject[*note](bound(1))
	for _, c := range []struct {
		name   string
		policy actors.Policy[*note]
		want   string
	}{
		{"single", single, "0+3|1"},
		{"batch", batch, "0+3 1"},
		{"lanes", actors.Lanes(single, single), "0+3|1"},
		{"both lanes batch", actors.Lanes(batch, batch), "0+3 1"},
		{"normal batch", actors.Lanes(single, batch), "0+3|1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, 1)
			var r recorder
			ref := s.spawn(ticking(&r, c.policy))
			tell(t, ref, actors.Normal, &note{id: 1}, nil) // fills the single ones: a tick needs no room
			for range 3 {
				ref.Tick()
			}
			s.run()
			r.want(t, c.want)
			ref.Tick()
			s.run()
			r.want(t, "0+1")
			ref.Retire()
			ref.Tick()
			s.run()
			r.want(t, "")
		})
	}
}

func TestTick_DoesNotOutliveItsBehaviour(t *testing.T) {
	s := newStage(t, 1)
	ticks := 0
	ref := s.spawn(actors.Spec[*note]{
		Policy:  actors.Lanes(actors.Batch[*note](bound(5), bound(5)), actors.Reject[*note](bound(5))),
		Tick:    func(count int) *note { return &note{count: count} },
		OnPanic: actors.RestartActor,
		Behavior: func() actors.Behavior[*note] {
			return &script{handle: func(self actors.Self[*note], batch []*note) {
				if batch[0].do != nil {
					self.Ref().Tick()
					batch[0].do(self)
				}
				ticks += batch[0].count
			}}
		},
	})
	tell(t, ref, actors.Control, exploding(1), nil)
	s.run()
	if ticks != 0 {
		t.Error("the new behaviour got a tick that was meant for the old one")
	}
}

func TestTick_WithoutAMessageForItIsABug(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(1))})
	defer func() {
		if recover() == nil {
			t.Error("the tick vanished without a word")
		}
	}()
	ref.Tick()
}

func TestEvery_ALateActorGetsOneTickWithTheCount(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	ref := s.spawn(ticking(&r, actors.Reject[*note](bound(1))))
	stop := s.sys.Every(100*time.Millisecond, ref.Tick)
	s.clock.Advance(350 * time.Millisecond) // the actor does not run meanwhile
	s.run()
	r.want(t, "0+3")
	s.clock.Advance(50 * time.Millisecond) // lateness does not add up: the next is due at 400 ms
	s.run()
	r.want(t, "0+1")
	stop()
	s.clock.Advance(time.Second)
	s.run()
	r.want(t, "")
	if _, armed := s.clock.Next(); armed {
		t.Error("a timer is left")
	}
}

// lateClock is a clock whose timers are noticed late, as on a busy machine.
type lateClock struct {
	*actorstest.ManualClock
	late time.Duration
}

func (c *lateClock) Now() time.Time { return c.ManualClock.Now().Add(c.late) }

func TestEvery_LatenessDoesNotAddUp(t *testing.T) {
	clock := &lateClock{ManualClock: actorstest.NewManualClock()}
	sys := actors.NewSystem(actors.Config{Name: "t", Clock: clock})
	began := clock.Now()
	calls := 0
	stop := sys.Every(100*time.Millisecond, func() { calls++ })
	defer stop()
	clock.late = 30 * time.Millisecond
	clock.Advance(100 * time.Millisecond)
	if next, _ := clock.Next(); calls != 1 || next.Sub(began) != 170*time.Millisecond {
		t.Errorf("after %d calls, the second is armed for %v, want 30 ms earlier than 200 ms", calls, next.Sub(began))
	}
	clock.late = 10 * time.Second // the process did not run at all
	clock.Advance(70 * time.Millisecond)
	if next, _ := clock.Next(); calls != 2 || next.Sub(began) != 270*time.Millisecond {
		t.Errorf("after %d calls, the third is armed for %v, want one interval later", calls, next.Sub(began))
	}
}

func TestEvery_OnTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := actors.NewSystem(actors.Config{Name: "t"})
		var calls atomic.Int32
		stop := sys.Every(time.Second, func() { calls.Add(1) })
		time.Sleep(5*time.Second + time.Millisecond) // virtual
		stop()
		time.Sleep(5 * time.Second)
		if n := calls.Load(); n != 5 {
			t.Errorf("%d calls in five seconds", n)
		}
	})
}

// armer is a spec whose notes arm a timer for note id+100.
func armer(r *recorder, stop *func(), policy actors.Policy[*note]) actors.Spec[*note] {
	return actors.Spec[*note]{
		Policy: policy, OnPanic: actors.RestartActor,
		Behavior: func() actors.Behavior[*note] {
			inner := r.behavior()
			return &script{handle: func(self actors.Self[*note], batch []*note) {
				for _, n := range batch {
					if n.do != nil {
						n.do(self)
					}
					if n.from == 1 {
						later := asked(0, n.id+100)
						*stop = self.After(time.Second, later)
					}
				}
				inner.Handle(self, batch)
			}}
		},
	}
}

func TestAfter_ArrivesOnControlEvenWhenFull(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	var stop func()
	room := actors.Reject[*note](bound(1))
	ref := s.spawn(armer(&r, &stop, actors.Lanes(room, room)))
	tell(t, ref, actors.Normal, &note{from: 1, id: 1}, nil)
	s.run()
	r.want(t, "1")
	s.clock.Advance(time.Second - 1)
	s.run()
	r.want(t, "")
	tell(t, ref, actors.Control, &note{id: 2}, nil)
	tell(t, ref, actors.Normal, &note{id: 3}, nil)
	s.clock.Advance(1)
	if d := ref.Depth(actors.Control); d != 2 {
		t.Errorf("%d messages on Control, want the timer's beyond the bound", d)
	}
	s.run()
	r.want(t, "2|101|3")
	stop() // too late, and harmless
}

func TestAfter_Disarmed(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	var stop func()
	ref := s.spawn(armer(&r, &stop, actors.Reject[*note](bound(10))))
	for i := range 3 {
		tell(t, ref, actors.Normal, &note{from: 1, id: i}, nil)
		s.steps.Step()
		if i != 1 {
			stop()
			stop()
		}
	}
	s.run()
	r.want(t, "0|1|2")
	s.clock.Advance(time.Minute)
	s.run()
	r.want(t, "101")
}

// TestAfter_EndsWithItsBehaviour: a timer of the old behaviour must not reach the new one, and its request is answered.
func TestAfter_EndsWithItsBehaviour(t *testing.T) {
	for name, end := range map[string]func(s *stage, ref actors.Ref[*note]){
		"restart": func(s *stage, ref actors.Ref[*note]) { tell(s.t, ref, actors.Normal, exploding(9), nil) },
		"stop":    func(_ *stage, ref actors.Ref[*note]) { ref.Retire() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, 1)
			var armed *note
			var old actors.Self[*note]
			ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(10)), OnPanic: actors.RestartActor})
			arm := asked(0, 1)
			arm.do = func(self actors.Self[*note]) {
				armed, old = asked(0, 2), self
				self.After(time.Second, armed)
			}
			tell(t, ref, actors.Normal, arm, nil)
			s.run()
			end(s, ref)
			s.run()
			if !errors.Is(armed.failed(), actors.ErrStopped) {
				t.Errorf("the armed message got %v", armed.failed())
			}
			late := asked(0, 3)
			old.After(time.Second, late)
			if !errors.Is(late.failed(), actors.ErrStopped) {
				t.Errorf("a timer armed through the old Self got %v", late.failed())
			}
			if _, left := s.clock.Next(); left {
				t.Error("a timer is left")
			}
			s.clock.Advance(time.Minute)
			s.run()
			if armed.answers.Load() != 1 || late.answers.Load() != 1 {
				t.Error("a request was answered twice")
			}
		})
	}
}

func TestSelf_KnowsItsActor(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Name: "a/b", Policy: actors.Reject[*note](bound(10))})
	var name string
	var now time.Time
	n := asked(0, 1)
	n.do = func(self actors.Self[*note]) {
		name, now = self.Name(), self.Now()
		if self.Ref() != ref {
			t.Error("Self gives another Ref")
		}
	}
	s.clock.Advance(time.Hour)
	tell(t, ref, actors.Normal, n, nil)
	s.run()
	if name != "a/b" || !now.Equal(s.clock.Now()) || s.sys.Clock() != actors.Clock(s.clock) {
		t.Errorf("name %q, time %v", name, now)
	}
}
