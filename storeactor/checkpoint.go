package storeactor

import (
	"encoding/binary"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// checkpointLimits says when writes must go into the file.
type checkpointLimits struct {
	// interval is how long the oldest write may wait.
	interval time.Duration
	// writes and bytes are how many of each may wait.
	writes, bytes int
}

// checkpointPosition is what the file says about itself after a commit.
type checkpointPosition struct {
	index      proto.Index
	term       proto.Term
	revision   proto.Revision
	confState  []byte            // JSON, carried on from commit to commit
	membership *proto.Membership // nil before the first commit since start
	// storageVersion is the version of the schema, "" while the cluster has none (storageversion.go).
	storageVersion string
}

// checkpointer is the pure core of backend's main duty: it collects what the store sends and says when to ask the log
// and when to commit.
//
// The file may hold index X only when the log has durably stored a hard state with commit >= X (design.md, rule 4.5):
// otherwise a crash could leave a file that is ahead of the log, and the member would have applied what the cluster may
// still replace. So each commit takes a question and an answer, and holds exactly the writes up to the answered index;
// what arrives in between goes into the next one.
type checkpointer struct {
	limits checkpointLimits
	// waiting holds what is not in the file yet, in order; arrived runs beside it.
	waiting []*backendWrite
	arrived []time.Time
	writes  int
	bytes   int
	// wanted asks for a commit through that index without waiting for a limit.
	wanted proto.Index
	// asking is the index of the question that is out, 0 when none is.
	asking proto.Index
	// confirmed is the highest index the log has confirmed.
	confirmed proto.Index
	// refused says that the last question was refused: the next one waits for the interval, whatever has gathered.
	refused bool
	// position is that of the last commit.
	position checkpointPosition
}

// checkpointAction is what the shell has to do next.
type checkpointAction uint8

const (
	// checkpointIdle: nothing waits.
	checkpointIdle checkpointAction = iota
	// checkpointLater: come back when the interval is over, or earlier with more writes.
	checkpointLater
	// checkpointAsk: ask the log to confirm the index.
	checkpointAsk
	// checkpointAsked: an answer is awaited.
	checkpointAsked
	// checkpointCommit: take the plan and commit it.
	checkpointCommit
)

// admit takes the next write. Indexes only grow; the first must be above the restored one.
func (c *checkpointer) admit(now time.Time, w *backendWrite) {
	last := c.last()
	actors.Must(w.index > last, "write at index %d after index %d", w.index, last)
	c.waiting = append(c.waiting, w)
	c.arrived = append(c.arrived, now)
	c.writes += len(w.batch)
	c.bytes += w.bytes
}

// last is the index of the newest admitted write, or of the last commit when nothing waits.
func (c *checkpointer) last() proto.Index {
	if n := len(c.waiting); n > 0 {
		return c.waiting[n-1].index
	}
	return c.position.index
}

// want asks for a commit of everything admitted so far and gives the index that the file will then hold.
func (c *checkpointer) want() proto.Index {
	c.wanted, c.refused = c.last(), false
	return c.wanted
}

// next says what to do now. For checkpointAsk the index is the one to ask for, and the question counts as asked; for
// checkpointLater the duration is how long from now.
func (c *checkpointer) next(now time.Time) (checkpointAction, proto.Index, time.Duration) {
	switch {
	case len(c.waiting) == 0:
		return checkpointIdle, 0, 0
	case c.asking != 0:
		return checkpointAsked, 0, 0
	case c.confirmed >= c.waiting[0].index:
		return checkpointCommit, 0, 0
	}
	age := now.Sub(c.arrived[0])
	due := c.writes >= c.limits.writes || c.bytes >= c.limits.bytes || c.wanted >= c.waiting[0].index
	if age < c.limits.interval && (!due || c.refused) {
		return checkpointLater, 0, c.limits.interval - age
	}
	c.asking, c.refused = c.last(), false
	return checkpointAsk, c.asking, 0
}

// answered takes the log's answer. After a refusal (the log is stopping) everything goes on waiting, for a whole
// interval from now, so that the question is not repeated in a circle.
func (c *checkpointer) answered(now time.Time, index proto.Index, err error) {
	actors.Must(c.asking == index, "answer for index %d, asked was %d", index, c.asking)
	c.asking = 0
	if err == nil {
		c.confirmed = max(c.confirmed, index)
		return
	}
	c.wanted, c.refused = 0, true
	for i := range c.arrived {
		c.arrived[i] = now
	}
}

// checkpointPlan is one commit.
type checkpointPlan struct {
	writes   []*backendWrite
	bytes    int
	position checkpointPosition
	// confStateDirty and storageVersionDirty say that the position's confState and storage version go into the file.
	confStateDirty, storageVersionDirty bool
}

// take gives the commit that the confirmed index allows, and counts it as done: a failed commit ends the process.
func (c *checkpointer) take() *checkpointPlan {
	n := 0
	for n < len(c.waiting) && c.waiting[n].index <= c.confirmed {
		n++
	}
	actors.Must(n > 0, "commit without a confirmed write")
	plan := &checkpointPlan{writes: c.waiting[:n:n], position: c.position}
	for _, w := range plan.writes {
		c.writes -= len(w.batch)
		c.bytes -= w.bytes
		plan.bytes += w.bytes
		if w.confState != nil {
			plan.position.confState, plan.confStateDirty = w.confState, true
		}
		if w.membership != nil {
			plan.position.membership = w.membership
			plan.position.storageVersion = raiseStorageVersion(plan.position.storageVersion, w.membership, c.position.index)
		}
		plan.position.index, plan.position.term = w.index, w.term
		plan.position.revision = max(plan.position.revision, w.revision)
	}
	plan.storageVersionDirty = plan.position.storageVersion != c.position.storageVersion
	// The rest moves into slices of its own: the plan keeps the old ones, and nothing grows for ever at its front.
	c.waiting = append([]*backendWrite(nil), c.waiting[n:]...)
	c.arrived = append([]time.Time(nil), c.arrived[n:]...)
	c.position = plan.position
	return plan
}

// metaWrites are the records that say what the commit holds. They go into the very transaction that holds it.
func (p *checkpointPlan) metaWrites() []proto.BucketWrite {
	writes := []proto.BucketWrite{{
		Bucket: proto.BucketMeta, Key: metaConsistentIndex,
		Value: binary.BigEndian.AppendUint64(nil, uint64(p.position.index)),
	}}
	if p.position.term != 0 {
		writes = append(writes, proto.BucketWrite{
			Bucket: proto.BucketMeta, Key: metaTerm,
			Value: binary.BigEndian.AppendUint64(nil, uint64(p.position.term)),
		})
	}
	if p.confStateDirty {
		writes = append(writes, proto.BucketWrite{
			Bucket: proto.BucketMeta, Key: metaConfState, Value: p.position.confState,
		})
	}
	if p.storageVersionDirty {
		writes = append(writes, proto.BucketWrite{
			Bucket: proto.BucketMeta, Key: metaStorageVersion, Value: []byte(p.position.storageVersion),
		})
	}
	return writes
}
