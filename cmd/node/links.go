package node

import (
	"errors"
	"sync"

	"troupe/leaseactor"
	"troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
	"troupe/watchactor"
)

// links is how the store speaks to rooms that start after it. Each place is filled before anything can reach it: raft,
// which makes the store do things, starts last and binds itself first.
type links struct {
	mu   sync.Mutex
	raft *raftactor.Client
	// early are confirmations asked for before raft was bound: a compaction that an earlier process left unfinished
	// makes the backend commit as soon as it starts.
	early []confirmation

	hub    *watchactor.Client
	leases *leaseactor.Client
	alarms *alarmRaiser
}

type confirmation struct {
	index proto.Index
	done  func(error)
}

// bind connects raft and passes on what was asked for before.
func (l *links) bind(c *raftactor.Client) {
	l.mu.Lock()
	l.raft = c
	early := l.early
	l.early = nil
	l.mu.Unlock()
	for _, e := range early {
		c.ConfirmCommit(e.index, e.done)
	}
}

// abandon answers what was asked for and will never be confirmed, because raft did not start.
func (l *links) abandon() {
	l.mu.Lock()
	early := l.early
	l.early = nil
	l.mu.Unlock()
	for _, e := range early {
		e.done(errNotStarted)
	}
}

// errNotStarted is the answer to a confirmation when the member could not start.
var errNotStarted = errors.New("the member did not start")

// ConfirmCommit is storeactor.CommitLog.
func (l *links) ConfirmCommit(index proto.Index, done func(error)) {
	l.mu.Lock()
	raft := l.raft
	if raft == nil {
		l.early = append(l.early, confirmation{index, done})
	}
	l.mu.Unlock()
	if raft != nil {
		raft.ConfirmCommit(index, done)
	}
}

// bound gives raft to a call that only raft can have caused.
func (l *links) bound() *raftactor.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.raft
}

// notify is what the store tells, wired to the rooms.
func (l *links) notify() storeactor.Notify {
	return storeactor.Notify{
		Leases:  func(changes []proto.LeaseChange) { l.leases.Changed(changes) },
		Events:  func(b *proto.EventBatch) { l.hub.Publish(b) },
		Applied: func(index proto.Index) { l.bound().Applied(index) },
		Checkpointed: func(index proto.Index, term proto.Term, conf []byte, m *proto.Membership) {
			if raft := l.bound(); raft != nil {
				raft.Checkpointed(index, term, conf, m)
			}
		},
		SnapshotPast: func(index proto.Index, done func(error)) {
			if raft := l.bound(); raft != nil {
				raft.SnapshotPast(index, done)
				return
			}
			done(errNotStarted)
		},
		NoSpace: func() { l.alarms.noSpace() },
	}
}

// history is the store's published state as the watch room reads it.
type history struct{ store *storeactor.Client }

// Position is part of watchactor.History.
func (h history) Position() (revision, compacted proto.Revision) {
	s := h.store.State()
	return s.Revision, s.Compacted
}

// Events is part of watchactor.History. When the file's owner has just cut the handle off there is nothing to read for
// a moment: the stream comes again, because its turn must not wait.
func (h history) Events(r watchactor.Range, from, through proto.Revision, bytes int) (
	[]proto.Event, proto.Revision, error) {
	v := h.store.View()
	defer v.Release()
	events, next, err := v.Events(storeactor.NewKeyRange([]byte(r.Key), []byte(r.End)), from, through, bytes)
	switch {
	case errors.Is(err, storeactor.ErrViewCutOff):
		return nil, from, nil
	case errors.Is(err, storeactor.ErrCompacted):
		return nil, 0, watchactor.ErrCompacted
	default:
		return events, next, err
	}
}

// Value is part of watchactor.History.
func (h history) Value(version proto.Version) ([]byte, bool) {
	v := h.store.View()
	defer v.Release()
	return v.Value(version)
}
