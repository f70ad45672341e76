package storeactor

import (
	"troupe/actors"
	"troupe/proto"
)

// storeMessage is anything the store understands. Batches and requests for the file come on the Normal lane, in the
// order in which they were sent; what the backend reports and the store's own signal come on the Control lane.
type storeMessage interface{ storeMessage() }

// applyBatch brings the next committed entries. Sent by apply, in log order without a gap; never dropped or
// reordered; its waiters are answered after the state that includes them is published.
type applyBatch struct {
	batch *proto.Batch
}

// Size is what the batch counts for in the mailbox.
func (a *applyBatch) Size() int { return a.batch.Bytes + len(a.batch.Commands)*applyCommandBytes }

// Abort answers the waiters of a batch that will not be executed by this process. The log has the entries.
func (a *applyBatch) Abort(err error) {
	for i := range a.batch.Commands {
		if to := a.batch.Commands[i].Answer; to != nil {
			to.Fail(err)
		}
	}
}

// workDue is the store's signal to itself: there is more to do than one turn did. Coalesced.
type workDue struct{}

// indexStepDue is the store's timer: the pause between two steps of a compaction of the index is over.
type indexStepDue struct{}

func (*applyBatch) storeMessage()          {}
func (*hashRequest) storeMessage()         {}
func (*snapshotFile) storeMessage()        {}
func (*defragmentFile) storeMessage()      {}
func (*checkpointed) storeMessage()        {}
func (*compactedPhysically) storeMessage() {}
func (workDue) storeMessage()              {}
func (indexStepDue) storeMessage()         {}

// CommitLog is the log as the store needs it; raftactor's client implements it.
type CommitLog interface {
	// ConfirmCommit runs done, in the log's turn, once a synced hard state with commit >= index is on disk, or with the
	// error that keeps the log from saying so. done must only tell.
	ConfirmCommit(index proto.Index, done func(error))
}

// Notify is whom the store and the backend tell about what happened. All functions run in a turn and must only tell;
// a nil one is left out.
type Notify struct {
	// Leases is told what a turn did to the lease table, after the state is published and before any answer leaves.
	Leases func([]proto.LeaseChange)
	// Events is told what a turn did to keys, or that the compact revision moved; after publishing, before answers.
	Events func(*proto.EventBatch)
	// Applied is told the last applied index, after publishing.
	Applied func(proto.Index)
	// Checkpointed is told by the backend what the file durably holds: index, its term, the JSON of the confState and
	// the membership.
	Checkpointed func(proto.Index, proto.Term, []byte, *proto.Membership)
	// SnapshotPast is asked by the backend to run done, in a turn that must only tell, once no start reads the log up to
	// that entry any more, or with the error that keeps it from that. Nil: the storage version is never lowered.
	SnapshotPast func(index proto.Index, done func(error))
	// NoSpace is told that a write exceeded this member's quota: a NOSPACE alarm should be proposed.
	NoSpace func()
}

var (
	_ actors.Aborter = (*applyBatch)(nil)
	_ actors.Sized   = (*applyBatch)(nil)
	_ actors.Aborter = (*checkpointed)(nil)
	_ actors.Aborter = (*hashRequest)(nil)
	_ actors.Aborter = (*snapshotFile)(nil)
	_ actors.Aborter = (*defragmentFile)(nil)
)
