package leaseactor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// steppedClient is a client on a stepper, primary in term 1.
func steppedClient(
	t *testing.T, m *model, change func(*Config),
) (*Client, *actorstest.Stepper, *actorstest.ManualClock) {
	t.Helper()
	step, clock := actorstest.NewStepper(1), actorstest.NewManualClock()
	cfg := Config{Table: m, Proposer: m, Status: m.Status}
	if change != nil {
		change(&cfg)
	}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: t.Name(), Clock: clock, Dispatcher: step}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	m.notify = c.Changed
	m.status.LeaderTerm = 1
	step.Run(1000)
	return c, step, clock
}

// ask sends a renewal without waiting.
func ask(t *testing.T, c *Client, id proto.LeaseID) actors.Reply[int64] {
	t.Helper()
	reply := actors.NewReply[int64]()
	if err := c.ref.Tell(actors.Normal, &renew{id, []actors.Reply[int64]{reply}}); err != nil {
		t.Fatal(err)
	}
	return reply
}

func wantAnswer(t *testing.T, reply actors.Reply[int64], want int64, wantErr error) {
	t.Helper()
	ttl, err, done := reply.Poll()
	if !done || ttl != want || !errors.Is(err, wantErr) {
		t.Fatalf("answer %d, %v (done %v); want %d, %v", ttl, err, done, want, wantErr)
	}
}

// TestRenew_AsksAfterAPause: a process that was stopped cannot know whether another member leads by now, and must not
// promise time before it does (field report T49).
func TestRenew_AsksAfterAPause(t *testing.T) {
	m := newModel()
	c, step, clock := steppedClient(t, m, func(cfg *Config) { cfg.ConfirmLeader = m.confirm })
	m.grant(proto.Lease{ID: 1, TTL: 60})
	step.Run(1000)
	first := ask(t, c, 1)
	step.Run(1000)
	wantAnswer(t, first, 60, nil)

	c.stop() // no tick comes: the process stands still
	clock.Advance(freshHeartbeats*heartbeatDefault + time.Millisecond)
	second := ask(t, c, 1)
	step.Run(1000)
	if _, _, done := second.Poll(); done || len(m.confirms) != 1 {
		t.Fatalf("answered without asking (done %v, %d questions)", done, len(m.confirms))
	}
	m.confirms[0](errNotLeader)
	step.Run(1000)
	wantAnswer(t, second, 0, ErrNotPrimary)
}

// TestRenew_AsksWhileTheDiskStalls is the same for a disk that does not answer.
func TestRenew_AsksWhileTheDiskStalls(t *testing.T) {
	m := newModel()
	c, step, _ := steppedClient(t, m, func(cfg *Config) { cfg.ConfirmLeader = m.confirm })
	m.grant(proto.Lease{ID: 1, TTL: 60})
	m.status.DiskStalledTicks = 3
	reply := ask(t, c, 1)
	step.Run(1000)
	if len(m.confirms) != 1 {
		t.Fatalf("%d questions", len(m.confirms))
	}
	m.confirms[0](nil)
	step.Run(1000)
	wantAnswer(t, reply, 60, nil)
}

// TestRenew_KnowsAGrantBeforeItsNotice: the table is published before the notice is told (field report T51).
func TestRenew_KnowsAGrantBeforeItsNotice(t *testing.T) {
	m := newModel()
	c, step, _ := steppedClient(t, m, nil)
	m.table[6] = proto.Lease{ID: 6, TTL: 9}
	left := actors.NewReply[Remaining]()
	if err := c.ref.Tell(actors.Normal, &remaining{6, left}); err != nil {
		t.Fatal(err)
	}
	step.Run(1000)
	if r, err, _ := left.Poll(); err != nil || !r.Found || r.Granted != 9 {
		t.Fatalf("remaining %+v, %v", r, err)
	}
	m.table[7] = proto.Lease{ID: 7, TTL: 9}
	reply := ask(t, c, 7)
	step.Run(1000)
	wantAnswer(t, reply, 9, nil)
	delete(m.table, 7) // and knows a revocation before its notice
	reply = ask(t, c, 7)
	step.Run(1000)
	wantAnswer(t, reply, 0, nil)
}

// TestMailbox_KeepsUpByReloading fills the control lane: what is dropped is read again from the table.
func TestMailbox_KeepsUpByReloading(t *testing.T) {
	m := newModel()
	c, step, _ := steppedClient(t, m, func(cfg *Config) { cfg.control = actors.Bound{Messages: 2, Bytes: 1 << 20} })
	for id := range proto.LeaseID(50) {
		m.grant(proto.Lease{ID: id + 1, TTL: 30})
	}
	m.revoke(3)
	if c.ref.Depth(actors.Control) > 3 {
		t.Fatalf("%d messages wait", c.ref.Depth(actors.Control))
	}
	step.Run(1000)
	for id, want := range map[proto.LeaseID]int64{1: 30, 3: 0, 50: 30} {
		reply := ask(t, c, id)
		step.Run(1000)
		wantAnswer(t, reply, want, nil)
	}
}

// TestMailbox_AnotherLeaseOfTheSameIDHasItsTime: while a revocation is at raft its lease is revoked and granted anew
// under the same id, and the notices are dropped. Whatever raft answers then, what was decided about the first lease
// says nothing about the second.
func TestMailbox_AnotherLeaseOfTheSameIDHasItsTime(t *testing.T) {
	for name, answered := range map[string]func(m *model){
		"revoked by us":     func(m *model) { m.apply() },
		"revoked by a user": func(m *model) { m.revoke(1); m.apply() },
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			c, step, clock := steppedClient(t, m, func(cfg *Config) {
				cfg.control = actors.Bound{Messages: 1, Bytes: 1 << 20}
			})
			pass := func(d time.Duration) {
				for range d / tickDefault {
					clock.Advance(tickDefault)
					step.Run(1000)
				}
			}
			m.grant(proto.Lease{ID: 1, TTL: 1})
			pass(2 * time.Second)
			if len(m.queue) != 1 {
				t.Fatalf("%d revocations are at raft", len(m.queue))
			}
			waits := ask(t, c, 1)
			step.Run(1000)
			m.grant(proto.Lease{ID: 2, TTL: 60}) // fills the mailbox
			answered(m)
			m.grant(proto.Lease{ID: 1, TTL: 60})
			step.Run(1000)
			if _, _, done := waits.Poll(); !done {
				t.Error("a renewal that waited is not answered")
			}
			pass(59 * time.Second)
			if len(m.queue) > 0 || m.revokes > 1 {
				t.Fatalf("revoked before its time, %d at raft, %d done", len(m.queue), m.revokes)
			}
			if i := c.Inspect(); i.Leases != 2 || i.Overdue+i.RevokesInFlight+i.Waiting != 0 {
				t.Errorf("shown is %+v", i)
			}
			pass(2 * time.Second)
			if len(m.queue) != 2 {
				t.Errorf("%d revocations at the end of both", len(m.queue))
			}
		})
	}
}

// TestMailbox_SharesAPlacePerLease fills the request lane: renewals of one lease share a place up to a bound, others
// are refused until there is room.
func TestMailbox_SharesAPlacePerLease(t *testing.T) {
	m := newModel()
	c, step, _ := steppedClient(t, m, func(cfg *Config) { cfg.requests = actors.Bound{Messages: 2, Bytes: 1 << 20} })
	m.grant(proto.Lease{ID: 1, TTL: 30})
	var replies []actors.Reply[int64]
	for range waitersPerLeaseMax + 1 {
		replies = append(replies, ask(t, c, 1))
	}
	if n := c.ref.Depth(actors.Normal); n != 1 {
		t.Fatalf("%d places for one lease", n)
	}
	wantAnswer(t, replies[waitersPerLeaseMax], 0, ErrBusy)
	_ = ask(t, c, 2)
	third := &renew{3, []actors.Reply[int64]{actors.NewReply[int64]()}}
	if err := c.ref.Tell(actors.Normal, third); !errors.Is(err, actors.ErrFull) {
		t.Fatalf("a third place: %v", err)
	}
	step.Run(1000)
	wantAnswer(t, replies[0], 30, nil)
	wantAnswer(t, replies[waitersPerLeaseMax-1], 30, nil)
}

// TestCore_BoundsWaiters fills the bound of renewals that wait for a revocation.
func TestCore_BoundsWaiters(t *testing.T) {
	c := newCore(settings{ticksPerSecond: 10, electionTicks: 10})
	c.lead(1, []proto.Lease{{ID: 1, TTL: 1}})
	c.advance(50 * c.tickLength())
	c.renew(1, make([]actors.Reply[int64], waitersMax), true)
	c.take()
	c.renew(1, make([]actors.Reply[int64], 1), true)
	e := c.take()
	if len(e) != 1 || !errors.Is(e[0].(answer).err, ErrBusy) || c.waiting != waitersMax {
		t.Fatalf("effects %+v, %d wait", e, c.waiting)
	}
}

// TestLimits_Fit states the relations between the bounds.
func TestLimits_Fit(t *testing.T) {
	if tickMax%tickDefault != 0 || waitersPerLeaseMax > waitersMax || revokesInFlightMin >= revokesInFlightMax {
		t.Fatal("bounds contradict each other")
	}
	// Each revocation in flight has a notice and an answer on the way.
	if 2*revokesInFlightMax > changesMessages || revokePause >= moment(tickDefault) {
		t.Fatal("answers do not fit the mailbox, or a refusal costs more than a tick")
	}
	if freshHeartbeats*heartbeatDefault >= electionDefault {
		t.Fatal("leadership is believed for longer than an election takes")
	}
}

// TestClient_UnderLoad grants, renews, asks and expires from many goroutines with real time and a raft that answers on
// goroutines of its own; every request gets one answer and every lease ends.
func TestClient_UnderLoad(t *testing.T) {
	m := &concurrentModel{table: map[proto.LeaseID]proto.Lease{}}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: t.Name()}), Config{
		Table: m, Proposer: m, Status: m.Status, ConfirmLeader: m.confirm, TickInterval: time.Millisecond,
		HeartbeatInterval: time.Microsecond, ElectionTimeout: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.notify = c.Changed
	m.term.Store(1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for worker := range proto.LeaseID(8) {
		wg.Go(func() {
			for i := range proto.LeaseID(200) {
				id := 1 + worker*1000 + i
				alive := time.Now() // a machine that is busy elsewhere may take longer than the lease lasts
				m.grant(proto.Lease{ID: id, TTL: 1})
				for range 2 {
					asked := time.Now()
					switch ttl, err := c.Renew(ctx, id); {
					case err == nil && ttl == 1:
						alive = asked
					case err == nil && ttl == 0 && time.Since(alive) >= time.Second, errors.Is(err, ErrNotPrimary):
					default:
						t.Errorf("renew %d: %d, %v", id, ttl, err)
					}
					if _, _, _, err := c.Remaining(ctx, id); err != nil && !errors.Is(err, ErrNotPrimary) {
						t.Errorf("remaining %d: %v", id, err)
					}
				}
				if worker == 0 && i%50 == 25 {
					m.term.Add(1)
					c.Led(proto.Term(m.term.Load()))
				}
			}
		})
	}
	wg.Wait()
	for m.size() > 0 && ctx.Err() == nil {
		if _, err := c.Renew(ctx, 999_999); err != nil && !errors.Is(err, ErrNotPrimary) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // real time has to pass for leases to end
	}
	if n := m.size(); n > 0 {
		t.Errorf("%d leases never ended", n)
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(ctx, 1); !errors.Is(err, ErrStopped) {
		t.Fatalf("renew after the end: %v", err)
	}
	m.done.Wait()
}

// concurrentModel is a table and a raft for many goroutines.
type concurrentModel struct {
	mu     sync.Mutex
	table  map[proto.LeaseID]proto.Lease
	term   atomic.Uint64
	notify func([]proto.LeaseChange)
	done   sync.WaitGroup
}

func (m *concurrentModel) Lease(id proto.LeaseID) (proto.Lease, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.table[id]
	return l, ok
}

func (m *concurrentModel) All(f func(proto.Lease)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.table {
		f(l)
	}
}

func (m *concurrentModel) KeyCount(id proto.LeaseID, most int) int { return min(int(id), most) }

func (m *concurrentModel) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.table)
}

func (m *concurrentModel) Status() *proto.RaftStatus {
	return &proto.RaftStatus{LeaderTerm: proto.Term(m.term.Load())}
}

func (m *concurrentModel) grant(l proto.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table[l.ID] = l
	m.notify([]proto.LeaseChange{{Kind: proto.LeaseGranted, Lease: l}})
}

func (m *concurrentModel) confirm(done func(error)) { m.done.Go(func() { done(nil) }) }

func (m *concurrentModel) ProposeInTerm(
	term proto.Term, r *etcdserverpb.InternalRaftRequest, a actors.Reply[*proto.Result],
) error {
	if uint64(term) != m.term.Load() {
		return errNotLeader
	}
	id := proto.LeaseID(r.LeaseRevoke.ID)
	m.done.Go(func() {
		m.mu.Lock()
		l, ok := m.table[id]
		delete(m.table, id)
		if ok {
			m.notify([]proto.LeaseChange{{Kind: proto.LeaseRevoked, Lease: l}})
		}
		m.mu.Unlock()
		a.Send(&proto.Result{})
	})
	return nil
}

// TestMetrics_Count checks the counters that dashboards read.
func TestMetrics_Count(t *testing.T) {
	m := newModel()
	var got *metrics
	_, step, clock := steppedClient(t, m, nil)
	a := &leaseActor{metrics: newMetrics(func() Inspection { return Inspection{} })}
	a.count([]proto.LeaseChange{{Kind: proto.LeaseGranted, Lease: proto.Lease{TTL: 3}}, {Kind: proto.LeaseRevoked}})
	got = a.metrics
	if testutil.ToFloat64(got.granted) != 1 || testutil.ToFloat64(got.revoked) != 1 {
		t.Fatal("changes are not counted")
	}
	m.grant(proto.Lease{ID: 1, TTL: 1})
	for range 30 {
		clock.Advance(tickDefault)
		step.Run(1000)
	}
	if len(m.queue) != 1 {
		t.Fatalf("%d revocations", len(m.queue))
	}
}

// TestSpawn_RefusesBadConfigurations names each.
func TestSpawn_RefusesBadConfigurations(t *testing.T) {
	m := newModel()
	for name, cfg := range map[string]Config{
		"no table":     {Proposer: m},
		"no proposer":  {Table: m},
		"uneven ticks": {Table: m, Proposer: m, TickInterval: 300 * time.Millisecond},
		"long ticks":   {Table: m, Proposer: m, TickInterval: 2 * time.Second},
	} {
		if _, err := Spawn(actors.NewSystem(actors.Config{}), cfg); !errors.Is(err, ErrConfigInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRenew_WaitsForApplyOnlyWhenAskedTo is the gate FastLeaseKeepAlive: on, a known lease is renewed however far apply
// is behind; off, the renewal waits for what was committed when it came, and fails when that takes too long.
func TestRenew_WaitsForApplyOnlyWhenAskedTo(t *testing.T) {
	for _, c := range []struct {
		waits bool
		late  error
		want  error
		asked []proto.Index
	}{
		{false, context.DeadlineExceeded, nil, nil},
		{true, context.DeadlineExceeded, ErrApplyLate, []proto.Index{10}},
		{true, nil, nil, []proto.Index{10}},
	} {
		m := newModel()
		var asked []proto.Index
		client, _, _ := steppedClient(t, m, func(cfg *Config) {
			cfg.WaitOnRenew = c.waits
			cfg.WaitApplied = func(_ context.Context, index proto.Index) error {
				asked = append(asked, index)
				return c.late
			}
		})
		m.status.Commit, m.status.Applied = 10, 5
		m.table[7] = proto.Lease{ID: 7, TTL: 9}
		ttl, err := client.Renew(t.Context(), 7)
		if !errors.Is(err, c.want) || c.want == nil && ttl != 9 || !slices.Equal(asked, c.asked) {
			t.Errorf("waits %t, %v: %d %v after waiting for %v", c.waits, c.late, ttl, err, asked)
		}
	}
}

// TestRenew_TakesWhatIsAppliedMeanwhile: with WaitOnRenew, apply may catch up between the look that finds it behind and
// the wait. That is no failure.
func TestRenew_TakesWhatIsAppliedMeanwhile(t *testing.T) {
	m := newModel()
	looks := 0
	client, _, _ := steppedClient(t, m, func(cfg *Config) {
		cfg.WaitOnRenew = true
		cfg.WaitApplied = func(context.Context, proto.Index) error { return nil }
		cfg.Status = func() *proto.RaftStatus {
			s := m.Status()
			if s.Applied < s.Commit {
				if looks++; looks > 2 {
					s.Applied = s.Commit
				}
			}
			return s
		}
	})
	m.status.Commit, m.status.Applied = 10, 5
	m.table[7] = proto.Lease{ID: 7, TTL: 9}
	if _, err := client.Renew(t.Context(), 7); err != nil {
		t.Error(err)
	}
}
