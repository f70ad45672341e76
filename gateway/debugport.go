package gateway

import (
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// debugPort serves the debug pages and Introspect on ports of their own (--debug-listen-urls). Unlike the client ports
// they stay open while the member drains: that is when one wants to look.
type debugPort struct {
	server *Server
	grpc   *grpc.Server
	pages  *http.Server
	// clients is what /debug/clients shows, watchers whose the watch streams are.
	clients  clientsLook
	watchers watchers
	// gate bounds the connections, apart from those of the client ports: when these are flooded one wants to look.
	gate gate

	mu     sync.Mutex
	closed bool
	splits map[*splitter]struct{}
}

func newDebugPort(s *Server) *debugPort {
	p := &debugPort{server: s, grpc: grpc.NewServer(append(s.options(), grpc.WaitForHandlers(true))...),
		pages: s.httpServer(s.debugMux()), splits: make(map[*splitter]struct{})}
	p.gate = gate{name: "debug_connection", max: debugConnectionsMax, rejected: prometheus.NewCounter(
		prometheus.CounterOpts{Name: "troupe_debug_connections_rejected_total",
			Help: "Connections refused on --debug-listen-urls."})}
	p.gate.idle = &idleConnections{closing: s.sayMadeRoom}
	s.cfg.Registry.MustRegister(p.gate.rejected)
	s.registerIntrospect(p.grpc)
	return p
}

// ServeDebug serves the debug pages over HTTP/1.1 and Introspect over gRPC on one listener until it fails or the server
// stops; then it returns nil for a stop and the error otherwise. The listener is closed.
func (s *Server) ServeDebug(l net.Listener) error {
	p := s.debug
	split := newSplitter(s.conns.listenThrough(l, &p.gate, s.sayRefused))
	split.pass = func(conn net.Conn, grpc bool, _ []byte) bool {
		if entered, ok := conn.(*connection); ok && grpc {
			entered.busy() // for good: its calls are not seen here
		}
		return true
	}
	split.refused = s.sayHalfOpen
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		split.close()
		return nil
	}
	p.splits[split] = struct{}{}
	p.mu.Unlock()
	var wait sync.WaitGroup
	wait.Go(func() { _ = p.grpc.Serve(split.http2) })
	wait.Go(func() { _ = p.pages.Serve(split.http1) })
	err := split.run()
	wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.splits, split)
	if p.closed {
		return nil
	}
	return err
}

// cut closes the ports and all their connections and waits for the calls.
func (p *debugPort) cut() {
	p.mu.Lock()
	p.closed = true
	for split := range p.splits {
		split.close()
	}
	p.mu.Unlock()
	p.grpc.Stop()
	_ = p.pages.Close()
}
