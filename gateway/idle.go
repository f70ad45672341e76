package gateway

import (
	"container/list"
	"sync"
	"time"
)

// idleConnections are the HTTP/1.1 connections of a gate on which no request is handled: they have asked nothing yet,
// or not the whole header, or have their answer. When the gate is full, the one that has been so longest is closed for
// a new one. Refusing the new one instead would let whoever opens connections and keeps them shut out every probe.
//
// One on which bytes have come that nobody has read is not idle: its request only waits for a processor.
//
// A connection counts as busy while a handler runs for it, not for as long as net/http says: that is also busy with a
// body that nobody wants and that never comes.
type idleConnections struct {
	// closing is told which one is closed.
	closing func(*gate, *connection)

	mu   sync.Mutex
	list list.List // of *connection; idle longest first
}

// rest notes that the connection is idle from now on.
func (c *connection) rest() {
	g := c.gate.Load()
	if g == nil || g.idle == nil {
		return
	}
	g.idle.mu.Lock()
	defer g.idle.mu.Unlock()
	// One that has left its gate meanwhile is not entered: it has looked for its place, or waits here to look for it.
	if c.gate.Load() == g && c.place == nil {
		c.place = g.idle.list.PushBack(c)
	}
}

// busy notes that a request is handled on the connection.
func (c *connection) busy() {
	if g := c.gate.Load(); g != nil {
		g.idle.remove(c)
	}
}

// remove takes a connection out, if it is in.
func (i *idleConnections) remove(c *connection) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if c.place != nil {
		i.list.Remove(c.place)
		c.place = nil
	}
}

// closeOldest closes the connection that has been idle longest, which gives its place back, and reports whether there
// was one.
func (i *idleConnections) closeOldest(g *gate) bool {
	i.mu.Lock()
	oldest := i.list.Front()
	for looks := 0; oldest != nil && unread(oldest.Value.(*connection)); oldest = oldest.Next() {
		if looks++; looks == idleLooksMax {
			oldest = nil
			break
		}
	}
	if oldest == nil {
		i.mu.Unlock()
		return false
	}
	c := oldest.Value.(*connection)
	i.list.Remove(oldest)
	c.place = nil
	i.mu.Unlock()
	i.closing(g, c)
	_ = c.Close()
	return true
}

// sayMadeRoom logs, within a rate, that an idle connection is closed for a new one.
func (s *Server) sayMadeRoom(g *gate, c *connection) {
	if s.gates.lines.allow(time.Now()) {
		s.cfg.Log.Warn().Str("kind", g.name).Int64("bound", g.max).Str("remote-addr", c.addr.String()).
			Msg("as many connections as the bound allows, closing the one idle longest for a new one")
	}
}

// size is how many there are.
func (i *idleConnections) size() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.list.Len()
}
