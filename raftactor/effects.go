package raftactor

import (
	"go.etcd.io/raft/v3/raftpb"

	"troupe/proto"
)

// effect is something the raft actor's core wants done. The shell executes the effects of a turn in the order in which
// the core gave them. The orders that matter:
//
//   - publishStatus first: a reader that trusts the old status (sole voter) must have read it before any message of
//     this turn reaches another member;
//   - persistLog before confirmLog: the hard state that is to be confirmed is on its way before the question;
//   - persistLog in the order of their numbers, handOver in the order of the log.
//
// sendPeers needs no order against persistLog: raft gives out what must wait for the disk only when it was durable.
type effect interface{ effect() }

// publishStatus replaces what readers on other goroutines see.
type publishStatus struct{ view *view }

// sendPeers gives messages to other members to their links. May be dropped.
type sendPeers struct{ messages []*raftpb.Message }

// persistLog hands an append to wal. Never dropped.
type persistLog struct{ append *walAppend }

// confirmLog passes a question for a durable commit index on to wal. Never dropped.
type confirmLog struct{ confirm *walConfirm }

// saveSnapshot has wal make a snapshot durable and give back older segments.
type saveSnapshot struct{ snapshot *walSnapshot }

// handOver gives committed entries to apply. Never dropped, never refused: it is within the credit.
type handOver struct{ work *applyWork }

// refuse answers a proposal with an error.
type refuse struct {
	answer proto.Answer
	err    error
}

// accept answers a proposal with a result that raft itself has to give: a conf change after the applied index moved.
type accept struct {
	answer proto.Answer
	result *proto.Result
}

// answerReads answers reads with an index, or with err.
type answerReads struct {
	reads []*read
	index proto.Index
	err   error
}

// answerTransfer answers a transfer of leadership: done, or err.
type answerTransfer struct {
	answer transferAnswer
	err    error
}

// answerPass answers a question for a snapshot.
type answerPass struct {
	done func(error)
	err  error
}

// noteLeader writes a log line about a change of leader or term.
type noteLeader struct {
	term   proto.Term
	leader proto.MemberID
	self   bool
}

// noteStall writes a log line about a disk that stalls (ticks > 0) or has come back (0).
type noteStall struct{ ticks int }

// noteSpace writes a log line about writes that are refused for want of room in the log, or are taken again.
type noteSpace struct {
	refused bool
	bytes   int64
}

// noteSnapshot writes the log line that a snapshot is durable, which tools wait for.
type noteSnapshot struct{ index proto.Index }

func (noteSnapshot) effect()   {}
func (noteSpace) effect()      {}
func (publishStatus) effect()  {}
func (sendPeers) effect()      {}
func (persistLog) effect()     {}
func (confirmLog) effect()     {}
func (saveSnapshot) effect()   {}
func (handOver) effect()       {}
func (refuse) effect()         {}
func (accept) effect()         {}
func (answerReads) effect()    {}
func (answerTransfer) effect() {}
func (answerPass) effect()     {}
func (noteLeader) effect()     {}
func (noteStall) effect()      {}

// view is what the raft actor publishes after a turn. Immutable.
type view struct {
	status *proto.RaftStatus
	// readable says that this member is the only voter, leads, has applied an entry of its own term and its disk does
	// not stall. Then whatever its store has published is linearizable, because nobody else can have acknowledged a
	// write: a reader that finds it true needs no round.
	readable bool
}
