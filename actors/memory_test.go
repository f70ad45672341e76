package actors_test

import (
	"fmt"
	"runtime"
	"testing"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// idleBytesMax is what an idle actor may cost, all included: mailbox, library, name, tables, an empty behaviour. The
// aim is "well under 1 KB", so that a million of them fit in a small machine. A million cost 697 bytes each.
const idleBytesMax = 800

// endedBytesMax is what may stay behind after the end: the library's maps of names, which never shrink.
const endedBytesMax = 250

// TestIdleActor_Memory measures actors that have only been started, and actors that have worked and gone to sleep.
func TestIdleActor_Memory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector changes sizes")
	}
	const count = 20_000
	steps := actorstest.NewStepper(1)
	sys := actors.NewSystem(actors.Config{Name: "t", Dispatcher: steps})
	// In this order, always: the first kind pays for the growth of the system's tables.
	for _, kind := range []struct {
		name   string
		policy actors.Policy[*note]
	}{
		{"single", actors.Reject[*note](bound(100))},
		{"resync", resynced(bound(100))},
		{"lanes", actors.Lanes(actors.Reject[*note](bound(100)), actors.Batch[*note](bound(100), bound(10)))},
	} {
		name, policy := kind.name, kind.policy
		refs := make([]actors.Ref[*note], count)
		names := make([]string, count) // made before the measurement starts, so that the name is counted once, below
		before := heapInUse()
		for i := range refs {
			names[i] = fmt.Sprintf("watch/stream/%s/%d", name, i)
			refs[i] = mustSpawn(t, sys, actors.Spec[*note]{
				Name: names[i], Kind: "watch/stream", Policy: policy, OnPanic: actors.StopActor,
				Behavior: func() actors.Behavior[*note] { return &script{} },
			})
			steps.Run(10)
		}
		fresh := (heapInUse() - before) / count
		for i := range refs {
			for j := range 5 {
				tell(t, refs[i], actors.Normal, &note{id: j}, nil)
			}
			steps.Run(100)
		}
		used := (heapInUse() - before) / count
		t.Logf("%s: %d bytes per idle actor, %d after some work", name, fresh, used)
		if fresh > idleBytesMax || used > idleBytesMax {
			t.Errorf("%s: an idle actor costs %d bytes, %d after some work; at most %d are allowed",
				name, fresh, used, idleBytesMax)
		}
		for i := range refs {
			refs[i].Retire()
		}
		steps.Run(10 * count)
		clear(refs)
		clear(names)
		if left := (heapInUse() - before) / count; left > endedBytesMax {
			t.Errorf("%s: %d bytes per actor are left after the end", name, left)
		}
		runtime.KeepAlive(refs)
		runtime.KeepAlive(names)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // the first one only moves pools to their victim caches
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestTell_DoesNotAllocate counts over whole cycles: admission, wake-up, turn, sleep.
func TestTell_DoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget at random")
	}
	for name, policy := range map[string]actors.Policy[*note]{
		"reject":   actors.Reject[*note](bound(100)),
		"batch":    actors.Batch[*note](bound(100), bound(10)),
		"coalesce": merged(bound(100)),
		"lanes":    actors.Lanes(actors.Reject[*note](bound(100)), actors.Batch[*note](bound(100), bound(10))),
	} {
		s := newStage(t, 1)
		ref := s.spawn(actors.Spec[*note]{
			Policy: policy,
			Tick:   func(int) *note { return tickNote },
		})
		notes := [3]*note{{id: 1, key: "a"}, {id: 2, key: "b"}, {id: 3}}
		got := testing.AllocsPerRun(1000, func() {
			for _, n := range notes {
				_ = ref.Tell(actors.Normal, n)
			}
			ref.Tick()
			s.run()
		})
		if got > 0 {
			t.Errorf("%s: %.2f allocations per cycle of three messages and a tick", name, got)
		}
	}
}

var tickNote = &note{}

// The library's own table of names is larger than everything else in a small system, and each collection marks it.
func TestSystem_KeepsTheTableOfNamesSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector changes sizes")
	}
	const bytesMax = 1 << 20 // the library's alone has 3 MiB
	before := heapInUse()
	sys := actors.NewSystem(actors.Config{Name: "t", Dispatcher: actorstest.NewStepper(1)})
	if used := heapInUse() - before; used > bytesMax {
		t.Errorf("an empty system takes %d bytes, want at most %d", used, bytesMax)
	}
	runtime.KeepAlive(sys)
}
