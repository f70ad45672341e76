package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"troupe/storeactor"
)

// downloads are the snapshots that are made and downloaded. Each has one of few places, which a client that reads
// nothing would keep until snapshotStallMax, and then take again. Refusing everybody else meanwhile would let a handful
// of such clients keep an operator from every backup. So a newcomer that finds no place gets that of the download whose
// client has taken nothing for longest, if that is snapshotYieldAfter at least.
//
// The place passes from the one to the other when the copy of the first is closed: nobody can come between them, and
// there are never more copies than places.
type downloads struct {
	gate *gate
	// yieldAfter is snapshotYieldAfter, but for tests; now is the clock.
	yieldAfter time.Duration
	now        func() time.Time
	// yielded is told which one makes room, and how long its client has taken nothing.
	yielded func(d *download, stalled time.Duration)

	mu   sync.Mutex
	list []*download // those that have not been told to make room
}

// download is one of them. The lock of downloads guards what changes.
type download struct {
	of     *downloads
	remote string
	end    context.CancelCauseFunc // ends its call
	// moved is when its client took something last; zero while the copy is made, which is no fault of the client's.
	moved time.Time
	// heir gets its place when it leaves, from is whose place it waits for, ready is closed when it has that.
	heir, from *download
	ready      chan struct{}
}

// enter takes a place for a snapshot. It fails with storeactor.ErrSnapshotsOpen, or with the cause of the context when
// that ends while a place is cleared. The caller calls leave after a success, when the copy is closed.
func (d *downloads) enter(ctx context.Context, remote string, end context.CancelCauseFunc) (*download, error) {
	newcomer := &download{of: d, remote: remote, end: end, ready: make(chan struct{})}
	d.mu.Lock()
	if d.gate.tryEnter() {
		d.list = append(d.list, newcomer)
		d.mu.Unlock()
		return newcomer, nil
	}
	victim, stalled := d.longestStalled()
	if victim == nil {
		d.mu.Unlock()
		return nil, storeactor.ErrSnapshotsOpen
	}
	victim.heir, newcomer.from = newcomer, victim
	d.remove(victim)
	d.list = append(d.list, newcomer)
	d.mu.Unlock()
	d.yielded(victim, stalled)
	victim.end(errSnapshotYielded)
	select {
	case <-newcomer.ready:
		return newcomer, nil
	case <-ctx.Done():
		newcomer.leave()
		return nil, context.Cause(ctx)
	}
}

// longestStalled gives the download that makes room for a newcomer, nil if none does. The caller holds mu.
func (d *downloads) longestStalled() (victim *download, stalled time.Duration) {
	now := d.now()
	for _, one := range d.list {
		if one.moved.IsZero() || now.Sub(one.moved) < d.yieldAfter {
			continue
		}
		if victim == nil || one.moved.Before(victim.moved) {
			victim = one
		}
	}
	if victim == nil {
		return nil, 0
	}
	return victim, now.Sub(victim.moved)
}

// remove takes a download out of the list, if it is in. The caller holds mu.
func (d *downloads) remove(one *download) {
	if i := slices.Index(d.list, one); i >= 0 {
		d.list = slices.Delete(d.list, i, i+1)
	}
}

// move notes that the client has taken something, or can begin to.
func (d *download) move() {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	d.moved = d.of.now()
}

// leave gives the place back, or on to whom it has been promised. It is called once.
func (d *download) leave() {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	d.of.remove(d)
	switch {
	case d.from != nil: // it has none yet, and wants none any more
		d.from.heir = nil
	case d.heir != nil:
		d.heir.from = nil
		close(d.heir.ready)
	default:
		d.of.gate.leave()
	}
}

// sayYielded logs that a download makes room. It happens at most once in yieldAfter for each place, so that clients
// cannot fill the log with it.
func (s *Server) sayYielded(d *download, stalled time.Duration) {
	s.cfg.Log.Warn().Str("remote", d.remote).Str("stalled", stalled.String()).Int64("bound", s.gates.snapshots.max).
		Msg("client does not read its snapshot while another waits for its place, ending its download")
}
