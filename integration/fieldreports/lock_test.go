package fieldreports

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"troupe/integration/harness"
	"troupe/proto"
)

func (a *api) lock(name string, lease int64) (*proto.LockResponse, error) {
	out := new(proto.LockResponse)
	r := &proto.LockRequest{Name: []byte(name), Lease: lease}
	return out, a.conn.Invoke(a.ctx, "/v3lockpb.Lock/Lock", r, out)
}

func (a *api) campaign(name string, lease int64) (*proto.CampaignResponse, error) {
	out := new(proto.CampaignResponse)
	r := &proto.CampaignRequest{Name: []byte(name), Lease: lease, Value: []byte("v")}
	return out, a.conn.Invoke(a.ctx, "/v3electionpb.Election/Campaign", r, out)
}

// T54 (Jepsen's analysis of etcd 3.4.3, etcdv3/etcd-client#14, cagriekin/charts#327): who waits for longer than its
// lease lives gets an error, never the lock or the lead.
func TestLock_WaiterWhoseLeaseHasExpiredGetsAnError(t *testing.T) {
	harness.TroupeOnly(t, "etcd elects a candidate whose lease has ended")
	a := newAPI(t, harness.Start(t, harness.Options{}))
	const holder, waiter = 1, 2
	a.grant(holder, 600)
	a.grant(waiter, 2)
	held, err := a.lock("lock", holder)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	if _, err := a.campaign("election", holder); err != nil {
		t.Fatalf("campaign: %v", err)
	}
	locked, elected := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := a.lock("lock", waiter)
		locked <- err
	}()
	go func() {
		_, err := a.campaign("election", waiter)
		elected <- err
	}()
	harness.Eventually(t, limit, "the waiter's lease expires", func() error {
		if n := a.count("lock/", "lock0") + a.count("election/", "election0"); n != 2 || a.remaining(waiter).TTL != -1 {
			return fmt.Errorf("%d keys", n)
		}
		return nil
	})
	if _, err := a.kv.DeleteRange(a.ctx, &pb.DeleteRangeRequest{Key: held.Key}); err != nil {
		t.Fatalf("unlock: %v", err)
	}
	a.remove("election/1")
	a.wantCode("lock", <-locked, codes.Unknown, "mutex: session is expired")
	a.wantCode("campaign", <-elected, codes.Unknown, "election: session is expired")
	if n := a.count("lock/", "lock0") + a.count("election/", "election0"); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// T54 (shubhamranjan/dotnet-etcd#321): a lock without a lease holds for 60 s, and nobody renews it.
func TestLock_WithoutALeaseHoldsForSixtySeconds(t *testing.T) {
	a := newAPI(t, harness.Start(t, harness.Options{}))
	held, err := a.lock("lock", 0)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	r, err := a.kv.Range(a.ctx, &pb.RangeRequest{Key: held.Key})
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("key %q: %v, %v", held.Key, r, err)
	}
	left := a.remaining(r.Kvs[0].Lease)
	if left.GrantedTTL != 60 || left.TTL < 0 || left.TTL > 60 || len(left.Keys) != 1 {
		t.Errorf("time to live: %v", left)
	}
}
