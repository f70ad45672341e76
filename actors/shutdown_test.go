package actors_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"troupe/actors"
)

func TestStopInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		broken := errors.New("no disk")
		var order []string
		phase := func(name string, timeout time.Duration, stop func(ctx context.Context) error) actors.Phase {
			return actors.Phase{
				Name: name, Timeout: timeout, Why: "because of " + name,
				Stop: func(ctx context.Context) error {
					order = append(order, name)
					return stop(ctx)
				},
			}
		}
		fine := func(context.Context) error { return nil }
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		began := time.Now()
		err := actors.StopInOrder(context.Background(), []actors.Phase{
			phase("gateway", time.Second, fine),
			phase("raft", 2*time.Second, hang),
			phase("wal", time.Second, func(context.Context) error { return broken }),
			phase("store", 0, fine),
		}, zerolog.New(&log))
		if got := strings.Join(order, " "); got != "gateway raft wal store" {
			t.Errorf("the phases ran as %q", got)
		}
		if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, want := range []string{"raft did not stop within 2s", "because of wal"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, log.String())
			}
		}
		if strings.Contains(log.String(), "because of gateway") {
			t.Errorf("the log explains a phase that went well: %s", log.String())
		}
	})
}

func TestStopInOrder_StopsActors(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	var order []string
	var phases []actors.Phase
	for _, name := range []string{"apply", "store"} {
		ref := mustSpawn(t, sys, actors.Spec[*note]{
			Name: name, Policy: actors.Reject[*note](bound(5)), Pinned: true,
			Behavior: func() actors.Behavior[*note] {
				return &script{stop: func() { order = append(order, name) }}
			},
		})
		phases = append(phases, actors.Phase{Name: name, Timeout: time.Minute, Stop: ref.Stop})
	}
	if err := actors.StopInOrder(soon(t), phases, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if strings.Join(order, " ") != "apply store" {
		t.Errorf("stopped as %q", order)
	}
}

func TestMust(t *testing.T) {
	actors.Must(true, "fine")
	defer func() {
		if text, _ := recover().(string); text != "invariant broken: 7 of 9" {
			t.Errorf("Must panicked with %q", text)
		}
	}()
	actors.Must(false, "%d of %d", 7, 9)
}
