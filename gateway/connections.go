package gateway

import (
	"container/list"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"troupe/proto"
)

// connections are the connections that a server has accepted and not closed, on all of its ports. The servers of gRPC
// and HTTP know only those that have shaken hands or spoken; one that never does would hold the end of the process for
// as long as its time-outs are.
type connections struct {
	mu     sync.Mutex
	closed bool
	open   map[*connection]struct{}
	lastID uint64
}

// connection is one of them; closing it takes it out, and gives back what its answers have claimed.
type connection struct {
	net.Conn
	owner *connections
	addr  connectionAddr
	id    uint64
	since time.Time
	ready readiness

	// gate is where it has a place, nil while it has not shown its protocol.
	gate atomic.Pointer[gate]
	// place is where it is among the idle ones of its gate, nil while it is not; their lock guards it.
	place *list.Element
	// calls are the calls open on it, streams those of them that last.
	calls, streams atomic.Int64
	// spent says that the connection cannot be used for another request, because of this one not all was read.
	spent atomic.Bool
	// watches is what its watch streams hold.
	watches WatchOwner
	// taken is how many bytes of large answers were given back to the ledger on it, ever.
	taken atomic.Int64

	mu     sync.Mutex
	closed bool
	claims map[*claim]struct{}
	leases map[proto.LeaseID]struct{} // renewed on it, for the debug page

	// Of the check for clients that take nothing; only its goroutine uses them.
	takenSeen, unsentSeen, goneSeen int64
	answersStalled, watchesStalled  stall
}

// connectionAddr is the remote address of a connection, by which a handler finds the connection: the address is all
// that gRPC tells it.
type connectionAddr struct {
	net.Addr
	conn *connection
}

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return &c.addr }

// Close implements net.Conn.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	err := c.Conn.Close()
	c.leaveGate()
	c.mu.Lock()
	claims := c.claims
	c.closed, c.claims = true, nil
	c.mu.Unlock()
	for held := range claims {
		held.settle()
	}
	return err
}

// watchOwner is the owner of the watch streams of a connection, nil where it is not known.
func (c *connection) watchOwner() *WatchOwner {
	if c == nil {
		return nil
	}
	return &c.watches
}

// pass takes a place for the connection at a gate, and reports whether there was one. It is called once, before the
// connection is served. One that has asked something is not idle, though its request is not handled yet.
func (c *connection) pass(g *gate, asked bool) bool {
	if !g.enter() {
		return false
	}
	c.gate.Store(g)
	if !asked {
		c.rest()
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed { // by closeAll, which has not seen the gate
		c.leaveGate()
	}
	return true
}

// leaveGate gives back the place that the connection has, if it has one.
func (c *connection) leaveGate() {
	if g := c.gate.Swap(nil); g != nil {
		g.idle.remove(c)
		g.leave()
	}
}

// move gives the connection a place at another gate instead of the one it has, and reports whether there was one. It is
// busy.
func (c *connection) move(to *gate) bool {
	from := c.gate.Load()
	if from == to {
		return true
	}
	if from == nil || !to.enter() {
		return false
	}
	if !c.gate.CompareAndSwap(from, to) { // closed meanwhile
		to.leave()
		return false
	}
	from.leave()
	return true
}

// hold remembers an answer's claim, or settles it when the connection is closed.
func (c *connection) hold(held *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		held.settle()
		return
	}
	if c.claims == nil {
		c.claims = make(map[*claim]struct{})
	}
	c.claims[held] = struct{}{}
}

// release forgets a claim of which nothing is left.
func (c *connection) release(done *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, done)
}

// add enters a connection. After closeAll it is closed at once: whoever reads it finds that out.
func (c *connections) add(conn net.Conn) *connection {
	c.mu.Lock()
	closed := c.closed
	entry := &connection{Conn: conn, owner: c, since: time.Now()}
	c.lastID++
	entry.id = c.lastID
	entry.addr = connectionAddr{Addr: conn.RemoteAddr(), conn: entry}
	if !closed {
		if c.open == nil {
			c.open = make(map[*connection]struct{})
		}
		c.open[entry] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		_ = conn.Close()
	}
	return entry
}

// closeAll closes all that are open, and those that are still added.
func (c *connections) closeAll() {
	c.mu.Lock()
	c.closed = true
	open := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// list gives those that are open.
func (c *connections) list() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// size is how many are open.
func (c *connections) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// listen makes a listener whose connections are entered.
func (c *connections) listen(l net.Listener) net.Listener {
	return &enteringListener{Listener: l, conns: c}
}

// listenThrough is listen for a port whose connections all pass one gate; refused, if there was no place, is told so.
func (c *connections) listenThrough(l net.Listener, g *gate, refused func(*gate, net.Conn)) net.Listener {
	return &enteringListener{Listener: l, conns: c, gate: g, refused: refused}
}

type enteringListener struct {
	net.Listener
	conns   *connections
	gate    *gate
	refused func(*gate, net.Conn)
}

// Accept implements net.Listener.
func (l *enteringListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		entered := l.conns.add(conn)
		if l.gate == nil || entered.pass(l.gate, false) {
			return entered, nil
		}
		l.refused(l.gate, entered)
		_ = entered.Close()
	}
}
