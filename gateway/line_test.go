package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/watchactor"
)

// lineEdge is an edge whose room executes the transactions of lines.
type lineEdge struct{ *edge }

func newLineEdge(t *testing.T, bound func(*Server)) lineEdge {
	t.Helper()
	e := lineEdge{newBoundedEdge(t, nil, bound)}
	e.SetReady()
	e.room.set(func() {
		e.room.txnFn = func(r *pb.TxnRequest) (*proto.Result, error) { return e.room.lineTxn(r), nil }
		e.room.proposeFn = func(r *pb.InternalRaftRequest) (*proto.Result, error) { return e.room.lineEntry(r) }
	})
	return e
}

// lineEntry executes an entry; the room is locked.
func (f *fakeRoom) lineEntry(r *pb.InternalRaftRequest) (*proto.Result, error) {
	switch {
	case r.Txn != nil:
		return f.lineTxn(r.Txn), nil
	case r.DeleteRange != nil:
		f.remove(string(r.DeleteRange.Key))
		return f.result(&pb.DeleteRangeResponse{}), nil
	case r.LeaseGrant != nil:
		f.leases[r.LeaseGrant.ID] = r.LeaseGrant.TTL
		return f.result(&pb.LeaseGrantResponse{ID: r.LeaseGrant.ID, TTL: r.LeaseGrant.TTL}), nil
	case r.LeaseRevoke != nil:
		delete(f.leases, r.LeaseRevoke.ID)
		for key, kv := range f.keys {
			if kv.Lease == r.LeaseRevoke.ID {
				f.remove(key)
			}
		}
		return f.result(&pb.LeaseRevokeResponse{}), nil
	}
	return nil, fmt.Errorf("fake: unexpected %v", r)
}

func (f *fakeRoom) remove(key string) {
	if _, ok := f.keys[key]; ok {
		delete(f.keys, key)
		f.state.Revision++
	}
}

// lineTxn executes a transaction that compares creation revisions.
func (f *fakeRoom) lineTxn(r *pb.TxnRequest) *proto.Result {
	out := &pb.TxnResponse{Succeeded: true}
	for _, c := range r.Compare {
		out.Succeeded = out.Succeeded && f.keys[string(c.Key)].GetCreateRevision() == c.GetCreateRevision()
	}
	ops := r.Success
	if !out.Succeeded {
		ops = r.Failure
	}
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			put := op.GetRequestPut()
			f.state.Revision++
			rev := int64(f.state.Revision)
			kv := &mvccpb.KeyValue{Key: put.Key, Value: put.Value, Lease: put.Lease, CreateRevision: rev, ModRevision: rev}
			if old := f.keys[string(put.Key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			f.keys[string(put.Key)] = kv
			out.Responses = append(out.Responses, &pb.ResponseOp{})
		case op.GetRequestDeleteRange() != nil:
			f.remove(string(op.GetRequestDeleteRange().Key))
			out.Responses = append(out.Responses, &pb.ResponseOp{})
		default:
			out.Responses = append(out.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
				ResponseRange: &pb.RangeResponse{Kvs: f.found(op.GetRequestRange())}}})
		}
	}
	return f.result(out)
}

// found gives the youngest key of a range that is not younger than asked for.
func (f *fakeRoom) found(r *pb.RangeRequest) (kvs []*mvccpb.KeyValue) {
	for key, kv := range f.keys {
		inside := key == string(r.Key) || len(r.RangeEnd) > 0 && key >= string(r.Key) && key < string(r.RangeEnd)
		if inside && (r.MaxCreateRevision == 0 || kv.CreateRevision <= r.MaxCreateRevision) {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return int(b.CreateRevision - a.CreateRevision) })
	return kvs[:min(len(kvs), 1)]
}

func (e lineEdge) has(key string) (has bool) {
	e.room.set(func() { has = e.room.keys[key] != nil })
	return has
}

// lock waits in the background; the error arrives when it is over.
func (e lineEdge) lock(ctx context.Context, lease int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		r := &proto.LockRequest{Name: []byte("l"), Lease: lease}
		done <- e.conn.Invoke(ctx, "/v3lockpb.Lock/Lock", r, new(proto.LockResponse))
	}()
	return done
}

func (e lineEdge) hold(t *testing.T, lease int64) {
	t.Helper()
	if err := <-e.lock(within(t), lease); err != nil {
		t.Fatal(err)
	}
}

func (e lineEdge) unlock(t *testing.T, key string) {
	t.Helper()
	r := &proto.UnlockRequest{Key: []byte(key)}
	if err := e.conn.Invoke(within(t), "/v3lockpb.Lock/Unlock", r, new(proto.UnlockResponse)); err != nil {
		t.Fatal(err)
	}
}

// watched gives the watch stream that a waiting call has opened.
func (e *edge) watched(t *testing.T) *fakeStream {
	t.Helper()
	select {
	case s := <-e.room.streams:
		return s
	case <-within(t).Done():
		t.Fatal("no watch was opened")
		return nil
	}
}

func (e lineEdge) nobodyWaits(t *testing.T) {
	t.Helper()
	eventually(t, "all places of waiting calls are given back", func() bool { return e.gates.turns.inside() == 0 })
}

var deletion = WatchFrame{Revision: 9, Events: [][]byte{{}}}

func TestLine_CallsThatWaitTakeNoPlaceFromThoseThatRelease(t *testing.T) {
	e := newLineEdge(t, func(s *Server) { s.gates.turns.max = 2 })
	e.hold(t, 1)
	first, second := e.lock(within(t), 2), e.lock(within(t), 3)
	one, other := e.watched(t), e.watched(t)
	wantStatus(t, <-e.lock(within(t), 4), codes.Unknown, "etcdserver: too many requests")
	if got := testutil.ToFloat64(e.gates.turns.rejected); got != 1 {
		t.Errorf("%v refusals counted", got)
	}
	e.unlock(t, "l/1")
	one.frames <- deletion
	other.frames <- deletion
	select {
	case err := <-first:
		wantStatus(t, err, codes.OK, "")
		next := e.watched(t) // before the key goes: the other may not have looked yet
		e.unlock(t, "l/2")
		next.frames <- deletion
		wantStatus(t, <-second, codes.OK, "")
	case err := <-second:
		wantStatus(t, err, codes.OK, "")
		next := e.watched(t)
		e.unlock(t, "l/3")
		next.frames <- deletion
		wantStatus(t, <-first, codes.OK, "")
	}
	e.nobodyWaits(t)
}

// Sixteen calls that wait for a lock must not keep all processors for a member that has nothing to do.
func TestLine_WaitingIsNotCountedAsWork(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	ctx, cancel := context.WithCancel(within(t))
	done := e.lock(ctx, 2)
	e.watched(t)
	eventually(t, "the call that waits is not counted", func() bool { return e.unary.Load() == 0 })
	cancel()
	wantStatus(t, <-done, codes.Canceled, "context canceled")
	e.nobodyWaits(t)
	eventually(t, "nor when it has ended", func() bool { return e.unary.Load() == 0 })
}

func TestLine_EndOfTheCallGivesThePlaceUp(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	ctx, cancel := context.WithCancel(within(t))
	waiting := e.lock(ctx, 2)
	watch := e.watched(t)
	cancel()
	wantStatus(t, <-waiting, codes.Canceled, "context canceled")
	<-watch.closed
	eventually(t, "the place is given up", func() bool { return !e.has("l/2") })
	e.nobodyWaits(t)
	if !e.has("l/1") {
		t.Error("the holder's key is gone")
	}
}

// A client that leaves while its place is being taken must not leave it behind.
func TestLine_EndOfTheCallWhileThePlaceIsTakenGivesItUp(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	ctx, cancel := context.WithCancel(within(t))
	e.room.set(func() {
		execute := e.room.proposeFn
		e.room.proposeFn = func(r *pb.InternalRaftRequest) (*proto.Result, error) {
			cancel()
			return execute(r)
		}
	})
	_, err := e.Server.lock(ctx, &proto.LockRequest{Name: []byte("l"), Lease: 2})
	wantStatus(t, wireError(err), codes.Canceled, "context canceled")
	if e.has("l/2") {
		t.Error("the place is still taken")
	}
}

// Who holds a lock or leads, asks again and leaves before the answer, still has what it had.
func TestLine_EndOfACallForWhatIsHeldTakesItFromNobody(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	campaign := &proto.CampaignRequest{Name: []byte("e"), Lease: 1, Value: []byte("a")}
	if _, err := e.Server.campaign(within(t), campaign); err != nil {
		t.Fatal(err)
	}
	leaving := func() context.Context { // a client that leaves when its transaction is executed
		ctx, cancel := context.WithCancel(within(t))
		t.Cleanup(cancel)
		e.room.set(func() {
			e.room.proposeFn = func(r *pb.InternalRaftRequest) (*proto.Result, error) {
				cancel()
				return e.room.lineEntry(r)
			}
		})
		return ctx
	}
	for range 16 { // the answer may come all the same
		_, _ = e.Server.lock(leaving(), &proto.LockRequest{Name: []byte("l"), Lease: 1})
	}
	campaign.Value = []byte("b")
	_, err := e.Server.campaign(leaving(), campaign)
	wantStatus(t, wireError(err), codes.Canceled, "context canceled")
	if !e.has("l/1") || !e.has("e/1") {
		t.Errorf("held still: lock %v, lead %v", e.has("l/1"), e.has("e/1"))
	}
}

func TestLine_ServersOwnLeaseEndsWithAWaitThatFails(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 77) // not an id that the room chooses
	ctx, cancel := context.WithCancel(within(t))
	waiting := e.lock(ctx, 0)
	e.watched(t)
	e.room.set(func() {
		if len(e.room.leases) != 1 || len(e.room.keys) != 2 {
			t.Errorf("leases %v, keys %v", e.room.leases, e.room.keys)
		}
	})
	cancel()
	if err := <-waiting; status.Code(err) != codes.Canceled {
		t.Errorf("the wait ends with %v", err)
	}
	e.nobodyWaits(t)
	e.room.set(func() {
		if len(e.room.leases) != 0 || len(e.room.keys) != 1 {
			t.Errorf("leases %v, keys %v", e.room.leases, e.room.keys)
		}
	})
}

func TestLine_DrainEndsTheWaitAndGivesThePlaceUp(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	waiting := e.lock(within(t), 2)
	e.watched(t)
	e.Drain()
	wantStatus(t, <-waiting, codes.Unavailable, "etcdserver: server stopped")
	if e.has("l/2") {
		t.Error("the place is still taken")
	}
}

func TestLine_LostPlaceEndsTheWaitAtOnce(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	waiting := e.lock(within(t), 2)
	watch := e.watched(t)
	e.room.set(func() { e.room.remove("l/2") })
	watch.frames <- deletion
	wantStatus(t, <-waiting, codes.Unknown, "mutex: session is expired")
}

// What interrupts a watch makes the call look again, not fail.
func TestLine_InterruptedWatchIsOpenedAgain(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	waiting := e.lock(within(t), 2)
	e.watched(t).frames <- WatchFrame{Canceled: true, CompactRevision: 5}
	e.watched(t).failed <- watchactor.ErrRestarted
	last := e.watched(t)
	e.unlock(t, "l/1")
	last.frames <- deletion
	wantStatus(t, <-waiting, codes.OK, "")
}

func TestLine_RefusedWatchEndsTheWait(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	waiting := e.lock(within(t), 2)
	e.watched(t).frames <- WatchFrame{Canceled: true, CancelReason: "not for you"}
	wantStatus(t, <-waiting, codes.Unknown, "not for you")
	if e.has("l/2") {
		t.Error("the place is still taken")
	}
}

func TestLine_FailedLookEndsTheWait(t *testing.T) {
	e := newLineEdge(t, func(*Server) {})
	e.hold(t, 1)
	waiting := e.lock(within(t), 2)
	watch := e.watched(t)
	e.room.set(func() { e.room.readErr = errors.New("no quorum") })
	watch.frames <- deletion
	wantStatus(t, <-waiting, codes.Unknown, "no quorum")
	e.nobodyWaits(t)
}

// Who waits for another client has not been served slowly.
func TestCall_RestIsNotSlow(t *testing.T) {
	e := newReadyEdge(t, nil)
	m := &unaryMethod{server: e.Server, counters: e.metrics.rpc.method(rpcUnary, serviceLock, methodLock)}
	for _, rested := range []bool{true, false} {
		c := new(call)
		c.begin(within(t))
		c.began -= time.Hour
		c.last -= time.Hour
		if rested {
			c.rest()
		}
		m.end(c, &proto.LockRequest{}, answerSize{}, nil)
		if got := testutil.ToFloat64(e.metrics.slow); (got == 0) != rested {
			t.Errorf("rested %v: %v slow requests", rested, got)
		}
	}
}

// An observer that looks again, because its watch was interrupted, does not send the same twice.
func TestObserve_InterruptedWatchRepeatsNothing(t *testing.T) {
	e := newReadyEdge(t, nil)
	leader := func(value string, revision int64) *mvccpb.KeyValue {
		kv := &mvccpb.KeyValue{Key: []byte("o/1"), Value: []byte(value), CreateRevision: 4, ModRevision: revision}
		e.room.set(func() { e.room.keys["o/1"], e.room.state.Revision = kv, proto.Revision(revision) })
		return kv
	}
	leader("one", 4)
	stream, err := e.conn.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, "/v3electionpb.Election/Observe")
	if err == nil {
		err = stream.SendMsg(&proto.LeaderRequest{Name: []byte("o")})
	}
	if err != nil {
		t.Fatal(err)
	}
	expect := func(value string) {
		t.Helper()
		r := new(proto.LeaderResponse)
		if err := stream.RecvMsg(r); err != nil || string(r.Kv.GetValue()) != value {
			t.Fatalf("observed %v, %v; want %s", r, err, value)
		}
	}
	watched := lineEdge{e}.watched
	expect("one")
	watched(t).frames <- WatchFrame{Canceled: true, CompactRevision: 5}
	event, err := protobuf.Marshal(&mvccpb.Event{Kv: leader("two", 6)})
	if err != nil {
		t.Fatal(err)
	}
	event = append(protowire.AppendVarint([]byte{11<<3 | 2}, uint64(len(event))), event...)
	second := watched(t)
	second.frames <- WatchFrame{Revision: 6, Events: [][]byte{event}}
	expect("two")
	second.failed <- watchactor.ErrRestarted
	leader("three", 7)
	watched(t).failed <- watchactor.ErrRestarted
	expect("three")
}
