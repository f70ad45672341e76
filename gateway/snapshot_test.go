package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"troupe/storeactor"
)

// fakeKeeper is a fakeRoom with a file.
type fakeKeeper struct {
	*fakeRoom
	content []byte
	open    atomic.Int64
	err     error
	disk    storeactor.FileStatus
	entered chan struct{} // Defragment says that it waits
	ended   chan struct{} // a value ends one that waits
	broken  bool          // reading a copy panics
	places  int64         // how many copies may be open; 0 for any number
}

func (k *fakeKeeper) Defragment(ctx context.Context) error {
	if k.entered != nil {
		k.entered <- struct{}{}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.ended:
		}
	}
	return k.err
}

func (k *fakeKeeper) Hash(context.Context) (HashKV, error) {
	return HashKV{Hash: 77, Current: 5}, k.err
}

func (k *fakeKeeper) FileStatus() storeactor.FileStatus { return k.disk }

func (k *fakeKeeper) Snapshot(context.Context) (Snapshot, error) {
	if k.err != nil {
		return nil, k.err
	}
	if open := k.open.Add(1); k.places > 0 && open > k.places {
		k.open.Add(-1)
		return nil, storeactor.ErrSnapshotsOpen
	}
	return &fakeSnapshot{bytes.NewReader(k.content), k}, nil
}

type fakeSnapshot struct {
	*bytes.Reader
	of *fakeKeeper
}

func (s *fakeSnapshot) ReadAt(b []byte, offset int64) (int, error) {
	if s.of.broken {
		panic("broken")
	}
	return s.Reader.ReadAt(b, offset)
}

func (s *fakeSnapshot) Close() error {
	s.of.open.Add(-1)
	return nil
}

// newKeeperEdge is newReadyEdge of a member with a file.
func newKeeperEdge(t *testing.T, k *fakeKeeper) *edge {
	t.Helper()
	return newReadyEdge(t, func(cfg *Config) {
		k.fakeRoom = cfg.Store.(*fakeRoom)
		cfg.Store = k
	})
}

// TestSnapshot_ContentComesWholeForEverySize: whole pieces, a broken last one, and a file smaller than a piece.
func TestSnapshot_ContentComesWholeForEverySize(t *testing.T) {
	for _, size := range []int{1, snapshotPieceBytes - 1, snapshotPieceBytes, 3*snapshotPieceBytes + 17} {
		k := &fakeKeeper{content: make([]byte, size)}
		for i := range k.content {
			k.content[i] = byte(rand.Int())
		}
		e := newKeeperEdge(t, k)
		stream, err := pb.NewMaintenanceClient(e.conn).Snapshot(within(t), &pb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Blob...)
		}
		if len(got) != size+32 || !bytes.Equal(got[:size], k.content) {
			t.Errorf("size %d: %d bytes came", size, len(got))
		}
		eventually(t, "the copy is closed", func() bool { return k.open.Load() == 0 })
	}
}

// TestSnapshot_ClientThatLeavesGivesTheCopyBack, also one that has not read.
func TestSnapshot_ClientThatLeavesGivesTheCopyBack(t *testing.T) {
	k := &fakeKeeper{content: make([]byte, 16<<20)}
	e := newKeeperEdge(t, k)
	ctx, leave := context.WithCancel(within(t))
	stream, err := pb.NewMaintenanceClient(e.conn).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if k.open.Load() != 1 {
		t.Fatal("no copy is open")
	}
	leave()
	eventually(t, "the copy is closed", func() bool { return k.open.Load() == 0 })
}

// TestSnapshot_PanicGivesTheCopyBack: a fault in sending costs that download, not a place for good.
func TestSnapshot_PanicGivesTheCopyBack(t *testing.T) {
	k := &fakeKeeper{content: make([]byte, 1), broken: true}
	e := newKeeperEdge(t, k)
	stream, err := pb.NewMaintenanceClient(e.conn).Snapshot(within(t), &pb.SnapshotRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	eventually(t, "the copy is closed", func() bool { return k.open.Load() == 0 })
}

// TestSnapshot_ClientThatReadsNothingIsEndedSomeDay: the watch over a sender ends it after the time, and not while it
// moves, however slowly.
func TestSnapshot_ClientThatReadsNothingIsEndedSomeDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &snapshotSender{stream: &stream{ctx: t.Context()}}
		ended := make(chan error, 1)
		go func() { ended <- s.watch(make(chan error), snapshotStallMax, func() bool { return false }) }()
		for range 20 {
			s.sent.Add(1)
			time.Sleep(snapshotStallMax - time.Second)
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatalf("ended while it moved: %v", <-ended)
			}
		}
		time.Sleep(2 * snapshotStallMax)
		synctest.Wait()
		if len(ended) == 0 {
			t.Fatal("not ended although nothing moves")
		}
		if err := <-ended; !errors.Is(err, errSnapshotStalled) {
			t.Fatalf("ended by %v", err)
		}
	})
}

// TestSnapshot_IsGivenUpWhenWritesNeedItsSpace: a download that goes on while the disk is full ends, whatever its
// client does, and its copy is closed.
func TestSnapshot_IsGivenUpWhenWritesNeedItsSpace(t *testing.T) {
	k := &fakeKeeper{content: make([]byte, 64<<20), disk: storeactor.FileStatus{FullSince: time.Now()}}
	e := newKeeperEdge(t, k)
	stream, err := pb.NewMaintenanceClient(e.conn).Snapshot(within(t), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil { // and no more: what fits the window is sent
		t.Fatal(err)
	}
	eventually(t, "the copy is closed", func() bool { return k.open.Load() == 0 })
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "given up for writes") {
		t.Fatalf("ended by %v", err)
	}
}

// TestMaintenance_ErrorsOfTheFileSayWhatIsWrong in full, and refusals have a code that clients do not retry.
func TestMaintenance_ErrorsOfTheFileSayWhatIsWrong(t *testing.T) {
	full := errors.Join(errors.New("defragmentation failed"), storeactor.ErrDiskFull)
	k := &fakeKeeper{err: full}
	e := newKeeperEdge(t, k)
	client := pb.NewMaintenanceClient(e.conn)
	_, err := client.Defragment(within(t), &pb.DefragmentRequest{})
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "defragmentation failed") {
		t.Errorf("defragment: %v", err)
	}
	k.err = storeactor.ErrSnapshotsOpen
	stream, err := client.Snapshot(within(t), &pb.SnapshotRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("snapshot: %v", err)
	}
	wantPage(t, e, "/metrics", `troupe_gateway_rejected_total{kind="snapshot"} 1`,
		`troupe_gateway_open{kind="snapshot"} 0`)
	if !strings.Contains(e.log.String(), `"kind":"snapshot"`) {
		t.Error("the log does not say that a snapshot was refused")
	}
	k.err = nil
	if r, err := client.Hash(within(t), &pb.HashRequest{}); err != nil || r.Hash != 77 || r.Header.Revision != 5 {
		t.Errorf("hash: %v %v", r, err)
	}
	if r, err := client.Defragment(within(t), &pb.DefragmentRequest{}); err != nil || r.Header != nil {
		t.Errorf("defragment: %v %v", r, err)
	}
	bare := pb.NewMaintenanceClient(newReadyEdge(t, nil).conn)
	if _, err := bare.Defragment(within(t), &pb.DefragmentRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("without a file: %v", err)
	}
}

// TestMaintenance_DrainDoesNotWaitForADefragmentation, which goes on by itself.
func TestMaintenance_DrainDoesNotWaitForADefragmentation(t *testing.T) {
	k := &fakeKeeper{entered: make(chan struct{})}
	e := newKeeperEdge(t, k)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewMaintenanceClient(e.conn).Defragment(within(t), &pb.DefragmentRequest{})
		answered <- err
	}()
	<-k.entered
	if err := e.Stop(within(t)); err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("the call was answered as if it were done")
	}
}

// TestGuardDisk_WhatNeedsNoSpaceGoesOn until too much waits for the disk.
func TestGuardDisk_WhatNeedsNoSpaceGoesOn(t *testing.T) {
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a")}}}
	growing := map[string]*pb.InternalRaftRequest{
		"put":   {Put: &pb.PutRequest{Key: []byte("a")}},
		"grant": {LeaseGrant: &pb.LeaseGrantRequest{ID: 1}},
		"txn":   {Txn: &pb.TxnRequest{Success: []*pb.RequestOp{put}}},
	}
	freeing := map[string]*pb.InternalRaftRequest{
		"delete":     {DeleteRange: &pb.DeleteRangeRequest{Key: []byte("a")}},
		"compaction": {Compaction: &pb.CompactionRequest{Revision: 1}},
		"empty txn":  {Txn: &pb.TxnRequest{}},
	}
	alarm := &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE}}
	full := storeactor.FileStatus{FullSince: time.Unix(1, 0)}
	crowded := storeactor.FileStatus{FullSince: time.Unix(1, 0), Backlog: 1 << 40}
	for _, c := range []struct {
		name           string
		disk           storeactor.FileStatus
		growing, frees bool
	}{
		{"space", storeactor.FileStatus{Backlog: 1 << 40}, true, true},
		{"full", full, false, true},
		{"crowded", crowded, false, false},
	} {
		room := newFakeRoom()
		guarded := GuardDisk(room, &fakeKeeper{disk: c.disk})
		try := func(name string, r *pb.InternalRaftRequest, want bool) {
			t.Helper()
			before := len(room.proposed())
			_, err := guarded.Propose(within(t), r)
			if refused := errors.Is(err, storeactor.ErrDiskFull); refused == want || len(room.proposed()) > before != want {
				t.Errorf("%s: %s: %v", c.name, name, err)
			}
		}
		for name, r := range growing {
			try(name, r, c.growing)
		}
		for name, r := range freeing {
			try(name, r, c.frees)
		}
		try("alarm", alarm, true)
	}
}

// With StopServingOnDefragment the health service says NOT_SERVING until the last defragmentation is over, even if
// whoever asked for it has left, and if the member becomes ready meanwhile.
func TestDefragment_HealthServesNotWhileAnyGoesOn(t *testing.T) {
	k := &fakeKeeper{entered: make(chan struct{}), ended: make(chan struct{})}
	e := newBoundedEdge(t, func(cfg *Config) {
		k.fakeRoom = cfg.Store.(*fakeRoom)
		cfg.Store, cfg.StopServingOnDefragment = k, true
	}, func(*Server) {})
	status := func() healthpb.HealthCheckResponse_ServingStatus {
		got, err := healthpb.NewHealthClient(e.conn).Check(within(t), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	is := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got := status(); got != want {
			t.Fatalf("health is %v, want %v", got, want)
		}
	}
	begin := func() (leave func()) {
		ctx, cancel := context.WithCancel(within(t))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = e.Server.defragment(ctx, &pb.DefragmentRequest{})
		}()
		<-k.entered
		return func() { cancel(); <-done }
	}
	leaveFirst := begin()
	e.SetReady()
	is(healthpb.HealthCheckResponse_NOT_SERVING)
	leaveSecond := begin()
	leaveFirst()
	leaveSecond()
	is(healthpb.HealthCheckResponse_NOT_SERVING)
	k.ended <- struct{}{}
	eventually(t, "one is over", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.defragments == 1
	})
	is(healthpb.HealthCheckResponse_NOT_SERVING)
	k.ended <- struct{}{}
	eventually(t, "health is SERVING", func() bool { return status() == healthpb.HealthCheckResponse_SERVING })
}
