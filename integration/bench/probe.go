package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// probe sends requests at a steady rate from a few clients and keeps how long each took. A client sends its next
// request at its next beat, or when it has its answer if that is later; so a stall shows once for each client.
type probe struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	conns  connections

	mu      sync.Mutex
	timings []timing
	failed  int
	err     error // the first
}

// pace is how a probe sends.
type pace struct {
	clients, perSecond int
	// requests ends each client after so many requests besides the one that opens its connection; 0: when it is stopped.
	requests int
}

// sent is the number of requests of a probe that came to its own end.
func (p pace) sent() int { return p.clients * (p.requests + 1) }

// request is one request of a probe's client; n counts that client's requests.
type request func(ctx context.Context, n int) error

// startProbe starts the clients. prepare makes the requests of one client.
func startProbe(t *trial, at pace, prepare func(ctx context.Context, conn *grpc.ClientConn,
	client int) (request, error),
) (*probe, error) {
	conns, err := dial(t.server, at.clients)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(t.ctx)
	p := &probe{cancel: cancel, conns: conns}
	beat := time.Second * time.Duration(at.clients) / time.Duration(at.perSecond)
	for client := range at.clients {
		// Requests outlive the stop of the probe: a cut one would be a made-up error.
		send, err := prepare(t.ctx, conns[client], client)
		if err == nil {
			err = send(t.ctx, 0) // opens the connection, which is not what is measured
		}
		if err != nil {
			p.stop(t)
			return nil, fmt.Errorf("probe: %w", err)
		}
		p.group.Go(func() {
			delay := beat * time.Duration(client) / time.Duration(at.clients) // so that they do not send all at once
			p.run(ctx, t.ctx, send, beat, delay, at.requests)
		})
	}
	return p, nil
}

// run is one client: until stop ends, or it has sent so many requests.
func (p *probe) run(stop, ctx context.Context, send request, beat, delay time.Duration, requests int) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	due := time.Now().Add(delay)
	for n := 1; requests == 0 || n <= requests; n++ {
		select {
		case <-timer.C:
		case <-stop.Done():
			return
		}
		begin := time.Now()
		err := send(ctx, n)
		took := time.Since(begin)
		p.mu.Lock()
		p.timings = append(p.timings, timing{begin, took})
		if err != nil {
			p.failed++
			p.err = cmp.Or(p.err, fmt.Errorf("after %v: %w", took.Round(time.Millisecond), err))
		}
		p.mu.Unlock()
		due = due.Add(beat)
		if now := time.Now(); due.Before(now) {
			due = now
		}
		timer.Reset(time.Until(due))
	}
}

// wait waits until the clients have sent what they had to.
func (p *probe) wait() { p.group.Wait() }

// stop waits for the requests that are out and gives all timings. A request that failed took as long as it took; the
// trial counts it.
func (p *probe) stop(t *trial) []timing {
	p.cancel()
	p.group.Wait()
	p.conns.close()
	if p.failed > 0 {
		t.note("%d requests failed, the first %v", p.failed, p.err)
		t.values[failedKey] += float64(p.failed)
	}
	return p.timings
}

// steady is the rate of the puts that show what a situation does to writers: far below what the servers can do, so that
// both have processor time left, and enough for a p99.
var steady = pace{clients: 8, perSecond: 400}

const (
	// probeRequest is far above any stall that is worth a number.
	probeRequest = 30 * time.Second
	// calm is how long the values before a situation are taken.
	calm = 4 * time.Second
	// probeValueBytes is the size of the values of ordinary puts.
	probeValueBytes = 128
)

// putProbe puts values of some size under prefix, one key for each client.
func putProbe(t *trial, at pace, prefix string, valueBytes int) (*probe, error) {
	value := make([]byte, valueBytes)
	return startProbe(t, at, func(_ context.Context, conn *grpc.ClientConn, client int) (request, error) {
		kv, key := pb.NewKVClient(conn), fmt.Appendf(nil, "%s%02d", prefix, client)
		return func(ctx context.Context, _ int) error {
			ctx, cancel := context.WithTimeout(ctx, probeRequest)
			defer cancel()
			_, err := kv.Put(ctx, &pb.PutRequest{Key: key, Value: value})
			return err
		}, nil
	})
}

// renewalProbe renews leases that it grants itself, one for each client, each on a stream.
func renewalProbe(t *trial, at pace) (*probe, error) {
	return startProbe(t, at, func(ctx context.Context, conn *grpc.ClientConn, client int) (request, error) {
		lease := pb.NewLeaseClient(conn)
		grant, err := lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: renewalTTL})
		if err != nil {
			return nil, err
		}
		stream, err := lease.LeaseKeepAlive(ctx)
		if err != nil {
			return nil, err
		}
		return func(context.Context, int) error {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: grant.ID}); err != nil {
				return err
			}
			r, err := stream.Recv()
			if err == nil && r.TTL != renewalTTL {
				err = fmt.Errorf("renewal answered with %v", r)
			}
			return err
		}, nil
	})
}

// renewalTTL is the time to live of the leases that are renewed all the time, in seconds.
const renewalTTL = 30

// rest waits for a while in which the probes go on.
func (t *trial) rest(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}
