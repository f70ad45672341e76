package raftactor

import (
	"errors"
	"time"

	"troupe/actors"
	"troupe/raftactor/disk"
)

// spareKeeper decides when the next segment is ordered and what its failure means. It does no I/O and has no clock. At
// most one order is out, and at most one spare is there, so the log takes the space of one segment more than it uses.
type spareKeeper struct {
	// generation numbers the orders; what belongs to an older one is void.
	generation uint64
	// ordered is set while an order is out, waiting while a timer runs to the next one.
	ordered, waiting bool
	// delay is the present back-off, 0 while the disk is not full.
	delay time.Duration
}

// full reports whether the last order failed.
func (k *spareKeeper) full() bool { return k.delay > 0 }

// due reports whether nothing is under way already.
func (k *spareKeeper) due() bool { return !k.ordered && !k.waiting }

// order begins an order and gives its number.
func (k *spareKeeper) order() uint64 {
	k.generation++
	k.ordered = true
	return k.generation
}

// delivered notes that the spare has come. recovered says that orders had failed before.
func (k *spareKeeper) delivered() (recovered bool) {
	recovered = k.full()
	k.ordered, k.delay = false, 0
	return recovered
}

// failed notes a failure and gives the time to the next try. first says that orders had not failed before.
func (k *spareKeeper) failed() (delay time.Duration, first bool) {
	first = !k.full()
	k.ordered, k.waiting = false, true
	k.delay = min(max(2*k.delay, spareRetryMin), spareRetryMax)
	return k.delay, first
}

// again makes the next try due at once: the timer has run out, or space was given back.
func (k *spareKeeper) again() { k.waiting = false }

// spareOrder asks for a segment's file. Sent by wal to its helper, one at a time; answered by walSpare, exactly once.
type spareOrder struct {
	path       string
	bytes      int64
	generation uint64
	to         actors.Ref[walMessage]
}

// spareActor prepares segments beside the wal actor: on a full or slow disk a reservation can take longer than any
// append may wait.
type spareActor struct {
	disk Disk
	self actors.Self[spareMessage]
}

// spareMessage is a spareOrder, or a walSpare that its mailbox had no room for.
type spareMessage interface{ spareMessage() }

func (spareOrder) spareMessage()    {}
func (spareDelivery) spareMessage() {}

// spareDelivery is an answer on its way.
type spareDelivery struct {
	to     actors.Ref[walMessage]
	answer *walSpare
}

// Abort closes the file of an answer that nobody will get.
func (d spareDelivery) Abort(err error) { d.answer.Abort(err) }

// Start is part of actors.Behavior.
func (a *spareActor) Start(self actors.Self[spareMessage]) error {
	a.self = self
	return nil
}

// Handle is part of actors.Behavior.
func (a *spareActor) Handle(_ actors.Self[spareMessage], batch []spareMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case spareOrder:
			file, err := prepareSegment(a.disk, m.path, m.bytes)
			a.deliver(spareDelivery{to: m.to, answer: &walSpare{
				disk: a.disk, path: m.path, generation: m.generation, file: file, err: err,
			}})
		case spareDelivery:
			a.deliver(m)
		}
	}
}

// deliver gives wal its answer, later when its mailbox is full. A wal that has ended needs no spare.
func (a *spareActor) deliver(d spareDelivery) {
	switch err := d.to.Tell(actors.Normal, d.answer); {
	case err == nil:
	case errors.Is(err, actors.ErrFull):
		a.self.After(spareRetryMin, d)
	default:
		d.answer.Abort(err)
	}
}

// Stop is part of actors.Behavior.
func (a *spareActor) Stop() {}

// sparePolicy refuses what cannot happen: one order is out at a time.
var sparePolicy = actors.Reject[spareMessage](actors.Bound{Messages: spareInboxMessagesMax, Bytes: spareInboxBytesMax})

// spawnSpares starts the helper.
func spawnSpares(sys *actors.System, d Disk) (actors.Ref[spareMessage], error) {
	return actors.Spawn(sys, actors.Spec[spareMessage]{
		Name:     walName + "/spare",
		Policy:   sparePolicy,
		Behavior: func() actors.Behavior[spareMessage] { return &spareActor{disk: d} },
	})
}

// mindSpare orders the next segment when it is time.
func (a *walActor) mindSpare() {
	log := a.cfg.log
	if a.cfg.order == nil || !a.spares.due() || !log.wantsSpare() {
		return
	}
	a.cfg.order(spareOrder{
		path: log.sparePath(), bytes: log.segmentBytes, generation: a.spares.order(), to: a.ref,
	})
}

// firstSpare prepares the next segment, when it is time, before anything is admitted. Until a first order came back, a
// log whose segment is nearly used up would refuse requests as overload, whether the disk is full or not.
func (a *walActor) firstSpare() {
	log := a.cfg.log
	for a.spares.due() && log.wantsSpare() {
		m := &walSpare{disk: a.cfg.disk, path: log.sparePath(), generation: a.spares.order()}
		m.file, m.err = prepareSegment(m.disk, m.path, log.segmentBytes)
		a.onSpare(m)
	}
}

// onSpare takes the answer to an order.
func (a *walActor) onSpare(m *walSpare) {
	if m.generation != a.spares.generation || !a.spares.ordered {
		m.Abort(actors.ErrStopped)
		return
	}
	if m.err == nil {
		a.cfg.log.takeSpare(m.file)
		if a.spares.delivered() {
			a.cfg.logger.Info().Msg("the disk of the log has space again")
		}
		return
	}
	if disk.Full(m.err) && a.freeSpace() {
		a.spares.ordered = false // at once again: what nobody needs was in the way
		return
	}
	delay, first := a.spares.failed()
	if first {
		what := "the disk of the log is full"
		if !disk.Full(m.err) {
			what = "the next segment of the log cannot be prepared"
		}
		a.cfg.logger.Warn().Err(m.err).Int64("room-bytes", a.cfg.log.room(true).bytes).Str("wal-dir", a.cfg.log.dir).
			Msg(what + ", writes go on until the present segment is used up")
	}
	a.after(delay, &walRetry{a.spares.generation})
}

// onRetry ends a back-off.
func (a *walActor) onRetry(m *walRetry) {
	if m.generation == a.spares.generation {
		a.spares.again()
	}
}

// freeSpace deletes the segments that no start reads, and reports whether there was one. Snapshot files are small, and
// which of them a start needs is not known before the next record is durable: they stay. Who has asked to keep all
// segments keeps all.
func (a *walActor) freeSpace() bool {
	log := a.cfg.log
	before := len(log.released)
	if before == 0 || a.cfg.segmentsKept < 0 {
		return false
	}
	if err := log.Purge(len(log.segments)); err != nil {
		a.cfg.logger.Warn().Err(err).Msg("old segments could not be deleted")
	}
	freed := before - len(log.released)
	if freed > 0 {
		a.cfg.logger.Warn().Int("segments", freed).
			Msg("the disk of the log is full, segments that no start needs were deleted")
	}
	return freed > 0
}

// tellRoom tells raft of room that has changed without an append.
func (a *walActor) tellRoom() {
	room := a.room()
	if room.full != a.told.full || room.release != a.told.release || room.bytes > a.told.bytes {
		a.tellPersisted(a.seq)
	}
}

// tellPersisted tells raft that all appends up to seq are durable, and what fits behind them.
func (a *walActor) tellPersisted(seq uint64) {
	a.seq, a.told = seq, a.room()
	a.cfg.owner.persisted(seq, a.told)
}

func (a *walActor) room() logRoom { return a.cfg.log.room(a.spares.full()) }
