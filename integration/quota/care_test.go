package quota

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

const (
	highLine   = "database size has reached 80 % of the quota"
	lowLine    = "database size is below 75 % of the quota again"
	disarmLine = "there is space again, disarming alarm NOSPACE"
	leaveLine  = "alarm NOSPACE was raised by hand"
	skipLine   = "Skipping defragmentation"
)

// has waits until a page has a line.
func (s *side) has(t *testing.T, path, line string) {
	t.Helper()
	harness.Eventually(t, limit, path+" has "+line, func() error {
		if _, body := s.fetch(t, path); strings.Contains(body, line) {
			return nil
		}
		return errors.New("it has not")
	})
}

func (s *side) says(t *testing.T, line string) {
	t.Helper()
	if !s.server.Log().Wait(harness.Context(t, limit), line) {
		t.Fatalf("the log does not say %q", line)
	}
}

func count(s *side, line string) int {
	n := 0
	for _, l := range s.server.Log().Lines() {
		if strings.Contains(l, line) {
			n++
		}
	}
	return n
}

// etcd-io/etcd#9992, #20753: before the quota is reached the log says so, once, with the remedy, and a metric does.
func TestQuota_IsWarnedOfBeforeItIsReached(t *testing.T) {
	s := newSide(t, harness.Troupe, quotaFlag)
	ctx := harness.Context(t, 4*limit)
	s.has(t, "/metrics", "\ntroupe_store_quota_warning 0\n")
	for range quotaBytes / valueBytes * 85 / 100 {
		if err := s.putValue(ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	s.says(t, highLine)
	s.has(t, "/metrics", "\ntroupe_store_quota_warning 1\n")
	s.compactAll(ctx, t) // the file stays as large
	if _, err := pb.NewMaintenanceClient(s.conn).Defragment(ctx, &pb.DefragmentRequest{}); err != nil {
		t.Fatal(err)
	}
	s.says(t, lowLine)
	s.has(t, "/metrics", "\ntroupe_store_quota_warning 0\n")
	if n := count(s, highLine); n != 1 {
		t.Errorf("%d lines say that the mark was reached", n)
	}
}

// With --quota-auto-disarm a compaction is all it takes: the member defragments its file, because a file full of free
// pages would raise the alarm again, ends its alarm, and takes puts. Alarms of others and CORRUPT stay.
func TestQuota_AutoDisarmEndsTheAlarmOnceSpaceIsFree(t *testing.T) {
	s := newSide(t, harness.Troupe, quotaFlag, "--quota-auto-disarm")
	ctx := harness.Context(t, 4*limit)
	s.fillUp(t, oneKey)
	s.alarm(ctx, raise, pb.AlarmType_NOSPACE, foreign)
	s.alarm(ctx, raise, pb.AlarmType_CORRUPT, 0)
	s.alarm(ctx, clear, pb.AlarmType_CORRUPT, 0)
	s.compactAll(ctx, t)
	s.says(t, disarmLine)
	harness.Eventually(t, limit, "only the other's alarm is left", func() error {
		if got := s.alarms(ctx); strings.Contains(got, "<member>") || !strings.Contains(got, "memberID:5") {
			return errors.New(got)
		}
		return nil
	})
	s.alarm(ctx, clear, pb.AlarmType_NOSPACE, foreign)
	if err := s.putValue(ctx, "a"); err != nil {
		t.Errorf("a put after the alarm: %v", err)
	}
	if r := s.status(t); r.DbSize > quotaBytes*3/4 {
		t.Errorf("the file has %d bytes", r.DbSize)
	}
	s.has(t, "/metrics", "\ntroupe_store_quota_disarmed_total 1\n")
}

// An alarm that an operator raised in the member's own name is not the quota's: it stays, however much space there is,
// until it is disarmed. The quota's alarm ends by itself before and after. At a start nobody knows any more who raised
// what, whether it is in the file or, after kill -9, in the log behind it: it ends.
func TestQuota_AutoDisarmLeavesWhatWasRaisedByHand(t *testing.T) {
	s := newSide(t, harness.Troupe, quotaFlag, "--quota-auto-disarm")
	ctx := harness.Context(t, 8*limit)
	byHand := func(times int) {
		t.Helper()
		s.alarm(ctx, raise, pb.AlarmType_NOSPACE, 0)
		harness.Eventually(t, limit, "the caretaker has seen the alarm", func() error {
			if n := count(s, leaveLine); n != times {
				return fmt.Errorf("%d lines say that an alarm stays", n)
			}
			return nil
		})
		if got := s.alarms(ctx); !strings.Contains(got, "<member>") {
			t.Fatalf("the alarm by hand is gone: %s", got)
		}
	}
	ends := func(what string) {
		t.Helper()
		harness.Eventually(t, limit, what+" ends", func() error {
			if got := s.alarms(ctx); strings.Contains(got, "<member>") {
				return errors.New(got)
			}
			return nil
		})
	}
	byHand(1)
	s.alarm(ctx, clear, pb.AlarmType_NOSPACE, 0)
	s.fillUp(t, oneKey)
	s.compactAll(ctx, t)
	ends("the quota's alarm")
	byHand(2)
	if err := s.putValue(ctx, "a"); err == nil {
		t.Error("a put passes the alarm by hand")
	}
	s.server.Terminate(t)
	s.server.SetArgs(quotaFlag, "--quota-auto-disarm", "--backend-batch-interval=1h")
	s.server.Start(t) // with a log of its own
	s.reconnect(t)
	ends("the alarm in the file")
	byHand(1)
	s.server.Kill(t)
	s.server.Start(t)
	s.reconnect(t)
	if count(s, `"entries-to-apply":`) != 1 || count(s, `"entries-to-apply":0`) != 0 {
		t.Error("nothing is in the log behind the file, which shows nothing")
	}
	ends("the alarm in the log")
}

// Auto-compaction compacts what is older than the retention, at etcd's pace and with etcd's lines.
func TestAutoCompaction_PeriodicForgetsWhatIsOld(t *testing.T) {
	p := newPair(t, "--auto-compaction-retention=1s")
	ctx := harness.Context(t, 4*limit)
	p.each(func(s *side) {
		for range 5 {
			if _, err := pb.NewKVClient(s.conn).Put(ctx, &pb.PutRequest{Key: []byte("a")}); err != nil {
				t.Fatal(err)
			}
		}
		harness.Eventually(t, limit, "revision 4 is compacted", func() error {
			_, err := pb.NewKVClient(s.conn).Range(ctx, &pb.RangeRequest{Key: []byte("a"), Revision: 4})
			if err == nil {
				return errors.New("it is readable")
			}
			return nil
		})
		s.says(t, `"msg":"starting auto periodic compaction","revision":6,"compact-period":"1s"`)
		s.says(t, `"msg":"completed auto periodic compaction","revision":6,"compact-period":"1s","took":`)
		got := s.text(pb.NewKVClient(s.conn).Range(ctx, &pb.RangeRequest{Key: []byte("a")}))
		if !strings.Contains(got, "version:5") {
			t.Errorf("%s has %s", s.server.Kind, got)
		}
	})
}

// The start defragments the file before it serves, if that gives back as much as was asked for.
func TestBootstrapDefrag_MakesTheFileSmallWhenItIsWorthIt(t *testing.T) {
	s := newSide(t, harness.Troupe)
	ctx := harness.Context(t, 4*limit)
	for range 60 {
		if err := s.putValue(ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	s.compactAll(ctx, t)
	restart := func(megabytes int) int64 {
		t.Helper()
		s.server.Terminate(t)
		s.server.SetArgs(fmt.Sprint("--bootstrap-defrag-threshold-megabytes=", megabytes))
		s.server.Start(t)
		s.reconnect(t)
		return s.status(t).DbSize
	}
	if size := restart(100); size < 8<<20 {
		t.Errorf("%d bytes after a start that should not have defragmented", size)
	}
	s.says(t, skipLine)
	if size := restart(5); size > 4<<20 {
		t.Errorf("%d bytes after a start that should have defragmented", size)
	}
}
