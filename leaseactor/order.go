package leaseactor

import (
	"cmp"
	"context"
	"slices"

	"troupe/actors"
	"troupe/proto"
)

// ByExpiry gives the ids of the leases in the published table, those that end first at the front, as far as this member
// can tell: only the primary keeps the time, another one orders by the granted times. Errors: ErrStopped, or
// context.Cause(ctx).
func (c *Client) ByExpiry(ctx context.Context) ([]proto.LeaseID, error) {
	reply := actors.NewReply[endings]()
	if err := c.ref.Offer(ctx, actors.Normal, &listEnds{reply}); err != nil {
		return nil, own(err)
	}
	ends, err := actors.Await(ctx, c.ref, reply)
	if err != nil {
		return nil, own(err)
	}
	var leases []proto.Lease
	c.cfg.Table.All(func(l proto.Lease) { leases = append(leases, l) })
	return ends.order(leases), nil
}

// order sorts leases by their end. It is not for the actor's turn: there may be a million. A lease that the actor has
// not been told of has all its time; one that has gone since is not in the table.
func (e *endings) order(leases []proto.Lease) []proto.LeaseID {
	known := make(map[proto.LeaseID]tick, len(e.leases))
	for _, one := range e.leases {
		known[one.id] = one.at
	}
	sorted := make([]ending, len(leases))
	for i, l := range leases {
		at, ok := known[l.ID]
		if !ok {
			at = e.now + tick(l.TTL)*e.second
		}
		sorted[i] = ending{l.ID, at}
	}
	slices.SortFunc(sorted, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	ids := make([]proto.LeaseID, len(sorted))
	for i := range sorted {
		ids[i] = sorted[i].id
	}
	return ids
}
