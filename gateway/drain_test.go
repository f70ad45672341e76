package gateway

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"troupe/proto"
)

// slowPut makes proposals wait until the test lets them go.
func slowPut(e *edge) (waiting chan struct{}, letGo chan struct{}) {
	waiting, letGo = make(chan struct{}, 1), make(chan struct{})
	e.room.set(func() {
		e.room.proposeFn = func(*pb.InternalRaftRequest) (*proto.Result, error) {
			waiting <- struct{}{}
			<-letGo
			return &proto.Result{Revision: 2}, nil
		}
	})
	return waiting, letGo
}

func TestDrain_AdmittedRequestsAreAnsweredAndNewOnesRefused(t *testing.T) {
	e := newReadyEdge(t, nil)
	waiting, letGo := slowPut(e)
	kv, ctx := pb.NewKVClient(e.conn), within(t)
	answered, stopped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
		answered <- err
	}()
	<-waiting
	go func() { stopped <- e.Stop(ctx) }()
	eventually(t, "no new connection", func() bool {
		c, err := net.Dial("tcp", e.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a request admitted: %v", err)
	default:
	}
	close(letGo)
	if err := <-answered; err != nil {
		t.Fatalf("the admitted request: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	late, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ServeClients(late); err != nil { // returns at once and closes the listener
		t.Fatal(err)
	}
	if _, err := late.Accept(); err == nil {
		t.Fatal("a listener given after the stop is open")
	}
}

func TestDrain_RequestsThatDoNotEndAreCut(t *testing.T) {
	e := newReadyEdge(t, nil)
	waiting, letGo := slowPut(e)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")})
		answered <- err
	}()
	<-waiting
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- e.Stop(short) }()
	err := <-answered // the client is told while the handler still hangs
	wantCode(t, err, codes.Unavailable)
	close(letGo)
	if err := <-stopped; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

// After a stop no goroutine of the server is left, whatever clients were doing.
func TestDrain_LeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	func() {
		e := newEdge(t, nil)
		e.SetReady()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w, err := pb.NewWatchClient(e.conn).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-e.room.streams
		keep, err := pb.NewLeaseClient(e.conn).LeaseKeepAlive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := keep.Send(&pb.LeaseKeepAliveRequest{ID: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := keep.Recv(); err != nil {
			t.Fatal(err)
		}
		dial(t, e) // half open
		if err := e.Stop(within(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Recv(); err == nil {
			t.Fatal("the watch goes on")
		}
		_ = e.conn.Close()
	}()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// A cluster that asks for authentication must not be served openly.
func TestAuth_EnabledClusterIsRefused(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() { e.room.state.AuthEnabled = true })
	ctx := within(t)
	_, err := pb.NewKVClient(e.conn).Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
	wantCode(t, err, codes.Unimplemented)
	w, err := pb.NewWatchClient(e.conn).Watch(ctx)
	if err == nil {
		_, err = w.Recv()
	}
	wantCode(t, err, codes.Unimplemented)
	if _, err = pb.NewAuthClient(e.conn).AuthStatus(ctx, &pb.AuthStatusRequest{}); err == nil {
		t.Error("auth is said to work")
	}
}
