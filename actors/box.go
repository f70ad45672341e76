package actors

import (
	"runtime/pprof"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// The library's messages that we send ourselves.
var (
	stopNow    = new(actor.Stop)
	poisonPill = new(actor.PoisonPill)
)

// box is an actor: its mailbox, and the adapter between the library's lifecycle and a Behavior (host.go).
//
// One mutex covers queues, flags and the decision to wake up, so that "the queue is empty" and "the actor sleeps"
// cannot come apart. The library's own mailboxes are not used: they cannot refuse, drop their backlog silently when
// the actor stops, and recover from every panic.
//
// Everything that only an awake or an unusual actor needs is behind a pointer: a million idle ones must be affordable.
type box[M any] struct {
	mu     sync.Mutex
	sys    *System
	kind   *kind
	policy *policy[M]
	name   string

	only   lane[M]  // the one lane, or Control of two
	normal *lane[M] // Normal of two
	system []any    // lifecycle messages of the library, always first

	invoker    actor.MessageInvoker
	dispatcher actor.Dispatcher
	turn       func() // b.run, bound once: a method value per wake-up would allocate

	behavior Behavior[M] // owned by the turn
	starting *starting[M]
	extra    *boxExtra[M]

	batch     *batch[M] // lent by the pool while the actor is awake
	work      *histogram
	busySince int64 // System.now of the beginning of the turn; 0: between turns
	busyWith  any   // first message of the turn, only for its type name
	handled   uint64
	turns     uint64

	slot       int32 // place in the registry
	ticks      uint32
	generation uint32 // incarnation: one more whenever a behaviour ends
	streak     uint8  // turns taken by Control in a row while Normal waited

	open     bool    // Spawn has finished wiring: the actor may be woken
	began    bool    // Started has been taken: user messages may be
	paused   bool    // between SuspendMailbox and ResumeMailbox
	awake    bool    // a turn is scheduled or running
	refused  bool    // nothing more is admitted
	retiring bool    // end when the lanes are empty
	poisoned bool    // the pill has been delivered
	ended    bool    // the behaviour is gone and nothing is queued any more
	gone     bool    // the end has been announced
	deaf     [2]bool // by number of the lane: whispers wait for another wake-up
	panics   OnPanic
	pinned   bool
}

// boxExtra is what most actors never need. Guarded by the mailbox lock.
type boxExtra[M any] struct {
	factory  func() Behavior[M] // RestartActor only
	tick     func(count int) M
	stopped  func(err error)
	done     chan struct{} // made when someone waits for the end, closed then
	err      error         // why the actor ended, nil for a plain stop
	timers   *timer[M]
	restarts uint64
	// windowStart and windowCount bound the restarts.
	windowStart int64
	windowCount int
}

func (b *box[M]) more() *boxExtra[M] {
	if b.extra == nil {
		b.extra = new(boxExtra[M])
	}
	return b.extra
}

// number is 1 for Normal of two lanes, else 0.
func (b *box[M]) number(l Lane) int {
	if l == Normal && b.normal != nil {
		return 1
	}
	return 0
}

// at gives the lane that messages for l join.
func (b *box[M]) at(l Lane) *lane[M] {
	if b.number(l) == 1 {
		return b.normal
	}
	return &b.only
}

// rule gives the policy of that lane.
func (b *box[M]) rule(l Lane) *lanePolicy[M] { return &b.policy.lanes[b.number(l)] }

// unlockAndWake gives the lock back and schedules a turn if there is work and nobody is at it. Scheduling happens
// outside the lock: awake is already set, so nobody else can.
func (b *box[M]) unlockAndWake() { b.unlock(false) }

// unlock is unlockAndWake, or only gives the lock back when quiet.
func (b *box[M]) unlock(quiet bool) {
	wake := !quiet && !b.awake && b.open && b.hasWork()
	if wake {
		b.awake = true
	}
	b.mu.Unlock()
	if wake {
		b.dispatcher.Schedule(b.turn)
	}
}

// unheard reports whether a whisper just admitted to the lane may wait for another wake-up: not when it went into a
// resync marker, which says that the lane is full. The lock is held.
func (b *box[M]) unheard(at Lane) bool {
	l, bound := b.at(at), b.rule(at).bound
	return b.deaf[b.number(at)] && (l.extra == nil || l.extra.marker == nil) &&
		int(l.n) < min(WhispersMax, bound.Messages/2+1) && l.bytes < min(WhisperBytesMax, bound.Bytes/2+1)
}

func (b *box[M]) hasWork() bool {
	if b.ended {
		return false
	}
	if len(b.system) > 0 {
		return true
	}
	return b.began && !b.paused && (b.waiting() || b.retiring && !b.poisoned)
}

// waiting reports whether a user message or a tick waits.
func (b *box[M]) waiting() bool {
	return b.only.n > 0 || b.ticks > 0 || b.normal != nil && b.normal.n > 0
}

// run takes turns until there is nothing to do or it is time to give way. It is what dispatchers run.
func (b *box[M]) run() {
	if b.sys.labelled && !b.pinned {
		pprof.SetGoroutineLabels(b.kind.labels) // also undoes the labels a new goroutine inherits from the sender
	}
	whole := false
	defer b.afterRun(&whole)
	for left := b.dispatcher.Throughput(); left > 0; left-- {
		m, system := b.take()
		if m == nil {
			whole = true
			return // take has put the actor to sleep under the lock: another run may have begun already
		}
		if system {
			b.invoker.InvokeSystemMessage(m)
		} else {
			b.invoker.InvokeUserMessage(m)
		}
	}
	whole = true
	b.dispatcher.Schedule(b.turn) // still awake: let others run, then go on
}

// take gives the next thing to deliver: a lifecycle message, a batch, the poison pill, or nil when there is none;
// then the actor sleeps.
func (b *box[M]) take() (message any, system bool) {
	now := b.sys.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endTurn(now)
	if b.ended {
		b.system, b.invoker = nil, nil // a Ref may outlive its actor by far
	}
	for len(b.system) > 0 {
		m := b.system[0]
		if b.system = b.system[1:]; len(b.system) == 0 {
			b.system = nil // give the storage back: lifecycle messages are rare
		}
		switch m.(type) {
		case *actor.SuspendMailbox:
			b.paused = true
		case *actor.ResumeMailbox:
			b.paused = false
		default:
			return m, true
		}
	}
	if b.began && !b.paused && !b.ended {
		if b.fill(now) {
			return b.batch, false
		}
		if b.retiring && !b.poisoned {
			b.poisoned = true
			return poisonPill, false
		}
	}
	b.awake = false
	b.returnBatch()
	return nil, false
}

// endTurn measures the turn that is over and forgets its messages.
func (b *box[M]) endTurn(now int64) {
	if b.busySince == 0 {
		return
	}
	if b.turns >= histogramTurnsMin {
		if b.work == nil {
			b.work = new(histogram)
		}
		b.work.add(now - b.busySince)
	}
	b.busySince, b.busyWith = 0, nil
	clear(b.batch.items)
	b.batch.items = b.batch.items[:0]
}

// returnBatch gives the turn's slice back to the pool when the actor goes to sleep.
func (b *box[M]) returnBatch() {
	if b.batch == nil {
		return
	}
	if cap(b.batch.items) <= batchMessagesKept {
		b.policy.pools.batches.Put(b.batch)
	}
	b.batch = nil
}

// fill puts the messages of the next turn into the batch and reports whether there are any.
func (b *box[M]) fill(now int64) bool {
	if !b.waiting() {
		return false
	}
	if b.batch == nil {
		b.batch = b.policy.pools.batches.Get().(*batch[M])
	}
	first := &b.policy.lanes[0]
	switch {
	case b.normal == nil:
		b.fillFrom(Control, now, b.takeTick() && first.mode != modeBatch)
	case first.mode == modeBatch && b.policy.lanes[1].mode == modeBatch:
		b.takeTick()
		b.fillFrom(Control, now, false)
		b.fillFrom(Normal, now, false)
	case b.controlTurn():
		b.fillFrom(Control, now, b.takeTick() && first.mode != modeBatch)
	default:
		b.fillFrom(Normal, now, false)
	}
	b.handled += uint64(len(b.batch.items))
	b.turns++
	b.busySince = max(now, 1)
	if b.policy.traits.boxesFree {
		b.busyWith = b.batch.items[0]
	}
	return true
}

// controlTurn chooses the lane of the next turn when turns do not mix lanes.
func (b *box[M]) controlTurn() bool {
	control, normal := b.only.n > 0 || b.ticks > 0, b.normal.n > 0
	if control && normal && b.streak < controlStreakMax {
		b.streak++
		return true
	}
	b.streak = 0
	return !normal
}

// takeTick puts the counted signals into the batch as one message.
func (b *box[M]) takeTick() bool {
	if b.ticks == 0 {
		return false
	}
	count := int(b.ticks)
	b.ticks = 0
	b.batch.items = append(b.batch.items, b.extra.tick(count))
	return true
}

// fillFrom moves one message, or a batch lane's turn, into the batch. Nothing with full: the turn is complete already.
func (b *box[M]) fillFrom(at Lane, now int64, full bool) {
	l, rule := b.at(at), b.rule(at)
	if full || l.n == 0 {
		return
	}
	turn := Bound{Messages: 1}
	if rule.mode == modeBatch {
		turn = rule.turn
	}
	bytes := int64(0)
	for count := 0; l.n > 0 && count < turn.Messages; count++ {
		size := l.peekSize()
		if count > 0 && bytes+size > turn.Bytes {
			break
		}
		bytes += size
		b.batch.items = append(b.batch.items, l.pop(rule, b.policy.pools))
	}
	l.sampleTake(now)
	l.wakeRoom(rule.bound)
}

// PostUserMessage is the library's own door. Nothing of ours uses it: senders hold a Ref. What a stranger sends by
// name is counted and forgotten; its content goes nowhere.
func (b *box[M]) PostUserMessage(any) { b.sys.strays.Add(1) }

// PostSystemMessage queues a lifecycle message of the library.
func (b *box[M]) PostSystemMessage(message any) {
	b.mu.Lock()
	if !b.ended {
		b.system = append(b.system, message)
	}
	b.unlockAndWake()
}

// RegisterHandlers is called once by the library while it spawns.
func (b *box[M]) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.invoker, b.dispatcher = invoker, dispatcher
}

// Start is part of the library's interface. Spawn opens the mailbox itself, once it holds no lock.
func (b *box[M]) Start() {}

// UserMessageCount is part of the library's interface.
func (b *box[M]) UserMessageCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int(b.only.n)
	if b.normal != nil {
		n += int(b.normal.n)
	}
	return n
}
