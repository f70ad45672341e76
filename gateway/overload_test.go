package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"troupe/proto"
)

const tooManyRequests = "etcdserver: too many requests"

// blockReads makes ranges of the fake wait until the result is called.
func blockReads(t *testing.T, e *edge) (letGo func()) {
	t.Helper()
	wait := make(chan struct{})
	letGo = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(letGo)
	e.room.set(func() {
		e.room.rangeHook = func(r *pb.RangeRequest) {
			if string(r.Key) == "k" { // the health check reads too
				<-wait
			}
		}
	})
	return letGo
}

// flood sends n gets that will wait, and waits until they are in flight.
func flood(t *testing.T, e *edge, n int) (ended func()) {
	t.Helper()
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			if _, err := pb.NewKVClient(e.conn).Range(within(t), &pb.RangeRequest{Key: []byte("k")}); err != nil {
				t.Errorf("an admitted get: %v", err)
			}
		})
	}
	eventually(t, "the gets are in flight", func() bool { return e.gates.requests.inside() == int64(n) })
	return wait.Wait
}

// wantPage checks that a page has the lines.
func wantPage(t *testing.T, e *edge, path string, lines ...string) {
	t.Helper()
	code, body := get(t, e, path)
	if code != http.StatusOK {
		t.Errorf("%s: code %d", path, code)
	}
	for _, line := range lines {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("%s has no line %q", path, line)
		}
	}
}

// However many reads and puts are in flight, leases are renewed, and operators and probes are answered.
func TestOverload_FloodOfRequestsIsRefusedAndLeavesLeasesAlone(t *testing.T) {
	const bound = 8
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.requests.max = bound })
	e.SetReady()
	letGo := blockReads(t, e)
	ended := flood(t, e, bound)
	ctx := within(t)
	for range 3 {
		_, err := pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
		wantStatus(t, err, codes.Unknown, tooManyRequests)
	}
	stream, err := pb.NewKVClient(e.conn).RangeStream(ctx, &pb.RangeRequest{Key: []byte("k")})
	if err == nil {
		_, err = stream.Recv()
	}
	wantStatus(t, err, codes.Unknown, tooManyRequests)

	leases := pb.NewLeaseClient(e.conn)
	granted, err := leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	renewals, err := leases.LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := renewals.Send(&pb.LeaseKeepAliveRequest{ID: granted.ID}); err != nil {
			t.Fatal(err)
		}
		if r, err := renewals.Recv(); err != nil || r.TTL != 60 {
			t.Fatalf("renewal: %v %v", r, err)
		}
	}
	if _, err := pb.NewMaintenanceClient(e.conn).Status(ctx, &pb.StatusRequest{}); err != nil {
		t.Errorf("status: %v", err)
	}
	if _, err := healthpb.NewHealthClient(e.conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("gRPC health: %v", err)
	}
	wantPage(t, e, "/health")
	// A call gives its place back behind its answer.
	eventually(t, "only the renewals have a place", func() bool { return e.gates.leases.inside() == 1 })
	wantPage(t, e, "/metrics", `troupe_gateway_open{kind="request"} 8`, `troupe_gateway_open_bound{kind="request"} 8`,
		`troupe_gateway_rejected_total{kind="request"} 4`, `troupe_gateway_open{kind="lease_request"} 1`,
		`grpc_server_handled_total{grpc_code="Unknown",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 3`,
		`grpc_server_started_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 3`)
	letGo()
	ended()
	eventually(t, "all places are free again", func() bool { return e.gates.requests.inside() == 0 })
	if _, err := pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Errorf("a put after the flood: %v", err)
	}
}

// A bound on one connection keeps a client from the places of others, and from nothing that leases need.
func TestOverload_OneConnectionCannotHaveAllPlaces(t *testing.T) {
	const bound = 3
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.callsPerConnection = bound })
	e.SetReady()
	letGo := blockReads(t, e)
	ended := flood(t, e, bound)
	ctx := within(t)
	_, err := pb.NewKVClient(e.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, codes.Unknown, tooManyRequests)
	if _, err := pb.NewLeaseClient(e.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60}); err != nil {
		t.Errorf("grant on the full connection: %v", err)
	}
	if _, err := pb.NewKVClient(dialGRPC(t, e)).Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Errorf("put on another connection: %v", err)
	}
	wantPage(t, e, "/metrics", `troupe_gateway_rejected_total{kind="connection_stream"} 1`)
	letGo()
	ended()
}

// dialGRPC opens one more connection, made at the first call.
func dialGRPC(t *testing.T, e *edge) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestOverload_WatchStreamsAreBounded(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.streams.max = 2 })
	e.SetReady()
	var cancels []context.CancelFunc
	open := func() (pb.Watch_WatchClient, error) {
		ctx, cancel := context.WithCancel(within(t))
		cancels = append(cancels, cancel)
		w, err := pb.NewWatchClient(e.conn).Watch(ctx)
		if err == nil {
			err = w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
				CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}})
		}
		if err == nil || errors.Is(err, io.EOF) {
			_, err = w.Recv()
		}
		return w, err
	}
	for range 2 {
		if _, err := open(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := open()
	wantStatus(t, err, codes.Unknown, tooManyRequests)
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Errorf("a put beside the streams: %v", err)
	}
	cancels[0]()
	eventually(t, "a place is free", func() bool { return e.gates.streams.inside() == 1 })
	if _, err := open(); err != nil {
		t.Errorf("a stream after another has ended: %v", err)
	}
}

// Connections beyond the bound are closed and said, probes have connections of their own, and places come back.
func TestOverload_ConnectionsAreBounded(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.grpc.max = 2 })
	e.SetReady()
	put := func(c *grpc.ClientConn) error {
		_, err := pb.NewKVClient(c).Put(within(t), &pb.PutRequest{Key: []byte("k")})
		return err
	}
	second := dialGRPC(t, e)
	for _, c := range []*grpc.ClientConn{e.conn, second} {
		if err := put(c); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		tooMany := dialGRPC(t, e)
		if err := put(tooMany); status.Code(err) != codes.Unavailable {
			t.Errorf("a put on a connection too many: %v", err)
		}
		_ = tooMany.Close() // else it tries again, and takes the place that is freed below
	}
	wantPage(t, e, "/health")
	wantPage(t, e, "/metrics", `troupe_gateway_open{kind="grpc_connection"} 2`)
	if n := strings.Count(e.log.String(), "rejected connection on client endpoint"); n < 1 || n > 5 {
		t.Errorf("%d lines about the connections", n)
	}
	_ = second.Close()
	eventually(t, "a place is free", func() bool { return e.gates.grpc.inside() == 1 })
	if err := put(dialGRPC(t, e)); err != nil {
		t.Errorf("a put on a new connection: %v", err)
	}
}

func TestOverload_HTTPConnectionsAreBoundedApart(t *testing.T) {
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.pages.max = 1 })
	e.SetReady()
	letGo := blockHealth(t, e)
	held := say(t, e.addr, aHealthRequest)
	eventually(t, "it has a place", func() bool { return e.gates.pages.inside() == 1 })
	if r, err := pages.Get("http://" + e.addr + "/health"); err == nil {
		_ = r.Body.Close()
		t.Errorf("a connection too many was served: %d", r.StatusCode)
	}
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Errorf("a put beside them: %v", err)
	}
	probes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = e.ServeMetrics(probes) }()
	r, err := pages.Get("http://" + probes.Addr().String() + "/livez")
	if err != nil {
		t.Fatalf("a probe on the metrics port beside them: %v", err)
	}
	if r.Body.Close(); r.StatusCode != http.StatusOK {
		t.Errorf("a probe on the metrics port beside them: %s", r.Status)
	}
	letGo()
	_ = held.Close()
	eventually(t, "the place is free", func() bool { return e.gates.pages.inside() == 0 })
	wantPage(t, e, "/health")
}

func TestOverload_MaxConcurrentStreamsIsHonoured(t *testing.T) {
	const bound = 4
	e := newReadyEdge(t, func(c *Config) { c.ConcurrentStreamsMax = bound })
	letGo := blockReads(t, e)
	ended := flood(t, e, bound)
	short, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	// The client knows the bound and keeps its call back.
	_, err := pb.NewKVClient(e.conn).Put(short, &pb.PutRequest{Key: []byte("k")})
	if status.Code(err) != codes.DeadlineExceeded || len(e.room.proposed()) != 0 {
		t.Errorf("the call beyond the bound: %v", err)
	}
	letGo()
	ended()
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}

func TestOverload_MetadataIsBounded(t *testing.T) {
	e := newReadyEdge(t, nil)
	large := metadata.AppendToOutgoingContext(within(t), "token", strings.Repeat("x", headerListBytesMax))
	if _, err := pb.NewKVClient(e.conn).Put(large, &pb.PutRequest{Key: []byte("k")}); err == nil {
		t.Error("a call with too much metadata was served")
	}
	some := metadata.AppendToOutgoingContext(within(t), "token", strings.Repeat("x", 16<<10))
	if _, err := pb.NewKVClient(dialGRPC(t, e)).Put(some, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Errorf("a call with a large token: %v", err)
	}
}

// largeReads makes each range of the fake answer that many bytes.
func largeReads(e *edge, bytes int) {
	e.room.set(func() {
		e.room.rangeFn = func(*pb.RangeRequest) (*proto.Result, error) {
			// Field 15 with its length, which a RangeResponse does not have: a client skips it.
			head := append([]byte{15<<3 | 2}, byte(bytes)|0x80, byte(bytes>>7)|0x80, byte(bytes>>14)|0x80, byte(bytes>>21))
			return &proto.Result{Revision: 2, Body: proto.Body{Pieces: [][]byte{head, make([]byte, bytes)}}}, nil
		}
	})
}

// A client that asks for large answers and reads none holds bounded memory, keeps others waiting, not renewals, and
// gives all back when it leaves.
func TestOverload_ClientThatNeverReadsIsBoundedAndGivesBack(t *testing.T) {
	const size, bound = 4 << 20, 16 << 20
	e := newReadyEdge(t, func(c *Config) { c.AnswerBytesMax = bound })
	largeReads(e, size)
	deaf := dialGRPC(t, e)
	for range 10 {
		stream, err := deaf.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, "/etcdserverpb.KV/Range",
			grpc.MaxCallRecvMsgSize(2*size))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&pb.RangeRequest{Key: []byte("k")}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the bound is reached and the rest waits", func() bool {
		n := e.answers.numbers()
		return n.inUse > bound-size-100 && n.waiting == 7
	})
	if clients := e.Clients(10); len(clients) == 0 || clients[0].BytesInFlight <= bound-size-100 {
		t.Errorf("the client does not stand first: %+v", clients)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(e.conn).Range(within(t), &pb.RangeRequest{Key: []byte("k")},
			grpc.MaxCallRecvMsgSize(2*size))
		waits <- err
	}()
	eventually(t, "another reader waits", func() bool { return e.answers.numbers().waiting == 8 })
	if _, err := pb.NewLeaseClient(e.conn).LeaseGrant(within(t), &pb.LeaseGrantRequest{TTL: 60}); err != nil {
		t.Errorf("grant: %v", err)
	}
	_ = deaf.Close()
	if err := <-waits; err != nil {
		t.Errorf("the reader that waited: %v", err)
	}
	eventually(t, "all bytes are back", func() bool { return e.answers.numbers().inUse == 0 })
	if n := e.answers.numbers(); n.highWater > bound {
		t.Errorf("%d bytes were in flight, the bound is %d", n.highWater, bound)
	}
}

// Without a disconnect, a client that reads nothing is closed when others have waited for long, who then get theirs.
func TestOverload_StalledReaderIsClosedOnlyWhileOthersWait(t *testing.T) {
	const size = 4 << 20
	e := newReadyEdge(t, func(c *Config) { c.AnswerBytesMax = size + size/2 })
	e.room.full.Store(true) // which is nothing to a client without a watch
	largeReads(e, size)
	deaf := dialGRPC(t, e)
	stream, err := deaf.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, "/etcdserverpb.KV/Range",
		grpc.MaxCallRecvMsgSize(2*size))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&pb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	awaitInFlight(t, e, size)
	for range 3 {
		e.closeThoseStalled(answerStallMax)
	}
	if e.answers.numbers().inUse == 0 {
		t.Fatal("it was closed though nobody waits")
	}
	waits := make(chan error, 1)
	go func() {
		reading := pb.NewKVClient(dialGRPC(t, e))
		_, err := reading.Range(within(t), &pb.RangeRequest{Key: []byte("k")}, grpc.MaxCallRecvMsgSize(2*size))
		waits <- err
	}()
	eventually(t, "another waits", func() bool { return e.answers.numbers().waiting == 1 })
	e.closeThoseStalled(answerStallMax - time.Second)
	if e.answers.numbers().waiting == 0 {
		t.Fatal("it was closed too early")
	}
	e.closeThoseStalled(2 * time.Second)
	if err := <-waits; err != nil {
		t.Errorf("who waited for it gets %v", err)
	}
	eventually(t, "all bytes are back", func() bool { return e.answers.numbers().inUse == 0 })
	if !strings.Contains(e.log.String(), "client does not read its answers") {
		t.Error("the log does not say why")
	}
}

// Lists whose clients do not read leave room for smaller answers, which do not stand behind them either; medium ones
// leave room for small ones in the same way.
func TestLedger_NoAnswerWaitsBehindLargerOnes(t *testing.T) {
	const bound, small, medium = 512 << 20, 3 << 10, 100 << 10
	for _, c := range []struct {
		name       string
		unread, of int64 // what fills the ledger for its class
		passes     int64 // what then passes, until it has taken its share
		share      int64
	}{
		{"small beside large", 100 << 20, 4, small, bound/mediumAnswersShare + bound/smallAnswersShare},
		{"medium beside large", 100 << 20, 4, medium, bound / mediumAnswersShare},
		{"small beside medium", 1 << 20, 480, small, bound / smallAnswersShare},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(bound)
			for range c.of {
				if err := l.enter(t.Context(), c.unread); err != nil {
					t.Fatal(err)
				}
			}
			waits := make(chan error, 1)
			go func() { waits <- l.enter(t.Context(), c.unread) }()
			eventually(t, "one more waits", func() bool { return l.numbers().waiting == 1 })
			if l.extend(0, c.unread) {
				t.Fatal("it was passed by one of its class")
			}
			if err := l.enter(t.Context(), c.passes); err != nil {
				t.Fatal(err)
			}
			taken := c.passes
			for l.extend(0, c.passes) {
				taken += c.passes
			}
			if most := l.numbers().inUse; taken < c.share-c.passes || most > bound {
				t.Errorf("%d bytes passed, and %d of %d are taken", taken, most, bound)
			}
			l.leave(l.numbers().inUse)
			if err := <-waits; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A list that is read in pieces grows; when it becomes a large answer it stands in line with the large ones.
func TestLedger_AGrowingAnswerDoesNotOvertakeTheClassItComesTo(t *testing.T) {
	const bound, list = 512 << 20, 100 << 20
	l := newLedger(bound)
	for range 3 {
		if err := l.enter(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	waits := make(chan error, 1)
	go func() { waits <- l.enter(t.Context(), 2*list) }()
	eventually(t, "a larger one waits", func() bool { return l.numbers().waiting == 1 })
	if !l.extend(0, 512<<10) || !l.extend(512<<10, 512<<10) {
		t.Fatal("a medium answer stood behind a large one")
	}
	if l.extend(1<<20, 20<<20) {
		t.Error("it has become a large one, ahead of the one that waits")
	}
	l.leave(1<<20 + list)
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if !l.extend(0, 512<<10) || !l.extend(512<<10, 2<<20) {
		t.Error("nobody waits, and it cannot grow")
	}
}

// Each class has patience of its own: that small answers get room is no progress for a list.
func TestLedger_PatienceEndsThoughSmallerOnesAreLetIn(t *testing.T) {
	const bound = 512 << 20
	l := newLedger(bound)
	l.patience = 50 * time.Millisecond
	l.enterNow(bound)
	waits := make(chan error, 1)
	go func() { waits <- l.enter(t.Context(), bound/8) }()
	for ended := false; !ended; {
		small := make(chan error, 1)
		go func() { small <- l.enter(t.Context(), 3<<10) }()
		eventually(t, "a small one waits, or has been refused", func() bool {
			return l.numbers().waiting == 2-len(waits) || len(small) == 1
		})
		l.leave(4 << 10)
		if err := <-small; err != nil && !errors.Is(err, ErrTooManyAnswers) {
			t.Fatal(err)
		}
		l.enterNow(1 << 10)
		ended = len(waits) == 1
	}
	if err := <-waits; !errors.Is(err, ErrTooManyAnswers) {
		t.Fatal(err)
	}
}

// An answer that is larger than what there is for its class needs no quiet moment: small ones may be about.
func TestLedger_AVeryLargeAnswerIsLetInBesideSmallOnes(t *testing.T) {
	const bound = 512 << 20
	l := newLedger(bound)
	for range 100 {
		l.enterNow(3 << 10)
	}
	if err := l.enter(t.Context(), 2*bound); err != nil {
		t.Fatal(err)
	}
	if l.extend(0, 1<<20) {
		t.Error("another came beside it")
	}
}

func TestLedger_PatienceEndsWhenNobodyIsLetIn(t *testing.T) {
	l := newLedger(10)
	l.patience = 20 * time.Millisecond
	if err := l.enter(context.Background(), 10); err != nil {
		t.Fatal(err)
	}
	if err := l.enter(context.Background(), 1); !errors.Is(err, ErrTooManyAnswers) {
		t.Fatalf("got %v", err)
	}
	if n := l.numbers(); n.refused != 1 || n.waiting != 0 {
		t.Fatalf("%+v", n)
	}
}

func TestClients_ShowWhatEachConnectionDoes(t *testing.T) {
	e := newReadyEdge(t, nil)
	ctx := within(t)
	leases := pb.NewLeaseClient(e.conn)
	renewals, err := leases.LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(3) {
		if err := renewals.Send(&pb.LeaseKeepAliveRequest{ID: 40 + id}); err != nil {
			t.Fatal(err)
		}
		if _, err := renewals.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	clients := e.Clients(10)
	if len(clients) != 1 {
		t.Fatalf("%+v", clients)
	}
	c := clients[0]
	if c.ID == 0 || c.Protocol != "grpc" || c.Calls != 1 || c.Streams != 1 || !strings.HasPrefix(c.Remote, "127.") ||
		len(c.Leases) != 3 || c.Leases[0] != 40 || time.Since(c.Since) > time.Minute {
		t.Errorf("%+v", c)
	}
	if len(e.Clients(0)) != 0 {
		t.Error("more than the most that was asked for")
	}
	conn := e.conns.list()[0]
	for id := range proto.LeaseID(10 * leasesNotedMax) {
		conn.noteLease(id)
	}
	if n := len(conn.notedLeases()); n > leasesNotedMax {
		t.Errorf("%d leases are remembered", n)
	}
}
