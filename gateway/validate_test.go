package gateway

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// opPut and the like make operations of a transaction.
func opPut(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
}

func opRange(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func opTxn(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

// Every kind of request that is wrong in itself is refused with etcd's code and text, reaches no log, and leaves the
// server up (T28).
func TestValidate_BadRequestsAreRefusedAndReachNoLog(t *testing.T) {
	e := newReadyEdge(t, nil)
	kv, m, ctx := pb.NewKVClient(e.conn), pb.NewMaintenanceClient(e.conn), within(t)
	key := []byte("k")
	txn := func(r *pb.TxnRequest) error { _, err := kv.Txn(ctx, r); return err }
	success := func(ops ...*pb.RequestOp) error { return txn(&pb.TxnRequest{Success: ops}) }
	failure := func(ops ...*pb.RequestOp) error { return txn(&pb.TxnRequest{Failure: ops}) }
	compare := func(c *pb.Compare) error {
		return txn(&pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{opPut("x")}})
	}
	rangeOf := func(r *pb.RangeRequest) error { _, err := kv.Range(ctx, r); return err }
	put := func(r *pb.PutRequest) error { _, err := kv.Put(ctx, r); return err }
	alarm := func(r *pb.AlarmRequest) error { _, err := m.Alarm(ctx, r); return err }
	many := slices.Repeat([]*pb.RequestOp{opRange(&pb.RangeRequest{Key: key})}, txnOpsDefault+1)
	const (
		noKey     = "etcdserver: key is not provided"
		noOp      = "etcdserver: key not found"
		sortText  = "etcdserver: invalid sort option"
		opsText   = "etcdserver: too many operations in txn request"
		twiceText = "etcdserver: duplicate key given in txn request"
		enumText  = "etcdserver: unknown enum value in request"
		alarmText = "etcdserver: unknown alarm type or action"
	)
	cases := []struct {
		name string
		err  error
		text string
	}{
		{"range without key", rangeOf(&pb.RangeRequest{}), noKey},
		{"range, key before sort", rangeOf(&pb.RangeRequest{SortTarget: 99}), noKey},
		{"range sort target 99", rangeOf(&pb.RangeRequest{Key: key, SortTarget: 99}), sortText},
		{"range sort order 99", rangeOf(&pb.RangeRequest{Key: key, SortOrder: 99}), sortText},
		{"range sort order -1", rangeOf(&pb.RangeRequest{Key: key, SortOrder: -1}), sortText},
		{"put without key", put(&pb.PutRequest{}), noKey},
		{"put value twice", put(&pb.PutRequest{Key: key, IgnoreValue: true, Value: key}),
			"etcdserver: value is provided"},
		{"put lease twice", put(&pb.PutRequest{Key: key, IgnoreLease: true, Lease: 1}),
			"etcdserver: lease is provided"},
		{"delete without key", func() error { _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{}); return err }(), noKey},
		{"txn range sort 99", success(opRange(&pb.RangeRequest{Key: key, SortTarget: 99})), sortText},
		{"txn range without key", failure(opRange(&pb.RangeRequest{})), noKey},
		{"txn empty operation", success(&pb.RequestOp{}), noOp},
		{"txn empty operation not taken", failure(&pb.RequestOp{}), noOp},
		{"txn nil operation", success((*pb.RequestOp)(nil)), noOp},
		{"txn nil put", success(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{}}), noKey},
		{"txn empty nested operation", success(opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{{}}})), noOp},
		{"txn compare without key", compare(&pb.Compare{}), noKey},
		{"txn compare target 99", compare(&pb.Compare{Key: key, Target: 99}), enumText},
		{"txn compare result 99", compare(&pb.Compare{Key: key, Result: 99}), enumText},
		{"txn too long", success(many...), opsText},
		{"txn nested too long", success(opTxn(&pb.TxnRequest{Success: many[:txnOpsDefault]})), opsText},
		{"txn puts twice", success(opPut("a"), opPut("a")), twiceText},
		{"txn puts and deletes", failure(opPut("a"), &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a")}}}), twiceText},
		{"alarm type 99", alarm(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: 99}), alarmText},
		{"alarm action 99", alarm(&pb.AlarmRequest{Action: 99}), alarmText}, // etcd 3.7.3 dies of this one
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { wantStatus(t, c.err, codes.InvalidArgument, c.text) })
	}
	if got := e.room.proposed(); len(got) != 0 {
		t.Fatalf("reached the log: %v", got)
	}
	// A compare without a union is one with zero or nothing, as in etcd.
	if err := compare(&pb.Compare{Key: key, Target: pb.Compare_VALUE}); err != nil {
		t.Error(err)
	}
}

// that came back.
func rawCall(t *testing.T, e *edge, method string, headers map[string]string) (code, text string) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+e.addr+method,
		bytes.NewReader([]byte{0, 0, 0, 0, 3, 10, 1, 'k'})) // one message: field 1 is "k"
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	if code = answer.Header.Get("Grpc-Status"); code != "" { // an answer without a body has its trailers in front
		return code, answer.Header.Get("Grpc-Message")
	}
	return answer.Trailer.Get("Grpc-Status"), answer.Trailer.Get("Grpc-Message")
}

func TestValidate_ClientVersionMustBeText(t *testing.T) { // T28
	e := newReadyEdge(t, nil)
	bad := map[string]string{rpctypes.MetadataClientAPIVersionKey: "3.\xff\xfe"}
	for _, method := range []string{"/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch"} {
		code, text := rawCall(t, e, method, bad)
		if code != "3" || text != "etcdserver: invalid client api version" {
			t.Errorf("%s: %s %s", method, code, text)
		}
	}
	if code, text := rawCall(t, e, "/etcdserverpb.KV/Range", nil); code != "0" {
		t.Errorf("without the header: %s %s", code, text)
	}
	if code, _ := get(t, e, "/metrics"); code != 200 {
		t.Errorf("/metrics answers %d", code)
	}
}

// Clients choose the label; they must not choose how many values it has.
func TestIntercept_ClientVersionsAreBounded(t *testing.T) {
	e := newReadyEdge(t, nil)
	for i := range clientVersionsMax * 4 {
		e.versions.counter(strings.Repeat("v", i%80)+string(rune('a'+i%26)), "unary").Inc()
		e.versions.counter(strings.Repeat("v", i%80)+string(rune('a'+i%26)), "stream").Inc()
	}
	_, body := get(t, e, "/metrics")
	n := strings.Count(body, "etcd_server_client_requests_total{")
	if n > 2*(clientVersionsMax+1) || n < clientVersionsMax {
		t.Errorf("%d values", n)
	}
}

func TestValidate_RequestTooLargeForGRPC(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.RequestBytesMax = 1024 })
	_, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)})
	wantStatus(t, err, codes.ResourceExhausted, "grpc: received message larger than max (1048583 vs. 525312)")
}
