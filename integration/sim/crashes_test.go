package sim

import (
	"fmt"
	"slices"
	"testing"

	"troupe/raftactor/disk"
)

// ruleLabels are the writes of rule 4.5 in their order, from the confirmation of a checkpoint to the release of
// segments.
var ruleLabels = []string{
	syncLabel(disk.Confirm), fileWrite, fileSync, fileSynced,
	"create new snap", "write new snap", syncLabel(disk.SnapFile), "rename to snap", syncLabel(disk.SnapDir),
	"write segment", syncLabel(disk.SnapRecord), "remove segment", "remove snap",
}

// cutLabels are the writes that end one segment and begin the next.
var cutLabels = []string{
	"truncate segment", syncLabel(disk.CutTail), syncLabel(disk.CutNew), "rename to segment", syncLabel(disk.CutDir),
}

// createLabels are the writes that make a log.
var createLabels = []string{
	syncLabel(disk.CreateFile), syncLabel(disk.CreateDir), "rename to wal", syncLabel(disk.CreateParent),
	syncLabel(disk.Append),
}

// crashRun is a run whose first life has many small snapshots and segments, and stops at a moment.
func crashRun(seed uint64, broken breakage, stop moment) *world {
	w := newWorld(seed, broken)
	w.disk.SetSegmentBytes(1024)
	w.cfg.MaxWALs, w.cfg.MaxSnapshots = 1, 1
	w.cfg.SnapshotCount, w.cfg.BatchLimit = 4, 2
	w.begin(stop)
	w.events.tracing = stop == moment{}
	w.live(60)
	return w
}

// window finds the events from the first life's being ready to the one with which every write of rule 4.5 and of a cut
// has been seen.
func window(t *testing.T, seed uint64) (labels []string, first int) {
	w := crashRun(seed, breakage{}, moment{})
	if w.failure != nil {
		t.Fatalf("seed %d: %v", seed, w.failure)
	}
	missing := map[string]bool{}
	for _, l := range slices.Concat(ruleLabels, cutLabels) {
		missing[l] = true
	}
	for i, l := range w.events.trace {
		delete(missing, l)
		if len(missing) == 0 {
			return w.events.trace[:i+1], w.readyAt
		}
	}
	t.Fatalf("seed %d never does %v", seed, missing)
	return nil, 0
}

// TestCrash_BetweenEveryTwoWrites stops one and the same life before and after every single write, sync, rename and
// removal of some checkpoints, snapshots, cuts and releases (rule 4.5), by a loss of power or of the process, and looks
// at what a further life and a further crash make of it.
func TestCrash_BetweenEveryTwoWrites(t *testing.T) {
	seeds := uint64(max(1, *simRuns/100))
	crashes := 0
	for seed := max(*simSeed, 1); seed < max(*simSeed, 1)+seeds; seed++ {
		labels, first := window(t, seed)
		for n := first; n <= len(labels); n++ {
			for way := range 6 {
				w := crashRun(seed, breakage{}, moment{n: n, after: way%2 == 0})
				what := fmt.Sprintf("seed %d, event %d of %d (%s), way %d", seed, n, len(labels), labels[n-1], way)
				if w.failure == nil && !w.events.dead {
					t.Fatalf("%s: the life did not stop there", what)
				}
				if crashes++; w.failure == nil {
					for range way {
						w.random.Uint64() // another outcome
					}
					w.crash(way < 4)
				}
				if w.failure == nil {
					w.begin(moment{})
					w.live(5)
					w.rest()
				}
				for _, v := range w.watchers {
					v.settled()
				}
				if w.failure == nil {
					w.crash(true)
				}
				if w.failure != nil {
					t.Fatalf("%s: %v", what, w.failure)
				}
			}
		}
		t.Logf("seed %d: events %d to %d", seed, first, len(labels))
	}
	t.Logf("%d crashes", crashes)
}
