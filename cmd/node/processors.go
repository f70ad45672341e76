package node

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"
)

// A member that answers a few hundred requests a second spends more on waking threads than on the requests: each
// message between goroutines lets the scheduler start another thread to look for work that the first has already done.
// With a part of the processors it does not. Measured on two cores, a put by a lone client costs a fifth to a third
// less CPU and takes no longer. So while there is little to do, Go gets a part of the processors, and all of them as
// soon as goroutines wait.
const (
	// processorsLightDivisor gives the share of the processors for little load: a quarter, but at least one.
	processorsLightDivisor = 4
	// lightLoadMax is the use of CPU, as a part of the few processors, up to which the load is called light, lightAfter
	// over how long it is measured. It is near what the few can do, because a load uses less with few processors than
	// with all, and what does not is still below fullLoadMin.
	lightLoadMax = 0.85
	lightAfter   = time.Second
	// lightHeapMax is up to which live heap few processors are enough: that of 100,000 small keys and a load on them. They
	// are taken back only when no collection is under way, and with few of them a collection of a large heap takes long.
	lightHeapMax = 128 << 20
	// fullLoadMin is the use of the few processors above which they are used up. All are taken back when that is so for
	// fullAfter and nobody waits: it is what a collection of a small heap does, too, and hurts nobody.
	fullLoadMin = 0.9
	fullAfter   = 300 * time.Millisecond
	// waitLong is how long a goroutine may wait for a processor; all are taken back when more than one in waitedShare
	// has waited longer, of at least waitedMin: of waitedMinUsedUp when the processors are used up, because goroutines
	// that compute are seldom scheduled.
	waitLong        = 1e-3 // seconds, as the runtime's histogram counts
	waitedShare     = 20
	waitedMin       = 20
	waitedMinUsedUp = 4
	// pressedLooks is how many looks in a row must find that: one pause of the disk makes goroutines wait, too.
	pressedLooks = 2
	// steadyAfter is how long all processors are kept once they were taken back.
	steadyAfter = 5 * time.Second
	// A load above restLoad, as a part of the few, for which they did not do for lasting was one for all of them, although
	// it used little: work in bursts, closer to each other than lightAfter. It has them for twice as long each time, up to
	// waryMax; when nothing of that kind was seen for as long after it, all is forgotten.
	restLoad = 0.1
	lasting  = 10 * time.Second
	waryMax  = 2 * time.Minute
	// The load is looked at this often: with all processors; with few of them; with few, and nearly nothing to do.
	lookAtAll  = 250 * time.Millisecond
	lookAtFew  = 20 * time.Millisecond
	lookAtIdle = 100 * time.Millisecond
	idleLoad   = 0.02

	waitMetric = "/sched/latencies:seconds"
)

// load is what happened since the last look.
type load struct {
	period time.Duration
	cpu    time.Duration // used by the process, in user and kernel mode
	// scheduled counts the times that a goroutine got a processor, waited those that had to wait longer than waitLong.
	scheduled, waited uint64
	// tidying says that housekeeping is under way, delivering that deliveries to watchers have to be spread in time: much
	// work that must not be in the way.
	tidying, delivering bool
	// crowded says that many requests are being worked on at once, which is known before anything has waited.
	crowded bool
	// live is the live heap, in bytes.
	live uint64
}

// heavy reports whether all processors are needed, however little is asked.
func (l *load) heavy() bool { return l.tidying || l.delivering || l.live > lightHeapMax }

// processors decides how many processors Go uses. It is a pure core: it is told of the load and says what to do.
type processors struct {
	all, few int

	light   bool // few are in use
	pressed int  // looks in a row that found goroutines waiting for the few
	// seen and used are the time and the CPU since the use was judged last, or the load was heavy.
	seen, used time.Duration
	held       time.Duration // how long all are still kept
	// loaded says that the few were chosen under load, and since for how long they have been in use. After a choice that
	// did not last, a load keeps all for wary, of which cautious is left.
	loaded         bool
	since          time.Duration
	wary, cautious time.Duration
}

func newProcessors(all int) *processors {
	return &processors{all: all, few: max(1, all/processorsLightDivisor), held: lightAfter}
}

// next takes the load of a period and returns whether few processors are enough from now on, and when to look again.
func (p *processors) next(l load) (light bool, look time.Duration) {
	used := float64(l.cpu) / float64(max(l.period, 1))
	p.seen, p.used = p.seen+l.period, p.used+l.cpu
	if p.since, p.cautious = p.since+l.period, p.cautious-l.period; p.cautious < -waryMax {
		p.wary = 0
	}
	if p.light {
		least := uint64(waitedMin)
		if used > fullLoadMin*float64(p.few) {
			least = waitedMinUsedUp
		}
		if p.pressed++; l.scheduled < least || l.waited*waitedShare <= l.scheduled {
			p.pressed = 0
		}
		if l.heavy() || l.crowded || p.pressed >= pressedLooks || p.judged(fullAfter) > fullLoadMin {
			p.takeBack(l.heavy() && !l.delivering)
			return false, lookAtAll
		}
		if used < idleLoad {
			return true, lookAtIdle
		}
		return true, lookAtFew
	}
	if p.held -= l.period; l.heavy() {
		p.seen, p.used = 0, 0
	}
	use := p.judged(lightAfter)
	if use < 0 || use > lightLoadMax || p.held > 0 || use > restLoad && p.cautious > 0 || p.few == p.all {
		return false, lookAtAll
	}
	p.light, p.loaded, p.since = true, use > restLoad, 0
	return true, lookAtFew
}

// takeBack ends the time of few processors. foreign says that the load was not the reason: that housekeeping began or
// the heap grew says nothing about it, while deliveries are load.
func (p *processors) takeBack(foreign bool) {
	p.light, p.held = false, steadyAfter
	p.pressed, p.seen, p.used = 0, 0, 0
	switch {
	case !p.loaded:
	case p.since >= lasting:
		p.wary = 0
	case !foreign:
		p.wary = min(2*max(p.wary, steadyAfter), waryMax)
		p.cautious = p.wary
	}
}

// judged gives the mean use of CPU, as a part of the few processors, when as much time has been seen as is asked for,
// and begins anew; -1 before that.
func (p *processors) judged(after time.Duration) float64 {
	if p.seen < after {
		return -1
	}
	use := float64(p.used) / (float64(p.seen) * float64(p.few))
	p.seen, p.used = 0, 0
	return use
}

// crowd tells the tuning at once that many requests have come together, so that a load that sets in does not go on with
// few processors until the next looks.
type crowd struct {
	few  atomic.Bool // few processors are in use, so that it is worth telling
	came chan struct{}
}

func newCrowd() *crowd { return &crowd{came: make(chan struct{}, 1)} }

// note is called when there are many requests. Any goroutine; it never waits.
func (c *crowd) note() {
	if c.few.Load() {
		select {
		case c.came <- struct{}{}:
		default: // it has been told already
		}
	}
}

// tuneProcessors lets the number of processors follow the load until ctx ends; then Go has all of them again. It leaves
// alone what the operator has set by GOMAXPROCS. tidying and delivering say whether there is work of that kind.
// ended is closed when it does nothing more.
func tuneProcessors(ctx context.Context, tidying, delivering func() bool, crowd *crowd) (ended <-chan struct{}) {
	all := runtime.GOMAXPROCS(0)
	end := make(chan struct{})
	if os.Getenv("GOMAXPROCS") != "" || all == 1 {
		close(end)
		return end
	}
	go func() {
		defer close(end)
		defer runtime.SetDefaultGOMAXPROCS()
		p, m := newProcessors(all), newLoadMeter()
		timer := time.NewTimer(lookAtAll)
		defer timer.Stop()
		for was := false; ; {
			crowded := false
			select {
			case <-timer.C:
			case <-crowd.came:
				crowded = true
			case <-ctx.Done():
				return
			}
			now := m.read()
			now.tidying, now.delivering, now.crowded = tidying(), delivering(), crowded
			light, look := p.next(now)
			switch {
			case light && !was:
				if now := runtime.GOMAXPROCS(0); now != p.all { // the container's limit has changed
					p.all, p.few = now, max(1, now/processorsLightDivisor)
				}
				runtime.GOMAXPROCS(p.few)
			case was && !light:
				runtime.SetDefaultGOMAXPROCS()
			}
			was = light
			crowd.few.Store(light)
			timer.Reset(look)
		}
	}()
	return end
}

// loadMeter reads what the process and the scheduler have done between two calls.
type loadMeter struct {
	at                time.Time
	cpu               time.Duration
	scheduled, waited uint64
	sample            [2]metrics.Sample
}

func newLoadMeter() *loadMeter {
	m := &loadMeter{sample: [2]metrics.Sample{{Name: waitMetric}, {Name: liveHeapMetric}}}
	m.read()
	return m
}

func (m *loadMeter) read() load {
	now, cpu := time.Now(), processCPU()
	metrics.Read(m.sample[:])
	var scheduled, waited uint64
	if v := m.sample[0].Value; v.Kind() == metrics.KindFloat64Histogram {
		h := v.Float64Histogram()
		for i, n := range h.Counts {
			scheduled += n
			if low := h.Buckets[i]; low >= waitLong && !math.IsInf(low, 0) {
				waited += n
			}
		}
	}
	l := load{period: now.Sub(m.at), cpu: cpu - m.cpu, scheduled: scheduled - m.scheduled, waited: waited - m.waited}
	if v := m.sample[1].Value; v.Kind() == metrics.KindUint64 {
		l.live = v.Uint64()
	}
	m.at, m.cpu, m.scheduled, m.waited = now, cpu, scheduled, waited
	return l
}

// processCPU is the CPU time the process has used; 0 where it cannot be known, which looks like no load.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
