package badinput

import (
	"bytes"
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

// badRequest is one request that is wrong in one way.
type badRequest struct {
	name    string
	method  string
	request proto.Message
	reply   proto.Message
	// stricter allows InvalidArgument where etcd accepts what it does not know: an unknown enum value must not get into
	// the log of a server that checks every entry before it is proposed.
	stricter bool
}

// call makes a bad request of a message; its type says which method it is for.
func call(name string, request proto.Message) badRequest {
	r := badRequest{name: name, request: request}
	switch request.(type) {
	case *pb.RangeRequest:
		r.method, r.reply = "/etcdserverpb.KV/Range", &pb.RangeResponse{}
	case *pb.PutRequest:
		r.method, r.reply = "/etcdserverpb.KV/Put", &pb.PutResponse{}
	case *pb.DeleteRangeRequest:
		r.method, r.reply = "/etcdserverpb.KV/DeleteRange", &pb.DeleteRangeResponse{}
	case *pb.TxnRequest:
		r.method, r.reply = "/etcdserverpb.KV/Txn", &pb.TxnResponse{}
	case *pb.CompactionRequest:
		r.method, r.reply = "/etcdserverpb.KV/Compact", &pb.CompactionResponse{}
	case *pb.LeaseGrantRequest:
		r.method, r.reply = "/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantResponse{}
	case *pb.LeaseRevokeRequest:
		r.method, r.reply = "/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeResponse{}
	case *pb.HashKVRequest:
		r.method, r.reply = "/etcdserverpb.Maintenance/HashKV", &pb.HashKVResponse{}
	}
	return r
}

func badRequests() []badRequest {
	kv := call
	loose := func(name string, request proto.Message) badRequest {
		r := kv(name, request)
		r.stricter = true
		return r
	}
	a := []byte("a")
	op := func(o *pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Success: []*pb.RequestOp{o}} }
	putOp := func(r *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	}
	rangeOp := func(r *pb.RangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	}
	nested := func(r *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	compare := func(c *pb.Compare) *pb.TxnRequest { return &pb.TxnRequest{Compare: []*pb.Compare{c}} }
	many := &pb.TxnRequest{}
	for range 129 {
		many.Success = append(many.Success, rangeOp(&pb.RangeRequest{Key: a}))
	}
	return []badRequest{
		kv("sort target 99", &pb.RangeRequest{Key: a, SortTarget: 99}),
		kv("sort order 99", &pb.RangeRequest{Key: a, SortOrder: 99}),
		kv("negative enums", &pb.RangeRequest{Key: a, SortOrder: -1, SortTarget: -2147483648}),
		kv("no key in range", &pb.RangeRequest{}), kv("no key in put", &pb.PutRequest{}),
		kv("no key in delete", &pb.DeleteRangeRequest{RangeEnd: a}),
		kv("value and ignore_value", &pb.PutRequest{Key: a, Value: a, IgnoreValue: true}),
		kv("lease and ignore_lease", &pb.PutRequest{Key: a, Lease: 1, IgnoreLease: true}),
		kv("negative lease", &pb.PutRequest{Key: a, Lease: -7}),
		kv("empty operation", op(&pb.RequestOp{})), kv("empty operation in failure",
			&pb.TxnRequest{Failure: []*pb.RequestOp{{}}}),
		kv("empty put in txn", op(putOp(&pb.PutRequest{}))), kv("empty range in txn", op(rangeOp(&pb.RangeRequest{}))),
		kv("sort target 99 in txn", op(rangeOp(&pb.RangeRequest{Key: a, SortTarget: 99}))),
		kv("empty operation in nested txn", op(nested(&pb.TxnRequest{Success: []*pb.RequestOp{{}}}))),
		kv("empty nested txn", op(nested(&pb.TxnRequest{}))), kv("empty txn", &pb.TxnRequest{}),
		kv("compare without key", compare(&pb.Compare{})),
		loose("compare without target union", compare(&pb.Compare{Key: a, Target: pb.Compare_VALUE})),
		loose("compare target does not fit its union", compare(&pb.Compare{
			Key: a, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_Value{Value: a},
		})),
		loose("compare result 99", compare(&pb.Compare{Key: a, Result: 99})),
		loose("compare target 99", compare(&pb.Compare{Key: a, Target: 99})), kv("129 operations", many),
		kv("compaction of the future", &pb.CompactionRequest{Revision: 1 << 60}),
		kv("negative compaction", &pb.CompactionRequest{Revision: -5}),
		kv("lease of 285 years", &pb.LeaseGrantRequest{ID: 5, TTL: 9_000_000_001}),
		kv("most negative TTL", &pb.LeaseGrantRequest{ID: 6, TTL: -1 << 63}),
		kv("revoke of lease 0", &pb.LeaseRevokeRequest{}),
		kv("revoke of a negative lease", &pb.LeaseRevokeRequest{ID: -1}),
		kv("hash of the future", &pb.HashKVRequest{Revision: 1 << 60}),
		kv("most negative revision", &pb.RangeRequest{Key: a, Revision: -1 << 63, Limit: -1 << 63}),
		kv("put of 1.5 MiB", &pb.PutRequest{Key: a, Value: bytes.Repeat([]byte("v"), 1_572_864)}),
		kv("put of 2.5 MiB", &pb.PutRequest{Key: a, Value: bytes.Repeat([]byte("v"), 5<<19)}),
		kv("key of 1.6 MiB", &pb.RangeRequest{Key: bytes.Repeat([]byte("k"), 1_600_000)}),
	}
}

func TestBadInput_RequestsGetEtcdsErrorsAndLeaveNoTrace(t *testing.T) {
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	surviving(t, func(s *harness.Server) {
		got, want := s.Conn(t), etcd.Conn(t)
		for _, bad := range badRequests() {
			t.Run(bad.name, func(t *testing.T) { sameError(t, got, want, bad) })
		}
	})
}

// sameError sends one bad request to both servers and compares code and text.
func sameError(t *testing.T, troupe, etcd *grpc.ClientConn, bad badRequest) {
	t.Helper()
	ctx := harness.Context(t, limit)
	invoke := func(conn *grpc.ClientConn) *status.Status {
		return status.Convert(conn.Invoke(ctx, bad.method, bad.request, proto.Clone(bad.reply)))
	}
	got, want := invoke(troupe), invoke(etcd)
	if bad.stricter && want.Code() == codes.OK && got.Code() == codes.InvalidArgument && got.Message() != "" {
		return
	}
	if got.Code() != want.Code() || got.Message() != want.Message() {
		t.Errorf("troupe says %v: %s\netcd says %v: %s", got.Code(), got.Message(), want.Code(), want.Message())
	}
}

// badCreates are requests on a watch stream that are wrong; the stream, the server and other watches must go on.
func TestBadInput_WatchRequests(t *testing.T) {
	create := func(r *pb.WatchCreateRequest) *pb.WatchRequest {
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
	}
	a, b := []byte("a"), []byte("b")
	bad := map[string]*pb.WatchRequest{
		"empty union":       {},
		"filter 99":         create(&pb.WatchCreateRequest{Key: a, Filters: []pb.WatchCreateRequest_FilterType{99}}),
		"end is key":        create(&pb.WatchCreateRequest{Key: a, RangeEnd: a}),
		"end before key":    create(&pb.WatchCreateRequest{Key: b, RangeEnd: a}),
		"negative revision": create(&pb.WatchCreateRequest{Key: a, StartRevision: -3}),
		"negative id":       create(&pb.WatchCreateRequest{Key: a, WatchId: -1}),
		"cancel of nothing": {RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: 12345},
		}},
		"empty create": create(&pb.WatchCreateRequest{}),
	}
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	surviving(t, func(s *harness.Server) {
		for name, request := range bad {
			t.Run(name, func(t *testing.T) {
				got, want := watchAnswers(t, s, request), watchAnswers(t, etcd, request)
				if got != want {
					t.Errorf("troupe: %s\netcd:   %s", got, want)
				}
			})
		}
	})
}

// watchAnswers sends a bad request and then creates a good watch on the same stream, writes to it, and gives all
// answers through that event, as text.
func watchAnswers(t *testing.T, s *harness.Server, request *pb.WatchRequest) (text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn := s.Conn(t)
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	good := &pb.WatchCreateRequest{Key: []byte("good"), WatchId: 77}
	for _, r := range []*pb.WatchRequest{request, {RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: good}}} {
		if err := stream.Send(r); err != nil {
			t.Fatalf("watch: %v", err)
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return text + err.Error()
		}
		r.Header = nil
		if r.WatchId == 77 && r.Created {
			if _, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("good")}); err != nil {
				t.Fatalf("put: %v", err)
			}
		}
		if r.WatchId == 77 && len(r.Events) > 0 {
			return text + "the event"
		}
		if len(r.Events) == 0 { // an empty create watches everything, the good key too
			text += r.String() + "; "
		}
	}
}
