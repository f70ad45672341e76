package quota

import (
	"fmt"
	"math"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// Raising, listing and clearing alarms, by clients and by etcdctl, for members that exist or not, answers as etcd, and
// what is raised survives a stop and a kill -9.
func TestAlarms_AreRaisedListedAndClearedAsOnEtcd(t *testing.T) {
	p := newPair(t)
	ctx := harness.Context(t, 4*limit)
	const none, full, corrupt = pb.AlarmType_NONE, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT
	alarm := func(action pb.AlarmRequest_AlarmAction, kind pb.AlarmType, member uint64) {
		t.Helper()
		what := fmt.Sprint(action, " ", kind, " of ", member)
		p.same(t, what, func(s *side) string { return s.alarm(ctx, action, kind, member) })
	}
	lists := func() {
		t.Helper()
		for _, kind := range []pb.AlarmType{none, full, corrupt} {
			alarm(list, kind, foreign)
		}
	}
	ctl := func(args ...string) {
		t.Helper()
		p.same(t, "etcdctl "+strings.Join(args, " "), func(s *side) string {
			out := s.server.Ctl(t, args...)
			return fmt.Sprint(out.Code, " ", s.named(rafts.ReplaceAllString(out.Stdout, "")))
		})
	}
	lists()
	alarm(raise, none, 0)
	alarm(clear, full, 0)
	for _, member := range []uint64{foreign, 0, math.MaxUint64, foreign} {
		alarm(raise, full, member)
	}
	lists()
	alarm(clear, none, foreign)
	alarm(clear, corrupt, foreign)
	alarm(clear, full, foreign)
	alarm(clear, full, math.MaxUint64)
	alarm(raise, corrupt, 0)
	alarm(clear, full, 0)
	lists()
	p.each(func(s *side) {
		s.server.Kill(t)
		s.server.Start(t)
		s.reconnect(t)
	})
	lists()
	alarm(clear, corrupt, 0)
	alarm(raise, full, 0)
	p.each(func(s *side) {
		s.server.Terminate(t)
		s.server.Start(t)
		s.reconnect(t)
	})
	ctl("alarm", "list")
	ctl("alarm", "list", "--write-out=fields")
	ctl("alarm", "disarm")
	ctl("alarm", "list")
	lists()
}

// An alarm or an action that does not exist is refused; etcd stops on some of them.
func TestAlarms_UnknownKindsAndActionsAreRefused(t *testing.T) {
	s := newSide(t, harness.Troupe)
	ctx := harness.Context(t, limit)
	for _, r := range []*pb.AlarmRequest{{Action: 7, Alarm: pb.AlarmType_CORRUPT}, {Action: raise, Alarm: 17},
		{Action: clear, Alarm: -1}, {Action: -1}} {
		if _, err := pb.NewMaintenanceClient(s.conn).Alarm(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	if got := s.alarms(ctx); strings.Contains(got, "alarms") {
		t.Error(got)
	}
}
