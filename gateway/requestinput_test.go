package gateway

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// The number of calls bounds no memory: what large requests hold until they are answered is bounded together. Beyond it
// more are refused, and everything that is small passes.
func TestInput_LargeRequestsInFlightAreBoundedTogether(t *testing.T) {
	const size = 40 << 10
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.requestBytes.max = 3 * size / 2 })
	e.SetReady()
	letGo := blockReads(t, e)
	kv, ctx, first := pb.NewKVClient(e.conn), within(t), make(chan error, 1)
	go func() {
		_, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("k"), RangeEnd: bytes.Repeat([]byte("l"), size),
			SortTarget: pb.RangeRequest_VALUE, SortOrder: pb.RangeRequest_ASCEND})
		first <- err
	}()
	eventually(t, "the first is in flight", func() bool { return e.gates.requestBytes.inside() > size })

	_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, size)})
	wantStatus(t, err, codes.Unknown, tooManyRequests)
	_, err = kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte("a"), Value: make([]byte, size)}}}}})
	wantStatus(t, err, codes.Unknown, tooManyRequests)
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, requestBytesFree/2)}); err != nil {
		t.Errorf("a small put: %v", err)
	}
	if _, err := pb.NewLeaseClient(e.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60}); err != nil {
		t.Errorf("a grant: %v", err)
	}
	if _, err := healthpb.NewHealthClient(e.conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("gRPC health: %v", err)
	}
	openWatch(t, e, make([]byte, size)) // of another gate
	<-e.room.streams
	wantPage(t, e, "/metrics", `troupe_gateway_rejected_total{kind="request_bytes"} 2`,
		`troupe_gateway_open_bound{kind="request_bytes"} 61440`)
	if open := gateShown(e, "request_bytes"); open != e.gates.requestBytes.inside() {
		t.Errorf("the debug page shows %d", open)
	}
	letGo()
	if err := <-first; err != nil {
		t.Errorf("the one that was admitted: %v", err)
	}
	eventually(t, "the room is given back", func() bool { return e.gates.requestBytes.inside() == 0 })
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, size)}); err != nil {
		t.Errorf("a large put afterwards: %v", err)
	}
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 2*size)}); err != nil {
		t.Errorf("one that is larger than the bound, and alone: %v", err)
	}
}

// Large messages on streams have a bound of their own, which they leave when they have been passed on.
func TestInput_LargeMessagesOnStreamsAreBoundedTogether(t *testing.T) {
	const size = 40 << 10
	e := newBoundedEdge(t, nil, func(s *Server) { s.gates.controlBytes.max = 3 * size / 2 })
	e.SetReady()
	e.gates.controlBytes.open.Add(size) // of somebody else
	refused := openWatch(t, e, make([]byte, size))
	<-e.room.streams
	_, err := refused.Recv()
	wantStatus(t, err, codes.Unknown, tooManyRequests)
	openWatch(t, e, []byte("small"))
	<-e.room.streams
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("a"),
		Value: make([]byte, size)}); err != nil {
		t.Errorf("a large put: %v", err)
	}
	e.gates.controlBytes.open.Add(-size)
	passed := openWatch(t, e, make([]byte, size))
	<-e.room.streams
	if r, err := passed.Recv(); err != nil || !r.Created {
		t.Errorf("a large one alone: %v, %v", r, err)
	}
	eventually(t, "the room is given back", func() bool { return e.gates.controlBytes.inside() == 0 })
}

// openWatch opens a watch stream and creates a watch of a key.
func openWatch(t *testing.T, e *edge, key []byte) pb.Watch_WatchClient {
	t.Helper()
	w, err := pb.NewWatchClient(e.conn).Watch(within(t))
	if err == nil {
		err = w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: key}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// gateShown is what the debug page says is inside a gate.
func gateShown(e *edge, name string) int64 {
	_, g := e.edgeView()
	for _, one := range g.Gates {
		if one.Name == name {
			return one.Open
		}
	}
	return -1
}
