package leaseactor

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"troupe/actors"
	"troupe/proto"
)

// pipeline stands for raft, the log and the store in virtual time: a turn takes all that waits, and lasts a fixed time
// (a sync of the disk) and some more for each entry (the processor). Beside the revocations clients write.
type pipeline struct {
	core        *core
	fixed, each moment
	now         moment
	waiting     []entry
	proposed    map[proto.LeaseID]int
	inFlight    int    // revocations, when last looked at
	latest      moment // lateness
	longest     moment // wait of a write
	writes      int
}

type entry struct {
	id proto.LeaseID // 0: a write of a client
	at moment
}

const writeEvery = moment(time.Millisecond)

// mass is a primary whose leases all end at 3 s.
func mass(leases int) *core {
	c := newCore(settings{ticksPerSecond: 10})
	c.lead(1, nil)
	for id := range leases {
		c.insert(proto.Lease{ID: proto.LeaseID(id + 1), TTL: 2}, 0)
	}
	return c
}

// take does what the core wants.
func (p *pipeline) take(t *testing.T) {
	for _, e := range p.core.take() {
		switch e := e.(type) {
		case propose:
			p.proposed[e.id]++
			p.waiting = append(p.waiting, entry{e.id, e.at})
		case ended:
			p.latest = max(p.latest, e.late)
		}
	}
	// What is in flight when the window is narrowed drains; more may not come meanwhile.
	n := p.core.pace.inFlight
	if n > revokesInFlightMax || n > max(p.core.pace.limit(), p.inFlight) {
		t.Fatalf("%d revocations in flight after %d, the window is %d", n, p.inFlight, p.core.pace.limit())
	}
	p.inFlight = n
}

// turn lets the pipeline work once on what waits.
func (p *pipeline) turn(t *testing.T) {
	batch := p.waiting
	p.waiting = nil
	end := p.now + p.fixed + moment(len(batch))*p.each
	for at := p.now - p.now%writeEvery + writeEvery; at <= end; at += writeEvery {
		p.waiting = append(p.waiting, entry{at: at})
	}
	p.now = end
	for _, e := range batch {
		p.core.advance(p.now)
		if e.id == 0 {
			p.longest, p.writes = max(p.longest, p.now-e.at), p.writes+1
			continue
		}
		p.core.change([]proto.LeaseChange{{Kind: proto.LeaseRevoked, Lease: proto.Lease{ID: e.id}}})
		p.core.revoked(e.id, 1, e.at, true, true)
		p.take(t)
	}
	p.core.advance(p.now)
	p.take(t)
}

// TestPace_WritesGoOn lets many leases end at once, before machines of different kinds: no write waits for more than
// the few turns it always takes and a bounded time for revocations, and yet the leases end as fast as the machine
// allows.
func TestPace_WritesGoOn(t *testing.T) {
	ms, us := moment(time.Millisecond), moment(time.Microsecond)
	for name, one := range map[string]struct {
		fixed, each, wait, late moment
		leases                  int
	}{
		"fast":           {ms / 2, 10 * us, 12 * ms, 500 * ms, 20_000},
		"as measured":    {2 * ms, 30 * us, 24 * ms, 2000 * ms, 20_000},
		"slow disk":      {20 * ms, 10 * us, 60 * ms, 5000 * ms, 20_000},
		"slow processor": {2 * ms, 400 * us, 80 * ms, 20_000 * ms, 20_000},
		"very many":      {2 * ms, 30 * us, 24 * ms, 20_000 * ms, 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pipeline{core: mass(one.leases), fixed: one.fixed, each: one.each, proposed: map[proto.LeaseID]int{}}
			for len(p.core.leases) > 0 {
				if p.turn(t); p.now > 3600*momentsPerSecond {
					t.Fatalf("%d leases never end", len(p.core.leases))
				}
			}
			t.Logf("a write waited for %v at most, a lease for %v", time.Duration(p.longest), time.Duration(p.latest))
			if p.longest > one.wait || p.latest > one.late {
				t.Errorf("a write waited for %v, a lease for %v; the bounds are %v and %v", time.Duration(p.longest),
					time.Duration(p.latest), time.Duration(one.wait), time.Duration(one.late))
			}
			if p.writes < int(p.now/writeEvery)*9/10 {
				t.Errorf("%d writes in %v", p.writes, time.Duration(p.now))
			}
			for id := range one.leases {
				if n := p.proposed[proto.LeaseID(id+1)]; n != 1 {
					t.Fatalf("lease %d was revoked %d times", id+1, n)
				}
			}
			if i := p.core.inspect(); i.Overdue != 0 || i.RevokesInFlight != 0 || i.Queued != 0 || i.oldest != 0 {
				t.Errorf("at the end there is %+v", i)
			}
		})
	}
}

// TestPace_LeavesARefusingRaftAlone refuses everything at once, as raft does under overload: what is overdue is not
// refused one after the other, and all of it is revoked when raft takes it again.
func TestPace_LeavesARefusingRaftAlone(t *testing.T) {
	const leases = 5000
	c := mass(leases)
	refused := 0
	for now := moment(0); now <= 13*momentsPerSecond; now += c.tickLength() {
		c.advance(now)
		for effects := append([]effect(nil), c.take()...); len(effects) > 0; effects = append(effects[:0], c.take()...) {
			for _, e := range effects {
				if one, is := e.(propose); is {
					refused++
					c.revoked(one.id, 1, one.at, false, false)
				}
			}
		}
	}
	if ticks := 110; refused == 0 || refused > ticks*revokesInFlightMin {
		t.Fatalf("%d proposals were refused in %d ticks", refused, ticks)
	}
	if i := c.inspect(); i.Overdue != leases || i.RevokesInFlight != 0 || (c.now-i.oldest)/momentsPerSecond != 10 {
		t.Fatalf("at the end there is %+v", i)
	}
	p := &pipeline{core: c, fixed: writeEvery, now: c.now, proposed: map[proto.LeaseID]int{}}
	for len(c.leases) > 0 {
		p.turn(t)
	}
	for id, n := range p.proposed {
		if n != 1 {
			t.Fatalf("lease %d was revoked %d times", id, n)
		}
	}
	if late := p.latest / momentsPerSecond; late < 10 || late > 13 {
		t.Errorf("the latest was %d s late", late)
	}
}

// TestPace_BoundsTheKeysInFlight lets leases of many keys end at once: few go together, one of very many alone, and all
// of them in the end.
func TestPace_BoundsTheKeysInFlight(t *testing.T) {
	const leases, large = 300, 100
	c := newCore(settings{ticksPerSecond: 10, keysOf: func(id proto.LeaseID, most int) int {
		if id == large {
			return most
		}
		return 1000
	}})
	c.lead(1, nil)
	for id := range proto.LeaseID(leases) {
		c.insert(proto.Lease{ID: id + 1, TTL: 2}, 0)
	}
	p := &pipeline{core: c, fixed: writeEvery, proposed: map[proto.LeaseID]int{}}
	for len(c.leases) > 0 {
		p.turn(t)
		keys, revoking := 0, 0
		for _, l := range c.leases {
			if l.state == leaseRevoking {
				keys, revoking = keys+int(l.keys), revoking+1
			}
		}
		if keys != int(c.pace.keys) || keys > revokedKeysMax && revoking > 1 {
			t.Fatalf("%d keys of %d leases are in flight, counted are %d", keys, revoking, c.pace.keys)
		}
	}
	if len(p.proposed) != leases || c.pace.keys != 0 {
		t.Fatalf("%d leases were revoked, %d keys are in flight", len(p.proposed), c.pace.keys)
	}
}

// TestOverdue_KeepsTheOrderOfExpiry: a lease whose revocation is refused stays in front of those that expired later.
func TestOverdue_KeepsTheOrderOfExpiry(t *testing.T) {
	c := newCore(settings{ticksPerSecond: 10})
	c.lead(1, nil)
	for id := range proto.LeaseID(4) {
		c.insert(proto.Lease{ID: id + 1, TTL: int64(id + 1)}, 0)
	}
	c.advance(11 * c.tickLength())
	first := c.deadline(c.leases[1])
	c.revoked(1, 1, c.leases[1].proposed, false, false)
	c.advance(31 * c.tickLength())
	if i := c.inspect(); i.oldest != first || i.Overdue != 3 {
		t.Fatalf("overdue is %+v, the first expired at %d", i, first)
	}
	c.remove(2) // from the middle
	c.remove(1)
	if i := c.inspect(); i.oldest != c.deadline(c.leases[3]) || i.Overdue != 1 {
		t.Fatalf("overdue is %+v", i)
	}
	c.remove(3)
	if i := c.inspect(); i.oldest != 0 || i.Overdue != 0 || i.Leases != 1 {
		t.Fatalf("overdue is %+v", i)
	}
	c.advance(41 * c.tickLength())
	c.lead(0, nil)
	if i := c.inspect(); i != (inspection{}) {
		t.Fatalf("who does not lead shows %+v", i)
	}
}

// TestInspect_LatenessGrowsWhileNothingMoves: what operators see of the oldest overdue lease is its age now, although
// the actor has no turn; and a clock that is set back makes nothing negative and ends no lease.
func TestInspect_LatenessGrowsWhileNothingMoves(t *testing.T) {
	m := newModel()
	registry := prometheus.NewRegistry()
	c, step, clock := steppedClient(t, m, func(cfg *Config) { cfg.Metrics = registry })
	m.grant(proto.Lease{ID: 1, TTL: 1})
	m.grant(proto.Lease{ID: 2, TTL: 3600})
	for range 12 {
		clock.Advance(tickDefault)
		step.Run(1000)
	}
	before := c.Inspect()
	if before.Leases != 2 || before.Overdue != 1 || before.RevokesInFlight != 1 || len(m.queue) != 1 {
		t.Fatalf("shown is %+v", before)
	}
	clock.Advance(10 * time.Second) // the actor has no turn
	if i := c.Inspect(); i.OldestOverdue != before.OldestOverdue+10*time.Second {
		t.Fatalf("shown is %+v, 10 s after %+v", i, before)
	}
	const name = "troupe_lease_oldest_overdue_seconds"
	if got := gaugeOf(t, registry, name); got != c.Inspect().OldestOverdue.Seconds() {
		t.Errorf("%s is %v", name, got)
	}
	clock.Advance(-time.Hour)
	step.Run(1000)
	if i := c.Inspect(); i.OldestOverdue != 0 || i.Overdue != 1 || i.Leases != 2 {
		t.Errorf("with the clock set back is shown %+v", i)
	}
	m.apply()
	step.Run(1000)
	if i := c.Inspect(); i.Overdue != 0 || i.Leases != 1 || i.RevokesInFlight != 0 {
		t.Errorf("after the revocation is shown %+v", i)
	}
	m.status.LeaderTerm = 0
	c.Deposed()
	step.Run(1000)
	if i := c.Inspect(); i != (Inspection{}) {
		t.Errorf("who does not lead shows %+v", i)
	}
}

func gaugeOf(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// BenchmarkRenew renews one of a million leases, in the actor's turn.
func BenchmarkRenew(b *testing.B) {
	const leases = 1 << 20
	c := newCore(settings{ticksPerSecond: 10})
	c.lead(1, nil)
	for id := range proto.LeaseID(leases) {
		c.insert(proto.Lease{ID: id + 1, TTL: 60}, 0)
	}
	replies := make([]actors.Reply[int64], 1)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c.renew(proto.LeaseID(i*7919%leases+1), replies, true)
		c.take()
		if i%5000 == 0 {
			c.advance(c.now + c.tickLength())
		}
	}
}

// BenchmarkExpiry lets a million leases end in one tick, which is one turn of the actor.
func BenchmarkExpiry(b *testing.B) {
	for range b.N {
		b.StopTimer()
		c := mass(1 << 20)
		c.advance(20 * c.tickLength())
		b.StartTimer()
		c.advance(21 * c.tickLength())
		if c.overdue.count != 1<<20 {
			b.Fatalf("%d are overdue", c.overdue.count)
		}
	}
}
