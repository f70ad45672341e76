package leaseactor

import (
	"cmp"
	"slices"

	"troupe/actors"
	"troupe/proto"
)

// leaseState is where a lease is on its way.
type leaseState uint8

const (
	// leaseLive has time left.
	leaseLive leaseState = iota
	// leaseExpired has none and waits in the queue.
	leaseExpired
	// leaseRefused waits for its retry, after raft has refused its revocation.
	leaseRefused
	// leaseRevoking has a revocation at raft.
	leaseRevoking
)

// lease is one lease while this member is primary.
type lease struct {
	id         proto.LeaseID
	ttl        int64 // seconds, as granted
	remaining  int64 // seconds, as last checkpointed; 0: none
	expiry     tick  // the first tick at which it has expired
	proposed   moment
	clearAgain tick // when its stored remainder may be asked to be cleared again
	state      leaseState
	doubtful   bool  // notices were dropped while its revocation was at raft: this may be another lease of that id
	keys       int32 // attached when its revocation was proposed, as far as they were counted
	timer      timer // fires at the expiry that was known when it was armed, or for a retry
	checkpoint timer
	waiters    []actors.Reply[int64]

	before, after *lease // in overdue
}

// effect is one thing the shell does, in the order given.
type effect interface{ leaseEffect() }

type (
	// propose asks raft to revoke a lease in a term.
	propose struct {
		id   proto.LeaseID
		term proto.Term
		at   moment // comes back with the answer
	}
	// ended says that an expired lease is revoked, and how long after its expiry.
	ended struct{ late moment }
	// answer answers renewals. Before a positive TTL leaves, the shell looks into the published lease table.
	answer struct {
		id      proto.LeaseID
		replies []actors.Reply[int64]
		ttl     int64
		err     error
	}
	// report answers a question for what is left of a lease.
	report struct {
		id    proto.LeaseID
		reply actors.Reply[Remaining]
		err   error
	}
	// confirm asks whether this member still leads; answered by confirmed with the round.
	confirm struct{ round uint64 }
	// saveRemaining asks raft to checkpoint leases in a term.
	saveRemaining struct {
		term   proto.Term
		leases []proto.Lease // ID and Remaining
	}
)

func (propose) leaseEffect()       {}
func (ended) leaseEffect()         {}
func (answer) leaseEffect()        {}
func (report) leaseEffect()        {}
func (confirm) leaseEffect()       {}
func (saveRemaining) leaseEffect() {}

// settings are the constants of a core.
type settings struct {
	ticksPerSecond  tick
	electionTicks   tick
	checkpointTicks tick // 0: no checkpoints
	// keysOf counts the keys of a lease in the published table, up to a number; nil: there are none.
	keysOf func(id proto.LeaseID, most int) int
}

// asking is who waits for leadership to be confirmed: renewals of a lease, or one question for what it has left.
type asking struct {
	id      proto.LeaseID
	replies []actors.Reply[int64]
	left    actors.Reply[Remaining]
}

// core is the leases of a primary and their time. It is pure: what happened and the present tick go in, effects come
// out. While term is 0 this member is not primary, holds nothing and answers nothing but that.
type core struct {
	settings
	term    proto.Term
	wheel   wheel
	leases  map[proto.LeaseID]*lease
	now     moment   // at least the beginning of the wheel's tick
	queue   []*lease // expired, to be revoked, oldest first; also some that are gone
	queued  int      // those that are not
	overdue overdue  // expired, not revoked
	pace    pace
	waiting int // requests that wait for a revocation or a confirmation
	round   uint64
	asked   []asking // covered by the round that is out
	next    []asking // came after it was asked
	cleared []proto.Lease
	due     []*lease // for a checkpoint
	effects []effect
}

func newCore(s settings) *core {
	return &core{settings: s, leases: make(map[proto.LeaseID]*lease), pace: newPace(0)}
}

// take gives the effects since the last call, valid until the next input.
func (c *core) take() []effect {
	e := c.effects
	c.effects = c.effects[:0]
	return e
}

func (c *core) emit(e effect) { c.effects = append(c.effects, e) }

func (c *core) primary() bool { return c.term != 0 }

// lead makes this member primary in a term, or not primary with term 0. leases is the whole lease table. All expiries
// begin anew, one election timeout later than they would: the clients of an earlier leader must get the chance to
// renew here.
func (c *core) lead(term proto.Term, leases []proto.Lease) {
	if term == c.term {
		return
	}
	c.resign()
	c.term = term
	if term == 0 {
		return
	}
	slices.SortFunc(leases, func(a, b proto.Lease) int { return cmp.Compare(a.ID, b.ID) })
	for _, l := range leases {
		c.insert(l, c.electionTicks)
	}
}

// resign forgets everything at once: what it decided may be void already.
func (c *core) resign() {
	for _, id := range sortedIDs(c.leases) {
		c.refuse(c.leases[id].id, c.leases[id].waiters, ErrNotPrimary)
	}
	for _, r := range slices.Concat(c.asked, c.next) {
		c.refuse(r.id, r.replies, ErrNotPrimary)
		c.report(r.id, r.left, ErrNotPrimary)
	}
	now := c.wheel.now
	c.wheel = wheel{now: now}
	c.leases = make(map[proto.LeaseID]*lease)
	c.queue, c.asked, c.next, c.cleared, c.due, c.waiting = nil, nil, nil, nil, nil, 0
	c.queued, c.overdue = 0, overdue{}
	c.pace = newPace(c.now)
	c.round++ // an answer that is still to come belongs to nobody
}

func (c *core) refuse(id proto.LeaseID, replies []actors.Reply[int64], err error) {
	if len(replies) > 0 {
		c.emit(answer{id: id, replies: replies, err: err})
	}
}

func (c *core) report(id proto.LeaseID, reply actors.Reply[Remaining], err error) {
	if reply.Valid() {
		c.emit(report{id, reply, err})
	}
}

// insert adds a lease with all, or what is left, of its time.
func (c *core) insert(l proto.Lease, extra tick) {
	c.remove(l.ID)
	one := &lease{id: l.ID, ttl: l.TTL, remaining: l.Remaining}
	one.timer.lease, one.checkpoint.lease = one, one
	seconds := l.TTL
	if l.Remaining > 0 {
		seconds = l.Remaining
	}
	one.expiry = c.expiryAfter(seconds) + extra
	c.leases[l.ID] = one
	c.wheel.arm(&one.timer, one.expiry)
	c.armCheckpoint(one)
}

// expiryAfter is the tick at which so many whole seconds have passed for certain: the present tick has begun already.
func (c *core) expiryAfter(seconds int64) tick {
	return c.wheel.now + tick(seconds)*c.ticksPerSecond + 1
}

// remove takes out a lease that is gone. Renewals that waited for that are answered.
func (c *core) remove(id proto.LeaseID) {
	l := c.leases[id]
	if l == nil {
		return
	}
	if l.state != leaseLive {
		c.emit(ended{max(c.now-c.deadline(l), 0)})
	}
	c.forget(l)
	if len(l.waiters) > 0 {
		c.waiting -= len(l.waiters)
		c.emit(answer{id: id, replies: l.waiters})
		l.waiters = nil
	}
}

// forget takes out a lease, whatever has become of it.
func (c *core) forget(l *lease) {
	delete(c.leases, l.id)
	l.timer.disarm()
	l.checkpoint.disarm()
	switch l.state {
	case leaseRevoking:
		c.pace.end(l.keys)
	case leaseExpired:
		c.queued--
	}
	if l.state != leaseLive {
		c.overdue.drop(l)
	}
}

// change takes what a batch did to the lease table.
func (c *core) change(changes []proto.LeaseChange) {
	if !c.primary() {
		return
	}
	for _, one := range changes {
		switch one.Kind {
		case proto.LeaseGranted:
			c.insert(one.Lease, 0)
		case proto.LeaseRevoked:
			c.remove(one.Lease.ID)
		case proto.LeaseCheckpointed:
			if l := c.leases[one.Lease.ID]; l != nil {
				l.remaining = one.Lease.Remaining
			}
		default:
			actors.Must(false, "unknown kind of lease change %d", one.Kind)
		}
	}
	c.pump()
}

// reload takes the whole lease table after changes were dropped. A lease that is known may have been revoked and
// granted anew meanwhile, so each gets all its time, and nothing that was decided about it stands, except what is at
// raft already: that gets all its time when raft has answered and it is still there.
func (c *core) reload(leases []proto.Lease) {
	if !c.primary() {
		return
	}
	there := make(map[proto.LeaseID]bool, len(leases))
	slices.SortFunc(leases, func(a, b proto.Lease) int { return cmp.Compare(a.ID, b.ID) })
	for _, l := range leases {
		there[l.ID] = true
		switch known := c.leases[l.ID]; {
		case known == nil:
			c.insert(l, 0)
		case known.state == leaseRevoking:
			known.doubtful = true
		default:
			c.giveUp(known)
			c.insert(proto.Lease{ID: l.ID, TTL: l.TTL}, max(known.expiry-c.expiryAfter(l.TTL), 0))
		}
	}
	for _, id := range sortedIDs(c.leases) {
		if !there[id] {
			c.remove(id)
		}
	}
	c.pump()
}

// giveUp takes out a lease of which nothing is certain. Renewals that waited for its end have to ask again.
func (c *core) giveUp(l *lease) {
	c.waiting -= len(l.waiters)
	c.refuse(l.id, l.waiters, ErrBusy)
	l.waiters = nil
	c.forget(l)
}

// learn adds a lease of the published table that this core has not been told of yet.
func (c *core) learn(l proto.Lease) {
	if c.primary() && c.leases[l.ID] == nil {
		c.insert(l, 0)
	}
}

// tickLength is a tick in moments.
func (c *core) tickLength() moment { return momentsPerSecond / moment(c.ticksPerSecond) }

// deadline is when a lease expires.
func (c *core) deadline(l *lease) moment { return moment(l.expiry) * c.tickLength() }

// set takes the present moment without letting timers fire: for a core that is not primary and has none. A clock that
// was set back changes nothing.
func (c *core) set(now moment) {
	c.now = max(c.now, now)
	c.pace.now = c.now
	if !c.primary() {
		c.wheel.now = tick(c.now / c.tickLength())
	}
}

// advance moves on to a moment, and lets happen what is due by then.
func (c *core) advance(now moment) {
	c.set(now)
	if to := tick(c.now / c.tickLength()); to > c.wheel.now {
		c.wheel.advance(to, c.fire)
		c.pump()
		c.saveDue()
	}
}

// fire handles a timer of the wheel. A renewal moves only the expiry and leaves the timer where it was, because most
// timers would be moved many times before they mean anything; here it is found that there is time left.
func (c *core) fire(l *lease, t *timer) {
	switch {
	case t == &l.checkpoint:
		c.due = append(c.due, l)
	case l.state == leaseLive && l.expiry > c.wheel.now:
		c.wheel.arm(&l.timer, l.expiry)
	default: // expired, or to be tried again
		if l.state == leaseLive {
			c.overdue.add(l)
		}
		l.state = leaseExpired
		c.queue = append(c.queue, l)
		c.queued++
	}
}

// pump proposes revocations as far as the pace allows. Those in the queue that have gone meanwhile are left out.
func (c *core) pump() {
	for len(c.queue) > 0 {
		l := c.queue[0]
		there := c.leases[l.id] == l
		if there && !c.pace.allows(c.count(l)) {
			return
		}
		c.queue[0] = nil
		if c.queue = c.queue[1:]; len(c.queue) == 0 {
			c.queue = nil
		}
		if !there {
			continue
		}
		c.queued--
		l.state, l.proposed = leaseRevoking, c.now
		c.pace.begin(l.keys)
		c.emit(propose{id: l.id, term: c.term, at: c.now})
	}
}

// count looks how many keys the revocation of a lease has to delete, unless raft takes none at present anyway.
func (c *core) count(l *lease) int32 {
	if c.keysOf != nil && c.pace.open() {
		l.keys = int32(c.keysOf(l.id, revokedKeysMax))
	}
	return l.keys
}

// revoked takes raft's answer to what was proposed at a moment. The store's notice comes before a good one and has
// removed the lease; gone says that the published table does not have it either. Otherwise it is tried again a little
// later, unless it may be another lease by now: then the caller lets it be learned anew.
func (c *core) revoked(id proto.LeaseID, term proto.Term, proposed moment, ok, gone bool) {
	if term != c.term || c.term == 0 {
		return // decided by an earlier self
	}
	l := c.leases[id]
	mine := l != nil && l.state == leaseRevoking && l.proposed == proposed
	switch {
	case mine && (ok || gone):
		c.remove(id)
	case mine && l.doubtful:
		c.giveUp(l)
	case mine:
		c.pace.end(l.keys)
		l.state = leaseRefused
		c.wheel.arm(&l.timer, c.wheel.now+revokeRetryTicks)
	}
	if ok || gone {
		c.pace.succeeded(proposed)
	} else {
		c.pace.refused(proposed)
	}
	c.pump()
}

// renew extends a lease. fresh says that leadership need not be asked for. Otherwise the time is extended before that
// is known, so that the lease does not end while one asks, and again when the answer leaves: an extension too many
// does no harm, one too few does.
func (c *core) renew(id proto.LeaseID, replies []actors.Reply[int64], fresh bool) {
	if !c.primary() {
		c.refuse(id, replies, ErrNotPrimary)
		return
	}
	l := c.leases[id]
	if l == nil {
		c.emit(answer{id: id, replies: replies})
		return
	}
	if l.state == leaseLive && fresh {
		c.extend(l)
		c.emit(answer{id: id, replies: replies, ttl: l.ttl})
		return
	}
	if c.waiting+len(replies) > waitersMax {
		c.refuse(id, replies, ErrBusy)
		return
	}
	c.waiting += len(replies)
	if l.state != leaseLive {
		l.waiters = append(l.waiters, replies...)
		return
	}
	c.extend(l)
	c.next = append(c.next, asking{id: id, replies: replies})
	c.ask()
}

// left answers how much time a lease has left. It is a promise like a renewal's, so leadership is confirmed before.
func (c *core) left(id proto.LeaseID, reply actors.Reply[Remaining], fresh bool) {
	switch {
	case !c.primary():
		c.report(id, reply, ErrNotPrimary)
	case fresh:
		c.report(id, reply, nil)
	case c.waiting == waitersMax:
		c.report(id, reply, ErrBusy)
	default:
		c.waiting++
		c.next = append(c.next, asking{id: id, left: reply})
		c.ask()
	}
}

// extend gives a lease its full time. That may be less than it had as a new leader's.
func (c *core) extend(l *lease) {
	l.expiry = c.expiryAfter(l.ttl)
	if l.expiry < l.timer.at {
		c.wheel.arm(&l.timer, l.expiry)
	}
	c.clearCheckpoint(l)
}

// ask begins a round of confirmation, if none is out and somebody waits.
func (c *core) ask() {
	if len(c.asked) > 0 || len(c.next) == 0 {
		return
	}
	c.asked, c.next = c.next, nil
	c.round++
	c.emit(confirm{c.round})
}

// confirmed takes the answer of a round: whoever asked before it may be answered now.
func (c *core) confirmed(round uint64, err error) {
	if round != c.round || len(c.asked) == 0 {
		return
	}
	asked := c.asked
	c.asked = nil
	if err != nil {
		err = ErrNotPrimary
	}
	for _, r := range asked {
		if r.left.Valid() {
			c.waiting--
			c.report(r.id, r.left, err)
			continue
		}
		c.waiting -= len(r.replies)
		l := c.leases[r.id]
		switch {
		case err != nil:
			c.refuse(r.id, r.replies, err)
		case l == nil:
			c.emit(answer{id: r.id, replies: r.replies})
		case l.state != leaseLive: // the round took longer than the lease lasts
			c.waiting += len(r.replies)
			l.waiters = append(l.waiters, r.replies...)
		default:
			c.extend(l) // the promise counts from now
			c.emit(answer{id: r.id, replies: r.replies, ttl: l.ttl})
		}
	}
	c.ask()
}

// remainingOf gives the time a lease has left. Part of the present tick is over, so it does not count, nor does the one
// that expiryAfter adds.
func (c *core) remainingOf(id proto.LeaseID) Remaining {
	l := c.leases[id]
	if l == nil {
		return Remaining{}
	}
	left := l.expiry - c.wheel.now
	if left > 0 {
		left = max(left-2, 0)
	}
	return Remaining{Seconds: int64(left / c.ticksPerSecond), Granted: l.ttl, Found: true}
}

// ends gives when each lease ends, in any order; nothing when this member is not primary.
func (c *core) ends() endings {
	e := endings{now: c.wheel.now, second: c.ticksPerSecond, leases: make([]ending, 0, len(c.leases))}
	for _, l := range c.leases {
		e.leases = append(e.leases, ending{l.id, l.expiry})
	}
	return e
}

func sortedIDs(m map[proto.LeaseID]*lease) []proto.LeaseID {
	ids := make([]proto.LeaseID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
