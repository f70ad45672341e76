package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"troupe/integration/harness"
)

const (
	// goroutinesAllowed is how many more goroutines than at the base are no leak: grpc-go runs a call beyond its fixed
	// workers on a goroutine of its own and may keep a fresh worker, and the backend's timers fire on goroutines.
	goroutinesAllowed = 4
	// descriptorsAllowed is for the log: a new segment is prepared before the old one is closed, and retired ones are
	// closed one by one.
	descriptorsAllowed = 3
	// actorsAllowed is for actors: each has a reason to live or is a leak.
	actorsAllowed = 0
)

// look is what a member holds at one moment.
type look struct {
	gauges      gauges
	goroutines  int
	actors      []string
	descriptors []string
}

func lookAt(ctx context.Context, s *harness.Server) (*look, error) {
	g, err := readGauges(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	actors, err := readActors(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	descriptors, err := readDescriptors(s.Pid())
	if err != nil {
		return nil, err
	}
	return &look{gauges: g, goroutines: int(g["go_goroutines"]), actors: actors, descriptors: descriptors}, nil
}

// leftovers names everything that the base did not have.
func (l *look) leftovers(base *look) []string {
	found := l.gauges.leftovers(base.gauges)
	if l.goroutines > base.goroutines+goroutinesAllowed {
		found = append(found, fmt.Sprintf("%d goroutines, were %d", l.goroutines, base.goroutines))
	}
	if len(l.actors) > len(base.actors)+actorsAllowed {
		found = append(found, fmt.Sprintf("%d actors, were %d; new: %.300v", len(l.actors), len(base.actors),
			added(l.actors, base.actors)))
	}
	if len(l.descriptors) > len(base.descriptors)+descriptorsAllowed {
		found = append(found, fmt.Sprintf("%d open descriptors, were %d; new: %.600v", len(l.descriptors),
			len(base.descriptors), added(l.descriptors, base.descriptors)))
	}
	return found
}

// added gives what is in now and not in before.
func added(now, before []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(name string) bool { return slices.Contains(before, name) })
}

// readActors gives the names of all living actors. It looks for objects that have a name and a kind wherever they are,
// so that it does not depend on how the page is laid out.
func readActors(ctx context.Context, url string) ([]string, error) {
	text, err := fetch(ctx, url+"/debug/actors?format=json")
	if err != nil {
		return nil, err
	}
	var page any
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, fmt.Errorf("/debug/actors: %w", err)
	}
	names := map[string]bool{}
	collectNames(page, names)
	if len(names) == 0 {
		return nil, fmt.Errorf("no actors in /debug/actors: %.300s", text)
	}
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all, nil
}

func collectNames(part any, names map[string]bool) {
	switch part := part.(type) {
	case []any:
		for _, inner := range part {
			collectNames(inner, names)
		}
	case map[string]any:
		name, named := part["name"].(string)
		if _, kind := part["kind"].(string); named && kind {
			names[name] = true
		}
		for _, inner := range part {
			collectNames(inner, names)
		}
	}
}

// readDescriptors gives what the process has open; nothing where the system does not show it.
func readDescriptors(pid int) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var open []string
	for _, entry := range entries {
		if target, err := os.Readlink(dir + "/" + entry.Name()); err == nil { // else it was closed meanwhile
			open = append(open, target)
		}
	}
	slices.Sort(open)
	return open, nil
}

// stacks gives the member's goroutines, the most frequent stacks first.
func stacks(ctx context.Context, s *harness.Server) string {
	text, err := fetch(ctx, s.URL+"/debug/pprof/goroutine?debug=1")
	if err != nil {
		return err.Error()
	}
	groups := strings.Split(text, "\n\n")
	return strings.Join(groups[:min(len(groups), 12)], "\n\n")
}
