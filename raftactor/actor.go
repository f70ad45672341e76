package raftactor

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// Peers is where messages to other members go: the links of this member.
type Peers interface {
	// Send takes over the messages and never waits. It may drop them, and then reports the member unreachable. The
	// entries in them are shared and immutable.
	Send(messages []*raftpb.Message)
	// Reached is for how long a member has been reached without a break; now is false when it is not reached.
	Reached(id proto.MemberID) (since time.Duration, now bool)
}

// raftPolicy has two lanes that are both taken whole: what has arrived makes one turn, control before normal.
var raftPolicy = actors.Lanes(
	actors.Batch[message](
		actors.Bound{Messages: inboxControlMessagesMax, Bytes: inboxControlBytesMax},
		actors.Bound{Messages: turnMessagesMax, Bytes: turnBytesMax},
	),
	actors.Batch[message](
		actors.Bound{Messages: inboxMessagesMax, Bytes: inboxBytesMax},
		actors.Bound{Messages: turnMessagesMax, Bytes: turnBytesMax},
	),
)

// raftActor is the shell of the raft actor: it hands messages to the core and executes the effects.
type raftActor struct {
	core  *core
	view  *atomic.Pointer[view]
	wal   walLink
	apply actors.Ref[*applyWork]
	peers Peers
	// deaf is what raft has told its mailbox about whispers, by lane.
	deaf [2]bool
	// unsent are messages to wal that its mailbox had no room for, in order. None may be lost or overtake another.
	unsent  []walMessage
	started func(actors.Self[message])
	metrics *metrics
	log     zerolog.Logger
}

// Start is part of actors.Behavior. The first turn begins here: a sole voter campaigns at once.
func (a *raftActor) Start(self actors.Self[message]) error {
	a.started(self)
	a.execute(a.core.advance())
	return nil
}

// Handle is part of actors.Behavior.
func (a *raftActor) Handle(self actors.Self[message], batch []message) {
	for _, m := range batch {
		a.core.handle(m)
	}
	effects := a.core.advance()
	a.execute(effects)
	a.metrics.count(&a.core.tally, a.core.proposals.count())
	a.core.tally = tally{}
	self.Crowded(len(a.core.proposals.pending) >= proposalsCrowd)
	a.listen(self, actors.Control, a.core.awaitsPublished())
	a.listen(self, actors.Normal, !a.core.awaitsLog())
}

// listen tells the mailbox whether whispers in a lane are to wake raft.
func (a *raftActor) listen(self actors.Self[message], lane actors.Lane, on bool) {
	if a.deaf[lane] == on {
		a.deaf[lane] = !on
		self.Listen(lane, on)
	}
}

// Stop is part of actors.Behavior. After it the log's last hard state is on its way to the disk.
func (a *raftActor) Stop() {
	a.execute(a.core.stop())
	a.metrics.count(&a.core.tally, 0)
}

// execute does what the core wants, in its order.
func (a *raftActor) execute(effects []effect) {
	a.flush()
	for _, e := range effects {
		switch e := e.(type) {
		case publishStatus:
			a.view.Store(e.view)
		case persistLog:
			a.tellWAL(e.append)
		case confirmLog:
			a.tellWAL(e.confirm)
		case saveSnapshot:
			a.tellWAL(e.snapshot)
		case handOver:
			err := a.apply.Tell(actors.Normal, e.work)
			actors.Must(err == nil, "apply refused entries within its credit: %v", err)
		case sendPeers:
			if a.peers != nil {
				a.peers.Send(e.messages)
			}
		case refuse:
			e.answer.Fail(e.err)
		case accept:
			e.answer.Send(e.result)
		case answerReads:
			answerAll(e)
		case answerTransfer:
			if e.err != nil {
				e.answer.Fail(e.err)
			} else {
				e.answer.Send(struct{}{})
			}
		case answerPass:
			e.done(e.err)
		case noteLeader:
			a.noteLeader(e)
		case noteStall:
			a.noteStall(e)
		case noteSpace:
			a.noteSpace(e)
		case noteSnapshot:
			a.log.Info().Uint64("snapshot-index", uint64(e.index)).Msg("saved snapshot")
		default:
			actors.Must(false, "raft has no way to execute a %T", e)
		}
	}
}

func answerAll(e answerReads) {
	for _, r := range e.reads {
		if e.err != nil {
			r.answer.Fail(e.err)
		} else {
			r.answer.Send(e.index)
		}
	}
}

// tellWAL hands a message to wal, behind those that did not fit before.
func (a *raftActor) tellWAL(m walMessage) {
	if len(a.unsent) > 0 || !a.told(m) {
		a.unsent = append(a.unsent, m)
	}
}

// flush hands wal what did not fit before. It runs at the beginning of each turn; as wal is busy then, its completion
// brings a next turn.
func (a *raftActor) flush() {
	for len(a.unsent) > 0 && a.told(a.unsent[0]) {
		a.unsent = a.unsent[1:]
	}
}

func (a *raftActor) told(m walMessage) bool {
	err := a.wal.tell(m)
	actors.Must(err == nil || errors.Is(err, actors.ErrFull), "wal has ended before raft: %v", err)
	return err == nil
}

func (a *raftActor) noteLeader(e noteLeader) {
	switch {
	case e.leader == 0:
		a.log.Warn().Uint64("term", uint64(e.term)).Msg("no leader")
	case e.self:
		a.log.Info().Uint64("term", uint64(e.term)).Msg("this member leads")
	default:
		a.log.Info().Uint64("term", uint64(e.term)).Stringer("leader", e.leader).Msg("leader elected")
	}
}

func (a *raftActor) noteStall(e noteStall) {
	if e.ticks > 0 {
		a.log.Warn().Int("ticks", e.ticks).Msg("the disk of the log is stalled, new work is refused")
	} else {
		a.log.Info().Msg("the disk of the log answers again")
	}
}

// owner tells raft what wal and apply have done. ref is set when raft starts, before anything is given to the two.
type owner struct{ ref actors.Ref[message] }

// persisted is part of walOwner.
func (o *owner) persisted(upToSeq uint64, room logRoom) {
	o.tell(&persisted{upTo: upToSeq, room: room})
}

// snapshotSaved is part of walOwner.
func (o *owner) snapshotSaved(index proto.Index) { o.tell(&snapshotSaved{index: index}) }

// snapshotFailed is part of walOwner.
func (o *owner) snapshotFailed(index proto.Index) { o.tell(&snapshotFailed{index: index}) }

// tell gives raft a completion. There is room for every completion of what raft itself has begun; raft may have ended.
func (o *owner) tell(m message) {
	err := o.ref.Tell(actors.Control, m)
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "raft lost a completion: %v", err)
}
