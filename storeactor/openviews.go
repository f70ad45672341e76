package storeactor

import (
	"sync"

	"troupe/actors"
)

// openViews is what both files do alike: they know their open handles, keep new ones waiting while the file is mapped
// anew, and have one write transaction at a time. The lock may guard more of the file that embeds it.
type openViews struct {
	mu      sync.Mutex
	idle    *sync.Cond // signalled when open becomes empty, and when barred ends
	open    map[*viewGate]struct{}
	barred  bool // new handles wait: see PrepareRemap
	writing bool
	closed  bool
}

func newOpenViews() *openViews {
	o := &openViews{open: make(map[*viewGate]struct{})}
	o.idle = sync.NewCond(&o.mu)
	return o
}

// enter opens the gate of a new handle, when there may be one. begin makes what is behind it, under the lock; close
// gives that back.
func (o *openViews) enter(gate *viewGate, begin func() error, close func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.barred && !o.closed {
		o.idle.Wait()
	}
	if o.closed {
		return ErrFileClosed
	}
	if err := begin(); err != nil {
		return err
	}
	gate.open(func() {
		close()
		o.forget(gate)
	})
	o.open[gate] = struct{}{}
	return nil
}

func (o *openViews) forget(gate *viewGate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, gate)
	if len(o.open) == 0 {
		o.idle.Broadcast()
	}
}

// OpenViews implements File.
func (o *openViews) OpenViews() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// CutOff implements File.
func (o *openViews) CutOff() {
	o.mu.Lock()
	gates := make([]*viewGate, 0, len(o.open))
	for gate := range o.open {
		gates = append(gates, gate)
	}
	o.mu.Unlock()
	for _, gate := range gates {
		gate.shut()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.open) > 0 {
		o.idle.Wait()
	}
}

// PrepareRemap implements File.
func (o *openViews) PrepareRemap() {
	o.mu.Lock()
	o.barred = true
	o.mu.Unlock()
	o.CutOff()
}

// beginWrite counts the write transaction.
func (o *openViews) beginWrite() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrFileClosed
	}
	actors.Must(!o.writing, "a second write transaction")
	o.writing = true
	return nil
}

// endWrite ends it, and lets those go on who wait for a handle.
func (o *openViews) endWrite() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing, o.barred = false, false
	o.idle.Broadcast()
}
