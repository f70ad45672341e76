package quota

import (
	"context"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/integration/harness"
)

// T19 (k3s-io/k3s#14130): alarms, members and status are told whatever is being written: a start-up check must not loop
// because the member has much to do.
func TestAlarms_AreListedUnderAnyWriteLoad(t *testing.T) {
	s := newSide(t, harness.Troupe)
	ctx, cancel := context.WithCancel(harness.Context(t, 4*limit))
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	const conns, perConn = 8, 125
	for range conns {
		conn := s.server.Conn(t)
		for i := range perConn {
			writers.Go(func() { writeUntil(ctx, conn, fmt.Appendf(nil, "k%d", i)) })
		}
	}
	harness.Eventually(t, limit, "the writers write", func() error {
		if r := s.status(t).Header.Revision; r < 2*conns*perConn {
			return fmt.Errorf("revision %d", r)
		}
		return nil
	})
	for range 20 {
		asked := harness.Context(t, limit)
		if _, err := pb.NewMaintenanceClient(s.conn).Alarm(asked, &pb.AlarmRequest{}); err != nil {
			t.Errorf("alarms: %v", err)
		}
		if _, err := pb.NewClusterClient(s.conn).MemberList(asked, &pb.MemberListRequest{Linearizable: true}); err != nil {
			t.Errorf("members: %v", err)
		}
		s.status(t)
	}
	if out := s.server.Ctl(t, "endpoint", "health"); out.Code != 0 {
		t.Errorf("etcdctl endpoint health: %s", out.Stderr)
	}
}

// writeUntil puts one key after another, whatever is answered.
func writeUntil(ctx context.Context, conn *grpc.ClientConn, key []byte) {
	for ctx.Err() == nil {
		_, _ = pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: key, Value: make([]byte, 1000)})
	}
}
