package fieldreports

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"troupe/integration/harness"
)

func (a *api) lease() pb.LeaseClient { return pb.NewLeaseClient(a.conn) }

func (a *api) grant(id, ttl int64) {
	a.t.Helper()
	if _, err := a.lease().LeaseGrant(a.ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl}); err != nil {
		a.t.Fatalf("grant %d: %v", id, err)
	}
}

func (a *api) remaining(id int64) *pb.LeaseTimeToLiveResponse {
	a.t.Helper()
	r, err := a.lease().LeaseTimeToLive(a.ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if err != nil {
		a.t.Fatalf("time to live of %d: %v", id, err)
	}
	return r
}

// T53 (etcd-io/etcd#5172, #5197): one unknown lease does not end the stream that keeps the others alive.
func TestLease_KeepAliveOfAnUnknownLeaseKeepsTheStream(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	a.grant(7, 100)
	stream, err := a.lease().LeaseKeepAlive(a.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []*pb.LeaseKeepAliveResponse{{ID: 999}, {ID: 7, TTL: 100}, {ID: -4}, {ID: 7, TTL: 100}} {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: want.ID}); err != nil {
			t.Fatalf("keep alive: %v", err)
		}
		r, err := stream.Recv()
		if err != nil || r.ID != want.ID || r.TTL != want.TTL {
			t.Fatalf("keep alive: %v, %v; want %v", r, err, want)
		}
	}
}

// T53 (etcd-io/etcd#9033, #14019): an expired lease is gone everywhere at once.
func TestLease_ExpiredLeaseIsGoneFromEveryAnswer(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	a.grant(7, 2)
	if _, err := a.kv.Put(a.ctx, &pb.PutRequest{Key: []byte("k"), Lease: 7}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, limit, "the lease expires", func() error {
		if _, ok := a.get("k", 0); ok {
			return fmt.Errorf("the key is still there")
		}
		return nil
	})
	if r := a.remaining(7); r.TTL != -1 || r.ID != 7 || r.GrantedTTL != 0 || len(r.Keys) != 0 {
		t.Errorf("time to live of an expired lease: %v", r)
	}
	if r, err := a.lease().LeaseLeases(a.ctx, &pb.LeaseLeasesRequest{}); err != nil || len(r.Leases) != 0 {
		t.Errorf("leases: %v, %v", r, err)
	}
	_, err := a.lease().LeaseRevoke(a.ctx, &pb.LeaseRevokeRequest{ID: 7})
	a.wantCode("revoke of an expired lease", err, codes.NotFound, "etcdserver: requested lease not found")
}

// T53 (etcd-io/etcd#9374): nanoseconds in the place of seconds are noticed.
func TestLease_TTLInNanosecondsIsRefused(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	_, err := a.lease().LeaseGrant(a.ctx, &pb.LeaseGrantRequest{ID: 1, TTL: int64(24 * time.Hour)})
	a.wantCode("24 h in nanoseconds", err, codes.OutOfRange, "etcdserver: too large lease TTL")
}

// T53 (etcd-io/etcd#14758): a put without a lease takes the key from its lease, in memory and in the file.
func TestLease_PutWithoutLeaseDetachesTheKey(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	a.grant(7, 1000)
	for _, key := range []string{"a", "b"} {
		if _, err := a.kv.Put(a.ctx, &pb.PutRequest{Key: []byte(key), Lease: 7}); err != nil {
			t.Fatal(err)
		}
	}
	a.put("a", "alone")
	check := func(when string) {
		t.Helper()
		if r := a.remaining(7); len(r.Keys) != 1 || string(r.Keys[0]) != "b" {
			t.Errorf("%s: the lease has keys %q", when, r.Keys)
		}
	}
	check("before the restart")
	s.Kill(t)
	s.Start(t)
	a = newAPI(t, s)
	check("after the restart")
	if _, err := a.lease().LeaseRevoke(a.ctx, &pb.LeaseRevokeRequest{ID: 7}); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.get("a", 0); !ok {
		t.Errorf("the detached key went with the lease")
	}
	if _, ok := a.get("b", 0); ok {
		t.Errorf("the attached key outlived the lease")
	}
}

// T53 (etcd-io/etcd#12381): a pause of the process gives no lease an absurd time, and none a longer life than asked.
func TestLease_PauseOfTheProcessGivesNoAbsurdTime(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	a.grant(7, 600)
	s.Freeze(t)
	<-time.After(3 * time.Second) // the pause itself is what is tested
	s.Thaw()
	if r := a.remaining(7); r.TTL > 600 || r.TTL < 500 || r.GrantedTTL != 600 {
		t.Errorf("after the pause: %v", r)
	}
	s.Kill(t)
	s.Start(t)
	if r := newAPI(t, s).remaining(7); r.TTL > 601 || r.TTL < 500 || r.GrantedTTL != 600 {
		t.Errorf("after the restart: %v", r)
	}
}
