package leaseactor

import "troupe/proto"

// Checkpoints store how much of a lease is left, so that a new leader does not begin with all of it. They are sent
// only when the operator says that every member clears them on renewal (design 4.8): an etcd leader whose
// LeaseCheckpoint gate is off does not, and would let leases expire whose clients were told the full time. The gate
// is off by default; then only the last part of this file does anything: a remainder that an earlier leader has
// stored is cleared when its lease is renewed, else a later leader would begin with it.

// armCheckpoint plans the next checkpoint of a lease that lives long enough to have one.
func (c *core) armCheckpoint(l *lease) {
	if c.checkpointTicks > 0 && tick(l.ttl)*c.ticksPerSecond > c.checkpointTicks {
		c.wheel.arm(&l.checkpoint, c.wheel.now+c.checkpointTicks)
	}
}

// clearCheckpoint plans to clear a stored remainder that a renewal has made wrong. The store's notice says when that
// has happened; until then renewals ask again, now and then.
func (c *core) clearCheckpoint(l *lease) {
	if l.remaining == 0 || c.wheel.now < l.clearAgain {
		return
	}
	l.clearAgain = c.wheel.now + clearRetryTicks
	c.cleared = append(c.cleared, proto.Lease{ID: l.id})
}

// saveDue emits the checkpoints of this tick, in entries of bounded size.
func (c *core) saveDue() {
	list := c.cleared
	c.cleared = nil
	for _, l := range c.due {
		left := l.expiry - c.wheel.now
		if c.leases[l.id] != l || l.state != leaseLive || left <= 0 {
			continue
		}
		seconds := int64((left + c.ticksPerSecond - 1) / c.ticksPerSecond)
		list = append(list, proto.Lease{ID: l.id, Remaining: min(seconds, l.ttl)})
		c.armCheckpoint(l)
	}
	c.due = nil
	for len(list) > 0 {
		n := min(len(list), checkpointsPerEntryMax)
		c.emit(saveRemaining{term: c.term, leases: list[:n:n]})
		list = list[n:]
	}
}
