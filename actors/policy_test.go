package actors_test

import (
	"errors"
	"testing"

	"troupe/actors"
)

// policies are all single-lane policies under one bound, with what a sender gets from a full lane.
func policies(b actors.Bound) map[string]struct {
	policy actors.Policy[*note]
	full   error
} {
	type entry = struct {
		policy actors.Policy[*note]
		full   error
	}
	return map[string]entry{
		"reject":   {actors.Reject[*note](b), actors.ErrFull},
		"block":    {actors.Block[*note](b), actors.ErrFull},
		"batch":    {actors.Batch[*note](b, bound(100)), actors.ErrFull},
		"coalesce": {merged(b), actors.ErrFull},
		"drop":     {actors.Drop[*note](b), nil},
		"resync":   {resynced(b), nil},
	}
}

func TestPolicy_FilledInMessages(t *testing.T) {
	const room = 100 // more than one segment of storage
	for name, c := range policies(bound(room)) {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, 1)
			ref := s.spawn(actors.Spec[*note]{Policy: c.policy})
			for i := range room {
				tell(t, ref, actors.Normal, asked(0, i), nil)
			}
			if d := ref.Depth(actors.Normal); d != room {
				t.Fatalf("depth is %d, want %d", d, room)
			}
			tell(t, ref, actors.Normal, asked(0, room), c.full)
			checkFull(t, statsOf(t, s.sys, "actor").Lanes[0], name, room)
			s.run()
			if n := actors.Storage(ref); n != 0 {
				t.Errorf("the empty mailbox holds %d pieces of storage", n)
			}
			tell(t, ref, actors.Normal, asked(0, room), nil)
		})
	}
}

// checkFull expects one message beyond the bound, counted the way the policy treats it.
func checkFull(t *testing.T, l actors.LaneStats, policy string, room int) {
	t.Helper()
	if l.Policy != policy {
		t.Errorf("policy is shown as %q, want %q", l.Policy, policy)
	}
	want := actors.LaneStats{Depth: room, HighWater: room, Admitted: uint64(room)}
	switch policy {
	case "drop":
		want.Dropped = 1
	case "resync":
		want.Resynced = 1
		want.Depth, want.HighWater, want.Admitted = room+1, room+1, uint64(room)+1
	default:
		want.Rejected = 1
	}
	got := actors.LaneStats{
		Depth: l.Depth, HighWater: l.HighWater, Admitted: l.Admitted,
		Rejected: l.Rejected, Dropped: l.Dropped, Resynced: l.Resynced,
	}
	if got != want {
		t.Errorf("statistics are %+v, want %+v", got, want)
	}
}

func TestPolicy_FilledInBytes(t *testing.T) {
	for name, c := range policies(actors.Bound{Messages: 1000, Bytes: 35}) {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, 1)
			ref := s.spawn(actors.Spec[*note]{Policy: c.policy})
			for i := range 3 { // 10 bytes each
				tell(t, ref, actors.Normal, asked(0, i), nil)
			}
			if l := statsOf(t, s.sys, "actor").Lanes[0]; l.Bytes != 30 {
				t.Fatalf("%d bytes wait, want 30", l.Bytes)
			}
			tell(t, ref, actors.Normal, asked(0, 3), c.full)
			s.run()
			if l := statsOf(t, s.sys, "actor").Lanes[0]; l.Bytes != 0 || l.Depth != 0 {
				t.Fatalf("the empty lane has %d messages of %d bytes", l.Depth, l.Bytes)
			}
		})
	}
}

func TestPolicy_AnEmptyLaneAdmitsAnySize(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](actors.Bound{Messages: 5, Bytes: 35})})
	tell(t, ref, actors.Normal, &note{size: 1000}, nil)
	tell(t, ref, actors.Normal, &note{size: 1}, actors.ErrFull)
	s.run()
	tell(t, ref, actors.Normal, &note{size: 1000}, nil)
}

func TestReject_SenderKeepsTheMessage(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Reject[*note](bound(1))})
	tell(t, ref, actors.Normal, asked(0, 1), nil)
	refused := asked(0, 2)
	tell(t, ref, actors.Normal, refused, actors.ErrFull)
	s.run()
	if n := refused.answers.Load(); n != 0 {
		t.Fatalf("the mailbox answered a message that it had refused")
	}
}

func TestDrop_AbortsWhatItDiscards(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Drop[*note](bound(1))})
	tell(t, ref, actors.Normal, asked(0, 1), nil)
	dropped := asked(0, 2)
	tell(t, ref, actors.Normal, dropped, nil)
	if !errors.Is(dropped.failed(), actors.ErrDropped) {
		t.Fatalf("the discarded message was answered with %v", dropped.failed())
	}
}

func TestCoalesce_MergesAndKeepsThePlace(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	ref := s.spawn(actors.Spec[*note]{Policy: merged(bound(3)), Behavior: r.behavior})
	tell(t, ref, actors.Normal, &note{id: 1, key: "a", size: 10}, nil)
	tell(t, ref, actors.Normal, &note{id: 2, key: "b", size: 10}, nil)
	tell(t, ref, actors.Normal, &note{id: 3, size: 10}, nil) // no key
	tell(t, ref, actors.Normal, &note{id: 4, key: "a", size: 25}, nil)
	tell(t, ref, actors.Normal, &note{id: 5, key: "a", size: 20}, nil) // the lane is full: merging is possible
	tell(t, ref, actors.Normal, &note{id: 6, key: "c", size: 10}, actors.ErrFull)
	tell(t, ref, actors.Normal, &note{id: 7, size: 10}, actors.ErrFull)
	l := statsOf(t, s.sys, "actor").Lanes[0]
	if l.Coalesced != 2 || l.Bytes != 40 || l.Depth != 3 {
		t.Errorf("coalesced %d, bytes %d, depth %d; want 2, 40, 3", l.Coalesced, l.Bytes, l.Depth)
	}
	s.run()
	r.want(t, "5+2|2|3")
	tell(t, ref, actors.Normal, &note{id: 8, key: "a"}, nil) // the taken key is forgotten
	s.run()
	r.want(t, "8")
}

func TestCoalesce_ManyKeysAndNoStorageAfterwards(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: merged(bound(1 << 20))})
	for _, keys := range []int{10, actors.IndexKeysKept + 1, 10} {
		for range 2 {
			for i := range keys {
				tell(t, ref, actors.Normal, &note{key: string(rune(i + 1))}, nil)
			}
		}
		if d := ref.Depth(actors.Normal); d != keys {
			t.Fatalf("%d wait, want one per key, %d", d, keys)
		}
		s.run()
		if n := actors.Storage(ref); n != 0 {
			t.Fatalf("the empty mailbox holds %d pieces of storage", n)
		}
	}
}

func TestCoalesce_AChangedKeyIsABrokenInvariant(t *testing.T) {
	s := newStage(t, 1)
	ref := s.spawn(actors.Spec[*note]{Policy: actors.Coalesce(bound(5),
		func(n *note) (int, bool) { return n.id, true },
		func(_, _ *note) *note { return &note{id: 99} })})
	tell(t, ref, actors.Normal, &note{id: 1}, nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("merge changed the key and nobody noticed")
			}
		}()
		_ = ref.Tell(actors.Normal, &note{id: 1})
	}()
	tell(t, ref, actors.Normal, &note{id: 2}, nil) // the mailbox is not left locked
}

func TestResync_OneMarkerAtTheTail(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	ref := s.spawn(actors.Spec[*note]{Policy: resynced(bound(3)), Behavior: r.behavior})
	for i := 1; i <= 6; i++ {
		tell(t, ref, actors.Normal, &note{id: i}, nil)
	}
	if d := ref.Depth(actors.Normal); d != 4 {
		t.Fatalf("depth is %d, want the bound and the marker", d)
	}
	s.steps.Step()
	s.steps.Step() // takes 1 and 2: there is room, but the marker still waits
	tell(t, ref, actors.Normal, &note{id: 7}, nil)
	s.run()
	r.want(t, "1|2|3|-1+4")
	tell(t, ref, actors.Normal, &note{id: 8}, nil) // the marker has been taken: a new beginning
	s.run()
	r.want(t, "8")
	if l := statsOf(t, s.sys, "actor").Lanes[0]; l.Resynced != 4 || l.Admitted != 5 {
		t.Errorf("resynced %d, admitted %d; want 4 and 5", l.Resynced, l.Admitted)
	}
}

func TestBatch_TurnBounds(t *testing.T) {
	for _, c := range []struct {
		name string
		turn actors.Bound
		want string
	}{
		{"all", bound(100), "0 1 2 3 4"},
		{"messages", bound(2), "0 1|2 3|4"},
		{"bytes", actors.Bound{Messages: 100, Bytes: 29}, "0 1|2 3|4"},
		{"one too large", actors.Bound{Messages: 100, Bytes: 1}, "0|1|2|3|4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, 1)
			var r recorder
			ref := s.spawn(actors.Spec[*note]{Policy: actors.Batch[*note](bound(10), c.turn), Behavior: r.behavior})
			for i := range 5 {
				tell(t, ref, actors.Normal, &note{id: i, size: 10}, nil)
			}
			s.run()
			r.want(t, c.want)
			if st := statsOf(t, s.sys, "actor"); st.Handled != 5 {
				t.Errorf("handled %d, want 5", st.Handled)
			}
		})
	}
}

func TestLanes_ControlFirstAndBoundedSeparately(t *testing.T) {
	s := newStage(t, 1)
	var r recorder
	ref := s.spawn(actors.Spec[*note]{
		Policy:   actors.Lanes(actors.Reject[*note](bound(2)), actors.Drop[*note](bound(1))),
		Behavior: r.behavior,
	})
	tell(t, ref, actors.Normal, &note{id: 1}, nil)
	tell(t, ref, actors.Normal, &note{id: 2}, nil) // dropped
	tell(t, ref, actors.Control, &note{id: 3}, nil)
	tell(t, ref, actors.Control, &note{id: 4}, nil)
	tell(t, ref, actors.Control, &note{id: 5}, actors.ErrFull)
	if ref.Depth(actors.Control) != 2 || ref.Depth(actors.Normal) != 1 {
		t.Fatal("the lanes do not count separately")
	}
	s.run()
	r.want(t, "3|4|1")
	lanes := statsOf(t, s.sys, "actor").Lanes
	if len(lanes) != 2 || lanes[0].Lane != actors.Control || lanes[0].Rejected != 1 || lanes[1].Dropped != 1 {
		t.Errorf("statistics per lane are wrong: %+v", lanes)
	}
}

func TestLanes_StreakLimit(t *testing.T) {
	s := newStage(t, 1)
	var turns []actors.Lane
	ref := s.spawn(actors.Spec[*note]{
		Policy: actors.Lanes(actors.Reject[*note](bound(1000)), actors.Reject[*note](bound(1000))),
		Behavior: func() actors.Behavior[*note] {
			return &script{handle: func(_ actors.Self[*note], batch []*note) {
				turns = append(turns, actors.Lane(batch[0].from))
			}}
		},
	})
	for i := range 300 {
		tell(t, ref, actors.Control, &note{from: int(actors.Control), id: i}, nil)
		tell(t, ref, actors.Normal, &note{from: int(actors.Normal), id: i}, nil)
	}
	s.run()
	streak, longest, first := 0, 0, -1
	for i, l := range turns[:300] {
		if l == actors.Normal {
			if first < 0 {
				first = i
			}
			streak = 0
			continue
		}
		streak++
		longest = max(longest, streak)
	}
	if longest != actors.ControlStreakMax || first != actors.ControlStreakMax {
		t.Fatalf("longest control streak is %d, the first normal turn is %d; want both %d",
			longest, first, actors.ControlStreakMax)
	}
	if len(turns) != 600 {
		t.Fatalf("%d turns, want 600", len(turns))
	}
}

func TestLanes_Batches(t *testing.T) {
	batch := actors.Batch[*note](bound(10), bound(2))
	single := actors.Reject[*note](bound(10))
	for _, c := range []struct {
		name            string
		control, normal actors.Policy[*note]
		want            string
	}{
		{"both", batch, batch, "1 2 11 12|3 13"},
		{"normal only", single, batch, "1|2|3|11 12|13"},
		{"control only", batch, single, "1 2|3|11|12|13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, 1)
			var r recorder
			ref := s.spawn(actors.Spec[*note]{Policy: actors.Lanes(c.control, c.normal), Behavior: r.behavior})
			for i := 1; i <= 3; i++ {
				tell(t, ref, actors.Normal, &note{id: 10 + i}, nil)
				tell(t, ref, actors.Control, &note{id: i}, nil)
			}
			s.run()
			r.want(t, c.want)
		})
	}
}

func TestSpawn_RefusesABadSpec(t *testing.T) {
	s := newStage(t, 1)
	good := actors.Spec[*note]{
		Name: "a", Policy: actors.Reject[*note](bound(1)),
		Behavior: func() actors.Behavior[*note] { return &script{} },
	}
	for name, spoil := range map[string]func(*actors.Spec[*note]){
		"no name":     func(x *actors.Spec[*note]) { x.Name = "" },
		"no behavior": func(x *actors.Spec[*note]) { x.Behavior = nil },
		"no policy":   func(x *actors.Spec[*note]) { x.Policy = actors.Policy[*note]{} },
		"no messages": func(x *actors.Spec[*note]) { x.Policy = actors.Drop[*note](actors.Bound{Bytes: 1}) },
		"no bytes":    func(x *actors.Spec[*note]) { x.Policy = actors.Block[*note](actors.Bound{Messages: 1}) },
		"no turn":     func(x *actors.Spec[*note]) { x.Policy = actors.Batch[*note](bound(1), actors.Bound{}) },
		"half lanes":  func(x *actors.Spec[*note]) { x.Policy = actors.Lanes(x.Policy, actors.Policy[*note]{}) },
		"nested":      func(x *actors.Spec[*note]) { x.Policy = actors.Lanes(actors.Lanes(x.Policy, x.Policy), x.Policy) },
		"no bound in a lane": func(x *actors.Spec[*note]) {
			x.Policy = actors.Lanes(x.Policy, actors.Reject[*note](actors.Bound{}))
		},
		"no merge": func(x *actors.Spec[*note]) {
			x.Policy = actors.Coalesce(bound(1), func(*note) (int, bool) { return 0, true }, nil)
		},
		"taken and not stopped": func(x *actors.Spec[*note]) { x.TakeTurn = newTaker().take },
		"taken and pinned": func(x *actors.Spec[*note]) {
			x.TakeTurn, x.OnPanic, x.Pinned = newTaker().take, actors.StopActor, true
		},
		"no marker": func(x *actors.Spec[*note]) { x.Policy = actors.Resync[*note](bound(1), nil, nil) },
	} {
		spec := good
		spoil(&spec)
		if _, err := actors.Spawn(s.sys, spec); !errors.Is(err, actors.ErrSpecInvalid) {
			t.Errorf("%s: Spawn gave %v", name, err)
		}
	}
	if _, err := actors.Spawn(s.sys, good); err != nil {
		t.Fatal(err)
	}
	if _, err := actors.Spawn(s.sys, good); !errors.Is(err, actors.ErrNameTaken) {
		t.Errorf("a second actor of the same name: %v", err)
	}
}
