package actors_test

import (
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"troupe/actors"
)

func TestSnapshot_ShowsWhoIsStuckWithWhat(t *testing.T) {
	clock := newStage(t, 1).clock
	sys := actors.NewSystem(actors.Config{Name: "t", Clock: clock})
	held, release := make(chan struct{}), make(chan struct{})
	ref := mustSpawn(t, sys, actors.Spec[*note]{
		Name: "b", Kind: "kind", Policy: actors.Reject[*note](bound(10)), OnPanic: actors.StopActor,
	})
	other := mustSpawn(t, sys, actors.Spec[*note]{Name: "a", Policy: actors.Drop[*note](bound(2))})
	blocker := asked(0, 1)
	blocker.do = func(actors.Self[*note]) {
		close(held)
		<-release
	}
	tell(t, ref, actors.Normal, blocker, nil)
	<-held
	tell(t, ref, actors.Normal, asked(0, 2), nil)
	clock.Advance(time.Minute)

	all := sys.Snapshot()
	if len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" {
		t.Fatalf("the snapshot is not sorted by name: %v", all)
	}
	idle, busy := all[0], all[1]
	if !idle.BusySince.IsZero() || idle.BusyWith != "" || idle.Kind != "a" || idle.Depth() != 0 {
		t.Errorf("the idle actor is shown as %+v", idle)
	}
	if age := clock.Now().Sub(busy.BusySince); age < time.Minute || age > time.Minute+time.Microsecond {
		t.Errorf("the turn is shown to be %v old, want a minute", age)
	}
	if busy.BusyWith != "*actors_test.note" || busy.Kind != "kind" || busy.Depth() != 1 || busy.Handled != 1 {
		t.Errorf("the busy actor is shown as %+v", busy)
	}
	if busy.OnPanic.String() != "stop" || busy.Lanes[0].Lane.String() != "normal" || busy.Lanes[0].Bound != bound(10) {
		t.Errorf("the busy actor is described as %+v", busy)
	}
	expect(t, sys, `
		troupe_actor_busy_age_seconds{kind="a"} 0
		troupe_actor_busy_age_seconds{kind="kind"} 60
	`, "troupe_actor_busy_age_seconds")

	close(release)
	for _, r := range []actors.Ref[*note]{ref, other} {
		if err := r.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// expect compares metrics, without their help and type lines.
func expect(t *testing.T, sys *actors.System, want string, names ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(sys.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			got = append(got, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), v))
		}
	}
	var lines []string
	for l := range strings.Lines(want) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if !slices.Equal(got, lines) {
		t.Errorf("metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// TestCollector_SumsAKindAndNeverGoesDown sums living and ended actors.
func TestCollector_SumsAKindAndNeverGoesDown(t *testing.T) {
	s := newStage(t, 1)
	policy := actors.Lanes(actors.Reject[*note](bound(2)), merged(bound(2)))
	var refs []actors.Ref[*note]
	for i := range 3 {
		refs = append(refs, s.spawn(actors.Spec[*note]{
			Name: fmt.Sprintf("s/%d", i), Kind: "s", Policy: policy, OnPanic: actors.RestartActor,
		}))
	}
	for i, ref := range refs {
		for range i + 1 {
			tell(t, ref, actors.Normal, &note{key: "k"}, nil)
		}
		_ = ref.Tell(actors.Control, exploding(1))
		_ = ref.Tell(actors.Control, asked(0, 2))
		_ = ref.Tell(actors.Control, asked(0, 3))
	}
	expect(t, s.sys, `
		troupe_actor_mailbox_depth{kind="s",lane="control"} 6
		troupe_actor_mailbox_depth{kind="s",lane="normal"} 3
		troupe_actor_mailbox_high_water{kind="s",lane="control"} 2
		troupe_actor_mailbox_high_water{kind="s",lane="normal"} 1
	`, "troupe_actor_mailbox_depth", "troupe_actor_mailbox_high_water")
	s.run()
	for range 100 { // past the first turns and messages, which are not measured
		tell(t, refs[0], actors.Normal, &note{key: "k"}, nil)
		s.run()
	}
	want := `
		troupe_actor_mailbox_aborted_total{kind="s",lane="control"} 3
		troupe_actor_mailbox_aborted_total{kind="s",lane="normal"} 3
		troupe_actor_mailbox_admitted_total{kind="s",lane="control"} 6
		troupe_actor_mailbox_admitted_total{kind="s",lane="normal"} 103
		troupe_actor_mailbox_coalesced_total{kind="s",lane="normal"} 3
		troupe_actor_mailbox_rejected_total{kind="s",lane="control"} 3
		troupe_actor_messages_handled_total{kind="s"} 103
		troupe_actor_restarts_total{kind="s"} 3
		troupe_actor_turn_seconds{kind="s"} 70
		troupe_actor_turns_total{kind="s"} 103
		troupe_actor_wait_seconds{kind="s",lane="control"} 0
		troupe_actor_wait_seconds{kind="s",lane="normal"} 1
	`
	want = strings.Replace(want, `troupe_actor_mailbox_coalesced_total{kind="s",lane="normal"} 3`,
		`troupe_actor_mailbox_coalesced_total{kind="s",lane="control"} 0
		troupe_actor_mailbox_coalesced_total{kind="s",lane="normal"} 3`, 1)
	want = strings.Replace(want, `troupe_actor_mailbox_rejected_total{kind="s",lane="control"} 3`,
		`troupe_actor_mailbox_rejected_total{kind="s",lane="control"} 3
		troupe_actor_mailbox_rejected_total{kind="s",lane="normal"} 0`, 1)
	names := []string{
		"troupe_actor_mailbox_aborted_total", "troupe_actor_mailbox_admitted_total", "troupe_actor_mailbox_coalesced_total",
		"troupe_actor_mailbox_rejected_total", "troupe_actor_messages_handled_total", "troupe_actor_restarts_total",
		"troupe_actor_turn_seconds", "troupe_actor_turns_total", "troupe_actor_wait_seconds",
	}
	expect(t, s.sys, want, names...)
	expect(t, s.sys, `troupe_actor_instances{kind="s"} 3`, "troupe_actor_instances")
	for _, ref := range refs {
		if err := ref.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, s.sys, want, names...)
	expect(t, s.sys, `troupe_actor_instances{kind="s"} 0`, "troupe_actor_instances")
	if problems, err := testutil.CollectAndLint(s.sys.Collector()); err != nil || len(problems) > 0 {
		t.Errorf("the metrics are ill-formed: %v, %v", problems, err)
	}
}

func TestHistogram_WaitAndWorkByTheClock(t *testing.T) {
	s := newStage(t, 1)
	work := time.Duration(0)
	ref := s.spawn(actors.Spec[*note]{
		Policy: actors.Reject[*note](bound(1000)),
		Behavior: func() actors.Behavior[*note] {
			return &script{handle: func(actors.Self[*note], []*note) { s.clock.Advance(work) }}
		},
	})
	for i := range 64 {
		tell(t, ref, actors.Normal, &note{id: i}, nil)
	}
	s.clock.Advance(3 * time.Millisecond) // the 64th waits this long, and then for the work of the others
	work = time.Microsecond
	s.run()
	st := statsOf(t, s.sys, "actor")
	wait := &st.Lanes[0].Wait
	if wait.Count() != 1 || wait.Sum != 3*time.Millisecond+63*time.Microsecond {
		t.Errorf("%d waits, together %v", wait.Count(), wait.Sum)
	}
	if q := wait.Quantile(0.5); q < wait.Sum || q > 2*wait.Sum {
		t.Errorf("the median wait is given as %v", q)
	}
	if st.Work.Count() != 64-31 || st.Work.Sum != 33*time.Microsecond {
		t.Errorf("%d turns measured, together %v", st.Work.Count(), st.Work.Sum)
	}
	var none actors.Histogram
	if none.Quantile(0.99) != 0 || none.UpperBound(1000) < time.Hour {
		t.Error("an empty histogram has a quantile, or no end")
	}
}

func TestProfile_LabelsTurnsByKind(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: "t"})
	for _, pinned := range []bool{false, true} {
		held, release := make(chan struct{}), make(chan struct{})
		kind := fmt.Sprintf("kind-pinned-%v", pinned)
		ref := mustSpawn(t, sys, actors.Spec[*note]{Kind: kind, Policy: actors.Reject[*note](bound(10)), Pinned: pinned})
		n := &note{do: func(actors.Self[*note]) {
			close(held)
			<-release
		}}
		tell(t, ref, actors.Normal, n, nil)
		<-held
		var text strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%q:%q", "actor", kind); !strings.Contains(text.String(), want) {
			t.Errorf("the profile lacks %s", want)
		}
		close(release)
		if err := ref.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}
