package differential

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	minutesFlag = flag.Float64("differential.minutes", 0, "run new scripts for so long; 0 runs fixed ones for a minute")
	seedFlag    = flag.Uint64("differential.seed", 0, "run the script of this one seed on fresh servers")
	scriptFlag  = flag.String("differential.script", "", "run this script on fresh servers")
)

// shortRun is how long random scripts run in the normal tests.
const shortRun = time.Minute

func TestDifferential_RandomScriptsGetTheSameAnswersFromBoth(t *testing.T) {
	if *scriptFlag != "" {
		t.Skip("one script was asked for")
	}
	for name, value := range map[string]string{
		"rapid.checks": "1", "rapid.steps": "50", "rapid.nofailfile": "true", "rapid.shrinktime": "20s",
	} {
		before := flag.Lookup(name).Value.String()
		t.Cleanup(func() { _ = flag.Set(name, before) })
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	defer w.stop()
	defer w.report()
	w.replace() // building and starting the servers does not count
	end := time.Now().Add(max(shortRun, time.Duration(*minutesFlag*float64(time.Minute))))
	first := uint64(1) // what the normal tests look at does not depend on when they run
	if *minutesFlag > 0 {
		first = uint64(time.Now().UnixNano())
	}
	for seed := first; time.Now().Before(end); seed++ {
		if *seedFlag != 0 {
			seed, end = *seedFlag, time.Now()
		}
		t.Logf("seed %d", seed)
		if err := flag.Set("rapid.seed", fmt.Sprint(seed)); err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(rt *rapid.T) {
			w.begin()
			var d *difference
			rt.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": func(rt *rapid.T) {
				if s := steps(w).Draw(rt, "step"); d == nil {
					d = w.run(s)
				}
			}})
			if d == nil {
				d = w.finish()
			}
			w.judge(rt, d) // in one place: rapid takes what fails in two places for two faults
		})
	}
}

// judge ends a script that has found a difference.
func (w *world) judge(rt *rapid.T, d *difference) {
	if d == nil {
		return
	}
	if n := len(w.shortest); n == 0 || len(w.script) <= n {
		w.shortest = w.script
	}
	rt.Fatalf("%v", d)
}

// shorten leaves out of a script that has found a difference whatever is not needed to find one, first many lines at
// once. rapid does so for what it drew; that lines need not be drawn again makes this the faster end of it.
func (w *world) shorten() {
	const most = time.Minute
	var found *difference
	end := time.Now().Add(most)
	for size := max(len(w.shortest)/2, 1); size > 0 && time.Now().Before(end); size /= 2 {
		for i := len(w.shortest) - size; i >= 0 && time.Now().Before(end); i -= size {
			shorter := slices.Delete(slices.Clone(w.shortest), i, i+size)
			if d := w.try(shorter); d != nil {
				w.shortest, found = shorter, d
			}
		}
	}
	if found == nil {
		found = w.try(w.shortest)
	}
	if found == nil {
		w.t.Logf("not found again with:\n%s", lines(w.shortest))
		return
	}
	w.t.Logf("the script, for a file of testdata:\n%s\n%v", lines(w.shortest), found)
}

// try runs a script.
func (w *world) try(script []step) *difference {
	w.begin()
	for _, s := range script {
		if d := w.run(s); d != nil {
			return d
		}
	}
	return w.finish()
}

func lines(script []step) string {
	var out strings.Builder
	for _, s := range script {
		fmt.Fprintln(&out, s)
	}
	return out.String()
}

// finish is end, for a script.
func (w *world) finish() *difference {
	d := w.end()
	if d != nil {
		w.failed = true
	}
	return d
}

func TestDifferential_KeptScriptsGetTheSameAnswersFromBoth(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	if *scriptFlag != "" {
		files = []string{*scriptFlag}
	} else if *seedFlag != 0 {
		t.Skip("one seed was asked for")
	}
	w := newWorld(t)
	defer w.stop()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := readScript(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := w.try(script); d != nil {
				t.Fatalf("after\n%s\n%v", lines(w.script), d)
			}
		})
	}
}

// report prints what a run did.
func (w *world) report() {
	if w.shortest != nil {
		w.shorten()
	}
	c := &w.counters
	w.t.Logf("%d scripts, %d steps (%d refused by etcd), %d events, %d restarts, %d snapshots with %d records",
		c.scripts, c.steps, c.refused, c.events, c.restarts, c.snapshots, c.records)
	if *minutesFlag > 0 {
		for _, name := range slices.Sorted(maps.Keys(c.outcomes)) {
			w.t.Logf("%7d answers: %s", c.outcomes[name], name)
		}
	}
	if len(c.outcomes) < 25 && *seedFlag == 0 && !w.t.Failed() {
		w.t.Errorf("the generator aims badly: etcd has given only %d kinds of answers", len(c.outcomes))
	}
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		w.t.Logf("%7d times: %s", c.used[name], name)
	}
}
