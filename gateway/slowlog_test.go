package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	protobuf "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"troupe/proto"
)

// slowRoom is a fake whose steps take time.
type slowRoom struct {
	*fakeRoom
	readIndex, applied, propose, read time.Duration
}

func (r *slowRoom) ReadIndex(ctx context.Context) (proto.Index, error) {
	time.Sleep(r.readIndex)
	return r.fakeRoom.ReadIndex(ctx)
}

func (r *slowRoom) WaitApplied(ctx context.Context, index proto.Index) error {
	time.Sleep(r.applied)
	return r.fakeRoom.WaitApplied(ctx, index)
}

func (r *slowRoom) Propose(ctx context.Context, q *pb.InternalRaftRequest) (*proto.Result, error) {
	time.Sleep(r.propose)
	return r.fakeRoom.Propose(ctx, q)
}

func (r *slowRoom) Range(ctx context.Context, q *pb.RangeRequest) (*proto.Result, error) {
	time.Sleep(r.read)
	return r.fakeRoom.Range(ctx, q)
}

// newSlowEdge serves over a slowRoom and calls everything slow that takes a millisecond.
func newSlowEdge(t *testing.T, room *slowRoom) *edge {
	t.Helper()
	return newReadyEdge(t, func(c *Config) {
		room.fakeRoom = c.Store.(*fakeRoom)
		c.Raft, c.Store, c.SlowRequest = room, room, time.Millisecond
	})
}

// statsLines gives the lines "request stats" of a log.
func statsLines(t *testing.T, log string) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line["message"] == "request stats" {
			lines = append(lines, line)
		}
	}
	return lines
}

// awaitStats waits for the only line; it is written when the answer has been sent.
func awaitStats(t *testing.T, e *edge) map[string]any {
	t.Helper()
	eventually(t, "the line is written", func() bool { return len(statsLines(t, e.log.String())) > 0 })
	return statsLines(t, e.log.String())[0]
}

func TestSlowLog_EachPhaseGetsItsTime(t *testing.T) {
	const delay = 20 * time.Millisecond
	cases := map[string]struct {
		room slowRoom
		put  bool
	}{
		"read_index": {room: slowRoom{readIndex: delay}},
		"apply_wait": {room: slowRoom{applied: delay}},
		"read":       {room: slowRoom{read: delay}},
		"commit":     {room: slowRoom{propose: delay}, put: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := newSlowEdge(t, &c.room)
			kv := pb.NewKVClient(e.conn)
			var err error
			if c.put {
				name = "apply_wait"
				_, err = kv.Put(within(t), &pb.PutRequest{Key: []byte("k"), Value: []byte("secret")})
			} else {
				_, err = kv.Range(within(t), &pb.RangeRequest{Key: []byte("k")})
			}
			if err != nil {
				t.Fatal(err)
			}
			phases := awaitStats(t, e)["phases"].(map[string]any)
			if len(phases) != int(phaseCount) {
				t.Errorf("phases %v", phases)
			}
			for phase, text := range phases {
				spent, err := time.ParseDuration(text.(string))
				if err != nil {
					t.Fatal(err)
				}
				if isIt := phase == name; isIt && spent < delay {
					t.Errorf("%s took %v, at least %v was spent in it", phase, spent, delay)
				}
			}
		})
	}
}

func TestSlowLog_WaitForAReadyMemberIsQueueing(t *testing.T) {
	const delay = 20 * time.Millisecond
	e := newEdge(t, func(c *Config) { c.SlowRequest = time.Millisecond })
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")})
		answered <- err
	}()
	eventually(t, "the put waits", func() bool { return e.readyWaiters.Load() == 1 })
	time.Sleep(delay) // this is the time that must be attributed
	e.SetReady()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	spent, err := time.ParseDuration(awaitStats(t, e)["phases"].(map[string]any)["queue"].(string))
	if err != nil || spent < delay {
		t.Errorf("queue took %v %v", spent, err)
	}
}

// The fields are those of etcd's line; alerts and log pipelines parse them.
func TestSlowLog_LineHasTheFieldsOfEtcds(t *testing.T) {
	e := newSlowEdge(t, &slowRoom{propose: 2 * time.Millisecond})
	if _, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k\n1"), Value: []byte("12345"),
		Lease: 7}); err != nil {
		t.Fatal(err)
	}
	line := awaitStats(t, e)
	for key, want := range map[string]any{
		"level": "warn", "response type": "/etcdserverpb.KV/Put", "request count": 1.0, "response count": 0.0,
		"request content": `key:"k\n1" value_size:5 lease:7`, "user": "", "revision": 2.0,
	} {
		if line[key] != want {
			t.Errorf("%q is %v, want %v", key, line[key], want)
		}
	}
	for _, key := range []string{"start time", "time spent", "remote", "request size", "response size"} {
		if line[key] == nil || line[key] == "" || line[key] == 0.0 {
			t.Errorf("%q is %v", key, line[key])
		}
	}
	if _, err := time.ParseDuration(line["time spent"].(string)); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(line["remote"].(string), "127.0.0.1:") {
		t.Errorf("remote %v", line["remote"])
	}
}

func TestSlowLog_RangeCountsAndErrors(t *testing.T) {
	e := newSlowEdge(t, &slowRoom{read: 2 * time.Millisecond})
	e.room.set(func() {
		e.room.rangeFn = func(*pb.RangeRequest) (*proto.Result, error) {
			return e.room.result(&pb.RangeResponse{Count: 3}), nil
		}
	})
	if _, err := pb.NewKVClient(e.conn).Range(within(t), &pb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	if line := awaitStats(t, e); line["response count"] != 3.0 {
		t.Errorf("response count %v", line["response count"])
	}
}

// When everything is slow, the log is not: its lines are bounded and say how many are missing.
func TestSlowLog_IsSampled(t *testing.T) {
	e := newSlowEdge(t, &slowRoom{propose: 2 * time.Millisecond})
	const requests = 120
	began := time.Now()
	done := make(chan error, requests)
	for range requests {
		go func() {
			_, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")})
			done <- err
		}()
	}
	for range requests {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	var lines, left int
	eventually(t, "each request is a line or left out", func() bool { // a request is noted after its answer
		lines, left = len(statsLines(t, e.log.String())), int(testutil.ToFloat64(e.metrics.suppressed))
		return lines+left >= requests
	})
	if counted := testutil.ToFloat64(e.metrics.slow); lines+left != requests || counted != requests {
		t.Errorf("%d lines and %d left out, %v counted, of %d requests", lines, left, counted, requests)
	}
	if seconds := int(time.Since(began).Seconds()) + 2; lines < 1 || lines > seconds*slowLinesPerSecondMax {
		t.Errorf("%d lines in at most %d s", lines, seconds)
	}
	// The next line that gets through tells how many are missing.
	e.slow.leftOut.Store(5)
	eventually(t, "a line tells of those left out", func() bool {
		_, err := pb.NewKVClient(e.conn).Put(within(t), &pb.PutRequest{Key: []byte("k")})
		return err == nil && strings.Contains(e.log.String(), `"suppressed":`)
	})
}

const marker = "MARKER"

// drawOp draws one operation whose values are markers.
func drawOp(t *rapid.T, depth int) *pb.RequestOp {
	key := rapid.SliceOfN(rapid.ByteRange(0, 64), 0, 300).Draw(t, "key") // without letters
	switch rapid.IntRange(0, 2+min(1, depth)).Draw(t, "kind") {
	case 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key,
			Value: []byte(marker)}}}
	case 1:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key, RangeEnd: key,
			Limit: rapid.Int64().Draw(t, "limit")}}}
	case 2:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: key}}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: drawTxn(t, depth-1)}}
}

func drawTxn(t *rapid.T, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range rapid.IntRange(0, 8).Draw(t, "compares") {
		r.Compare = append(r.Compare, &pb.Compare{Key: []byte{1}, Target: pb.Compare_VALUE,
			TargetUnion: &pb.Compare_Value{Value: []byte(marker)}})
	}
	for range rapid.IntRange(0, 8).Draw(t, "operations") {
		r.Success = append(r.Success, drawOp(t, depth))
		r.Failure = append(r.Failure, drawOp(t, depth))
	}
	return r
}

func TestDescribe_NoValueAndNoLongText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := drawOp(t, 3)
		var in protobuf.Message
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			in = r.RequestPut
		case *pb.RequestOp_RequestRange:
			in = r.RequestRange
		case *pb.RequestOp_RequestDeleteRange:
			in = r.RequestDeleteRange
		case *pb.RequestOp_RequestTxn:
			in = r.RequestTxn
		}
		content := describe(in).content
		if strings.Contains(content, marker) {
			t.Fatalf("a value is in the text: %s", content)
		}
		if len(content) > 64<<10 {
			t.Fatalf("%d bytes", len(content))
		}
	})
	for _, in := range []protobuf.Message{
		&pb.AuthenticateRequest{Name: marker, Password: marker}, &pb.AuthUserAddRequest{Name: marker, Password: marker},
		&pb.AuthUserChangePasswordRequest{Name: marker, Password: marker},
	} {
		if content := describe(in).content; content != "" {
			t.Errorf("%T is described as %s", in, content)
		}
	}
}

func TestDescribe_PlacesInALine(t *testing.T) {
	name := []byte(strings.Repeat("n", 4096))
	cut := `name:"` + strings.Repeat("n", loggedKeyBytesMax) + `"...`
	for in, want := range map[protobuf.Message]string{
		&proto.LockRequest{Name: []byte("l"), Lease: 7}:                   `name:"l" lease:7`,
		&proto.CampaignRequest{Name: []byte("e"), Value: []byte("value")}: `name:"e" value_size:5`,
		&proto.LockRequest{Name: name}:                                    cut,
	} {
		if got := describe(in).content; got != want {
			t.Errorf("%T is described as %s, want %s", in, got, want)
		}
	}
}

func TestDescribe_LargestTransactionIsShort(t *testing.T) {
	key := []byte(strings.Repeat("\xff", 4096))
	var txn *pb.TxnRequest
	for range 5 {
		next := &pb.TxnRequest{}
		for range txnOpsDefault {
			next.Compare = append(next.Compare, &pb.Compare{Key: key, RangeEnd: key})
			op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}
			if txn != nil {
				op = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}
			}
			next.Success, next.Failure = append(next.Success, op), append(next.Failure, op)
		}
		txn = next
	}
	if n := len(describe(txn).content); n > 64<<10 {
		t.Errorf("%d bytes", n)
	}
}

// A streamed range is slow by what the member does, not by how slowly its client reads.
func TestSlowLog_StreamedRangeIsExplainedToo(t *testing.T) {
	e := newSlowEdge(t, &slowRoom{readIndex: 5 * time.Millisecond})
	e.room.chunkKeys = 100
	stream, err := pb.NewKVClient(e.conn).RangeStream(within(t), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")})
	for err == nil {
		_, err = stream.Recv()
	}
	line := awaitStats(t, e)
	if line["response type"] != "/etcdserverpb.KV/RangeStream" || line["response count"] != 100.0 ||
		line["request content"] != `key:"a" range_end:"b" revision:8` {
		t.Errorf("%v", line)
	}
}
