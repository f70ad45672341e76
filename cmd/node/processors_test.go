package node

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// calm is a period in which nearly nothing happened.
func calm(period time.Duration) load {
	return load{period: period, cpu: period / 100, scheduled: 100}
}

func TestProcessors_FollowTheLoad(t *testing.T) {
	p := newProcessors(8)
	if p.few != 2 {
		t.Fatalf("a quarter of 8 is %d", p.few)
	}
	light := false
	for range 3 {
		if light, _ = p.next(calm(lookAtAll)); light {
			t.Fatal("few processors before it has been calm for long enough")
		}
	}
	if light, _ = p.next(calm(lookAtAll)); !light {
		t.Fatal("all processors though it is calm")
	}
	if light, look := p.next(calm(lookAtFew)); !light || look != lookAtIdle {
		t.Fatalf("idle: light %v, next look in %v", light, look)
	}
	if light, look := p.next(load{period: lookAtFew, cpu: lookAtFew, scheduled: 100}); !light || look != lookAtFew {
		t.Fatalf("half of the few in use: light %v, next look in %v", light, look)
	}
	usedUp := load{period: lookAtFew, cpu: lookAtFew * 19 / 10}
	for passed := lookAtFew; passed < fullAfter/2; passed += lookAtFew { // a collection does that, and nobody waits
		if light, next := p.next(usedUp); !light || next != lookAtFew {
			t.Fatalf("taken back after %v: light %v, next look in %v", passed, light, next)
		}
	}
	for passed := lookAtFew; passed < 2*fullAfter && light; passed += lookAtFew {
		light, _ = p.next(usedUp)
	}
	if light {
		t.Fatal("few processors though they are used up")
	}
	for passed := time.Duration(0); passed < steadyAfter-lookAtAll; passed += lookAtAll {
		if light, _ = p.next(calm(lookAtAll)); light {
			t.Fatalf("few processors %v after they were not enough", passed)
		}
	}
	if light, _ = p.next(calm(lookAtAll)); !light {
		t.Fatal("all processors though it has been calm for long")
	}
}

func TestProcessors_AreTakenBackWhenGoroutinesWait(t *testing.T) {
	p := newProcessors(2)
	for range 8 {
		p.next(calm(lookAtAll))
	}
	l := calm(lookAtFew)
	l.waited = l.scheduled / waitedShare
	light := true
	calmDown := func() {
		t.Helper()
		for range 100 {
			light, _ = p.next(calm(lookAtAll))
		}
		if !light {
			t.Fatal("all processors though it has been calm for long")
		}
	}
	for range 3 * pressedLooks {
		if light, _ = p.next(l); !light {
			t.Fatal("taken back though few goroutines wait")
		}
	}
	l.waited++
	for range pressedLooks {
		light, _ = p.next(l)
	}
	if light {
		t.Fatal("not taken back though many goroutines wait")
	}
	calmDown()
	l = calm(time.Millisecond)
	l.crowded = true
	if light, _ = p.next(l); light {
		t.Fatal("not taken back at once though many requests have come together")
	}
	calmDown()
	for range pressedLooks { // goroutines that compute: few are scheduled, and each waits for the others
		light, _ = p.next(load{period: lookAtFew, cpu: lookAtFew, scheduled: 6, waited: 5})
	}
	if light {
		t.Fatal("not taken back though the few that are scheduled wait")
	}
	calmDown()
	tidying := calm(lookAtFew)
	tidying.tidying = true
	for range 100 {
		if light, _ = p.next(tidying); light {
			t.Fatal("few processors while there is housekeeping")
		}
	}
	for range 100 {
		large := calm(lookAtAll)
		large.live = lightHeapMax + 1
		if light, _ = p.next(large); light {
			t.Fatal("few processors for a large heap")
		}
	}
	one := newProcessors(1)
	for range 20 {
		if light, _ := one.next(calm(lookAtAll)); light {
			t.Fatal("less than one processor")
		}
	}
}

// TestProcessors_ALoneClientIsLightLoad: with all processors a client that puts one key after the other uses three
// quarters of one and more, much of it to wake threads in vain. A look that finds more than that, by chance, does not
// count; the mean of a second does.
func TestProcessors_ALoneClientIsLightLoad(t *testing.T) {
	use := func(p *processors, parts ...time.Duration) (light bool) {
		for range 5 {
			for _, percent := range parts {
				if light, _ = p.next(load{period: lookAtAll, cpu: lookAtAll / 100 * percent, scheduled: 100}); light {
					return true
				}
			}
		}
		return false
	}
	if !use(newProcessors(2), 70, 95, 75, 90) {
		t.Error("all processors for 0.83 of one")
	}
	if use(newProcessors(2), 70, 95, 90, 100) {
		t.Error("few processors for 0.89 of one")
	}
}

// TestProcessors_LoadInBurstsKeepsThem: streams that send much use a third of the processors and yet make goroutines
// wait when there are few. Every change to few is a time of slow requests, so it is tried more and more seldom. After a
// load for which few were enough, there is no reason to be cautious any more.
func TestProcessors_LoadInBurstsKeepsThem(t *testing.T) {
	p := newProcessors(2)
	bursts := func(period time.Duration) load {
		return load{period: period, cpu: period / 3, scheduled: 100, waited: 30}
	}
	tries := func(next func(period time.Duration) load, long time.Duration) (n int) {
		look := lookAtAll
		for passed, was := time.Duration(0), p.light; passed < long; passed += look {
			var light bool
			if light, look = p.next(next(look)); light && !was {
				n++
			}
			was = p.light
		}
		return n
	}
	if n := tries(bursts, 10*time.Minute); n < 5 || n > 9 { // after 10, 20, 40 and 80 s, then every two minutes
		t.Errorf("few processors were tried %d times in ten minutes", n)
	}
	if n := tries(calm, 10*time.Second); n != 1 {
		t.Errorf("few processors were chosen %d times in a calm time", n)
	}
	lone := func(period time.Duration) load { return load{period: period, cpu: period / 2, scheduled: 100} }
	tries(bursts, time.Second) // ends it; the calm time was no try
	tries(lone, waryMax+lasting)
	if !p.light {
		t.Fatal("all processors for a load that is light for long")
	}
	tries(bursts, time.Second)
	if p.light || p.wary != 0 || p.cautious > 0 {
		t.Errorf("few processors lasted, and yet the next try is after %v", p.wary)
	}
}

// TestProcessors_DeliveriesAreLoad: large deliveries take all processors at once, and when few were chosen between two
// of them that was a mistake to learn from. Housekeeping is none.
func TestProcessors_DeliveriesAreLoad(t *testing.T) {
	for _, c := range []struct {
		what  load
		learn bool
	}{{load{delivering: true}, true}, {load{tidying: true}, false}} {
		p := newProcessors(2)
		for i := 0; !p.light; i++ {
			if i > 100 {
				t.Fatal("a third of the few processors is no light load")
			}
			p.next(load{period: lookAtAll, cpu: lookAtAll / 3, scheduled: 100})
		}
		c.what.period, c.what.cpu, c.what.scheduled = lookAtFew, lookAtFew/3, 100
		if light, _ := p.next(c.what); light {
			t.Errorf("%+v: still few", c.what)
		}
		if learnt := p.wary > 0; learnt != c.learn {
			t.Errorf("%+v: wary for %v", c.what, p.wary)
		}
	}
}

func TestProcessors_MeterSeesWork(t *testing.T) {
	m := newLoadMeter()
	for deadline := time.Now().Add(30 * time.Second); ; {
		n := 0
		for range 1 << 22 {
			n++
		}
		done := make(chan int)
		go func() { done <- n }()
		<-done
		if l := m.read(); l.cpu > 0 && l.period > 0 && l.scheduled > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("work does not show")
		}
	}
}

func TestProcessors_AreGivenBackAtTheEnd(t *testing.T) {
	tuneIdle(t, newCrowd(), func(func(what string, ok func(n, all int) bool)) {})
}

func TestProcessors_AreTakenBackForACrowdAtOnce(t *testing.T) {
	together := newCrowd()
	tuneIdle(t, together, func(wait func(string, func(n, all int) bool)) {
		wait("all processors for a crowd", func(n, all int) bool {
			together.note()
			return n == all
		})
	})
}

// tuneIdle tunes an idle process, waits until it has few processors, runs f, and ends the tuning; then it has all
// again.
func tuneIdle(t *testing.T, together *crowd, f func(wait func(what string, ok func(n, all int) bool))) {
	t.Setenv("GOMAXPROCS", "")
	// The number at the end is the default, whatever GOMAXPROCS or -cpu have said to the test.
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	if all == 1 {
		t.Skip("one processor only: there is nothing to tune")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	no := func() bool { return false }
	ended := tuneProcessors(ctx, no, no, together)
	wait := func(what string, ok func(n, all int) bool) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for ; !ok(runtime.GOMAXPROCS(0), all); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	wait("few processors in an idle process", func(n, all int) bool { return n == max(1, all/processorsLightDivisor) })
	f(wait)
	cancel()
	<-ended
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("%d processors at the end of %d", n, all)
	}
}
