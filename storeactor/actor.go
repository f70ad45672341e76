package storeactor

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/proto"
)

// store is the shell around the machine: it takes messages, lets the machine work, and executes what that says, in
// the order that matters:
//
//  1. publish the state, so that whoever is told anything can read it
//  2. tell lease and hub: a grant is known before its answer leaves, an event is under way before its writer can ask
//  3. wake who waits for the applied index, and hand the writes to the backend
//  4. answer the waiters
//  5. tell raft the applied index
type store struct {
	slowApply time.Duration // an entry that takes longer is counted and logged
	machine   *machine
	backend   backendClient
	notify    Notify
	out       *published
	metrics   *storeMetrics
	log       zerolog.Logger
	file      File

	queue []*proto.Batch // admitted, waiting for credit
	// replaced are handles that the published state may still name; they are released after the next publish.
	replaced []FileView
	// defragmented are to be answered after the next publish, and compacted to be closed: who waits for either may look
	// at the size of the file.
	defragmented []*defragmentFile
	compacted    []chan struct{}
	resting      bool // a timer runs to the next step of a compaction
	changed      bool // something a reader can see differs from the published state
	// indexCompaction is how long the steps of the compaction under way have taken.
	indexCompaction time.Duration
}

// published is what the store shares with everybody: the pointer, and those who wait for it to move.
type published struct {
	state   atomic.Pointer[State]
	waiters waiters
	// What Client.Tidying tells.
	compacting atomic.Bool
	jobs       atomic.Int32
}

// Start implements actors.Behavior.
func (s *store) Start(self actors.Self[storeMessage]) error {
	s.machine.reopen = func() (FileView, error) {
		v, err := s.file.View()
		if err == nil {
			s.replaced = append(s.replaced, s.machine.file)
			s.changed = true
		}
		return v, err
	}
	s.machine.now = self.Now
	if s.machine.compactionDue() {
		self.Ref().Tick()
	}
	return nil
}

// Handle implements actors.Behavior.
func (s *store) Handle(self actors.Self[storeMessage], batch []storeMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case *applyBatch:
			s.queue = append(s.queue, m.batch)
		case *checkpointed:
			s.replaced = append(s.replaced, s.machine.checkpointed(m))
			s.defragmented = append(s.defragmented, m.callers...)
			s.changed = true
		case *compactedPhysically:
			s.compacted = append(s.compacted, s.machine.compactedPhysically(m.revision))
			s.changed = true
		case *hashRequest:
			m.state = s.out.state.Load()
			s.backend.hash(m)
		case *snapshotFile:
			s.backend.snapshot(m)
		case *defragmentFile:
			s.backend.defragment(m)
		case indexStepDue:
			s.resting = false
		case workDue:
		}
	}
	s.execute()
	request := s.compact()
	s.machine.cache.sweep(s.machine.tree, cacheSweepKeys+4*s.machine.out.puts)
	s.finish(request)
	s.out.compacting.Store(len(s.machine.compactions) > 0)
	if s.machine.compactionDue() && !s.resting {
		s.resting = true
		self.After(compactionStepPause, indexStepDue{})
	}
	if len(s.queue) > 0 && s.open() {
		self.Ref().Tick()
	}
}

// Stop implements actors.Behavior. What waits for credit is answered; the log has it.
func (s *store) Stop() {
	for _, b := range s.queue {
		(&applyBatch{b}).Abort(ErrStopped)
	}
	s.queue = nil
	s.out.waiters.stop()
}

// open reports whether more may be executed. While the disk of the file is full the bound is higher: nothing new is
// proposed then, but what was proposed before must be applied, because reads wait for it.
func (s *store) open() bool {
	bound := int64(backendBytesOutstandingMax)
	if s.backend.status().Full() {
		bound += diskFullBytesExtra
	}
	return s.machine.credit.outstanding < bound
}

// execute runs queued batches while the credit lasts and the turn is not too long.
func (s *store) execute() {
	n := 0
	s.machine.lap()
	for n < len(s.queue) && s.open() && s.machine.out.bytes < storeTurnBytes {
		s.machine.execute(s.queue[n])
		s.queue[n] = nil
		n++
	}
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	s.changed = s.changed || n > 0
}

// compact does one step of the compaction under way, when the pause after the last one is over.
func (s *store) compact() *compactFile {
	if s.resting || !s.machine.compactionDue() {
		return nil
	}
	s.changed = true
	s.machine.lap()
	request := s.machine.compactStep(compactionStepKeys)
	s.indexCompaction += s.machine.lap()
	if request != nil {
		s.metrics.indexCompaction.Observe(milliseconds(s.indexCompaction))
		s.indexCompaction = 0
	}
	return request
}

// finish makes what the turn did known, in the order above.
func (s *store) finish(request *compactFile) {
	if !s.changed {
		return
	}
	s.changed = false
	m := s.machine
	o := m.takeOutput()
	if o.executed {
		o.bytes += backendWriteOverhead
		m.credit.take(m.applied, o.bytes, o.payload)
	}
	state := m.state()
	s.out.state.Store(state)
	for _, v := range s.replaced {
		v.Release()
	}
	clear(s.replaced)
	s.replaced = s.replaced[:0]
	if len(o.leases) > 0 && s.notify.Leases != nil {
		s.notify.Leases(o.leases)
	}
	if (len(o.events) > 0 || o.compacted) && s.notify.Events != nil {
		s.notify.Events(&proto.EventBatch{Events: o.events, Revision: state.Revision, Compacted: state.Compacted})
	}
	s.out.waiters.notify(state.Applied)
	if o.executed {
		s.backend.write(&backendWrite{
			batch: o.writes, index: state.Applied, term: state.Term, confState: o.confState,
			membership: state.Membership, revision: state.Revision, bytes: o.bytes,
		})
	}
	if request != nil {
		s.backend.compact(request)
	}
	for i := range o.answers {
		if a := &o.answers[i]; a.err != nil {
			a.to.Fail(a.err)
		} else {
			a.to.Send(a.result)
		}
	}
	for _, c := range s.defragmented {
		c.reply.Send(struct{}{})
	}
	for _, done := range s.compacted {
		close(done)
	}
	s.defragmented, s.compacted = nil, nil
	if o.executed && s.notify.Applied != nil {
		s.notify.Applied(state.Applied)
	}
	if o.overQuota && s.notify.NoSpace != nil {
		s.notify.NoSpace()
	}
	s.measure(&o)
	m.recycle(&o)
}

func (s *store) measure(o *output) {
	s.metrics.add(&o.tally)
	slow, slowest := s.metrics.applies.add(o.applied, s.slowApply)
	if slow > 0 {
		s.metrics.slowApplies.Add(float64(slow))
		s.log.Warn().Str("took", slowest.String()).Str("expected-duration", s.slowApply.String()).
			Int("requests", slow).Int("changes", len(o.events)).Msg("apply request took too long")
	}
}
