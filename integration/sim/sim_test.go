package sim

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"troupe/raftactor/disk"
)

var (
	simSeed = flag.Uint64("sim.seed", 0, "first seed; 0: 1")
	simRuns = flag.Int("sim.runs", 0, "number of seeds; 0: the short form")
)

// replay says how to see a failure again.
func replay(seed uint64) string {
	return fmt.Sprintf("replay: just sim seed=%d runs=1 (go test ./integration/sim -run Lives -sim.seed=%d -sim.runs=1)",
		seed, seed)
}

// TestLives_NothingAcknowledgedIsLost is the simulation.
func TestLives_NothingAcknowledgedIsLost(t *testing.T) {
	first, runs := max(*simSeed, 1), *simRuns
	if runs == 0 {
		if runs = 300; testing.Short() {
			runs = 60
		}
	}
	var all tally
	began := time.Now()
	for seed := first; seed < first+uint64(runs); seed++ {
		w := newWorld(seed, breakage{})
		w.run()
		if w.failure != nil {
			t.Fatalf("seed %d: %v\n%s", seed, w.failure, replay(seed))
		}
		all.add(w.tally)
	}
	t.Logf("%d seeds in %v: %+v", runs, time.Since(began).Round(time.Millisecond), all)
	if runs >= 60 && min(all.answers, all.events, all.cancels, all.snapshots, all.cuts, all.releases, all.expired,
		all.hashes) == 0 {
		t.Errorf("something never happened: %+v", all)
	}
}

// TestLives_AreTheSeeds: the same seed is the same run. What raft draws from the system's randomness, its election
// timeout, decides nothing for a sole voter.
func TestLives_AreTheSeeds(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		var sums [2]uint64
		for i := range sums {
			w := newWorld(seed, breakage{})
			w.run()
			sums[i] = w.trace.sum.Sum64()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d is two different runs", seed)
		}
		t.Logf("seed %d: %016x", seed, sums[0])
	}
}

// run goes through a few lives, and in the end through one without a crash.
func (w *world) run() {
	lives := 3 + w.random.IntN(4)
	pairs := w.random.IntN(4) == 0
	for w.life < lives && w.failure == nil {
		if pairs {
			w.killThenCrash()
			continue
		}
		w.begin(w.draw())
		w.live(50 + w.random.IntN(150))
		w.end()
	}
	if w.failure == nil && w.seed%4 == 0 {
		w.checkTwins()
	}
	if w.failure == nil {
		w.finish()
	}
}

// killThenCrash lives twice: a process that is killed leaves names and bytes that are there and not durable, and a loss
// of power soon after the next start shows whether that start has relied on them.
func (w *world) killThenCrash() {
	named := moment{label: "rename to segment", n: 1 + w.random.IntN(3), after: true}
	if w.life == 0 {
		named = moment{label: "rename to wal", n: 1, after: true}
	}
	w.begin(named)
	w.live(50 + w.random.IntN(100))
	if w.failure == nil {
		w.crash(false)
	}
	if w.failure != nil {
		return
	}
	w.begin(moment{})
	w.live(w.random.IntN(20))
	if w.failure == nil {
		w.crash(true)
	}
}

// draw picks the moment of a crash; in some lives there is none, and the crash comes when the life is over. Places
// where chance would seldom come are named.
func (w *world) draw() moment {
	m := moment{after: w.random.IntN(2) == 0}
	named := func(labels []string, most int) {
		m.label, m.n = labels[w.random.IntN(len(labels))], 1+w.random.IntN(most)
	}
	switch n := w.random.IntN(10); {
	case w.life == 0 && n < 2:
		named(createLabels, 1)
	case w.life == 0 && n < 4: // the log is there, and nothing has been appended to it
		m = moment{label: syncLabel(disk.Append), n: 1}
	case n == 0:
		m.n = 1 + w.random.IntN(20)
	case n < 3:
		m.n = 1 + w.random.IntN(300)
	case n < 5:
		named(ruleLabels, 4)
	case n < 7:
		named(cutLabels, 3)
	case n < 8:
		m.label, m.n, m.after = "remove segment", 1+w.random.IntN(4), true
	}
	return m
}

// live lets clients, time and the actors go on for a number of rounds, or until the crash.
func (w *world) live(rounds int) {
	w.serve()
	for range rounds {
		if w.over() {
			return
		}
		w.round()
	}
}

// round does one thing and then gives some actors a turn.
func (w *world) round() {
	w.tally.rounds++
	switch n := w.random.IntN(40); {
	case n < 18:
		w.clients.propose()
	case n < 24:
		w.pause(time.Duration(1+w.random.IntN(60)) * time.Millisecond)
	case n < 25:
		w.pause(time.Duration(w.random.IntN(3000)) * time.Millisecond)
	case n < 27:
		w.clients.deleteAndCompact()
	case n < 28:
		w.clients.renew()
	case n < 30:
		w.clients.read()
	case n < 31:
		if w.random.IntN(4) == 0 {
			w.hash(0)
		}
	case n < 32:
		if w.random.IntN(4) == 0 {
			w.compare("in between")
		}
	default:
		w.watchers[w.random.IntN(len(w.watchers))].read(1 + w.random.IntN(5))
	}
	for range w.random.IntN(25) {
		w.step()
	}
	w.clients.collect()
}

// end ends a life, one way or the other.
func (w *world) end() {
	if w.failure != nil {
		return
	}
	if !w.over() && w.random.IntN(6) == 0 {
		if w.stop(); w.troupe == nil {
			return
		}
	}
	w.crash(w.random.IntN(3) > 0)
}

// finish lives once more without a crash, lets everything come to rest, and checks that nothing is missing: every
// proposal is answered, every watch has seen everything, every lease that nobody renews ends.
func (w *world) finish() {
	w.begin(moment{})
	w.live(60)
	w.rest()
	w.clients.collect()
	if n := len(w.clients.open); n > 0 && !w.over() {
		w.fail("%d proposals have no answer, the first is %v", n, w.clients.open[0].request)
	}
	for _, v := range w.watchers {
		v.settled()
	}
	w.hash(0)
	w.compare("at the end")
	for n := 0; n < 200 && !w.over() && len(w.history.head.leases) > 0; n++ {
		w.pause(100 * time.Millisecond)
		w.rest()
	}
	if n := len(w.history.head.leases); n > 0 && !w.over() {
		w.fail("%d leases do not end", n)
	}
	w.compare("after the leases")
	w.hash(0)
	if !w.over() {
		w.stop()
	}
}
