package concurrency

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
	"troupe/proto"
)

// gauge reads one line of /metrics.
func gauge(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	r, err := http.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "missing"
}

// gaugesReach waits until gauges have values: name, value, name, value.
func gaugesReach(t *testing.T, s *harness.Server, pairs ...string) {
	t.Helper()
	harness.Eventually(t, limit, fmt.Sprint("gauges ", pairs), func() error {
		for i := 0; i < len(pairs); i += 2 {
			if got := gauge(t, s, pairs[i]); got != pairs[i+1] {
				return fmt.Errorf("%s is %s", pairs[i], got)
			}
		}
		return nil
	})
}

const (
	turnsOpen     = `troupe_gateway_open{kind="turn"}`
	watchStreams  = "etcd_debugging_mvcc_watch_stream_total"
	watchersCount = "etcd_debugging_mvcc_watcher_total"
)

// Calls that wait are counted, and leave nothing behind when their client disconnects: no place in the line, no watch,
// no counted call. The holder keeps the lock.
func TestLockService_DisconnectFreesWhatWaits(t *testing.T) {
	harness.TroupeOnly(t, "these gauges")
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, 2*limit)
	holder := servicesOf(t, s)
	if _, err := holder.lock(ctx, "l", holder.grant(ctx, 1, 600)); err != nil {
		t.Fatalf("lock: %v", err)
	}
	const waiters = 100
	leaving := servicesOf(t, s)
	for i := range int64(waiters) {
		lease := holder.grant(ctx, 100+i, 600)
		waiting(func() (*proto.LockResponse, error) { return leaving.lock(ctx, "l", lease) })
		waiting(func() (*proto.CampaignResponse, error) { return leaving.campaign(ctx, "e", lease, "v") })
		leaving.observe(ctx, "e")
	}
	// One candidate is elected; it does not wait.
	gaugesReach(t, s, turnsOpen, fmt.Sprint(2*waiters-1), watchStreams, fmt.Sprint(3*waiters-1))
	holder.inLine(ctx, "l", waiters+1)
	holder.inLine(ctx, "e", waiters)
	leaving.conn.Close()
	gaugesReach(t, s, turnsOpen, "0", watchStreams, "0", watchersCount, "0")
	holder.inLine(ctx, "l", 1)
	holder.inLine(ctx, "e", 1)
	if r, err := holder.client.Get(ctx, "l/1"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("the holder's key: %v, %v", r, err)
	}
}

// A stop ends what waits with an error that sends clients elsewhere, and gives the places up: who is not told that it
// has the lock must not get it after the restart.
func TestLockService_StopFreesWhatWaits(t *testing.T) {
	harness.TroupeOnly(t, "the answer while it stops")
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, 2*limit)
	c := servicesOf(t, s)
	for id := range int64(3) {
		c.grant(ctx, 1+id, 600)
	}
	if _, err := c.lock(ctx, "l", 1); err != nil {
		t.Fatalf("lock: %v", err)
	}
	elected, err := c.campaign(ctx, "e", 1, "v")
	if err != nil {
		t.Fatalf("campaign: %v", err)
	}
	lock := waiting(func() (*proto.LockResponse, error) { return c.lock(ctx, "l", 2) })
	campaign := waiting(func() (*proto.CampaignResponse, error) { return c.campaign(ctx, "e", 3, "w") })
	seen, ended := c.observe(ctx, "e")
	if r := <-seen; string(r.Kv.GetValue()) != "v" {
		t.Fatalf("observed %v", r)
	}
	gaugesReach(t, s, turnsOpen, "2", watchStreams, "3")
	s.Terminate(t)
	_, lockErr := await(t, lock)
	_, campaignErr := await(t, campaign)
	for _, err := range []error{lockErr, campaignErr, <-ended} {
		if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "etcdserver: server stopped" {
			t.Errorf("a call ended with %v", err)
		}
	}
	s.Start(t)
	again := servicesOf(t, s)
	again.inLine(ctx, "l", 1)
	again.inLine(ctx, "e", 1)
	if _, err := again.proclaim(ctx, elected.Leader, "still"); err != nil {
		t.Errorf("proclamation of the leader after the restart: %v", err)
	}
}

// Who has lost its place will never get a turn, and is told at once, also while the holder stays.
func TestLockService_LostPlaceIsToldAtOnce(t *testing.T) {
	harness.TroupeOnly(t, "etcd waits for the holder first, and then elects a candidate that has no key")
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, 2*limit)
	c := servicesOf(t, s)
	for id := range int64(3) {
		c.grant(ctx, 1+id, 600)
	}
	if _, err := c.lock(ctx, "l", 1); err != nil {
		t.Fatalf("lock: %v", err)
	}
	if _, err := c.campaign(ctx, "e", 1, "v"); err != nil {
		t.Fatalf("campaign: %v", err)
	}
	expired := waiting(func() (*proto.LockResponse, error) { return c.lock(ctx, "l", 2) })
	candidate := waiting(func() (*proto.CampaignResponse, error) { return c.campaign(ctx, "e", 2, "w") })
	deleted := waiting(func() (*proto.LockResponse, error) { return c.lock(ctx, "l", 3) })
	c.inLine(ctx, "l", 3)
	c.inLine(ctx, "e", 2)
	c.revoke(ctx, 2)
	if _, err := c.client.Delete(ctx, "l/3"); err != nil {
		t.Fatalf("delete: %v", err)
	}
	for _, done := range []<-chan result[*proto.LockResponse]{expired, deleted} {
		if _, err := await(t, done); status.Convert(err).Message() != "mutex: session is expired" {
			t.Errorf("lock: %v", err)
		}
	}
	if _, err := await(t, candidate); status.Convert(err).Message() != "election: session is expired" {
		t.Errorf("campaign: %v", err)
	}
}

// Waiting survives what the store does meanwhile: compactions pass the revisions from which the calls watch.
func TestLockService_WaitsThroughCompactions(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, 2*limit)
	c := servicesOf(t, s)
	c.grant(ctx, 1, 600)
	c.grant(ctx, 2, 600)
	held, err := c.lock(ctx, "l", 1)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	lock := waiting(func() (*proto.LockResponse, error) { return c.lock(ctx, "l", 2) })
	seen, _ := c.observe(ctx, "e")
	c.inLine(ctx, "l", 2)
	for i := range 20 {
		r, err := c.client.Put(ctx, "other", fmt.Sprint(i))
		if err != nil {
			t.Fatalf("put: %v", err)
		}
		if _, err := c.client.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatalf("compact: %v", err)
		}
	}
	if _, err := c.campaign(ctx, "e", 1, "v"); err != nil {
		t.Fatalf("campaign: %v", err)
	}
	if r := <-seen; string(r.Kv.GetValue()) != "v" {
		t.Errorf("observed %v", r)
	}
	if _, err := c.unlock(ctx, held.Key); err != nil {
		t.Fatalf("unlock: %v", err)
	}
	if got, err := await(t, lock); err != nil || string(got.Key) != "l/2" {
		t.Errorf("lock: %v, %v", got, err)
	}
}

// While there is no space a place is refused like any other write, and those in line go on.
func TestLockService_NoSpaceRefusesPlacesAndLetsThoseInLineGoOn(t *testing.T) {
	run(t, func(ctx context.Context, n *transcript) {
		n.grant(ctx, 1, 600)
		n.grant(ctx, 2, 600)
		held, err := n.lock(ctx, "l", 1)
		if err != nil {
			n.t.Fatalf("lock: %v", err)
		}
		lock := waiting(func() (*proto.LockResponse, error) { return n.lock(ctx, "l", 2) })
		n.inLine(ctx, "l", 2)
		_, err = pb.NewMaintenanceClient(n.conn).Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: 30, Alarm: pb.AlarmType_NOSPACE})
		if err != nil {
			n.t.Fatalf("alarm: %v", err)
		}
		noted[*proto.LockResponse](n, "lock beyond the quota", "m")(n.lock(ctx, "m", 1))
		noted[*proto.CampaignResponse](n, "campaign beyond the quota", "m")(n.campaign(ctx, "m", 1, "v"))
		noted[*proto.LockResponse](n, "lock under a lease of the server's", "m")(n.lock(ctx, "m", 0))
		noted[*proto.UnlockResponse](n, "unlock", "l")(n.unlock(ctx, held.Key))
		answer, err := await(n.t, lock)
		noted[*proto.LockResponse](n, "lock that waited", "l")(answer, err)
	})
}
