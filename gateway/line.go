package gateway

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// Locks and elections are lines: each who wants a turn has a key below a common prefix, and the one whose key was
// created first has it. clientv3's concurrency package stands in the same lines, so that the keys and the order are its
// own: prefix, slash, lease in lower-case hex; by creation revision. A key goes with its lease, and so the turn does.
//
// Who waits watches two keys only, the one just ahead and its own. Watching the whole line would wake all who wait each
// time somebody leaves.

// place is a place in a line.
type place struct {
	name, key []byte
	lease     proto.LeaseID
	// granted says that the lease was granted for this place; nobody else knows it.
	granted bool
	// created is the creation revision of the key: the order in the line.
	created int64
	// found is the value of a key that was there already, nil if there was none.
	found *mvccpb.KeyValue
	// held says that such a key was first in line already: an earlier call got the turn, and it is not this one's to lose.
	held bool
	// header is that of the transaction that took the place or found it taken.
	header *pb.ResponseHeader
}

// takePlace puts a key with a value into the line of a name, unless the lease has one there. The transaction is not
// given up with the call: what it did must be known, to be undone.
func (s *Server) takePlace(ctx context.Context, name []byte, lease int64, value []byte) (*place, error) {
	p := &place{name: name, lease: proto.LeaseID(lease)}
	if lease == 0 {
		id, err := s.grantForPlace(ctx)
		if err != nil {
			return nil, err
		}
		p.lease, p.granted = id, true
	}
	p.key = strconv.AppendInt(lineOf(name), int64(p.lease), 16)
	out := new(pb.TxnResponse)
	lasting := callOf(ctx).outlive()
	err := decoded(out)(s.txn(lasting, &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(p.key, 0)},
		Success: []*pb.RequestOp{putOp(p.key, value, p.lease)},
		Failure: []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: p.key})},
	}))
	if err == nil && !out.Succeeded {
		p.found = out.Responses[0].GetResponseRange().Kvs[0]
		p.created = p.found.CreateRevision
		now, err := s.lookAhead(lasting, p, true)
		p.held = err == nil && len(now.ahead) == 0
	}
	callOf(ctx).join(lasting)
	if err != nil {
		if p.granted {
			s.revoke(ctx, p.lease)
		}
		return nil, err
	}
	p.header = out.Header
	if p.found == nil {
		p.created = out.Header.GetRevision()
	}
	return p, nil
}

// grantForPlace grants a lease for a client that brought none. Nobody will renew it.
func (s *Server) grantForPlace(ctx context.Context) (proto.LeaseID, error) {
	out := new(pb.LeaseGrantResponse)
	err := decoded(out)(s.leaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(placeLeaseTTL / time.Second)}))
	return proto.LeaseID(out.ID), err
}

// revoke ends a lease that was granted here. If that fails, time ends it.
func (s *Server) revoke(ctx context.Context, lease proto.LeaseID) {
	err := decoded(new(pb.LeaseRevokeResponse))(s.leaseRevoke(context.WithoutCancel(ctx),
		&pb.LeaseRevokeRequest{ID: int64(lease)}))
	s.noteLeft(err)
}

// leaveLine gives a place up: it was not reached, and nobody must wait for it. The client may be gone already, which is
// why its context does not count. If it fails, the end of the lease does it. What an earlier call holds stays: whoever
// asks for it again, and leaves, must not take it from whoever relies on it.
func (s *Server) leaveLine(ctx context.Context, p *place) {
	if p.held {
		return
	}
	if p.granted {
		s.revoke(ctx, p.lease)
		return
	}
	_, err := s.removePlace(context.WithoutCancel(ctx), p.key, p.created)
	s.noteLeft(err)
}

func (s *Server) noteLeft(err error) {
	if err != nil {
		s.cfg.Log.Debug().Err(err).Msg("a place in the line of a lock could not be given up; it ends with its lease")
	}
}

// removePlace deletes a key if it is still the one that was created at a revision.
func (s *Server) removePlace(ctx context.Context, key []byte, created int64) (*pb.TxnResponse, error) {
	out := new(pb.TxnResponse)
	err := decoded(out)(s.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(key, created)},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}},
	}))
	return out, err
}

// errPlaceLost says that the key of a place is gone: its lease has ended, or somebody has deleted it.
var errPlaceLost = errors.New("gateway: the place in the line is lost")

// awaitTurn waits until nobody is ahead and gives the header of the look that saw it. It fails with errPlaceLost as
// soon as the own key is gone, with why the call has ended, and with ErrDraining.
//
// The first look need not ask the quorum: this member has applied the transaction that took the place, and nobody can
// get ahead of it any more. Later ones do, so that no turn is announced to a client whose lease has ended while this
// member was cut off.
func (s *Server) awaitTurn(ctx context.Context, p *place) (*pb.ResponseHeader, error) {
	// It waits for others, and there may be any number of it: no work that comes together (enterUnary).
	s.unary.Add(-1)
	defer s.unary.Add(1)
	now, err := s.lookAhead(ctx, p, true)
	if err != nil || len(now.ahead) == 0 {
		return now.header, err
	}
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.lifetime, func() { end(ErrDraining) })()
	for len(now.ahead) > 0 {
		err := s.awaitDeletion(waiting, now.header.GetRevision(), now.ahead, p.key)
		callOf(ctx).rest()
		if err != nil {
			return nil, err
		}
		if now, err = s.lookAhead(ctx, p, false); err != nil {
			return nil, err
		}
	}
	return now.header, nil
}

// view is what a look along the line has seen.
type view struct {
	header *pb.ResponseHeader
	// ahead is the key just ahead, nil if there is none.
	ahead []byte
}

// lookAhead looks at one revision whether the own key is still there, else it fails with errPlaceLost, and which one is
// just ahead.
func (s *Server) lookAhead(ctx context.Context, p *place, serializable bool) (view, error) {
	line := lineOf(p.name)
	out := new(pb.TxnResponse)
	err := decoded(out)(s.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
		rangeOp(&pb.RangeRequest{Key: p.key, KeysOnly: true, Serializable: serializable}),
		rangeOp(&pb.RangeRequest{Key: line, RangeEnd: endOf(line), MaxCreateRevision: p.created - 1, Limit: 1,
			SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_CREATE, KeysOnly: true,
			Serializable: serializable}),
	}}))
	if err != nil {
		return view{}, err
	}
	own, ahead := out.Responses[0].GetResponseRange().Kvs, out.Responses[1].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != p.created {
		return view{}, errPlaceLost
	}
	v := view{header: out.Header}
	if len(ahead) > 0 {
		v.ahead = ahead[0].Key
	}
	return v, nil
}

// awaitDeletion waits until one of the keys has been deleted after a revision, or may have been.
func (s *Server) awaitDeletion(ctx context.Context, revision int64, keys ...[]byte) error {
	var watches []*pb.WatchCreateRequest
	for _, key := range keys {
		watches = append(watches, &pb.WatchCreateRequest{Key: key, StartRevision: revision + 1,
			Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}})
	}
	return s.follow(ctx, func(*WatchFrame) (bool, error) { return false, nil }, watches...)
}

// follow gives the frames with events of some watches to a function until it wants no more or fails, or the watches are
// interrupted (a compaction has passed them, the watch room has started afresh): both give nil, and the caller looks
// for itself what is true now. It fails with the cause of the context's end, and when a watch is refused.
func (s *Server) follow(ctx context.Context, each func(*WatchFrame) (more bool, err error),
	requests ...*pb.WatchCreateRequest) error {
	watches, err := s.cfg.Watch.Open(connectionOf(ctx).watchOwner())
	if err != nil {
		return err
	}
	defer watches.Close()
	for _, r := range requests {
		r := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
		if err := watches.Request(ctx, r); err != nil {
			return uninterrupted(err)
		}
	}
	for {
		frame, err := watches.Next(ctx)
		switch {
		case err != nil:
			return uninterrupted(err)
		case frame.Canceled && frame.CompactRevision == 0:
			return errors.New(frame.CancelReason)
		case frame.Canceled:
			return nil
		case len(frame.Events) == 0:
			continue
		}
		if more, err := each(&frame); err != nil || !more {
			return err
		}
	}
}

// uninterrupted drops an error after which a watch may be opened again at once.
func uninterrupted(err error) error {
	if errors.Is(wireError(err), statusWatchRestarted) {
		return nil
	}
	return err
}

// lineOf is the prefix of the keys of a line, endOf the first key behind them.
func lineOf(name []byte) []byte {
	return append(append(make([]byte, 0, len(name)+lineKeyBytes), name...), '/')
}

func endOf(line []byte) []byte { return append(append([]byte(nil), line[:len(line)-1]...), '/'+1) }

// lineKeyBytes is room for the slash, the sign and the lease.
const lineKeyBytes = 2 + 16

func createdAt(key []byte, revision int64) *pb.Compare {
	return &pb.Compare{Key: key, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: revision}}
}

func putOp(key, value []byte, lease proto.LeaseID) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: key, Value: value, Lease: int64(lease)}}}
}

func rangeOp(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// decoded takes what a handler of another service has answered to a handler here, and decodes it.
func decoded(into protobuf.Message) func(out any, err error) error {
	return func(out any, err error) error {
		if err != nil {
			return err
		}
		if a, ok := out.(*answer); ok {
			defer a.entered.drop()
			defer a.release()
			return protobuf.Unmarshal(a.appendTo(a.prefix(nil)), into)
		}
		protobuf.Merge(into, out.(protobuf.Message))
		return nil
	}
}
