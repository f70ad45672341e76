package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// Scenario (f): many leases that expire at once.
const (
	expiryLeases = 20_000
	expiryTTL    = 10 // seconds; loading must take less
	expiryPutMax = 100
	// expiryEarly is how much before its end a lease may seem to expire, for answers that were long on their way.
	expiryEarly = time.Second
	expiryID    = 1_000_000 // id of the first lease
)

func leaseScenario() scenario {
	return scenario{
		letter: "f", title: "20,000 leases of 10 s, a key each, expire at once",
		figures: []figure{
			{key: "p99 before", title: "put p99 before, ms", digits: 1},
			{key: "p99 while", title: "put p99 while they expire, ms", digits: 1},
			{key: "longest", title: "longest put while they expire, ms", digits: 1, target: atMost("longest", expiryPutMax)},
			{key: "late median", title: "median lateness, s", digits: 2},
			{key: "late", title: "greatest lateness, s", digits: 2, target: belowEtcd("late")},
		},
		play: playExpiry,
	}
}

func playExpiry(t *trial) error {
	leases := t.count(expiryLeases, 200)
	err := parallel(t.ctx, t.server, loadClients, leases, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
		_, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(expiryID + i), TTL: expiryTTL})
		return err
	})
	if err != nil {
		return err
	}
	key := func(i int) string { return fmt.Sprintf("leased/%d", i) }
	lease := func(i int) int64 { return int64(expiryID + i) }
	if err := loadKeys(t, leases, key, make([]byte, probeValueBytes), lease); err != nil {
		return err
	}
	conn, err := t.server.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	deaths, err := watchDeaths(t.ctx, conn, leases)
	if err != nil {
		return err
	}
	renewed, err := renewAll(t.ctx, conn, leases)
	if err != nil {
		return err
	}
	t.note("%d leases renewed for the last time", leases)
	puts, err := putProbe(t, steady, "probe/", probeValueBytes)
	if err != nil {
		return err
	}
	quiet := time.Now()
	first := renewed[0].Add(expiryTTL * time.Second)
	if err := t.rest(time.Until(first)); err != nil {
		return err
	}
	profile := t.profile("expiry")
	died, err := deaths()
	if err != nil {
		return err
	}
	end := time.Now()
	profile()
	timings := puts.stop(t)
	before, while := within(timings, quiet, first), overlapping(timings, first, end)
	t.set("p99 before", before.quantile(0.99))
	t.set("p99 while", while.quantile(0.99))
	t.set("longest", while.quantile(1))
	return lateness(t, renewed, died)
}

// renewAll renews every lease once, all on one stream, and gives the times of the answers.
func renewAll(ctx context.Context, conn *grpc.ClientConn, leases int) ([]time.Time, error) {
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() {
		for i := range leases {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(expiryID + i)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	renewed := make([]time.Time, leases)
	for range leases {
		r, err := stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("renewal: %w", err)
		}
		if r.TTL <= 0 {
			return nil, fmt.Errorf("lease %d is gone before all are loaded: loading took more than %d s", r.ID, expiryTTL)
		}
		renewed[r.ID-expiryID] = time.Now()
	}
	return renewed, <-sent
}

// watchDeaths watches the leased keys. The function that it gives waits until all are deleted, and gives the times.
func watchDeaths(ctx context.Context, conn *grpc.ClientConn, leases int) (func() ([]time.Time, error), error) {
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	create := &pb.WatchCreateRequest{Key: []byte("leased/"), RangeEnd: []byte("leased0")}
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	if _, err := stream.Recv(); err != nil {
		return nil, err
	}
	return func() ([]time.Time, error) {
		died := make([]time.Time, leases)
		for left := leases; left > 0; {
			r, err := stream.Recv()
			if err != nil {
				return nil, fmt.Errorf("%d leases have not expired: %w", left, err)
			}
			now := time.Now()
			for _, e := range r.Events {
				i, err := strconv.Atoi(strings.TrimPrefix(string(e.Kv.Key), "leased/"))
				if err != nil || e.Type != mvccpb.Event_DELETE || i >= leases || !died[i].IsZero() {
					return nil, fmt.Errorf("unexpected event %v", e)
				}
				died[i] = now
				left--
			}
		}
		return died, nil
	}, nil
}

func lateness(t *trial, renewed, died []time.Time) error {
	late := make(latencies, len(died))
	for i := range died {
		late[i] = died[i].Sub(renewed[i].Add(expiryTTL * time.Second))
	}
	slices.Sort(late)
	if late[0] < -expiryEarly {
		return fmt.Errorf("a lease ended %v early", -late[0])
	}
	t.set("late median", late.quantile(0.5)/1000)
	t.set("late", late.quantile(1)/1000)
	return nil
}
