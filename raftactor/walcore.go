package raftactor

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// walEffect is something the wal actor's core wants done, in the order given.
type walEffect interface{ walEffect() }

// writeLog writes appends with one write and, with sync, makes everything written so far durable with one fsync.
type writeLog struct {
	appends []*walAppend
	// hardState is the last one of the appends, nil if none has one: the others are superseded before anyone could see
	// them, because the batch becomes durable as a whole or is not answered.
	hardState *raftpb.HardState
	sync      bool
	// confirming is set when only a confirmation needs the sync.
	confirming bool
}

// tellPersisted tells raft that all appends up to seq are durable as far as they must be.
type tellPersisted struct{ seq uint64 }

// tellConfirmed answers a walConfirm.
type tellConfirmed struct{ confirm *walConfirm }

// storeSnapshot makes a snapshot durable and lets older segments and files go.
type storeSnapshot struct{ snapshot *walSnapshot }

// takeSpare takes the answer to an order for the next segment; orderAgain ends a back-off.
type (
	takeSpare  struct{ spare *walSpare }
	orderAgain struct{ retry *walRetry }
)

func (takeSpare) walEffect()     {}
func (orderAgain) walEffect()    {}
func (writeLog) walEffect()      {}
func (tellPersisted) walEffect() {}
func (tellConfirmed) walEffect() {}
func (storeSnapshot) walEffect() {}

// walCore decides what becomes of the messages that arrived during the last fsync: how many writes, whether a sync is
// needed, who is told what. It does no I/O.
type walCore struct {
	// written is the commit index of the last hard state in the log, synced that of the last durable one.
	written, synced proto.Index
	// waiting are confirmations that the log cannot give yet.
	waiting []*walConfirm

	run     writeLog
	effects []walEffect
}

// plan gives the effects for one batch. The result is valid until the next call.
func (c *walCore) plan(batch []walMessage) []walEffect {
	clear(c.effects)
	c.effects = c.effects[:0]
	for _, m := range batch {
		switch m := m.(type) {
		case *walAppend:
			c.gather(m)
		case *walConfirm:
			c.waiting = append(c.waiting, m)
		case *walSnapshot:
			c.closeRun()
			c.written = max(c.written, proto.Index(m.hardState.GetCommit()))
			actors.Must(m.record.Index <= c.written, "snapshot record %d is ahead of the commit index %d",
				m.record.Index, c.written)
			c.effects = append(c.effects, storeSnapshot{m})
			// The sync of the snapshot's record covers all that was written before it, and takes place although the
			// disk has no room for the snapshot's file.
			c.synced = c.written
		case *walSpare: // ahead of the writes of this batch, which may need it
			c.effects = append(c.effects, takeSpare{m})
		case *walRetry:
			c.effects = append(c.effects, orderAgain{m})
		}
	}
	c.closeRun()
	return c.effects
}

// gather adds an append to the current run.
func (c *walCore) gather(m *walAppend) {
	c.run.appends = append(c.run.appends, m)
	if m.mustSync || len(m.responses) > 0 {
		c.run.sync = true
	}
	if m.hardState != nil && !raft.IsEmptyHardState(m.hardState) {
		c.run.hardState = m.hardState
		c.written = max(c.written, proto.Index(m.hardState.GetCommit()))
	}
}

// closeRun ends the current run: one write, a sync if anyone needs it, then the completions in order.
func (c *walCore) closeRun() {
	for _, w := range c.waiting {
		if !c.run.sync && w.index > c.synced && w.index <= c.written {
			c.run.sync, c.run.confirming = true, true
		}
	}
	if len(c.run.appends) > 0 || c.run.sync {
		c.effects = append(c.effects, c.run)
		if c.run.sync {
			c.synced = c.written
		}
	}
	if n := len(c.run.appends); n > 0 {
		c.effects = append(c.effects, tellPersisted{c.run.appends[n-1].seq})
	}
	c.run = writeLog{}
	still := c.waiting[:0]
	for _, w := range c.waiting {
		if w.index <= c.synced {
			c.effects = append(c.effects, tellConfirmed{w})
		} else {
			still = append(still, w)
		}
	}
	clear(c.waiting[len(still):])
	c.waiting = still
}
