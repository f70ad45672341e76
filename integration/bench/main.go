// Command bench compares troupe with the official etcd, both alternating in one run on one machine. It prints one
// table; absolute numbers belong to the machine, the ratios are what counts.
//
//	go run ./integration/bench                               the speed table: all rows, five rounds
//	go run ./integration/bench -rows put-100,range-10k -rounds 7
//	go run ./integration/bench -scenario all                 every situation that hurts, once on each server
//	go run ./integration/bench -scenario a,c -scale 0.1      two of them, with a tenth of the load
//	go run ./integration/bench -out docs/benchmarks.md       also put the table into that file
//
// The speed table uses the loads of etcd's own benchmark tool. In each round both servers start on empty directories
// and run side by side. A row is played in pieces of about a second, now on the one, now on the other, so that whatever
// else the machine does meets both; the order changes from piece to piece.
//
// A scenario starts one server at a time, with default settings and an empty directory, and its load comes from this
// program: requests whose latency is measured from this process, mass reading from a second one, so that it disturbs
// neither the latencies nor the server's account.
//
// The server's CPU time is what its process used while the load ran; its peak memory is the high-water mark of the
// resident set.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"troupe/integration/harness"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// roundsDefault is how often the rows of the speed table are played; scenarios are played once unless told otherwise.
const roundsDefault = 5

// options are the flags.
type options struct {
	rows, scenario, only, profiles, out, pgo string
	rounds                                   int
	scale                                    float64
	list, readers                            bool
}

func parseOptions() options {
	var o options
	flag.StringVar(&o.rows, "rows", "", "rows of the speed table, separated by commas; empty: all")
	flag.StringVar(&o.scenario, "scenario", "", "scenarios instead of the table: letters, separated by commas, or all")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds, each with fresh servers; 0: 5 for rows, 1 for scenarios")
	flag.Float64Var(&o.scale, "scale", 1, "factor on the load")
	flag.StringVar(&o.only, "only", "", "troupe or etcd: measure this one only")
	flag.StringVar(&o.profiles, "profiles", "", "directory for CPU and heap profiles of the servers")
	flag.StringVar(&o.out, "out", "", "markdown file whose table is replaced by this run's")
	flag.StringVar(&o.pgo, "pgo", "", "only write a CPU profile of troupe under these loads to a file, for the compiler")
	flag.BoolVar(&o.list, "list", false, "list the rows and scenarios and stop")
	flag.BoolVar(&o.readers, strings.TrimPrefix(readersFlag, "-"), false, "for this program's own use: the second process")
	flag.Parse()
	return o
}

func run() error {
	o := parseOptions()
	switch {
	case o.readers:
		return serveReaders(os.Stdin, os.Stdout)
	case o.list:
		for _, r := range allRows() {
			fmt.Printf("%-16s %s\n", r.name, r.title)
		}
		for _, s := range allScenarios() {
			fmt.Printf("%-16s %s\n", s.letter, s.title)
		}
		return nil
	case o.pgo != "":
		return makeProfile(o)
	case o.scenario != "":
		return runScenarios(o)
	default:
		return runRows(o)
	}
}

func runRows(o options) error {
	rows, err := chooseRows(o.rows)
	if err != nil {
		return err
	}
	rounds := cmp.Or(o.rounds, roundsDefault)
	results := newResults(rows)
	for round := range rounds {
		if err := runRound(round, rows, o, results); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	if o.only != "" {
		return nil // its lines were all there is to show; a table compares
	}
	table := results.table(rounds)
	fmt.Println(table)
	if o.out != "" {
		return writeTable(o.out, speedPlace, table)
	}
	return nil
}

// kinds gives the servers that are wanted.
func (o options) kinds() []harness.Kind {
	all := []harness.Kind{harness.Troupe, harness.Etcd}
	return slices.DeleteFunc(all, func(k harness.Kind) bool { return o.only != "" && k.String() != o.only })
}

// runScenarios plays the scenarios and prints their table, failures in it. A table with failures is not written to the
// file.
func runScenarios(o options) error {
	scenarios, err := chooseScenarios(o.scenario)
	if err != nil {
		return err
	}
	p := plan{
		scenarios: scenarios, kinds: o.kinds(), scale: o.scale, rounds: cmp.Or(o.rounds, 1), profiles: o.profiles,
	}
	result, err := p.play()
	table := p.table(result)
	fmt.Println(table)
	if err == nil && o.out != "" {
		return writeTable(o.out, scenarioPlace, table)
	}
	return err
}

// chooseRows gives the rows with the names, in their usual order.
func chooseRows(names string) ([]row, error) {
	all := allRows()
	if names == "" {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, name := range strings.Split(names, ",") {
		wanted[strings.TrimSpace(name)] = true
	}
	var chosen []row
	for _, r := range all {
		if wanted[r.name] {
			chosen = append(chosen, r)
			delete(wanted, r.name)
		}
	}
	for name := range wanted {
		return nil, fmt.Errorf("no row %q; -list shows them", name)
	}
	return chosen, nil
}

// runRound starts fresh servers and runs every row on each.
func runRound(round int, rows []row, o options, results *results) error {
	dir, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	order := o.kinds()
	if round%2 == 1 {
		slices.Reverse(order)
	}
	servers := map[harness.Kind]*harness.Server{}
	for _, kind := range order {
		options := harness.Options{Kind: kind, Dir: filepath.Join(dir, kind.String())}
		if o.profiles != "" {
			options.Args = []string{pprofFlag}
		}
		s, err := harness.NewServer(options)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Run(); err != nil {
			return err
		}
		if err := preload(s); err != nil {
			return fmt.Errorf("preload %s: %w", kind, err)
		}
		servers[kind] = s
	}
	for _, r := range rows {
		played, err := playRow(r, servers, order, o)
		if err != nil {
			return err
		}
		for _, kind := range order {
			s := merge(played[kind])
			results.add(r.name, kind, s)
			fmt.Fprintf(os.Stderr, "round %d %-16s %-6s %9.0f ops/s  p50 %7.3f ms  p99 %8.3f ms  %7.1f us CPU/op\n",
				round+1, r.name, kind, s.rate, s.p50, s.p99, s.cpu)
		}
	}
	return nil
}

// piecesPerRow is into how many pieces a row is cut.
const piecesPerRow = 4

// playRow plays a row piece by piece, and gives the samples of each server. Where profiles are wanted it is one piece,
// because a profile is taken of a whole one.
func playRow(r row, servers map[harness.Kind]*harness.Server, order []harness.Kind, o options) (
	map[harness.Kind][]sample, error,
) {
	pieces := piecesPerRow
	if o.profiles != "" {
		pieces = 1
	}
	played := map[harness.Kind][]sample{}
	order = slices.Clone(order)
	for range pieces {
		for _, kind := range order {
			t := &trial{server: servers[kind]}
			if o.profiles != "" {
				t.profiles = filepath.Join(o.profiles, kind.String())
			}
			finish := t.profile(r.name)
			s, err := measure(servers[kind], r, o.scale/float64(pieces))
			finish()
			if err != nil {
				return nil, fmt.Errorf("%s on %s: %w", r.name, kind, err)
			}
			played[kind] = append(played[kind], s)
		}
		slices.Reverse(order)
	}
	return played, nil
}
