package gateway

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor"
)

func newClient(t *testing.T, e *edge) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantStatus checks code and text of an error as it arrived.
func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if got := status.Convert(err); got.Code() != code || got.Message() != text {
		t.Errorf("got %v %q, want %v %q", got.Code(), got.Message(), code, text)
	}
}

func TestServe_EverydayWorkOfTheOfficialClient(t *testing.T) {
	e := newReadyEdge(t, nil)
	c, ctx := newClient(t, e), within(t)
	put, err := c.Put(ctx, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if h := put.Header; h.ClusterId != 5 || h.MemberId != 7 || h.Revision != 2 || h.RaftTerm != 3 {
		t.Fatalf("header %v", h)
	}
	again, err := c.Put(ctx, "a", "2", clientv3.WithPrevKV())
	if err != nil || string(again.PrevKv.Value) != "1" {
		t.Fatalf("%v %v", again, err)
	}
	get, err := c.Get(ctx, "a")
	if err != nil || len(get.Kvs) != 1 || string(get.Kvs[0].Value) != "2" || get.Kvs[0].Version != 2 {
		t.Fatalf("%v %v", get, err)
	}
	if reads := e.room.reads.Load(); reads != 1 {
		t.Fatalf("%d ReadIndex calls for one linearizable read", reads)
	}
	if _, err := c.Get(ctx, "a", clientv3.WithSerializable()); err != nil || e.room.reads.Load() != 1 {
		t.Fatalf("a serializable read asked the quorum: %v", err)
	}
	deleted, err := c.Delete(ctx, "a")
	if err != nil || deleted.Deleted != 1 || deleted.Header.Revision != 4 {
		t.Fatalf("%v %v", deleted, err)
	}
}

func TestServe_TxnGoesThroughTheLogOnlyIfItMayWrite(t *testing.T) {
	e := newReadyEdge(t, nil)
	c, ctx := newClient(t, e), within(t)
	if _, err := c.Txn(ctx).Then(clientv3.OpGet("a")).Else(clientv3.OpGet("b")).Commit(); err != nil {
		t.Fatal(err)
	}
	if e.room.reads.Load() != 1 || len(e.room.proposed()) != 0 {
		t.Fatal("a read-only txn must be a quorum read and no proposal")
	}
	serializable := clientv3.OpGet("a", clientv3.WithSerializable())
	if _, err := c.Txn(ctx).Then(serializable).Commit(); err != nil || e.room.reads.Load() != 1 {
		t.Fatalf("a serializable txn asked the quorum: %v", err)
	}
	if _, err := c.Txn(ctx).Commit(); err != nil || e.room.reads.Load() != 1 {
		t.Fatalf("an empty txn asked the quorum: %v", err)
	}
	if _, err := c.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{serializable}, nil)).Commit(); err != nil {
		t.Fatal(err)
	}
	if len(e.room.proposed()) != 1 {
		t.Fatal("a nested txn counts as a write")
	}
}

func TestServe_LeasesAndTheirSmallContracts(t *testing.T) { // T53
	e := newReadyEdge(t, nil)
	c, ctx := newClient(t, e), within(t)
	granted, err := c.Grant(ctx, 60)
	if err != nil || granted.ID <= 0 || granted.TTL != 60 {
		t.Fatalf("%v %v", granted, err)
	}
	left, err := c.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys())
	if err != nil || left.TTL != 59 || left.GrantedTTL != 60 || len(left.Keys) != 2 {
		t.Fatalf("%v %v", left, err)
	}
	if unknown, err := c.TimeToLive(ctx, 12345); err != nil || unknown.TTL != -1 || unknown.ID != 12345 {
		t.Fatalf("%v %v", unknown, err)
	}
	list, err := c.Leases(ctx)
	if err != nil || len(list.Leases) != 1 || list.Leases[0].ID != granted.ID {
		t.Fatalf("%v %v", list, err)
	}
	stream, err := pb.NewLeaseClient(e.conn).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id, ttl := range map[int64]int64{99: 0, int64(granted.ID): 60} {
		for range 2 { // an unknown lease is TTL 0 and keeps the stream
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
			r, err := stream.Recv()
			if err != nil || r.ID != id || r.TTL != ttl || r.Header.MemberId != 7 {
				t.Fatalf("%v %v", r, err)
			}
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || err.Error() != "EOF" {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Revoke(ctx, 99); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Fatalf("got %v", err)
	}
}

func TestServe_WatchStream(t *testing.T) {
	e := newReadyEdge(t, nil)
	ctx := within(t)
	w, err := pb.NewWatchClient(e.conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *pb.WatchRequest) {
		t.Helper()
		if err := w.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want *pb.WatchResponse) {
		t.Helper()
		got, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want.Header = &pb.ResponseHeader{ClusterId: 5, MemberId: 7, Revision: want.Header.GetRevision(), RaftTerm: 3}
		if !protobuf.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	}
	at := func(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
	send(&pb.WatchRequest{}) // no union: ignored
	send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte("a"), Filters: []pb.WatchCreateRequest_FilterType{99}}}})
	want(&pb.WatchResponse{Header: at(4), Created: true})
	send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	want(&pb.WatchResponse{Header: at(5), WatchId: -1})
	inner := <-e.room.streams
	event, _ := protobuf.Marshal(&mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("a")}})
	piece := protowire.AppendBytes(protowire.AppendTag(nil, 11, protowire.BytesType), event)
	inner.frames <- WatchFrame{WatchID: 0, Revision: 6, Events: [][]byte{piece, piece}}
	ev := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("a")}}
	want(&pb.WatchResponse{Header: at(6), Events: []*mvccpb.Event{ev, ev}})
	send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
		CancelRequest: &pb.WatchCancelRequest{WatchId: 0}}})
	want(&pb.WatchResponse{Header: at(4), Canceled: true})
	inner.frames <- WatchFrame{WatchID: 3, Canceled: true, CompactRevision: 12} // compaction: revision 0 in the header
	want(&pb.WatchResponse{WatchId: 3, Canceled: true, CompactRevision: 12})
	if err := w.CloseSend(); err != nil { // the client has said all and still gets events
		t.Fatal(err)
	}
	inner.frames <- WatchFrame{WatchID: 1, Revision: 9}
	want(&pb.WatchResponse{Header: at(9), WatchId: 1})
	e.Drain()
	_, err = w.Recv()
	wantStatus(t, err, codes.Unavailable, "etcdserver: server stopped")
	<-inner.closed
}

func TestServe_StreamsThatWantALeaderEndWithoutOne(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.ElectionTimeout = time.Millisecond })
	ctx := metadata.AppendToOutgoingContext(within(t), rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	watching, err := pb.NewWatchClient(e.conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-e.room.streams
	e.room.set(func() { e.room.status.Leader = 0 })
	_, err = watching.Recv()
	wantStatus(t, err, codes.Unavailable, "etcdserver: no leader")
	_, err = pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, codes.Unavailable, "etcdserver: no leader")
	late, err := pb.NewWatchClient(e.conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = late.Recv()
	wantStatus(t, err, codes.Unavailable, "etcdserver: no leader")
}

func TestServe_NothingIsServedBeforeReady(t *testing.T) {
	e := newEdge(t, nil)
	ctx := within(t)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
		answered <- err
	}()
	eventually(t, "the request waits", func() bool { return e.readyWaiters.Load() == 1 })
	check, err := healthpb.NewHealthClient(e.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil || check.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("%v %v", check, err)
	}
	if code, body := get(t, e, "/health"); code != 503 || !strings.Contains(body, "RANGE ERROR") {
		t.Fatalf("/health %d %s", code, body)
	}
	if len(e.room.proposed()) != 0 {
		t.Fatal("proposed before ready")
	}
	e.SetReady()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if check, err = healthpb.NewHealthClient(e.conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil ||
		check.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v %v", check, err)
	}
}

func TestServe_LearnerServesOnlyStatusAndSerializableReads(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() { e.room.status.Learner = true })
	kv, ctx := pb.NewKVClient(e.conn), within(t)
	_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, codes.FailedPrecondition, "etcdserver: rpc not supported for learner")
	_, err = kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	wantStatus(t, err, codes.FailedPrecondition, "etcdserver: rpc not supported for learner")
	if _, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true}); err != nil {
		t.Error(err)
	}
	if _, err := pb.NewMaintenanceClient(e.conn).Status(ctx, &pb.StatusRequest{}); err != nil {
		t.Error(err)
	}
}

// A reader must get all of a large answer, and the memory must be given back whether the client reads it or leaves.
func TestServe_LargeAnswersAreCountedAndGivenBack(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.AnswerBytesMax = 8 << 20 })
	value := make([]byte, 4<<20)
	e.room.set(func() {
		e.room.keys["big"] = &mvccpb.KeyValue{Key: []byte("big"), Value: value}
	})
	kv := pb.NewKVClient(e.conn)
	done := make(chan error, 8)
	ctx := within(t)
	for range cap(done) {
		go func() {
			r, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("big")})
			if err == nil && len(r.Kvs[0].Value) != len(value) {
				err = errors.New("a part is missing")
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil && status.Code(err) != codes.ResourceExhausted { // the plain client's limit is 4 MiB
			t.Error(err)
		}
	}
	eventually(t, "all bytes are given back", func() bool { inUse, _ := e.answers.inFlight(); return inUse == 0 })
	left, leave := context.WithCancel(context.Background())
	leave()
	_, _ = kv.Range(left, &pb.RangeRequest{Key: []byte("big")})
	eventually(t, "all bytes are given back", func() bool { inUse, _ := e.answers.inFlight(); return inUse == 0 })
}

// A client that vanishes in the middle of an answer: gRPC forgets the buffers that were queued for it, and the bytes
// would be missing for good.
func TestServe_LargeAnswerOfABrokenConnectionIsGivenBack(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() {
		e.room.keys["big"] = &mvccpb.KeyValue{Key: []byte("big"), Value: make([]byte, 8<<20)}
	})
	dialed := make(chan net.Conn, 1)
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(_ context.Context, addr string) (net.Conn, error) {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				dialed <- c
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call, err := conn.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, "/etcdserverpb.KV/Range")
	if err != nil {
		t.Fatal(err)
	}
	if err := call.SendMsg(&pb.RangeRequest{Key: []byte("big")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answer is counted", func() bool { inUse, _ := e.answers.inFlight(); return inUse > 0 })
	if err := call.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_ = (<-dialed).Close()
	eventually(t, "all bytes are given back", func() bool { inUse, _ := e.answers.inFlight(); return inUse == 0 })
}

func TestServe_PanickingHandlerIsAnAnswerAndTheServerLives(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() {
		e.room.rangeFn = func(*pb.RangeRequest) (*proto.Result, error) { panic("boom") }
	})
	_, err := pb.NewKVClient(e.conn).Range(within(t), &pb.RangeRequest{Key: []byte("k")})
	wantStatus(t, err, codes.Internal, "etcdserver: internal error")
	if testutil.ToFloat64(e.metrics.panics) != 1 || !strings.Contains(e.log.String(), "boom") {
		t.Error("the panic was neither counted nor logged")
	}
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}

func TestServe_SlowRequestIsLoggedWithoutItsValue(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.SlowRequest = time.Nanosecond })
	if _, err := newClient(t, e).Put(within(t), "the-key", "the-secret"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the line", func() bool { return strings.Contains(e.log.String(), "request stats") })
	if line := e.log.String(); !strings.Contains(line, "the-key") || strings.Contains(line, "the-secret") {
		t.Errorf("line %s", line)
	}
}

func TestServe_ClusterAndMaintenance(t *testing.T) {
	e := newReadyEdge(t, nil)
	ctx := within(t)
	members, err := pb.NewClusterClient(e.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	if err != nil || len(members.Members) != 1 || members.Members[0].Name != "seven" || members.Header.Revision != 0 ||
		members.Header.RaftTerm != 3 {
		t.Fatalf("%v %v", members, err)
	}
	m := pb.NewMaintenanceClient(e.conn)
	st, err := m.Status(ctx, &pb.StatusRequest{})
	if err != nil || st.Version != "3.7.3" || st.StorageVersion != "3.7.0" || st.DbSize != 20480 || st.Leader != 7 ||
		st.DbSizeQuota != quotaBytesDefault || st.RaftAppliedIndex != 9 || len(st.Errors) != 0 {
		t.Fatalf("%v %v", st, err)
	}
	hash, err := m.HashKV(ctx, &pb.HashKVRequest{})
	if err != nil || hash.Hash != 4711 || hash.HashRevision != 8 || hash.CompactRevision != 2 ||
		hash.Header.Revision != 9 {
		t.Fatalf("%v %v", hash, err)
	}
	_, err = m.Defragment(ctx, &pb.DefragmentRequest{})
	wantStatus(t, err, codes.Unimplemented, "etcdserver: not implemented by this version of troupe")
	snapshot, err := m.Snapshot(ctx, &pb.SnapshotRequest{})
	if err == nil {
		_, err = snapshot.Recv()
	}
	wantStatus(t, err, codes.Unimplemented, "etcdserver: not implemented by this version of troupe")
}

func TestServe_PhysicalCompactionWaitsForItsDeletions(t *testing.T) {
	e := newReadyEdge(t, nil)
	deleted := make(chan struct{})
	e.room.set(func() {
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*proto.Result, error) {
			return &proto.Result{Revision: 9, Done: deleted}, nil
		}
	})
	kv, ctx := pb.NewKVClient(e.conn), within(t)
	if _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 5}); err != nil {
		t.Fatal(err) // the logical answer does not wait
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := kv.Compact(short, &pb.CompactionRequest{Revision: 5, Physical: true})
	if status.Code(err) != codes.DeadlineExceeded { // the text is the client's or the server's, who is first
		t.Errorf("got %v", err)
	}
	close(deleted)
	if _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 5, Physical: true}); err != nil {
		t.Fatal(err)
	}
}

func TestServe_AlarmsAndQuota(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.QuotaBytes = 53248 })
	kv, m, ctx := pb.NewKVClient(e.conn), pb.NewMaintenanceClient(e.conn), within(t)
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	e.room.set(func() { e.room.state.Sizes = Sizes{Total: 45056, InUse: 16384, Projected: 45056} })
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	e.room.set(func() { e.room.state.Sizes.Projected = 56384 })
	before := len(e.room.proposed())
	for range 3 { // refused thrice, raised once; the quota is looked at before the request is
		_, err := kv.Put(ctx, &pb.PutRequest{})
		wantStatus(t, err, codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
	}
	_, err := pb.NewLeaseClient(e.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 5})
	wantStatus(t, err, codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
	if raised := e.room.proposed()[before:]; len(raised) != 1 || raised[0].Alarm.GetMemberID() != 7 {
		t.Fatalf("raised %v", raised)
	}
	list, err := m.Alarm(ctx, &pb.AlarmRequest{})
	if err != nil || len(list.Alarms) != 1 || list.Alarms[0].Alarm != pb.AlarmType_NOSPACE {
		t.Fatalf("%v %v", list, err)
	}
	if list, err = m.Alarm(ctx, &pb.AlarmRequest{Alarm: pb.AlarmType_CORRUPT}); err != nil || len(list.Alarms) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	for _, free := range []func() error{
		func() error { _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("k")}); return err },
		func() error { _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 1}); return err },
		func() error { _, err := kv.Txn(ctx, &pb.TxnRequest{}); return err },
		func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")}); return err },
	} {
		if err := free(); err != nil {
			t.Error("what frees space or reads must go on:", err)
		}
	}
}

// notingRoom stamps requests as raft does, and hears which of them are the quota's.
type notingRoom struct {
	Store
	Raft
	next  uint64
	fails error
	notes []proto.RequestID
}

// Propose is part of Raft. The request has its id even when the outcome is not known.
func (n *notingRoom) Propose(ctx context.Context, r *pb.InternalRaftRequest) (*proto.Result, error) {
	n.next++
	r.Header = &pb.RequestHeader{ID: n.next}
	if n.fails != nil {
		return nil, n.fails
	}
	return n.Raft.Propose(ctx, r)
}

// NoteQuotaRaise is part of QuotaNotes.
func (n *notingRoom) NoteQuotaRaise(id proto.RequestID) { n.notes = append(n.notes, id) }

// What the quota raises is noted as its own, even if it is not known whether that worked; what a client raises is not.
func TestQuota_NotesItsOwnAlarmsOnly(t *testing.T) {
	room := &notingRoom{}
	e := newReadyEdge(t, func(c *Config) {
		c.QuotaBytes, room.Store, room.Raft = 100, c.Store, c.Raft
		c.Store, c.Raft = room, room
	})
	ctx := within(t)
	_, err := pb.NewMaintenanceClient(e.conn).Alarm(ctx,
		&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 8, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	for _, room.fails = range []error{raftactor.ErrTimeout, nil} {
		_, err := pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 100)})
		wantStatus(t, err, codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
	}
	if want := []proto.RequestID{2, 3}; !slices.Equal(room.notes, want) {
		t.Errorf("noted %v of %d requests, want %v", room.notes, room.next, want)
	}
}

// Reads of alarms, members and status must work when nothing can be written (T19).
func TestServe_ReadsOfStateDoNotGoThroughTheLog(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() {
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*proto.Result, error) { return nil, ErrTooManyAnswers }
	})
	ctx := within(t)
	_, err := pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, codes.Unknown, "etcdserver: too many requests")
	if _, err := pb.NewMaintenanceClient(e.conn).Alarm(ctx, &pb.AlarmRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := pb.NewMaintenanceClient(e.conn).Status(ctx, &pb.StatusRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := pb.NewClusterClient(e.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true}); err != nil {
		t.Error(err)
	}
	if got := len(e.room.proposed()); got != 1 {
		t.Errorf("%d proposals", got)
	}
}

func wantCode(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if got := status.Code(err); got != code {
		t.Errorf("got %v, want %v", err, code)
	}
}
