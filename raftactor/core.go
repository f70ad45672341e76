package raftactor

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// coreConfig is what a core starts from.
type coreConfig struct {
	member proto.MemberID
	// electionTicks and heartbeatTicks are raft's; requestTicks is the request timeout.
	electionTicks, heartbeatTicks, requestTicks int
	// appliedAtStart is the index up to which the file holds everything: entries at or below it are not applied again.
	appliedAtStart proto.Index
	snapshotCount  uint64
	catchUpEntries uint64
	// snapshotAtStart is the index of the last valid snapshot record.
	snapshotAtStart proto.Index
	log             *memLog
	// room is what the log surely takes at start.
	room logRoom
	// members is the membership at appliedAtStart.
	members *proto.Membership
	// strict refuses changes of the membership that could cost the quorum. reached tells for how many ticks another
	// member has been reached, nil: none is; one that was for healthTicks is well. peerless says that nobody ever is.
	strict, peerless bool
	reached          func(proto.MemberID) (ticks int, now bool)
	healthTicks      int
	// learnersMax is --max-learners.
	learnersMax int
	// noPreVote leaves out the question before an election; patient lets the only voter wait for an election timeout.
	noPreVote, patient bool
	// priority lets ends of leases pass when apply is behind.
	priority bool
	logger   raft.Logger
	nextID   func() uint64
}

// tally counts what happened in a turn, for the metrics.
type tally struct {
	leaderChanges, failedProposals int
	// slowReads counts the times that reads had waited for the request timeout, failedReads the reads that were refused.
	// etcd counts the first the same way, and neither a round that is asked again nor a timeout as failed.
	slowReads, failedReads int
	// lateTicks counts the turns in which a leader of others found more than two heartbeats due.
	lateTicks int
}

// core is the raft actor without clock, disk and network: messages in, effects out. It wraps raft's RawNode under the
// log's contract (DESIGN.md); every method runs in the raft actor's turn.
//
// A turn is: handle for each message, then advance once. Proposals of all messages of the turn are stepped together, so
// that they become one append.
type core struct {
	cfg  coreConfig
	node *raft.RawNode
	log  *memLog
	// now counts ticks since start.
	now int
	out []effect
	tally

	appends   appendQueue
	applies   applyQueue
	proposals proposals
	reads     reads
	changes   reconfiguration
	transfers transfers

	// members is the membership after the last entry that apply has executed.
	members *proto.Membership
	// conf is raft's configuration in force.
	conf *raftpb.ConfState
	// hard is the newest hard state. hardWaits says that its commit index has not been given to wal yet.
	hard      *raftpb.HardState
	hardWaits bool

	role       raft.StateType
	leader     proto.MemberID
	term       proto.Term
	electedAt  int
	campaign   bool
	ready      bool
	ticked     bool // time has passed in this turn
	muted      bool
	stallNoted bool
	published  proto.Index
	// publishedTerm is the term of the entry at published, 0 while unknown.
	publishedTerm proto.Term

	snapshotIndex proto.Index
	snapshotting  bool
	// checkpoint is the last one of the file. snapshotDelay is the back-off after a snapshot that found no room, 0 when
	// there was none, and snapshotAt the tick before which none is tried again.
	checkpoint                *checkpointed
	snapshotDelay, snapshotAt int
	// asked are the questions for a snapshot that are not answered.
	asked []*passSnapshot

	// room is what the log takes behind the newest durable append; refusing says that requests were turned away for it.
	room     logRoom
	refusing bool
	view     *view
}

// newCore makes the core of a member that starts, or starts again, from cfg.log. Nothing has happened yet; the first
// effects come from the first advance.
func newCore(cfg coreConfig) (*core, error) {
	hard, conf, _ := cfg.log.InitialState()
	applied := min(uint64(cfg.appliedAtStart), max(hard.GetCommit(), cfg.log.offset))
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        uint64(cfg.member),
		ElectionTick:              cfg.electionTicks,
		HeartbeatTick:             cfg.heartbeatTicks,
		Storage:                   cfg.log,
		Applied:                   applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             messageBytesMax,
		MaxCommittedSizePerReady:  committedBytesMax,
		MaxUncommittedEntriesSize: uncommittedBytesMax,
		MaxInflightMsgs:           messagesInFlightMax,
		CheckQuorum:               true,
		PreVote:                   !cfg.noPreVote,
		Logger:                    cfg.logger,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c := &core{
		cfg:           cfg,
		node:          node,
		log:           cfg.log,
		conf:          conf,
		hard:          hard,
		campaign:      !cfg.patient,
		published:     cfg.appliedAtStart,
		snapshotIndex: cfg.snapshotAtStart,
		members:       cfg.members,
	}
	c.applies.released, c.applies.given = applied, applied
	c.room = cfg.room
	c.publishedTerm = c.termAt(c.published)
	c.term = proto.Term(hard.GetTerm())
	return c, nil
}

// handle takes one message. Its effects come with the next advance.
func (c *core) handle(m message) {
	switch m := m.(type) {
	case *propose:
		c.onPropose(m)
	case *read:
		c.onRead(m)
	case *receive:
		c.onReceive(m)
	case *tick:
		c.onTick(m.count)
	case *persisted:
		c.appends.done(m.upTo)
		c.stepDurable()
		c.onRoom(m.room)
	case *snapshotSaved:
		c.onSnapshotSaved(m.index)
	case *snapshotFailed:
		c.onSnapshotFailed()
	case *published:
		c.onPublished(m.index)
	case *confChanged:
		c.onConfChanged(m)
	case *membersChanged:
		c.members = m.membership
	case *transfer:
		c.onTransfer(m)
	case *checkpointed:
		c.onCheckpointed(m)
	case *passSnapshot:
		c.onPassSnapshot(m)
	case *confirmCommit:
		c.flushHardState()
		c.emit(confirmLog{&walConfirm{index: m.index, done: m.done}})
	default:
		actors.Must(false, "raft cannot handle a %T", m)
	}
}

// advance ends a turn: it steps what the messages brought, takes all that raft has ready and gives the effects of the
// turn, valid until the next message.
func (c *core) advance() []effect {
	if c.ticked {
		// Not in the tick itself: the disk's answer may stand behind it in the same turn, when this process was late.
		c.ticked = false
		c.watchDisk()
	}
	c.campaignAtStart()
	c.stepProposals()
	c.startRound()
	for c.node.HasReady() {
		c.absorb(c.node.Ready())
		c.stepDurable()
	}
	c.changes.forwarded = false
	c.handOverHeld()
	c.log.trim(c.applies.released, c.cfg.catchUpEntries, c.logBytes())
	effects := c.out
	if v := c.nextView(); v != nil {
		c.view = v
		effects = append([]effect{publishStatus{v}}, effects...)
	}
	clear(c.out[len(c.out):cap(c.out)])
	c.out = c.out[:0]
	return effects
}

func (c *core) emit(e effect) { c.out = append(c.out, e) }

// absorb takes one Ready apart.
func (c *core) absorb(ready raft.Ready) {
	if !raft.IsEmptyHardState(ready.HardState) {
		c.onHardState(ready.HardState)
	}
	if ready.SoftState != nil {
		c.onSoftState(ready.SoftState)
	}
	for i := range ready.ReadStates {
		c.onReadState(&ready.ReadStates[i])
	}
	var peers []*raftpb.Message
	for _, m := range ready.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			c.onStorageAppend(m, ready.MustSync)
		case raft.LocalApplyThread:
			c.onStorageApply(m)
		default:
			peers = append(peers, m)
		}
	}
	c.send(peers)
}

// send gives messages to the peers. A mute member sends only what makes another one lead.
func (c *core) send(messages []*raftpb.Message) {
	if c.muted {
		messages = slices.DeleteFunc(messages, func(m *raftpb.Message) bool {
			return m.GetType() != raftpb.MsgTimeoutNow
		})
	}
	if len(messages) > 0 {
		c.emit(sendPeers{messages})
	}
}

func (c *core) onSoftState(s *raft.SoftState) {
	leader := proto.MemberID(s.Lead)
	if leader != c.leader {
		if leader != 0 {
			c.tally.leaderChanges++
			c.electedAt = c.now
		}
		c.reads.void()
		c.emit(noteLeader{term: c.term, leader: leader, self: leader == c.cfg.member})
	}
	if s.RaftState == raft.StateLeader && !c.leads() {
		c.changes.last = c.log.last()
	}
	c.leader, c.role = leader, s.RaftState
	c.endTransfers(leader)
}

func (c *core) onHardState(h *raftpb.HardState) {
	if proto.Term(h.GetTerm()) != c.term {
		c.term = proto.Term(h.GetTerm())
		c.reads.void()
	}
	c.hard, c.hardWaits = h, true
}

// onReceive steps a message of another member. Snapshots are not taken yet: they need the store to switch. Entries that
// the log has no room for are dropped, as a lost message: the sender comes back with them.
func (c *core) onReceive(m *receive) {
	if m.message.GetType() == raftpb.MsgSnap || !c.hasRoomFor(m.message.GetEntries()) {
		return
	}
	if m.message.GetType() == raftpb.MsgProp && slices.ContainsFunc(m.message.GetEntries(), isConfChange) {
		c.changes.forwarded = true
	}
	_ = c.node.Step(m.message) // an unknown sender, or a dropped proposal, whose member asks again
}

// onTick lets time pass. A late actor gets many ticks at once; raft gets at most half an election timeout of them, so
// that a stall of this process does not look like the silence of all others.
func (c *core) onTick(count int) {
	c.now += count
	if c.leads() && !c.alone() && count > 2*c.cfg.heartbeatTicks {
		c.tally.lateTicks++
	}
	for range min(count, max(1, c.cfg.electionTicks/2)) {
		c.node.Tick()
	}
	c.sweep()
	c.retryRound()
	c.flushHardState()
	c.ticked = true
	c.snapshotForSpace()
	c.snapshotForPass()
}

// campaignAtStart makes the only voter a candidate at once: nobody else can lead, so waiting for an election timeout
// would be for nothing. Raft refuses while a conf change is not applied, so this waits until all committed is.
func (c *core) campaignAtStart() {
	if !c.campaign || !c.soleVoter() || c.applies.released < c.hard.GetCommit() {
		return
	}
	c.campaign = false
	if c.node.BasicStatus().RaftState == raft.StateFollower {
		_ = c.node.Campaign() // MsgHup has no error
	}
}

// logBytes is how many bytes of applied entries stay in memory. Alone, or as long as the others are only on paper,
// there is nobody to catch up.
func (c *core) logBytes() uint64 {
	if c.alone() || c.cfg.peerless {
		return logBytesAlone
	}
	return logBytesMax
}

// alone reports whether there is no other member, voter or not.
func (c *core) alone() bool { return c.soleVoter() && len(c.conf.GetLearners()) == 0 }

// soleVoter reports whether this member's vote is the only one.
func (c *core) soleVoter() bool {
	return len(c.conf.GetVoters()) == 1 && c.conf.Voters[0] == uint64(c.cfg.member) &&
		len(c.conf.GetVotersOutgoing()) == 0
}

// leads reports whether this member leads.
func (c *core) leads() bool { return c.role == raft.StateLeader }

// stop fails whatever waits and makes the log's last hard state durable. No message may follow.
func (c *core) stop() []effect {
	for _, m := range c.proposals.order[c.proposals.head:] {
		if !m.done {
			m.done = true
			c.emit(refuse{m.answer, ErrStopped})
		}
	}
	c.proposals, c.changes = proposals{}, reconfiguration{}
	c.stopTransfers()
	c.reads.void()
	if len(c.reads.waiting) > 0 {
		c.emit(answerReads{reads: c.reads.waiting, err: ErrStopped})
	}
	for _, m := range c.asked {
		c.emit(answerPass{m.done, ErrStopped})
	}
	c.asked = nil
	for _, a := range c.applies.abandon() {
		c.emit(refuse{a, ErrStopped})
	}
	c.flushHardState()
	return c.out
}

// termAt gives the term of the entry at index, 0 when the log in memory does not hold it.
func (c *core) termAt(index proto.Index) proto.Term {
	term, err := c.log.Term(uint64(index))
	if err != nil {
		return 0
	}
	return proto.Term(term)
}

// nextView gives the view to publish, nil when nothing in it changed.
func (c *core) nextView() *view {
	s := proto.RaftStatus{
		Member:  c.cfg.member,
		Leader:  c.leader,
		Term:    c.term,
		Commit:  proto.Index(c.hard.GetCommit()),
		Applied: c.published,
		Learner: c.isLearner(),
	}
	if c.leads() && c.publishedTerm == c.term {
		s.LeaderTerm = c.term
	}
	if c.leader != 0 && c.publishedTerm == c.term {
		c.ready = true
	}
	s.Ready = c.ready
	if age := c.appends.age(c.now); age >= c.cfg.electionTicks {
		s.DiskStalledTicks = age
	}
	s.LogFull = c.refusing
	next := view{
		status:   &s,
		readable: s.LeaderTerm != 0 && c.soleVoter(),
	}
	if c.view != nil && *c.view.status == s && c.view.readable == next.readable {
		return nil
	}
	return &next
}

func (c *core) isLearner() bool {
	for _, id := range c.conf.GetLearners() {
		if id == uint64(c.cfg.member) {
			return true
		}
	}
	return false
}
