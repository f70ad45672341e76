package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
)

// fakeRoom stands for all rooms behind the gateway: a map with one revision counter, applied at once.
type fakeRoom struct {
	chunkKeys int64                  // keys that RangeChunk has
	chunkHook func()                 // called by RangeChunk first, if set
	rangeHook func(*pb.RangeRequest) // called by Range first, without the lock, if set

	mu        sync.Mutex
	status    proto.RaftStatus
	state     State
	keys      map[string]*mvccpb.KeyValue
	leases    map[int64]int64
	proposals []*pb.InternalRaftRequest
	readErr   error
	proposeFn func(*pb.InternalRaftRequest) (*proto.Result, error)
	rangeFn   func(*pb.RangeRequest) (*proto.Result, error)
	txnFn     func(*pb.TxnRequest) (*proto.Result, error)
	reads     atomic.Int64
	ids       atomic.Uint64
	streams   chan *fakeStream
	full      atomic.Bool // of what is sent to watches
}

func newFakeRoom() *fakeRoom {
	return &fakeRoom{
		status: proto.RaftStatus{Member: 7, Leader: 7, Term: 3, Commit: 9, Ready: true},
		state: State{Applied: 9, Revision: 1, Sizes: Sizes{Total: 20480, InUse: 16384},
			Membership: &proto.Membership{ClusterID: 5, ClusterVersion: "3.7.0",
				Members: []proto.Member{{ID: 7, Name: "seven", PeerURLs: []string{"http://127.0.0.1:2380"},
					ClientURLs: []string{"http://127.0.0.1:2379"}}}}},
		keys:    map[string]*mvccpb.KeyValue{},
		leases:  map[int64]int64{},
		streams: make(chan *fakeStream, 1024),
	}
}

func (f *fakeRoom) Status() *proto.RaftStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	return &s
}

// ChangeMembers and MoveLeader are tested beside etcd; here nobody can be changed.
func (f *fakeRoom) ChangeMembers(context.Context, raftactor.MemberVerb, proto.Member) (*proto.Membership, error) {
	return nil, raftactor.ErrMemberNotFound
}

func (f *fakeRoom) MoveLeader(context.Context, proto.MemberID) error {
	return raftactor.ErrBadTransferee
}

func (f *fakeRoom) NextRequestID() proto.RequestID { return proto.RequestID(f.ids.Add(1)) }

func (f *fakeRoom) ReadIndex(context.Context) (proto.Index, error) {
	f.reads.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return 9, f.readErr
}

// Propose executes a request even if the context ends meanwhile: then only the answer is lost.
func (f *fakeRoom) Propose(ctx context.Context, r *pb.InternalRaftRequest) (*proto.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proposals = append(f.proposals, r)
	result, err := f.execute(r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return result, err
}

// execute executes a request; the room is locked.
func (f *fakeRoom) execute(r *pb.InternalRaftRequest) (*proto.Result, error) {
	if f.proposeFn != nil {
		return f.proposeFn(r)
	}
	switch {
	case r.Put != nil:
		f.state.Revision++
		rev := int64(f.state.Revision)
		old := f.keys[string(r.Put.Key)]
		kv := &mvccpb.KeyValue{Key: r.Put.Key, Value: r.Put.Value, Lease: r.Put.Lease, ModRevision: rev,
			CreateRevision: rev, Version: 1}
		out := &pb.PutResponse{}
		if old != nil {
			kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
			if r.Put.PrevKv {
				out.PrevKv = old
			}
		}
		f.keys[string(r.Put.Key)] = kv
		return f.result(out), nil
	case r.DeleteRange != nil:
		_, was := f.keys[string(r.DeleteRange.Key)]
		out := &pb.DeleteRangeResponse{}
		if was {
			delete(f.keys, string(r.DeleteRange.Key))
			f.state.Revision++
			out.Deleted = 1
		}
		return f.result(out), nil
	case r.Txn != nil:
		return f.result(&pb.TxnResponse{Succeeded: true}), nil
	case r.Compaction != nil:
		return f.result(&pb.CompactionResponse{}), nil
	case r.LeaseGrant != nil:
		f.leases[r.LeaseGrant.ID] = r.LeaseGrant.TTL
		return f.result(&pb.LeaseGrantResponse{ID: r.LeaseGrant.ID, TTL: r.LeaseGrant.TTL}), nil
	case r.LeaseRevoke != nil:
		if _, ok := f.leases[r.LeaseRevoke.ID]; !ok {
			return nil, rpctypes.ErrGRPCLeaseNotFound
		}
		delete(f.leases, r.LeaseRevoke.ID)
		return f.result(&pb.LeaseRevokeResponse{}), nil
	case r.Alarm != nil:
		alarm := &pb.AlarmMember{MemberID: r.Alarm.MemberID, Alarm: r.Alarm.Alarm}
		f.state.Alarms = append(f.state.Alarms, alarm)
		return f.result(&pb.AlarmResponse{Alarms: []*pb.AlarmMember{alarm}}), nil
	}
	return nil, errors.New("fake: unknown request")
}

// result encodes a response without its header.
func (f *fakeRoom) result(m protobuf.Message) *proto.Result {
	b, err := protobuf.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &proto.Result{Revision: f.state.Revision, Body: proto.Body{Pieces: [][]byte{b}}}
}

func (f *fakeRoom) proposed() []*pb.InternalRaftRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*pb.InternalRaftRequest(nil), f.proposals...)
}

func (f *fakeRoom) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRoom) WaitApplied(context.Context, proto.Index) error { return nil }

func (f *fakeRoom) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *fakeRoom) StorageVersion() string { return "3.7.0" }

func (f *fakeRoom) HashKV(context.Context, proto.Revision) (HashKV, error) {
	return HashKV{Hash: 4711, Revision: 8, Compacted: 2, Current: 9}, nil
}

// RangeChunk gives as many empty keys as asked for, until chunkKeys are given.
func (f *fakeRoom) RangeChunk(ctx context.Context, _ *pb.RangeRequest, from []byte, limit int64) (
	storeactor.RangeChunk, error) {
	if f.chunkHook != nil {
		f.chunkHook()
	}
	if ctx.Err() != nil {
		return storeactor.RangeChunk{}, context.Cause(ctx)
	}
	at := int64(0)
	if from != nil {
		at, _ = strconv.ParseInt(string(from), 10, 64)
	}
	n := min(limit, f.chunkKeys-at)
	chunk := storeactor.RangeChunk{Keys: n, At: 8, Result: &proto.Result{Revision: 9}}
	chunk.Result.Body.Pieces = slices.Repeat([][]byte{{2<<3 | 2, 0}}, int(n))
	if at+n < f.chunkKeys {
		chunk.Next = strconv.AppendInt(nil, at+n, 10)
	}
	return chunk, nil
}

func (f *fakeRoom) NoteRange()             {}
func (f *fakeRoom) NoteRead(time.Duration) {}

func (f *fakeRoom) CountFrom(_ *pb.RangeRequest, from []byte) (int64, error) {
	at, err := strconv.ParseInt(string(from), 10, 64)
	return f.chunkKeys - at, err
}

func (f *fakeRoom) Range(_ context.Context, r *pb.RangeRequest) (*proto.Result, error) {
	f.mu.Lock()
	hook := f.rangeHook
	f.mu.Unlock()
	if hook != nil {
		hook(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rangeFn != nil {
		return f.rangeFn(r)
	}
	out := &pb.RangeResponse{}
	for key, kv := range f.keys {
		if key == string(r.Key) || len(r.RangeEnd) > 0 && key >= string(r.Key) &&
			(bytes.Equal(r.RangeEnd, []byte{0}) || key < string(r.RangeEnd)) {
			out.Kvs = append(out.Kvs, kv)
		}
	}
	sort.Slice(out.Kvs, func(i, j int) bool { return bytes.Compare(out.Kvs[i].Key, out.Kvs[j].Key) < 0 })
	out.Count = int64(len(out.Kvs))
	return f.result(out), nil
}

func (f *fakeRoom) Txn(_ context.Context, r *pb.TxnRequest) (*proto.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.txnFn != nil {
		return f.txnFn(r)
	}
	return f.result(&pb.TxnResponse{Succeeded: true}), nil
}

func (f *fakeRoom) LeaseKeys(proto.LeaseID) [][]byte { return [][]byte{[]byte("a"), []byte("b")} }

// ByExpiry orders by the granted time.
func (f *fakeRoom) ByExpiry(context.Context) ([]proto.LeaseID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []proto.LeaseID
	for id := range f.leases {
		ids = append(ids, proto.LeaseID(id))
	}
	slices.SortFunc(ids, func(a, b proto.LeaseID) int { return int(f.leases[int64(a)] - f.leases[int64(b)]) })
	return ids, nil
}

func (f *fakeRoom) Renew(_ context.Context, id proto.LeaseID) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ttl, ok := f.leases[int64(id)]
	if !ok {
		return 0, rpctypes.ErrGRPCLeaseNotFound
	}
	return ttl, nil
}

func (f *fakeRoom) Remaining(_ context.Context, id proto.LeaseID) (int64, int64, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ttl, ok := f.leases[int64(id)]
	return ttl - 1, ttl, ok, nil
}

func (f *fakeRoom) Open(owner *WatchOwner) (WatchStream, error) {
	s := &fakeStream{frames: make(chan WatchFrame, 16), failed: make(chan error, 1), closed: make(chan struct{}),
		owner: owner}
	f.streams <- s
	return s, nil
}

func (f *fakeRoom) Full() bool { return f.full.Load() }

// fakeStream confirms what it is asked and sends what the test puts in.
type fakeStream struct {
	frames chan WatchFrame
	failed chan error
	next   int64
	closed chan struct{}
	once   sync.Once
	owner  *WatchOwner
	lent   atomic.Int64
}

func (s *fakeStream) Request(_ context.Context, r *pb.WatchRequest) error {
	switch {
	case r.GetCreateRequest() != nil:
		s.frames <- WatchFrame{WatchID: s.next, Revision: 4, Created: true}
		s.next++
	case r.GetCancelRequest() != nil:
		s.frames <- WatchFrame{WatchID: r.GetCancelRequest().WatchId, Revision: 4, Canceled: true}
	case r.GetProgressRequest() != nil:
		s.frames <- WatchFrame{WatchID: -1, Revision: 5}
	}
	return nil
}

func (s *fakeStream) Next(ctx context.Context) (WatchFrame, error) {
	select {
	case f := <-s.frames:
		return f, nil
	case err := <-s.failed:
		return WatchFrame{}, err
	case <-ctx.Done():
		return WatchFrame{}, context.Cause(ctx)
	}
}

func (s *fakeStream) Lend(bytes int) {
	s.lent.Add(int64(bytes))
	s.owner.Hold(bytes)
}

func (s *fakeStream) GiveBack(bytes int) {
	s.lent.Add(int64(-bytes))
	s.owner.LetGo(bytes)
}

func (s *fakeStream) Close() { s.once.Do(func() { close(s.closed) }) }

type fakeActors struct{ stats []actors.Stats }

func (f fakeActors) Picture(int) *actors.Picture {
	return &actors.Picture{At: time.Now(), Actors: f.stats}
}

func (f fakeActors) Collector() prometheus.Collector {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "troupe_actor_test_total"})
}

// edge is a served gateway over a fakeRoom.
type edge struct {
	*Server
	room *fakeRoom
	addr string
	conn *grpc.ClientConn
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func testConfig(room *fakeRoom, log *lockedBuffer) Config {
	return Config{Member: 7, Cluster: 5, Versions: Versions{Server: "3.7.3", Troupe: "0.1.0"},
		Raft: room, Store: room, Watch: room, Leases: room, Registry: prometheus.NewRegistry(), Log: zerolog.New(log),
		stallCheck: time.Hour}
}

// newEdge serves a gateway on a free port; configure may change its configuration.
func newEdge(t testing.TB, configure func(*Config)) *edge {
	t.Helper()
	return newBoundedEdge(t, configure, func(*Server) {})
}

// newBoundedEdge is newEdge with bounds that a test can reach, set by bound before anything is served.
func newBoundedEdge(t testing.TB, configure func(*Config), bound func(*Server)) *edge {
	t.Helper()
	room, log := newFakeRoom(), &lockedBuffer{}
	cfg := testConfig(room, log)
	if configure != nil {
		configure(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	bound(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeClients(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), testPatience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &edge{Server: s, room: room, addr: l.Addr().String(), conn: conn, log: log}
}

// newReadyEdge is newEdge of a member that serves.
func newReadyEdge(t testing.TB, configure func(*Config)) *edge {
	t.Helper()
	e := newEdge(t, configure)
	e.SetReady()
	return e
}

// within is a context that ends with the test, or after a time in which everything here must be done.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	t.Cleanup(cancel)
	return ctx
}

// pages is a client that does not wait for ever.
var pages = &http.Client{Timeout: testPatience}

// testPatience is how long a test waits for what must happen, on a slow machine with the race detector too.
const testPatience = time.Minute

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(testPatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("did not happen: %s", what)
}
