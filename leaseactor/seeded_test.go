package leaseactor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

var (
	seedFlag = flag.Uint64("lease.seed", 0, "run this seed only")
	runsFlag = flag.Int("lease.runs", 100, "number of seeds")
)

// TestLeases_KeepTheirPromises runs random grants, renewals, revocations, changes of leadership, stalls and delays.
// Nobody who was told of a positive TTL may lose the lease to expiry before that time is over, every request is
// answered once, and every lease that nobody renews ends.
func TestLeases_KeepTheirPromises(t *testing.T) {
	first, last := uint64(1), uint64(*runsFlag)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newWorld(t, seed).run(600) })
	}
}

type world struct {
	t        *testing.T
	seed     uint64
	random   *rand.Rand
	step     *actorstest.Stepper
	clock    *actorstest.ManualClock
	model    *model
	client   *Client
	promised map[proto.LeaseID]time.Time
	slots    [12]proto.LeaseID
	open     int // renewals without an answer
	positive int
	zeros    int
	byUser   bool
	term     proto.Term
	grown    proto.LeaseID // ids of leases that come in crowds
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 11)), step: actorstest.NewStepper(seed),
		clock: actorstest.NewManualClock(), model: newModel(), promised: map[proto.LeaseID]time.Time{},
	}
	for i := range w.slots {
		w.slots[i] = proto.LeaseID(i + 1)
	}
	control := actors.Bound{Messages: changesMessages, Bytes: changesBytes}
	if w.random.IntN(2) == 0 {
		control = actors.Bound{Messages: 1 + w.random.IntN(3), Bytes: 300}
	}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "seeded", Clock: w.clock, Dispatcher: w.step}), Config{
		Table: w.model, Proposer: w.model, Status: w.model.Status, ConfirmLeader: w.model.confirm, control: control,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.client, w.model.notify, w.model.applied = c, c.Changed, w.applied
	return w
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d (go test ./leaseactor -run KeepTheirPromises -lease.seed=%d): %s",
		w.seed, w.seed, fmt.Sprintf(format, args...))
}

func (w *world) run(turns int) {
	for range turns {
		w.act()
		for range w.random.IntN(6) {
			w.step.Step()
		}
		w.inspect()
	}
	w.finish()
}

func (w *world) act() {
	slot := w.random.IntN(len(w.slots))
	id := w.slots[slot]
	switch n := w.random.IntN(100); {
	case n < 12:
		// An id that comes back is revoked by what was decided about the last lease of that name: etcd's entries name no more
		// than the id. So ids do not come back.
		if _, exists := w.model.table[id]; !exists {
			w.slots[slot] += proto.LeaseID(len(w.slots))
			id = w.slots[slot]
			w.model.grant(proto.Lease{ID: id, TTL: 1 + w.random.Int64N(6)})
			w.promise(id)
		}
	case n < 14:
		w.crowd()
	case n < 40:
		w.renew(id)
	case n < 43:
		w.byUser = true
		w.model.revoke(id)
		w.byUser = false
	case n < 60:
		w.clock.Advance(time.Duration(w.random.IntN(400)) * time.Millisecond)
	case n < 62:
		w.clock.Advance(time.Duration(w.random.IntN(3000)) * time.Millisecond)
	case n < 80:
		w.model.apply()
		if w.random.IntN(4) == 0 { // a turn of raft's that takes all
			for len(w.model.queue) > 0 {
				w.model.apply()
			}
		}
	case n < 88:
		w.model.answerConfirm()
	case n < 90:
		w.model.stalled = !w.model.stalled
		w.model.status.DiskStalledTicks = w.random.IntN(2)
	case n < 94:
		w.lead()
	case n < 96:
		w.model.status.LeaderTerm = 0
		w.client.Deposed()
	default:
		w.check(id)
	}
}

// crowd grants many leases that end together; nobody renews them.
func (w *world) crowd() {
	ttl := 1 + w.random.Int64N(3)
	for range 1 + w.random.IntN(4*revokesInFlightMin) {
		w.grown++
		id := crowdFirst + w.grown
		w.model.grant(proto.Lease{ID: id, TTL: ttl})
		w.promise(id)
	}
}

// crowdFirst is above all ids of slots.
const crowdFirst = proto.LeaseID(1 << 40)

// inspect compares what is shown with what is.
func (w *world) inspect() {
	switch i := w.client.Inspect(); {
	case w.model.twice != "":
		w.failf("revoked again while that is in flight: %s", w.model.twice)
	case w.model.most > revokesInFlightMax:
		w.failf("%d revocations in flight", w.model.most)
	case i.Queued+i.RevokesInFlight > i.Overdue || i.Overdue > i.Leases || i.Overdue == 0 && i.OldestOverdue != 0:
		w.failf("shown is %+v", i)
	}
}

func (w *world) lead() {
	w.term++
	w.model.status.LeaderTerm = w.term
	if w.random.IntN(2) == 0 {
		w.client.Led(w.term)
	}
}

// check asks for the remaining time, in the table's own turn of events, and lets leadership be confirmed if need be.
func (w *world) check(id proto.LeaseID) {
	reply := actors.NewReply[Remaining]()
	if err := w.client.ref.Tell(actors.Normal, &remaining{id, reply}); err != nil {
		w.failf("remaining: %v", err)
	}
	w.step.Run(10_000)
	r, err, done := reply.Poll()
	for ; !done && len(w.model.confirms) > 0; r, err, done = reply.Poll() {
		w.model.answerConfirm()
		w.step.Run(10_000)
	}
	switch l, exists := w.model.table[id]; {
	case !done:
		w.failf("remaining of %d is not answered", id)
	case err != nil && (!errors.Is(err, ErrNotPrimary) || w.model.status.LeaderTerm != 0):
		w.failf("remaining of %d: %v", id, err)
	case err == nil && (r.Found != exists || exists && (r.Granted != l.TTL || r.Seconds > l.TTL+2)):
		w.failf("remaining of %d is %+v, the table has %+v, %v", id, r, l, exists)
	}
}

// promise notes that the lease may not expire before its time to live is over.
func (w *world) promise(id proto.LeaseID) {
	until := w.clock.Now().Add(time.Duration(w.model.table[id].TTL) * time.Second)
	if until.After(w.promised[id]) {
		w.promised[id] = until
	}
}

// renew asks, and checks the answer at the moment it leaves.
func (w *world) renew(id proto.LeaseID) {
	w.open++
	reply := actors.ReplyTo(func(ttl int64, err error) {
		w.open--
		l, exists := w.model.table[id]
		switch {
		case err != nil:
			if !errors.Is(err, ErrNotPrimary) && !errors.Is(err, ErrBusy) {
				w.failf("renewal of %d: %v", id, err)
			}
		case ttl == 0:
			w.zeros++
		case !exists || l.TTL != ttl:
			w.failf("renewal of %d answered %d, the table has %+v", id, ttl, l)
		default:
			w.positive++
			w.promise(id)
		}
	})
	if err := w.client.ref.Tell(actors.Normal, &renew{id, []actors.Reply[int64]{reply}}); err != nil {
		w.failf("renew: %v", err)
	}
}

// applied checks a revocation against what was promised.
func (w *world) applied(id proto.LeaseID) {
	if until, ok := w.promised[id]; ok && !w.byUser && w.clock.Now().Before(until) {
		w.failf("lease %d expired %v before the time that was promised", id, until.Sub(w.clock.Now()))
	}
	delete(w.promised, id)
}

// finish restores order and waits for every lease to end.
func (w *world) finish() {
	w.model.stalled, w.model.status.DiskStalledTicks = false, 0
	w.lead()
	for range 400 {
		w.step.Run(10_000)
		for len(w.model.queue) > 0 || len(w.model.confirms) > 0 {
			w.model.apply()
			w.model.answerConfirm()
			w.step.Run(10_000)
		}
		w.clock.Advance(50 * time.Millisecond)
	}
	w.inspect()
	if i := w.client.Inspect(); i.Leases+i.Overdue+i.Waiting+i.RevokesInFlight+i.Queued != 0 {
		w.failf("at the end is shown %+v", i)
	}
	if w.open != 0 {
		w.failf("%d renewals are not answered", w.open)
	}
	if w.positive == 0 || w.zeros == 0 || w.model.revokes == 0 {
		w.failf("the run shows nothing: %d positive, %d zero, %d revoked", w.positive, w.zeros, w.model.revokes)
	}
	if len(w.model.table) > 0 {
		w.failf("%d leases never ended", len(w.model.table))
	}
	if err := w.client.Stop(context.Background()); err != nil {
		w.failf("stop: %v", err)
	}
}
