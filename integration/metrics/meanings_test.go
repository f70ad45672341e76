package metrics

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// TestMetrics_SlowAppliesAreRequests: each entry and each read that takes longer than --warning-apply-duration counts
// once, refused or not, however many of them are applied together.
func TestMetrics_SlowAppliesAreRequests(t *testing.T) {
	var counts [2]float64
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind, Args: []string{"--warning-apply-duration", "1ns"}})
		const slow = "etcd_server_slow_apply_total"
		before := steady(t, s, slow)
		d := &traffic{T: t, ctx: harness.Context(t, 2*limit), server: s, kv: pb.NewKVClient(s.Conn(t)),
			lease: pb.NewLeaseClient(s.Conn(t))}
		d.writesAtOnce(50)
		_, err := d.kv.Put(d.ctx, &pb.PutRequest{Key: []byte("a"), Lease: 4711})
		d.mustFail("put with an unknown lease", err)
		for _, serializable := range []bool{false, true} {
			_, err = d.kv.Range(d.ctx, &pb.RangeRequest{Key: []byte("a"), Serializable: serializable})
			d.must("range", err)
			_, err = d.kv.Txn(d.ctx, &pb.TxnRequest{Success: []*pb.RequestOp{rangeOp("a", serializable)}})
			d.must("txn", err)
		}
		_, err = d.kv.Range(d.ctx, &pb.RangeRequest{Key: []byte("a"), Revision: 1 << 40})
		d.mustFail("range in the future", err)
		_, err = d.lease.LeaseGrant(d.ctx, &pb.LeaseGrantRequest{ID: 1, TTL: 100})
		d.must("grant", err)
		r, err := http.Get(s.URL + "/health")
		d.must("health", err)
		r.Body.Close()
		counts[i] = steady(t, s, slow) - before
	}
	if counts[0] != counts[1] {
		t.Errorf("%v slow requests, etcd counts %v", counts[0], counts[1])
	}
}

// steady gives the value of a metric when it moves no more: a server counts entries of its own after it says that it is
// ready, and requests after their answers.
func steady(t *testing.T, s *harness.Server, name string) float64 {
	t.Helper()
	value, same := scrape(t, s).values[name], 0
	harness.Eventually(t, limit, name+" moves no more", func() error {
		now := scrape(t, s).values[name]
		if same++; now != value {
			value, same = now, 0
		}
		if same < 20 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	return value
}

// writesAtOnce puts with that many clients at a time.
func (d *traffic) writesAtOnce(clients int) {
	d.Helper()
	failed := make(chan error, clients)
	for i := range clients {
		go func() {
			_, err := d.kv.Put(d.ctx, &pb.PutRequest{Key: fmt.Append(nil, i), Value: []byte("v")})
			failed <- err
		}()
	}
	for range clients {
		d.must("put", <-failed)
	}
}

// TestMetrics_OneSlowApplyIsNotItsNeighbours: entries that are applied together have a time each.
func TestMetrics_OneSlowApplyIsNotItsNeighbours(t *testing.T) {
	harness.TroupeOnly(t, "it applies several entries at once")
	s := harness.Start(t, harness.Options{Args: []string{"--warning-apply-duration", "1h"}})
	d := &traffic{T: t, ctx: harness.Context(t, 2*limit), server: s, kv: pb.NewKVClient(s.Conn(t))}
	d.writesAtOnce(50)
	if n := scrape(t, s).values["etcd_server_slow_apply_total"]; n != 0 {
		t.Errorf("%v requests were slower than an hour", n)
	}
}

// TestMetrics_SnapshotsOfTheLogAreTimed: their files are written by both after --snapshot-count entries.
func TestMetrics_SnapshotsOfTheLogAreTimed(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind, Args: []string{"--snapshot-count", "10"}})
		d := &traffic{T: t, ctx: harness.Context(t, 2*limit), server: s, kv: pb.NewKVClient(s.Conn(t))}
		for range 60 {
			_, err := d.kv.Put(d.ctx, &pb.PutRequest{Key: []byte("k")})
			d.must("put", err)
		}
		harness.Eventually(t, limit, kind.String()+" times a snapshot", func() error {
			p := scrape(t, s)
			for _, name := range []string{"etcd_snap_fsync_duration_seconds",
				"etcd_debugging_snap_save_marshalling_duration_seconds", "etcd_debugging_snap_save_total_duration_seconds"} {
				if p.values[name+"_count"] == 0 || p.values[name+"_sum"] <= 0 {
					return fmt.Errorf("%s counts %v and takes %v", name, p.values[name+"_count"], p.values[name+"_sum"])
				}
			}
			return nil
		})
	}
}

// TestMetrics_DescriptorsAreCounted: an operator sees the limit coming.
func TestMetrics_DescriptorsAreCounted(t *testing.T) {
	harness.TroupeOnly(t, "etcd counts its descriptors once in ten minutes")
	const sockets = 100
	s := harness.Start(t, harness.Options{})
	before := scrape(t, s)
	if before.values["os_fd_limit"] != before.values["process_max_fds"] {
		t.Errorf("a limit of %v descriptors, the process may have %v", before.values["os_fd_limit"],
			before.values["process_max_fds"])
	}
	for range sockets {
		c, err := net.Dial("tcp", s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	harness.Eventually(t, limit, "the sockets are counted", func() error {
		if n := scrape(t, s).values["os_fd_used"] - before.values["os_fd_used"]; n < sockets {
			return fmt.Errorf("%v more descriptors", n)
		}
		return nil
	})
}
