package gateway

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/leaseactor"
	"troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
	"troupe/watchactor"
)

// The clients of the rooms, as the ports of this package. raftactor's and leaseactor's fit as they are.
var (
	_ Raft   = (*raftactor.Client)(nil)
	_ Leases = (*leaseactor.Client)(nil)
	_ Actors = (*actors.System)(nil)

	_ Housekeeping = storeRoom{}
	_ QuotaNotes   = storeRoom{}
)

// StoreRoom is a storeactor.Client as a Store.
func StoreRoom(c *storeactor.Client) Store { return storeRoom{c} }

// storeRoom takes Range, Txn and WaitApplied from the client as they are.
type storeRoom struct{ *storeactor.Client }

// State summarises the published state.
func (r storeRoom) State() State {
	s := r.Client.State()
	out := State{Applied: s.Applied, Revision: s.Revision, Compacted: s.Compacted, Membership: s.Membership,
		AuthEnabled: s.AuthEnabled}
	out.Sizes = Sizes{Total: s.Sizes.Total, InUse: s.Sizes.InUse, Projected: s.Sizes.Projected(s.Unwritten)}
	for _, a := range s.Alarms {
		out.Alarms = append(out.Alarms, &pb.AlarmMember{MemberID: uint64(a.Member), Alarm: a.Type})
	}
	return out
}

// LeaseKeys lists the keys attached to a lease.
func (r storeRoom) LeaseKeys(id proto.LeaseID) [][]byte { return r.Client.State().LeaseKeys(id) }

// HashKV hashes the history up to a revision.
func (r storeRoom) HashKV(ctx context.Context, revision proto.Revision) (HashKV, error) {
	h, err := r.Client.HashKV(ctx, revision)
	return HashKV{Hash: h.Hash, Revision: h.HashRevision, Compacted: h.CompactRevision, Current: h.Revision}, err
}

// Hash hashes everything in the file.
func (r storeRoom) Hash(ctx context.Context) (HashKV, error) {
	h, err := r.Client.Hash(ctx)
	return HashKV{Hash: h.Hash, Current: h.Revision}, err
}

// Snapshot gives a copy of the file. Defragment and FileStatus are the client's as they are.
func (r storeRoom) Snapshot(ctx context.Context) (Snapshot, error) {
	copied, err := r.Client.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return copied, nil
}

// WatchOwner is what the watch streams of one connection hold together.
type WatchOwner = watchactor.Owner

// WatchRoom is a watchactor.Client as a Watch.
func WatchRoom(c *watchactor.Client) Watch { return watchRoom{c} }

type watchRoom struct{ client *watchactor.Client }

// Open starts a stream.
func (r watchRoom) Open(owner *WatchOwner) (WatchStream, error) {
	s, err := r.client.Open(owner)
	if err != nil {
		return nil, err
	}
	return watchStreamRoom{s}, nil
}

// Full reports whether who does not read should be cut off.
func (r watchRoom) Full() bool { return r.client.Full() }

// watchStreamRoom takes all but Next from the stream as it is.
type watchStreamRoom struct{ *watchactor.Stream }

// Next waits for the next frame.
func (r watchStreamRoom) Next(ctx context.Context) (WatchFrame, error) {
	f, err := r.Stream.Next(ctx)
	return WatchFrame{WatchID: f.WatchID, Revision: f.HeaderRevision, Created: f.Created, Canceled: f.Canceled,
		CompactRevision: f.CompactRevision, CancelReason: f.CancelReason, Fragment: f.Fragment, Events: f.Events}, err
}
