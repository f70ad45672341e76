package leaseactor

import (
	"errors"
	"slices"
	"testing"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// TestByExpiry_OrdersByWhatIsLeft: a renewal moves a lease back, a lease the actor has not been told of counts from
// now, and one that has gone is not listed.
func TestByExpiry_OrdersByWhatIsLeft(t *testing.T) {
	m := newModel()
	c, step, clock := steppedClient(t, m, nil)
	order := func() []proto.LeaseID {
		t.Helper()
		reply := actors.NewReply[endings]()
		if err := c.ref.Tell(actors.Normal, &listEnds{reply}); err != nil {
			t.Fatal(err)
		}
		step.Run(1000)
		ends, err, done := reply.Poll()
		if err != nil || !done {
			t.Fatalf("%v (done %v)", err, done)
		}
		var leases []proto.Lease
		m.All(func(l proto.Lease) { leases = append(leases, l) })
		return ends.order(leases)
	}
	want := func(ids ...proto.LeaseID) {
		t.Helper()
		if got := order(); !slices.Equal(got, ids) {
			t.Errorf("order %v, want %v", got, ids)
		}
	}
	m.grant(proto.Lease{ID: 1, TTL: 30})
	m.grant(proto.Lease{ID: 2, TTL: 40})
	m.grant(proto.Lease{ID: 3, TTL: 90})
	want(1, 2, 3)
	clock.Advance(20 * time.Second)
	step.Run(1000)
	ask(t, c, 1)
	step.Run(1000)
	want(2, 1, 3)
	m.table[9] = proto.Lease{ID: 9, TTL: 25} // its notice is under way
	delete(m.table, 3)
	want(2, 9, 1)
	m.status.LeaderTerm = 0
	want(9, 1, 2)
}

// TestRemaining_AsksAfterAPause: a positive time left is a promise like a renewal's.
func TestRemaining_AsksAfterAPause(t *testing.T) {
	for _, refusal := range []error{nil, errNotLeader} {
		m := newModel()
		c, step, clock := steppedClient(t, m, func(cfg *Config) { cfg.ConfirmLeader = m.confirm })
		m.grant(proto.Lease{ID: 1, TTL: 60})
		step.Run(1000)
		c.stop() // no tick comes: the process stands still
		clock.Advance(freshHeartbeats*heartbeatDefault + time.Millisecond)
		left := actors.NewReply[Remaining]()
		if err := c.ref.Tell(actors.Normal, &remaining{1, left}); err != nil {
			t.Fatal(err)
		}
		step.Run(1000)
		if _, _, done := left.Poll(); done || len(m.confirms) != 1 {
			t.Fatalf("answered without asking (done %v, %d questions)", done, len(m.confirms))
		}
		m.confirms[0](refusal)
		step.Run(1000)
		r, err, done := left.Poll()
		if !done || refusal == nil && (err != nil || r.Granted != 60) || refusal != nil && !errors.Is(err, ErrNotPrimary) {
			t.Errorf("refused with %v: %+v, %v (done %v)", refusal, r, err, done)
		}
	}
}

// TestRemaining_IsAnsweredWhenLeadershipEnds: also one that waits for a confirmation, and exactly once.
func TestRemaining_IsAnsweredWhenLeadershipEnds(t *testing.T) {
	m := newModel()
	c, step, _ := steppedClient(t, m, func(cfg *Config) { cfg.ConfirmLeader = m.confirm })
	m.grant(proto.Lease{ID: 1, TTL: 60})
	m.status.DiskStalledTicks = 3
	left := actors.NewReply[Remaining]()
	if err := c.ref.Tell(actors.Normal, &remaining{1, left}); err != nil {
		t.Fatal(err)
	}
	step.Run(1000)
	m.status.LeaderTerm = 0
	c.Deposed()
	step.Run(1000)
	if _, err, done := left.Poll(); !done || !errors.Is(err, ErrNotPrimary) {
		t.Errorf("%v (done %v)", err, done)
	}
	m.confirms[0](nil)
	step.Run(1000)
}
