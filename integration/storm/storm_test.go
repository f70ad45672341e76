package storm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

var minutes = flag.Int("storm.minutes", 0, "length of the storm in minutes; 0: the short form")

const (
	// firstStorm makes the member create what it keeps; shortStorm is what continuous integration runs.
	firstStorm = 2 * time.Second
	shortStorm = 8 * time.Second
	// patience is how much longer a storm goes on if something has not happened yet.
	patience = time.Minute
	// roundStorm is one storm of the long form.
	roundStorm = time.Minute
	// calmTimeout is how long a member may take to let go of everything: leases of a few seconds expire, connections that
	// were opened and left are cut after ten seconds, and the machine may be slow.
	calmTimeout = 2 * time.Minute
)

func TestStorm_LeavesNothingBehind(t *testing.T) {
	harness.TroupeOnly(t, "what must be zero is told by troupe's own gauges")
	s := harness.Start(t, harness.Options{Args: []string{"--enable-pprof"}})
	rage(t, s, firstStorm)
	base := awaitCalm(t, s, nil)
	t.Logf("the base: %d goroutines, %d actors, %d open descriptors", base.goroutines, len(base.actors),
		len(base.descriptors))
	rounds, length := 1, shortStorm
	if *minutes > 0 {
		rounds, length = *minutes, roundStorm
	}
	for round := range rounds {
		done := rage(t, s, length)
		after := awaitCalm(t, s, base)
		t.Logf("storm %d: %v; after it %d goroutines, %d actors, %d open descriptors, %.0f MiB resident", round+1, done.count,
			after.goroutines, len(after.actors), len(after.descriptors),
			after.gauges["process_resident_memory_bytes"]/(1<<20))
	}
	s.Terminate(t)
}

// awaitCalm waits until nothing is left that the base does not have, and gives the look at that moment. Without a base
// each look is compared with the one before: a member that still lets go of things shows less from look to look.
func awaitCalm(t *testing.T, s *harness.Server, base *look) *look {
	t.Helper()
	ctx := harness.Context(t, calmTimeout)
	left := []string{"there was no look"}
	var before *look
	for {
		now, err := lookAt(ctx, s)
		switch {
		case err != nil:
			left = []string{err.Error()}
		case base != nil:
			left = now.leftovers(base)
		case before != nil:
			left = slices.DeleteFunc(append(now.leftovers(before), before.leftovers(now)...), keptForAWhile)
			if now.goroutines != before.goroutines {
				left = append(left, fmt.Sprintf("%d goroutines, a moment before %d", now.goroutines, before.goroutines))
			}
		}
		if before = now; len(left) == 0 {
			return now
		}
		select {
		case <-time.After(lookInterval):
		case <-ctx.Done():
			t.Fatalf("after %v something is left:\n%s\nthe most frequent goroutines:\n%s", calmTimeout,
				strings.Join(left, "\n"), stacks(context.WithoutCancel(t.Context()), s))
		}
	}
}

// keptForAWhile reports whether a leftover is history that is kept for some seconds on purpose. The base need not wait
// for that; after the storm it must be gone.
func keptForAWhile(leftover string) bool {
	return strings.HasPrefix(leftover, "troupe_watch_history_kept_bytes ")
}

// lookInterval is the pause between two looks: each costs the member a few milliseconds.
const lookInterval = 200 * time.Millisecond

// tally counts what has succeeded, by the name of the mischief.
type tally struct {
	// storm is over when this is: then every client is cut off, and errors mean nothing.
	storm context.Context
	mu    sync.Mutex
	count map[string]int
	wrong []error
}

// ok counts a success and reports whether err is nil. An error that a storm explains counts as nothing; any other fails
// the test.
func (c *tally) ok(name string, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.count[name]++
		return true
	}
	if c.storm.Err() != nil {
		return false
	}
	if !explained(err) {
		c.wrong = append(c.wrong, fmt.Errorf("%s: %w", name, err))
	}
	return false
}

// explained reports whether an error is a storm's: the client has gone, the revision is compacted, the member has
// enough to do. Anything else would be a fault.
func explained(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch s := status.Convert(err); s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted:
		return true
	case codes.OutOfRange:
		return strings.Contains(s.Message(), "compacted") || strings.Contains(s.Message(), "future revision")
	case codes.NotFound:
		return strings.Contains(s.Message(), "lease not found")
	case codes.Unknown:
		return strings.Contains(s.Message(), "too many requests")
	}
	return false
}

// rage lets all mischief loose for a while, and on a slow machine until all of it has happened; it ends it, and gives
// the tally.
func rage(t *testing.T, s *harness.Server, length time.Duration) *tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length+patience)
	defer cancel()
	c := &tally{storm: ctx, count: map[string]int{}}
	var group sync.WaitGroup
	for _, m := range allMischief {
		for seed := range m.clients {
			group.Go(func() {
				for ctx.Err() == nil {
					if err := m.act(ctx, s, c, uint64(seed)); err != nil {
						c.ok(m.name, err)
					}
				}
			})
		}
	}
	for pause(ctx, length); ctx.Err() == nil && len(c.missing()) > 0; {
		pause(ctx, lookInterval)
	}
	cancel()
	group.Wait()
	for _, err := range c.wrong[:min(len(c.wrong), 10)] {
		t.Errorf("in the storm: %v", err)
	}
	for _, name := range c.missing() {
		t.Errorf("%s never happened; there was only %v", name, slices.Sorted(maps.Keys(c.count)))
	}
	if !s.Running() {
		t.Fatalf("the member has ended")
	}
	return c
}

// missing names what must happen and has not: without it the storm would prove less than it says.
func (c *tally) missing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(mustHappen), func(name string) bool {
		return c.count[name] > 0
	})
}
