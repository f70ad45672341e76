package quota

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

const (
	quotaBytes = 16 << 20
	valueBytes = 200 << 10
	noSpace    = "etcdserver: mvcc: database space exceeded"
)

var quotaFlag = fmt.Sprint("--quota-backend-bytes=", quotaBytes)

// putValue puts a large value.
func (s *side) putValue(ctx context.Context, key string) error {
	request := &pb.PutRequest{Key: []byte(key), Value: bytes.Repeat([]byte("v"), valueBytes)}
	_, err := pb.NewKVClient(s.conn).Put(ctx, request)
	return err
}

// fillUp puts values into keys until the quota refuses one, and gives the number of puts.
func (s *side) fillUp(t *testing.T, key func(i int) string) int {
	t.Helper()
	ctx := harness.Context(t, 2*limit)
	for i := range 10 * quotaBytes / valueBytes {
		err := s.putValue(ctx, key(i))
		if err == nil {
			continue
		}
		if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != noSpace {
			t.Fatalf("%s refuses with %v", s.server.Kind, err)
		}
		return i
	}
	t.Fatalf("%s takes ten times its quota", s.server.Kind)
	return 0
}

func oneKey(int) string { return "a" }

// reconnect takes the connection to a server that was started again.
func (s *side) reconnect(t *testing.T) { s.conn = s.server.Conn(t) }

// T17 (etcd-io/etcd#9992, #14497, #13435, #13467; k3s-io/k3s#5158): at the quota what grows is refused and all else
// goes on; the alarm is there once, survives kill -9 and a larger quota, and after compaction, defragmentation and
// disarming writes work again. Step by step as etcd.
func TestQuota_StopsWhatGrowsUntilSpaceIsFreedAndTheAlarmDisarmed(t *testing.T) {
	p := newPair(t, quotaFlag)
	p.each(func(s *side) {
		puts := s.fillUp(t, oneKey)
		if least := quotaBytes/valueBytes/2 + 1; puts < least {
			t.Errorf("%s refuses after %d puts", s.server.Kind, puts)
		}
		for range 3 {
			_ = s.putValue(harness.Context(t, limit), "a")
		}
	})
	ctx := harness.Context(t, 4*limit)
	compare := func(when string) {
		t.Helper()
		p.same(t, when+": alarms", func(s *side) string { return unnumbered(s.alarms(ctx)) })
		p.same(t, when+": status", func(s *side) string { return fmt.Sprint(s.status(t).Errors) })
		for _, c := range atTheQuota() {
			p.same(t, when+": "+c.name, func(s *side) string { return unnumbered(s.text(c.send(ctx, s))) })
		}
		p.same(t, when+": health", func(s *side) string { return s.page(t, "/health") })
		p.same(t, when+": livez", func(s *side) string { return s.page(t, "/livez") })
	}
	compare("full")
	p.each(func(s *side) {
		s.server.Kill(t)
		s.server.SetArgs("--quota-backend-bytes=1073741824")
		s.server.Start(t)
		s.reconnect(t)
	})
	compare("after kill -9, with a larger quota")
	p.each(func(s *side) {
		s.server.Terminate(t)
		s.server.SetArgs(quotaFlag)
		s.server.Start(t)
		s.reconnect(t)
		s.free(ctx, t)
	})
	compare("freed, not disarmed")
	p.same(t, "disarm", func(s *side) string { return unnumbered(s.alarm(ctx, clear, pb.AlarmType_NOSPACE, 0)) })
	p.each(func(s *side) {
		if err := s.putValue(ctx, "a"); err != nil {
			t.Errorf("%s after disarming: %v", s.server.Kind, err)
		}
	})
	p.same(t, "health at last", func(s *side) string { return s.page(t, "/health") })
}

// unnumbered takes out revisions: the two take a different number of puts before they are full.
func unnumbered(text string) string { return revisions.ReplaceAllString(text, "revision:N") }

// atTheQuota are requests of which the first three are refused.
func atTheQuota() []call {
	a := []byte("a")
	return []call{
		put("put", &pb.PutRequest{Key: a}), txn("txn that puts", then(putOp("a"))), otherCalls()[0],
		get("range", &pb.RangeRequest{Key: a, CountOnly: true}), txn("txn that reads", then(getOp("nothing"))),
		txn("txn that deletes", then(removeOp("nothing"))), remove("delete", &pb.DeleteRangeRequest{Key: []byte("nothing")}),
	}
}

func (s *side) alarms(ctx context.Context) string { return s.alarm(ctx, list, pb.AlarmType_NONE, 0) }

func (s *side) status(t *testing.T) *pb.StatusResponse {
	t.Helper()
	r, err := pb.NewMaintenanceClient(s.conn).Status(harness.Context(t, limit), &pb.StatusRequest{})
	if err != nil {
		t.Fatalf("status of %s: %v", s.server.Kind, err)
	}
	for i := range r.Errors {
		r.Errors[i] = s.named(r.Errors[i])
	}
	return r
}

// compactAll compacts up to the present.
func (s *side) compactAll(ctx context.Context, t *testing.T) {
	t.Helper()
	request := &pb.CompactionRequest{Revision: s.status(t).Header.Revision, Physical: true}
	if _, err := pb.NewKVClient(s.conn).Compact(ctx, request); err != nil {
		t.Fatalf("compaction on %s: %v", s.server.Kind, err)
	}
}

// free does what an operator does, up to disarming.
func (s *side) free(ctx context.Context, t *testing.T) {
	t.Helper()
	s.compactAll(ctx, t)
	if _, err := pb.NewMaintenanceClient(s.conn).Defragment(ctx, &pb.DefragmentRequest{}); err != nil {
		t.Fatalf("defragmentation of %s: %v", s.server.Kind, err)
	}
	if r := s.status(t); r.DbSize > quotaBytes/4 {
		t.Errorf("%s has %d bytes after a compaction and a defragmentation", s.server.Kind, r.DbSize)
	}
}

// A file that was compacted and not defragmented is as large as before. As long as it is below the quota, what its free
// pages take does not exceed it, with troupe as with etcd.
func TestQuota_FreePagesAreUsedBelowTheQuota(t *testing.T) {
	newPair(t, quotaFlag).each(func(s *side) { s.refill(t) })
}

// refill fills four fifths of the quota three times, with compactions in between.
func (s *side) refill(t *testing.T) {
	t.Helper()
	ctx := harness.Context(t, 4*limit)
	for range 3 {
		for range quotaBytes / valueBytes * 8 / 10 {
			if err := s.putValue(ctx, "a"); err != nil {
				t.Fatalf("a file of %s with free pages: %v", s.server.Kind, err)
			}
		}
		s.compactAll(ctx, t)
	}
	if got := s.alarms(ctx); strings.Contains(got, "NOSPACE") {
		t.Error(got)
	}
}

// T16 (etcd-io/etcd#14382, #21636): entries that change no key, alarms among them, move the applied index: after a
// snapshot and a kill -9 the member starts.
func TestAlarms_ManyOfThemDoNotKeepAMemberFromStarting(t *testing.T) {
	s := newSide(t, harness.Troupe, "--snapshot-count=5", quotaFlag)
	ctx := harness.Context(t, 4*limit)
	s.fillUp(t, oneKey)
	for range 12 {
		s.alarm(ctx, raise, pb.AlarmType_NOSPACE, 0)
		s.alarms(ctx)
		s.server.Ctl(t, "endpoint", "health")
	}
	s.server.Kill(t)
	s.server.Start(t)
	s.reconnect(t)
	if got := s.alarms(ctx); strings.Count(got, "NOSPACE") != 1 {
		t.Errorf("after the restart: %s", got)
	}
}
