package gateway

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/peer"

	"troupe/proto"
)

// ClientInfo is what one connection of a client is doing, for the debug page.
type ClientInfo struct {
	// ID numbers the connections of this process in the order in which they were accepted, from 1.
	ID uint64
	// Remote is the client's address.
	Remote string
	// Since is when the connection was accepted.
	Since time.Time
	// Protocol is "grpc", "json" for HTTP that has used the JSON gateway, or "http".
	Protocol string
	// Calls are all that are open, Streams those of them that last: watches, lease renewals, snapshots.
	Calls, Streams int
	// BytesInFlight are the bytes of large answers that exist and that the client has not taken.
	BytesInFlight int64
	// Leases are some of the leases that the client has renewed on this connection, in order, at most leasesNotedMax.
	Leases []proto.LeaseID
}

// Clients lists the connections that have shown that they are clients', those first that hold or do most, at most max.
func (s *Server) Clients(max int) []ClientInfo {
	conns := s.conns.list()
	infos := make([]ClientInfo, 0, len(conns))
	for _, c := range conns {
		if c.protocol() == "" {
			continue // half open, or another member's
		}
		infos = append(infos, ClientInfo{ID: c.id, Remote: c.addr.String(), Since: c.since,
			Protocol: c.protocol(), Calls: int(c.calls.Load()), Streams: int(c.streams.Load()), BytesInFlight: c.claimed()})
	}
	slices.SortFunc(infos, func(a, b ClientInfo) int {
		return cmp.Or(cmp.Compare(b.BytesInFlight, a.BytesInFlight), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.ID, b.ID))
	})
	infos = infos[:min(max, len(infos))]
	byID := make(map[uint64]*connection, len(conns))
	for _, c := range conns {
		byID[c.id] = c
	}
	for i := range infos {
		infos[i].Leases = byID[infos[i].ID].notedLeases()
	}
	return infos
}

// noteLease remembers that a client renews a lease. It costs a lookup and a lock that nobody else wants.
func noteLease(ctx context.Context, id proto.LeaseID) {
	if conn := connectionOf(ctx); conn != nil {
		conn.noteLease(id)
	}
}

// connectionOf gives the connection on which a call came, nil if it is none of ours.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		return connectionAt(p.Addr)
	}
	return nil
}

// connectionAt is the connection that has this address, nil for an address of another kind.
func connectionAt(remote net.Addr) *connection {
	if addr, ok := remote.(*connectionAddr); ok {
		return addr.conn
	}
	return nil
}

func (c *connection) noteLease(id proto.LeaseID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.leases[id]; known {
		return
	}
	if c.leases == nil || len(c.leases) >= leasesNotedMax {
		c.leases = make(map[proto.LeaseID]struct{}) // begin again: the renewals that follow fill it with what is current
	}
	c.leases[id] = struct{}{}
}

func (c *connection) notedLeases() []proto.LeaseID {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]proto.LeaseID, 0, len(c.leases))
	for id := range c.leases {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// claimed is how many bytes of large answers the connection has.
func (c *connection) claimed() (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for held := range c.claims {
		bytes += held.left.Load()
	}
	return bytes
}

// protocol is what the connection speaks, as far as it is known.
func (c *connection) protocol() string {
	g := c.gate.Load()
	switch {
	case g == nil:
		return ""
	case g.name == "grpc_connection":
		return "grpc"
	case g.name == "json_connection":
		return "json"
	}
	return "http"
}
