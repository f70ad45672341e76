package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"troupe/integration/harness"
)

// trialLimit ends a scenario on one server that does not come to its end.
const trialLimit = 4 * time.Minute

// scenario is one situation that hurts users, played on both servers in turn.
type scenario struct {
	letter, title string
	figures       []figure
	// play runs the situation against the trial's server and reports each figure with trial.set.
	play func(t *trial) error
}

// figure is one value of a scenario: a line of the table.
type figure struct {
	key, title string
	digits     int
	target     target
}

// trial is one run of a scenario on one server with fresh data.
type trial struct {
	ctx    context.Context
	server *harness.Server
	scale  float64
	values values
	// profiles is where CPU profiles of the measured part go; empty: none are taken.
	profiles string
}

// values are the figures of one server by key.
type values map[string]float64

func (t *trial) set(key string, value float64) { t.values[key] = value }

// count scales a number of things, and gives at least the floor: below it the situation would not arise.
func (t *trial) count(full, floor int) int { return max(int(float64(full)*t.scale), min(full, floor)) }

// note tells the person at the terminal how far the trial is.
func (t *trial) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "    %-6s %s\n", t.server.Kind, fmt.Sprintf(format, args...))
}

// failedKey is the figure that every scenario has: requests of the probes that failed.
const failedKey = "failed"

// allScenarios lists the scenarios in the order of their letters.
func allScenarios() []scenario {
	all := []scenario{
		catchupScenario(), stalledScenario(), defragmentScenario(), compactionScenario(),
		fanoutScenario(), leaseScenario(), millionScenario(), rangesScenario(),
	}
	for i := range all {
		all[i].figures = append(all[i].figures, figure{
			key: failedKey, title: "requests that failed meanwhile", target: atMost(failedKey, 0),
		})
	}
	return all
}

// chooseScenarios gives the scenarios with the letters, "all" for all of them.
func chooseScenarios(letters string) ([]scenario, error) {
	all := allScenarios()
	if letters == "all" {
		return all, nil
	}
	var chosen []scenario
	for _, letter := range strings.Split(letters, ",") {
		found := false
		for _, s := range all {
			if s.letter == strings.TrimSpace(letter) {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no scenario %q; -list shows them", letter)
		}
	}
	return chosen, nil
}

// plan is what the flags say about the scenarios.
type plan struct {
	scenarios []scenario
	kinds     []harness.Kind
	scale     float64
	rounds    int
	profiles  string
}

// played holds what every trial gave: by letter and server, one entry per round.
type played struct {
	values   map[string]map[harness.Kind][]values
	failures map[string]map[harness.Kind]error
}

// play runs all rounds of all scenarios, the servers one after the other and in changing order. A scenario that fails
// on a server is shown as failed, and the others are played all the same; the error then tells the number of failures.
func (p plan) play() (*played, error) {
	result := &played{
		values:   map[string]map[harness.Kind][]values{},
		failures: map[string]map[harness.Kind]error{},
	}
	failed := 0
	for number, s := range p.scenarios {
		result.values[s.letter] = map[harness.Kind][]values{}
		result.failures[s.letter] = map[harness.Kind]error{}
		for round := range p.rounds {
			fmt.Fprintf(os.Stderr, "(%s) %s, round %d\n", s.letter, s.title, round+1)
			for i := range p.kinds {
				kind := p.kinds[(i+number+round)%len(p.kinds)]
				begin := time.Now()
				v, err := p.trial(s, kind)
				if err != nil {
					failed++
					result.failures[s.letter][kind] = err
					fmt.Fprintf(os.Stderr, "    %-6s FAILED: %v\n", kind, err)
					continue
				}
				result.values[s.letter][kind] = append(result.values[s.letter][kind], v)
				fmt.Fprintf(os.Stderr, "    %-6s %s (%.0f s)\n", kind, s.line(v), time.Since(begin).Seconds())
			}
		}
	}
	if failed > 0 {
		return result, fmt.Errorf("%d trials failed", failed)
	}
	return result, nil
}

// line shows all figures of one trial.
func (s scenario) line(v values) string {
	var parts []string
	for _, f := range s.figures {
		parts = append(parts, fmt.Sprintf("%s %.*f", f.key, f.digits, v[f.key]))
	}
	return strings.Join(parts, ", ")
}

// trial plays a scenario on one server.
func (p plan) trial(s scenario, kind harness.Kind) (values, error) {
	dir, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	options := harness.Options{Kind: kind, Dir: filepath.Join(dir, kind.String())}
	if p.profiles != "" {
		options.Args = []string{pprofFlag}
	}
	server, err := harness.NewServer(options)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if err := server.Run(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), trialLimit)
	defer cancel()
	t := &trial{ctx: ctx, server: server, scale: p.scale, values: values{failedKey: 0}}
	if p.profiles != "" {
		t.profiles = filepath.Join(p.profiles, s.letter+"-"+kind.String())
	}
	if err := s.play(t); err != nil {
		if !server.Running() {
			err = errors.Join(err, fmt.Errorf("the server has ended:\n%s", server.Log().Ending()))
		}
		return nil, err
	}
	for _, f := range s.figures {
		if _, ok := t.values[f.key]; !ok {
			return nil, fmt.Errorf("scenario %s did not measure %q", s.letter, f.key)
		}
	}
	return t.values, nil
}
