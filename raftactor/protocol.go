package raftactor

import (
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// message is anything the raft actor understands. Only this package can add to it.
//
// Lane Control holds what raft must hear to go on: ticks, completions of the disk and the store, conf changes,
// checkpoints, votes and heartbeats, and what the member proposes of its own accord. Lane Normal holds proposals, reads
// and append messages, and is refused when it is full (actors.ErrFull), which a client sees as ErrTooManyRequests. A
// turn takes many messages, control first. Nothing is coalesced but ticks; nothing in Control but messages of members
// may be dropped.
type message interface {
	raftMessage()
	// Size is the number of bytes the message counts for in the mailbox's bound.
	Size() int
}

// propose asks for a request to become an entry. Sent by any goroutine that is not raft, lane Normal; what is bound to
// a term, which is never a client's, in lane Control, where clients cannot crowd it out. Answered exactly once: refused
// here (ErrTooManyRequests, ErrDiskStalled, ErrNoSpace, ErrNotLeader, ErrTimeout, ErrStopped), or with the store's
// result after the entry was published.
type propose struct {
	id      uint64
	request *etcdserverpb.InternalRaftRequest
	// entry holds the encoded request; nil once raft has it.
	entry  *raftpb.Entry
	answer proto.Answer
	// term is the only term in which the request may be proposed, and only by a leader; 0: any, by anyone.
	term proto.Term
	// change says what a conf change does; nil for a request.
	change *memberChange

	// The rest belongs to the raft actor.

	use                   logUse
	since, deadline, size int
	done                  bool
}

// transfer asks this member, which must lead, to hand leadership over. Sent by any goroutine that is not raft, lane
// Normal. Answered exactly once: when the other one leads, or with ErrNotLeader, ErrBadTransferee, ErrTooManyRequests,
// ErrTransferTimeout, ErrStopped.
type transfer struct {
	to     proto.MemberID
	answer transferAnswer
	// deadline is the tick at which it is given up, set by raft.
	deadline int
}

// transferAnswer is the right to answer one transfer once. actors.Reply[struct{}] implements it.
type transferAnswer interface {
	Send(struct{})
	Fail(error)
}

// read asks for an index at which a read is linearizable. Sent by any goroutine that is not raft, lane Normal. Answered
// exactly once: with the index of a round that started after the read arrived, or with ErrTimeout, ErrDiskStalled,
// ErrTooManyRequests, ErrStopped.
type read struct {
	answer readAnswer
	// since is the tick of arrival, set by raft.
	since int
}

// readAnswer is the right to answer one read once. actors.Reply[proto.Index] implements it.
type readAnswer interface {
	Send(proto.Index)
	Fail(error)
}

// receive is a message of another member. Sent by the peer endpoint; votes, heartbeats and their answers in lane
// Control, the rest in Normal. May be dropped: raft sends again.
type receive struct{ message *raftpb.Message }

// tick says that count tick intervals have passed. Made by the mailbox out of the signals of the system's timer.
type tick struct{ count int }

// persisted says that all appends numbered up to upTo are durable, and how much the log surely takes behind them. Sent
// by wal, lane Control, in order, never dropped; again with the same number when only the room has changed.
type persisted struct {
	upTo uint64
	room logRoom
}

// snapshotSaved says that the snapshot at index is durable and counts at the next start. Sent by wal, lane Control.
type snapshotSaved struct{ index proto.Index }

// snapshotFailed says that the disk had no room for the snapshot at index, and that nothing has changed. Sent by wal,
// lane Control.
type snapshotFailed struct{ index proto.Index }

// published says that the store has published all entries up to index. Sent by store, lane Control, rising, never
// dropped: raft's applied index follows it, and so does the credit for the next batch.
type published struct{ index proto.Index }

// confChanged is the effective form of the conf change at index: as proposed, or without a node if it was refused.
// Sent by apply, lane Control, before the batch with that entry goes to the store. raft's configuration changes in this
// turn; its applied index moves past the entry only afterwards. err and result answer the waiter of this member, once
// the applied index has moved.
type confChanged struct {
	index  proto.Index
	change *raftpb.ConfChange
	err    error
	result *proto.Result
}

// membersChanged is the membership after the last entry that apply has executed. Sent by apply, lane Control, when it
// has changed, before the batch goes to the store: what is checked before a change is proposed is checked against it.
type membersChanged struct{ membership *proto.Membership }

// checkpointed says that the file durably holds everything up to index. Sent by backend, lane Control.
type checkpointed struct {
	index      proto.Index
	term       proto.Term
	confState  []byte
	membership *proto.Membership
}

// confirmCommit asks for done to run once a hard state with commit >= index is durable (rule 4.5). Sent by backend,
// lane Control. Passed on to wal, which runs done in its own turn; done must only tell.
type confirmCommit struct {
	index proto.Index
	done  func(error)
}

// passSnapshot asks for done to run once a snapshot at or above index is durable, so that no start reads the log up to
// index any more. One is taken for it as soon as the file holds the index. Sent by backend, lane Control; at most
// snapshotsAskedMax wait. Answered exactly once, in raft's turn; done must only tell.
type passSnapshot struct {
	index proto.Index
	done  func(error)
}

func (*propose) raftMessage()        {}
func (*read) raftMessage()           {}
func (*receive) raftMessage()        {}
func (*tick) raftMessage()           {}
func (*persisted) raftMessage()      {}
func (*snapshotSaved) raftMessage()  {}
func (*snapshotFailed) raftMessage() {}
func (*published) raftMessage()      {}
func (*confChanged) raftMessage()    {}
func (*membersChanged) raftMessage() {}
func (*transfer) raftMessage()       {}
func (*checkpointed) raftMessage()   {}
func (*confirmCommit) raftMessage()  {}
func (*passSnapshot) raftMessage()   {}

// Size counts the encoded request, which the decoded one shares most of its bytes with.
func (m *propose) Size() int { return len(m.entry.GetData()) + messageOverheadBytes }

// Size is a fixed share.
func (*read) Size() int { return messageOverheadBytes }

// Size counts the entries.
func (m *receive) Size() int {
	n := messageOverheadBytes
	for _, e := range m.message.GetEntries() {
		n += len(e.Data) + entryOverheadBytes
	}
	return n
}

// Size is a fixed share, as for all completions.
func (*tick) Size() int           { return messageOverheadBytes }
func (*persisted) Size() int      { return messageOverheadBytes }
func (*snapshotSaved) Size() int  { return messageOverheadBytes }
func (*snapshotFailed) Size() int { return messageOverheadBytes }
func (*published) Size() int      { return messageOverheadBytes }
func (*confChanged) Size() int    { return messageOverheadBytes }
func (*membersChanged) Size() int { return messageOverheadBytes }
func (*transfer) Size() int       { return messageOverheadBytes }
func (*checkpointed) Size() int   { return messageOverheadBytes }
func (*confirmCommit) Size() int  { return messageOverheadBytes }
func (*passSnapshot) Size() int   { return messageOverheadBytes }

// Abort answers the proposal. It was not proposed, but its sender cannot know.
func (m *propose) Abort(err error) { m.answer.Fail(domainError(err)) }

// Abort answers the read.
func (m *read) Abort(err error) { m.answer.Fail(domainError(err)) }

// Abort answers the transfer.
func (m *transfer) Abort(err error) { m.answer.Fail(domainError(err)) }

// Abort tells the asker that nothing is confirmed.
func (m *confirmCommit) Abort(err error) { m.done(domainError(err)) }

// Abort tells the asker that there will be none.
func (m *passSnapshot) Abort(err error) { m.done(domainError(err)) }

// domainError turns the runtime's errors into this package's. It keeps the turn-lost error of a panicked turn as it is,
// which Reply must recognise.
func domainError(err error) error {
	switch {
	case errors.Is(err, actors.ErrFull):
		return ErrTooManyRequests
	case errors.Is(err, actors.ErrStopped):
		return ErrStopped
	}
	return err
}

// applyWork is the one message of the apply actor: committed entries, in order and without gaps across messages, none
// at or below the index at which the store started. Sent by raft; at most batchesOutstandingMax are not yet published.
// waiters has one element per entry, nil where nobody on this member waits, or is nil when nobody waits at all.
type applyWork struct {
	entries []*raftpb.Entry
	waiters []*propose
	bytes   int
}

// Size counts the entries.
func (w *applyWork) Size() int { return w.bytes + messageOverheadBytes }

// Abort answers whoever waits for one of the entries. They are in the log and will be applied after a restart.
func (w *applyWork) Abort(err error) {
	for _, m := range w.waiters {
		if m != nil {
			m.answer.Fail(domainError(err))
		}
	}
}

// last gives the index of the last entry.
func (w *applyWork) last() uint64 { return w.entries[len(w.entries)-1].GetIndex() }
