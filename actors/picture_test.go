package actors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// names lists the actors of a picture in order.
func names(p *actors.Picture) string {
	var all []string
	for i := range p.Actors {
		all = append(all, p.Actors[i].Name+" "+p.Actors[i].Condition(p.At).String())
	}
	return strings.Join(all, ", ")
}

// kindIn finds the sums of a kind.
func kindIn(t *testing.T, p *actors.Picture, kind string) actors.KindStats {
	t.Helper()
	for _, k := range p.Kinds {
		if k.Kind == kind {
			return k
		}
	}
	t.Fatalf("no kind %s in the picture", kind)
	return actors.KindStats{}
}

func TestPicture_WhoeverNeedsALookComesFirst(t *testing.T) {
	clock := actorstest.NewManualClock()
	sys := actors.NewSystem(actors.Config{Name: "t", Clock: clock})
	refs := map[string]actors.Ref[*note]{}
	for _, name := range []string{"a/calm", "b/full", "c/strained", "d/stuck", "e/calm"} {
		refs[name] = mustSpawn(t, sys, actors.Spec[*note]{Name: name, Policy: actors.Reject[*note](bound(4))})
	}
	release := make(chan struct{})
	block := func(name string, waiting int) {
		held := make(chan struct{})
		tell(t, refs[name], actors.Normal, &note{do: func(actors.Self[*note]) {
			close(held)
			<-release
		}}, nil)
		<-held
		for range waiting {
			tell(t, refs[name], actors.Normal, &note{}, nil)
		}
	}
	block("d/stuck", 0)
	clock.Advance(time.Minute)
	block("b/full", 4)
	block("c/strained", 2)
	p := sys.Picture(8)
	if got, want := names(p), "b/full full, d/stuck stuck, c/strained strained, a/calm calm, e/calm calm"; got != want {
		t.Errorf("the order is %s; want %s", got, want)
	}
	full := kindIn(t, p, "b/full")
	if l := full.Lanes[0]; full.Full != 1 || full.Worst != actors.Full || l.FillMax != 1 || l.DepthMax != 4 {
		t.Errorf("the full kind is %+v", full)
	}
	stuck := kindIn(t, p, "d/stuck")
	if stuck.Busy != 1 || stuck.BusyWith != "*actors_test.note" || p.At.Sub(stuck.BusySince) != time.Minute {
		t.Errorf("the stuck kind is busy %d with %s since %v", stuck.Busy, stuck.BusyWith, stuck.BusySince)
	}
	close(release)
	for _, ref := range refs {
		if err := ref.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	if p = sys.Picture(8); len(p.Actors) != 0 || kindIn(t, p, "b/full").Handled != 5 || len(p.Kinds) != 5 {
		t.Errorf("after the end: %d actors, %+v", len(p.Actors), p.Kinds)
	}
}

// TestPicture_ManyActorsAreShownAsTheirKind: a picture does not grow with the number of clients, and its few actors are
// those that have the most to do.
func TestPicture_ManyActorsAreShownAsTheirKind(t *testing.T) {
	s := newStage(t, 1)
	policy := resynced(bound(10))
	var refs []actors.Ref[*note]
	for i := range 500 {
		refs = append(refs, s.spawn(actors.Spec[*note]{Name: fmt.Sprintf("stream/%03d", i), Kind: "stream", Policy: policy}))
	}
	for i, ref := range refs {
		for range i % 9 {
			tell(t, ref, actors.Normal, &note{size: 3}, nil)
		}
		if i == 77 {
			for range 20 {
				tell(t, ref, actors.Normal, &note{}, nil)
			}
		}
	}
	p := s.sys.Picture(3)
	if len(p.Kinds) != 1 || len(p.Actors) != 3 || p.Actors[0].Name != "stream/077" {
		t.Fatalf("%d kinds, actors %s", len(p.Kinds), names(p))
	}
	k := p.Kinds[0]
	if k.Living != 500 || k.Full != 1 || k.Lanes[0].DepthMax != 11 || k.Lanes[0].Bytes == 0 {
		t.Errorf("the sums are %+v", k)
	}
	depth := 0
	for _, st := range s.sys.Snapshot() {
		depth += st.Depth()
	}
	if k.Lanes[0].Depth != depth {
		t.Errorf("depth %d, the actors have %d together", k.Lanes[0].Depth, depth)
	}
	for _, st := range p.Actors[1:] {
		if st.Depth() != 8 {
			t.Errorf("%s with depth %d is shown in the place of a deeper one", st.Name, st.Depth())
		}
	}
	if again := s.sys.Picture(0); len(again.Actors) != 0 || again.Kinds[0].Living != 500 {
		t.Error("a picture without actors is wrong")
	}
}

// BenchmarkPicture is what one look costs with very many idle streams.
func BenchmarkPicture(b *testing.B) {
	steps := actorstest.NewStepper(1)
	sys := actors.NewSystem(actors.Config{Name: "t", Dispatcher: steps})
	policy := resynced(bound(10))
	const count = 100_000
	for i := range count {
		mustSpawn(b, sys, actors.Spec[*note]{
			Name: fmt.Sprintf("stream/%d", i), Kind: "stream", Policy: policy, OnPanic: actors.StopActor,
		})
		steps.Run(10)
	}
	b.ReportAllocs()
	for b.Loop() {
		sys.Picture(8)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/actor")
}
