package fieldreports

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

const limit = 2 * time.Minute

// api sends single requests and fails the test when one fails.
type api struct {
	t    *testing.T
	ctx  context.Context
	conn *grpc.ClientConn
	kv   pb.KVClient
}

func newAPI(t *testing.T, s *harness.Server) *api {
	t.Helper()
	conn := s.Conn(t)
	return &api{t: t, ctx: harness.Context(t, limit), conn: conn, kv: pb.NewKVClient(conn)}
}

func (a *api) put(key, value string) int64 {
	a.t.Helper()
	r, err := a.kv.Put(a.ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		a.t.Fatalf("put %s: %v", key, err)
	}
	return r.Header.Revision
}

func (a *api) remove(key string) int64 {
	a.t.Helper()
	r, err := a.kv.DeleteRange(a.ctx, &pb.DeleteRangeRequest{Key: []byte(key)})
	if err != nil {
		a.t.Fatalf("delete %s: %v", key, err)
	}
	return r.Header.Revision
}

func (a *api) compact(revision int64) {
	a.t.Helper()
	if _, err := a.kv.Compact(a.ctx, &pb.CompactionRequest{Revision: revision, Physical: true}); err != nil {
		a.t.Fatalf("compact %d: %v", revision, err)
	}
}

// get gives the value at a revision (0: now), "" and false when the key is not there.
func (a *api) get(key string, revision int64) (string, bool) {
	a.t.Helper()
	r, err := a.kv.Range(a.ctx, &pb.RangeRequest{Key: []byte(key), Revision: revision})
	if err != nil {
		a.t.Fatalf("get %s at %d: %v", key, revision, err)
	}
	if len(r.Kvs) == 0 {
		return "", false
	}
	return string(r.Kvs[0].Value), true
}

func (a *api) wantCode(what string, err error, code codes.Code, text string) {
	a.t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != text {
		a.t.Errorf("%s: %v: %s, want %v: %s", what, s.Code(), s.Message(), code, text)
	}
}

// watch opens a stream with one watch on it.
func (a *api) watch(create *pb.WatchCreateRequest) pb.Watch_WatchClient {
	a.t.Helper()
	stream, err := pb.NewWatchClient(a.conn).Watch(a.ctx)
	if err == nil {
		err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	}
	if err != nil {
		a.t.Fatalf("watch: %v", err)
	}
	return stream
}

func (a *api) receive(stream pb.Watch_WatchClient) *pb.WatchResponse {
	a.t.Helper()
	r, err := stream.Recv()
	if err != nil {
		a.t.Fatalf("watch: %v", err)
	}
	return r
}

// wantDeletion checks that a watch of a key from a revision shows that the key is deleted there.
func (a *api) wantDeletion(key string, revision int64) {
	a.t.Helper()
	stream := a.watch(&pb.WatchCreateRequest{Key: []byte(key), StartRevision: revision})
	for {
		r := a.receive(stream)
		if r.Canceled {
			a.t.Fatalf("the watch of %s from %d was cancelled: %v", key, revision, r)
		}
		if len(r.Events) > 0 {
			e := r.Events[0]
			if e.Type != mvccpb.Event_DELETE || e.Kv.ModRevision != revision {
				a.t.Errorf("the watch of %s from %d begins with %v", key, revision, e)
			}
			return
		}
	}
}

func putOp(key, value string) *pb.RequestOp {
	request := &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: request}}
}

func removeOp(key, end string) *pb.RequestOp {
	request := &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: request}}
}

func nested(ops ...*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: ops}}}
}
