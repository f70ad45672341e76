package actors_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"troupe/actors"
)

// explode panics where a stack must show it.
func explode(actors.Self[*note]) { panic("boom") }

func exploding(id int) *note {
	n := asked(0, id)
	n.do = explode
	return n
}

func TestPanic_StopActor(t *testing.T) {
	s := newStage(t, 1)
	var ended []error
	stops := 0
	ref := s.spawn(actors.Spec[*note]{
		Policy: actors.Batch[*note](bound(10), bound(3)), OnPanic: actors.StopActor,
		Behavior: func() actors.Behavior[*note] { return &script{stop: func() { stops++ }} },
		Stopped:  func(err error) { ended = append(ended, err) },
	})
	notes := []*note{asked(0, 0), exploding(1), asked(0, 2), asked(0, 3)}
	for _, n := range notes {
		tell(t, ref, actors.Normal, n, nil)
	}
	s.run()
	for i, n := range notes {
		if n.answers.Load() != 1 || (n.failed() == nil) != (i == 0) {
			t.Errorf("note %d: %d answers, error %v", i, n.answers.Load(), n.failed())
		}
		if i > 0 && !errors.Is(n.failed(), actors.ErrStopped) {
			t.Errorf("note %d failed with %v", i, n.failed())
		}
	}
	if len(ended) != 1 || !errors.Is(ended[0], actors.ErrPanicked) || !strings.Contains(ended[0].Error(), "boom") {
		t.Errorf("the end was told as %v", ended)
	}
	if stops != 1 {
		t.Errorf("Stop ran %d times", stops)
	}
	if len(s.fatal) != 0 {
		t.Error("the Fatal hook was called for an actor that may stop")
	}
	tell(t, ref, actors.Normal, &note{}, actors.ErrStopped)
}

func TestPanic_RestartGetsAFreshBehaviour(t *testing.T) {
	s := newStage(t, 1)
	made, stopped := 0, 0
	var generations []int
	ref := s.spawn(actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(10)), OnPanic: actors.RestartActor,
		Behavior: func() actors.Behavior[*note] {
			made++
			generation := made
			return &script{
				handle: func(self actors.Self[*note], batch []*note) {
					generations = append(generations, generation)
					(&script{}).Handle(self, batch)
				},
				stop: func() { stopped++ },
			}
		},
	})
	lost := asked(0, 2)
	tell(t, ref, actors.Normal, exploding(1), nil)
	tell(t, ref, actors.Normal, lost, nil)
	s.run()
	if !errors.Is(lost.failed(), actors.ErrStopped) {
		t.Errorf("a message meant for the old state got %v", lost.failed())
	}
	kept := asked(0, 3)
	tell(t, ref, actors.Normal, kept, nil)
	s.run()
	if kept.answers.Load() != 1 || kept.failed() != nil {
		t.Errorf("after the restart: %d answers, %v", kept.answers.Load(), kept.failed())
	}
	if made != 2 || stopped != 1 || len(generations) != 2 || generations[1] != 2 {
		t.Errorf("made %d, stopped %d, turns by %v", made, stopped, generations)
	}
	if st := statsOf(t, s.sys, "actor"); st.Restarts != 1 || st.Lanes[0].Aborted != 1 {
		t.Errorf("restarts %d, aborted %d; want 1 and 1", st.Restarts, st.Lanes[0].Aborted)
	}
}

// TestPanic_WhoeverRetriesFindsTheNextBehaviour tells from the answer of a lost request: it must not be lost again.
func TestPanic_WhoeverRetriesFindsTheNextBehaviour(t *testing.T) {
	for seed := range uint64(50) {
		s := newStage(t, seed)
		ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(10)), OnPanic: actors.RestartActor})
		again := asked(0, 2)
		first := exploding(1)
		first.reply = actors.ReplyTo(func(int, error) { tell(t, ref, actors.Normal, again, nil) })
		tell(t, ref, actors.Normal, first, nil)
		s.run()
		if again.answers.Load() != 1 || again.failed() != nil {
			t.Fatalf("seed %d: the second try got %v", seed, again.failed())
		}
	}
}

// TestPanic_AStoppedActorRefusesTheRetry: an actor that will not come back must say so from the first answer on.
func TestPanic_AStoppedActorRefusesTheRetry(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(10)), OnPanic: actors.StopActor})
	first := exploding(1)
	first.reply = actors.ReplyTo(func(int, error) { tell(t, ref, actors.Normal, asked(0, 2), actors.ErrStopped) })
	tell(t, ref, actors.Normal, first, nil)
	s.run()
}

func TestPanic_RestartsAreBounded(t *testing.T) {
	s := newStage(t, 1)
	var ended error
	ref := s.spawn(actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(10)), OnPanic: actors.RestartActor,
		Stopped: func(err error) { ended = err },
	})
	for range 2 { // the window passes in between
		for range actors.RestartsMax {
			tell(t, ref, actors.Normal, exploding(1), nil)
			s.run()
		}
		s.clock.Advance(actors.RestartWindow + 1)
	}
	for range actors.RestartsMax + 1 {
		tell(t, ref, actors.Normal, exploding(1), nil)
		s.run()
	}
	tell(t, ref, actors.Normal, &note{}, actors.ErrStopped)
	if !errors.Is(ended, actors.ErrPanicked) {
		t.Errorf("the end was told as %v", ended)
	}
}

func TestPanic_FailStopCallsTheHookWithTheStack(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Name: "raft", Policy: actors.Reject[*note](bound(10))})
	n := exploding(1)
	tell(t, ref, actors.Normal, n, nil)
	s.run()
	if len(s.fatal) != 1 || !strings.Contains(s.fatal[0], "raft: boom") || !strings.Contains(s.fatal[0], "explode") {
		t.Fatalf("the hook got %q", s.fatal)
	}
	if n.answers.Load() != 1 {
		t.Errorf("the request was answered %d times", n.answers.Load())
	}
	tell(t, ref, actors.Normal, &note{}, actors.ErrStopped)
}

// TestPanic_FailStopKillsTheProcess runs itself as another process, with each dispatcher.
func TestPanic_FailStopKillsTheProcess(t *testing.T) {
	const mark = "ACTORS_TEST_DIE"
	if how := os.Getenv(mark); how != "" {
		sys := actors.NewSystem(actors.Config{Name: "t", Log: zerolog.New(os.Stderr)})
		ref := mustSpawn(t, sys, actors.Spec[*note]{Policy: actors.Reject[*note](bound(1)), Pinned: how == "pinned"})
		tell(t, ref, actors.Normal, exploding(1), nil)
		select {} // the panic ends the process
	}
	for _, how := range []string{"goroutine", "pinned"} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
		cmd.Env = append(os.Environ(), mark+"="+how)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%s: the process ended with %v", how, err)
		}
		for _, want := range []string{"panic: boom", "actors_test.explode", "actor panicked; the process ends"} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("%s: the output lacks %q:\n%s", how, want, out)
			}
		}
	}
}

// TestPanic_GoexitDoesNotWedgeAnActor: a t.Fatal in a behaviour leaves the turn without a panic.
func TestPanic_GoexitDoesNotWedgeAnActor(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	for _, pinned := range []bool{false, true} {
		ref := mustSpawn(t, sys, actors.Spec[*note]{
			Policy: actors.Reject[*note](bound(10)), OnPanic: actors.RestartActor, Pinned: pinned,
		})
		leaving := &note{reply: actors.NewReply[int](), do: func(actors.Self[*note]) { runtime.Goexit() }}
		tell(t, ref, actors.Normal, leaving, nil)
		if _, err := leaving.reply.Wait(soon(t)); !errors.Is(err, actors.ErrStopped) {
			t.Errorf("pinned %v: the request got %v", pinned, err)
		}
		after := &note{id: 7, reply: actors.NewReply[int]()}
		tell(t, ref, actors.Normal, after, nil)
		if v, err := after.reply.Wait(soon(t)); v != 7 || err != nil {
			t.Errorf("pinned %v: the next request got %v, %v", pinned, v, err)
		}
		if err := ref.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStart_ErrorIsReturnedAndTheNameIsFree(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	broken := errors.New("no disk")
	for name, start := range map[string]func(actors.Self[*note]) error{
		"error": func(actors.Self[*note]) error { return broken },
		"panic": func(actors.Self[*note]) error { panic("no disk") },
	} {
		for _, onPanic := range []actors.OnPanic{actors.StopActor, actors.RestartActor} {
			for _, pinned := range []bool{false, true} {
				stops, ended := 0, 0
				_, err := actors.Spawn(sys, actors.Spec[*note]{
					Name: "a", Policy: actors.Reject[*note](bound(1)), OnPanic: onPanic, Pinned: pinned,
					Behavior: func() actors.Behavior[*note] { return &script{start: start, stop: func() { stops++ }} },
					Stopped:  func(error) { ended++ },
				})
				if !errors.Is(err, broken) && !errors.Is(err, actors.ErrPanicked) {
					t.Errorf("%s: Spawn gave %v", name, err)
				}
				if stops != 0 || ended != 1 {
					t.Errorf("%s: Stop ran %d times, the end was told %d times; want 0 and 1", name, stops, ended)
				}
			}
		}
	}
	if left := sys.Snapshot(); len(left) != 0 {
		t.Errorf("%d actors are left", len(left))
	}
	ref := mustSpawn(t, sys, actors.Spec[*note]{Name: "a", Policy: actors.Reject[*note](bound(1))})
	if err := ref.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
}

func TestStart_ErrorUnderTheStepper(t *testing.T) {
	s := newStage(t, 1)
	broken := errors.New("no disk")
	var ended error
	ref := mustSpawn(t, s.sys, actors.Spec[*note]{
		Policy:   actors.Reject[*note](bound(1)),
		Behavior: func() actors.Behavior[*note] { return &script{start: func(actors.Self[*note]) error { return broken }} },
		Stopped:  func(err error) { ended = err },
	})
	early := asked(0, 1)
	tell(t, ref, actors.Normal, early, nil)
	s.run()
	if !errors.Is(ended, broken) || !errors.Is(early.failed(), actors.ErrStopped) {
		t.Errorf("the end was told as %v, the early message got %v", ended, early.failed())
	}
}

func TestStart_ErrorOfARestartEndsTheActor(t *testing.T) {
	s := newStage(t, 1)
	broken := errors.New("no disk")
	starts := 0
	var ended error
	ref := s.spawn(actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(5)), OnPanic: actors.RestartActor,
		Behavior: func() actors.Behavior[*note] {
			return &script{start: func(actors.Self[*note]) error {
				if starts++; starts > 1 {
					return broken
				}
				return nil
			}}
		},
		Stopped: func(err error) { ended = err },
	})
	tell(t, ref, actors.Normal, exploding(1), nil)
	s.run()
	if !errors.Is(ended, broken) {
		t.Errorf("the end was told as %v", ended)
	}
	tell(t, ref, actors.Normal, &note{}, actors.ErrStopped)
}

func TestPanic_InStopDoesNotKeepAnActorAlive(t *testing.T) {
	s := newStage(t, 1)
	for _, onPanic := range []actors.OnPanic{actors.FailStop, actors.StopActor} {
		ref := s.spawn(actors.Spec[*note]{
			Policy: actors.Reject[*note](bound(5)), OnPanic: onPanic,
			Behavior: func() actors.Behavior[*note] { return &script{stop: func() { panic("boom") }} },
		})
		if err := ref.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.fatal) != 1 {
		t.Errorf("the Fatal hook was called %d times, want once", len(s.fatal))
	}
}

// TestPanic_ALogLineNamesNoMessage: what a message holds may be a secret.
func TestPanic_ALogLineNamesNoMessage(t *testing.T) {
	var log bytes.Buffer
	s := newStage(t, 1)
	s.sys = actors.NewSystem(actors.Config{Name: "t", Dispatcher: s.steps, Log: zerolog.New(&log)})
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(5)), OnPanic: actors.StopActor})
	secret := exploding(1)
	secret.key = "password"
	tell(t, ref, actors.Normal, secret, nil)
	s.run()
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "explode") {
		t.Errorf("the log lacks the reason or the stack: %s", log.String())
	}
	if strings.Contains(log.String(), "password") {
		t.Errorf("the log has the message: %s", log.String())
	}
}
