package fieldreports

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"troupe/integration/harness"
)

const (
	massLeases = 5000
	// massTTL and massTTLLater are the times to live, in seconds, of the first and of the second half of the leases: long
	// enough to grant all of them on a slow machine.
	massTTL, massTTLLater = 14, 16
)

// massKey is the key that hangs on the i-th lease, counted from 1.
func massKey(i int) string { return fmt.Sprintf("mass/%05d", i) }

// grantMass grants the leases and gives each a key.
func (a *api) grantMass() {
	a.t.Helper()
	failed := asManyTimes(a.ctx, 32, massLeases, func(ctx context.Context, i int) error {
		ttl := int64(massTTL)
		if i >= massLeases/2 {
			ttl = massTTLLater
		}
		_, err := a.lease().LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(i + 1), TTL: ttl})
		return err
	})
	const together = 100
	for first := 1; first <= massLeases && failed == nil; first += together {
		x := &pb.TxnRequest{}
		for i := first; i < first+together; i++ {
			p := &pb.PutRequest{Key: []byte(massKey(i)), Lease: int64(i)}
			x.Success = append(x.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}})
		}
		_, failed = a.kv.Txn(a.ctx, x)
	}
	if failed != nil {
		a.t.Fatalf("grant %d leases: %v", massLeases, failed)
	}
}

// writing writes one key over and over until it is stopped, and remembers the revisions.
type writing struct {
	stop      chan struct{}
	done      chan error
	revisions []int64
}

func (a *api) beginWriting(key string) *writing {
	w := &writing{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		for {
			select {
			case <-w.stop:
				w.done <- nil
				return
			default:
			}
			r, err := a.kv.Put(a.ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("v")})
			if err != nil {
				w.done <- err
				return
			}
			w.revisions = append(w.revisions, r.Header.Revision)
		}
	}()
	return w
}

// end stops writing.
func (w *writing) end(t *testing.T) {
	t.Helper()
	close(w.stop)
	if err := <-w.done; err != nil {
		t.Fatalf("write: %v", err)
	}
}

// between counts the writes between two revisions.
func (w *writing) between(from, to int64) (between int) {
	for _, r := range w.revisions {
		if r > from && r < to {
			between++
		}
	}
	return between
}

// T52 (etcd-io/etcd#9360, #8097): thousands of leases end in the same moment, here because a restart has begun all of
// them anew. Each of them ends once, in a revision of its own, those with the shorter time before the others; writes go
// on in between, renewals of other leases too, and the member shows how late it was.
func TestLease_MassExpiryLetsWritesGoOn(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	newAPI(t, s).grantMass()
	s.Kill(t)
	s.Start(t)
	a := newAPI(t, s)
	a.grant(1_000_000, 60)
	if n := a.count("mass/", "mass0"); n != massLeases {
		t.Fatalf("%d of %d leases are there after the restart", n, massLeases)
	}
	deletions := a.watch(&pb.WatchCreateRequest{
		Key: []byte("mass/"), RangeEnd: []byte("mass0"),
		Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT},
	})
	var renewed atomic.Int64
	renewals := a.beginRenewing(1_000_000, &renewed)
	var writers [8]*writing
	for i := range writers {
		writers[i] = a.beginWriting(fmt.Sprintf("other/%d", i))
	}

	gone := make(map[string]int64, massLeases)
	var first, last, firstLater, lastEarlier, renewedAtFirst int64
	for len(gone) < massLeases {
		for _, e := range a.receive(deletions).Events {
			if first == 0 {
				first, renewedAtFirst = e.Kv.ModRevision, renewed.Load()
			}
			key, at := string(e.Kv.Key), e.Kv.ModRevision
			if e.Type != mvccpb.Event_DELETE || gone[key] != 0 || at <= last {
				t.Fatalf("event %v after revision %d; the key went at %d before", e, last, gone[key])
			}
			gone[key], last = at, at
			if later := key > massKey(massLeases/2); !later {
				lastEarlier = at
			} else if firstLater == 0 {
				firstLater = at
			}
		}
	}
	if firstLater < lastEarlier {
		t.Errorf("a lease of %d s ended at revision %d, one of %d s at %d", massTTLLater, firstLater, massTTL, lastEarlier)
	}
	between := 0
	for _, w := range writers {
		w.end(t) // the seconds between the two halves do not count
		between += w.between(first, lastEarlier) + w.between(firstLater, last)
	}
	renewedMeanwhile := renewed.Load() - renewedAtFirst
	close(renewals)
	t.Logf("%d writes and %d renewals while %d leases ended", between, renewedMeanwhile, massLeases)
	if between < 10 || renewedMeanwhile < 10 {
		t.Errorf("only %d writes and %d renewals while %d leases ended", between, renewedMeanwhile, massLeases)
	}
	awaitMetric(t, s, "troupe_lease_revoke_lateness_seconds_count", "shows how late each of them ended",
		func(n float64) bool { return n == massLeases })
	for _, name := range []string{
		"troupe_lease_overdue", "troupe_lease_expired_queue", "troupe_lease_revokes_in_flight",
		"troupe_lease_oldest_overdue_seconds",
	} {
		awaitMetric(t, s, name, "is back to zero", isZero)
	}
	awaitMetric(t, s, "troupe_lease_tracked", "shows the one that is left", func(n float64) bool { return n == 1 })
}

// beginRenewing renews a lease over and over until the answer is closed.
func (a *api) beginRenewing(id int64, renewed *atomic.Int64) (stop chan struct{}) {
	a.t.Helper()
	stream, err := a.lease().LeaseKeepAlive(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	stop = make(chan struct{})
	go func() {
		for stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) == nil {
			r, err := stream.Recv()
			select {
			case <-stop:
				_ = stream.CloseSend()
				return
			default:
			}
			if err != nil || r.TTL <= 0 {
				a.t.Errorf("renew: %v, %v", r, err)
				return
			}
			renewed.Add(1)
		}
	}()
	return stop
}

func (a *api) count(from, to string) int64 {
	a.t.Helper()
	r, err := a.kv.Range(a.ctx, &pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(to), CountOnly: true})
	if err != nil {
		a.t.Fatal(err)
	}
	return r.Count
}

// T52 (etcd-io/etcd#12105, kubernetes/kubernetes#110210): the keys of one lease, however many, go in one revision, in
// order, while others write.
func TestLease_ManyKeysOfOneLeaseGoInOneRevision(t *testing.T) {
	const keys, together = 20_000, 100
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	a.grant(7, 3600)
	failed := asManyTimes(a.ctx, 8, keys/together, func(ctx context.Context, n int) error {
		x := &pb.TxnRequest{}
		for i := range together {
			p := &pb.PutRequest{Key: fmt.Appendf(nil, "big/%06d", n*together+i), Value: []byte("v"), Lease: 7}
			x.Success = append(x.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}})
		}
		_, err := a.kv.Txn(ctx, x)
		return err
	})
	if failed != nil {
		t.Fatalf("attach: %v", failed)
	}
	attached := a.remaining(7).Keys
	if len(attached) != keys || string(attached[0]) != "big/000000" || string(attached[keys-1]) != "big/019999" {
		t.Fatalf("%d keys are attached", len(attached))
	}
	deletions := a.watch(&pb.WatchCreateRequest{Key: []byte("big/"), RangeEnd: []byte("big0")})
	a.receive(deletions)
	writes := a.beginWriting("other")
	revoked, err := a.lease().LeaseRevoke(a.ctx, &pb.LeaseRevokeRequest{ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < keys; {
		for _, e := range a.receive(deletions).Events {
			if want := fmt.Sprintf("big/%06d", seen); string(e.Kv.Key) != want || e.Type != mvccpb.Event_DELETE ||
				e.Kv.ModRevision != revoked.Header.Revision {
				t.Fatalf("event %v, want the deletion of %s at %d", e, want, revoked.Header.Revision)
			}
			seen++
		}
	}
	writes.end(t)
	if n := a.count("big/", "big0"); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if r := a.remaining(7); r.TTL != -1 || len(r.Keys) != 0 {
		t.Errorf("the lease is still there: %v", r)
	}
	for i := 1; i < len(writes.revisions); i++ {
		before, after, end := writes.revisions[i-1], writes.revisions[i], revoked.Header.Revision
		if after != before+1 && (after != before+2 || end != before+1) {
			t.Fatalf("a write at %d follows one at %d; the lease ended at %d", after, before, end)
		}
	}
}
