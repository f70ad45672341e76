package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/integration/harness"
)

// Loading must be quick: the figures are about what comes after it.
const (
	loadConnections = 16
	// loadClients is the number of requests that are out at the same time while loading.
	loadClients = 400
	// loadBytes is how much is out at the same time: servers refuse more than they want to hold.
	loadBytes = 8 << 20
	// loadRetry is the pause after a refusal for too many requests.
	loadRetry = 20 * time.Millisecond
	// txnOps is the number of puts in one transaction, below both servers' limit of 128.
	txnOps = 100
	// txnBytes ends a transaction earlier when its values are large; both servers refuse requests of 1.5 MiB.
	txnBytes = 1 << 20
)

// connections are gRPC connections to one server.
type connections []*grpc.ClientConn

// dial opens n connections.
func dial(s *harness.Server, n int) (connections, error) {
	var all connections
	for range n {
		c, err := s.Dial()
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (c connections) close() {
	for _, one := range c {
		one.Close()
	}
}

// at gives the connection of the i-th client.
func (c connections) at(i int) *grpc.ClientConn { return c[i%len(c)] }

// parallel calls work for 0 to n-1 from many clients; each client has a connection. It ends with the first error.
func parallel(ctx context.Context, s *harness.Server, clients, n int, work func(ctx context.Context,
	conn *grpc.ClientConn, i int) error,
) error {
	conns, err := dial(s, min(loadConnections, clients))
	if err != nil {
		return err
	}
	defer conns.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for client := range min(clients, n) {
		group.Go(func() {
			conn := conns.at(client)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := insist(ctx, func() error { return work(ctx, conn, i) }); err != nil {
					cancel(fmt.Errorf("load %d of %d: %w", i, n, err))
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// insist does work again as long as it is refused for too many requests.
func insist(ctx context.Context, work func() error) error {
	for {
		err := work()
		if err == nil || !strings.Contains(err.Error(), "too many requests") {
			return err
		}
		select {
		case <-time.After(loadRetry):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// loadRevisions makes n revisions of one put each.
func loadRevisions(t *trial, n int, key func(i int) string, value []byte) error {
	return parallel(t.ctx, t.server, loadClients, n, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte(key(i)), Value: value})
		return err
	})
}

// loadKeys writes n keys in as few transactions as the limits allow. The lease may be nil.
func loadKeys(t *trial, n int, key func(i int) string, value []byte, lease func(i int) int64) error {
	per := max(min(txnOps, txnBytes/max(len(value), 1)), 1)
	clients := max(min(loadClients, loadBytes/(per*len(value)+1)), 1)
	work := func(ctx context.Context, conn *grpc.ClientConn, batch int) error {
		txn := &pb.TxnRequest{}
		for i := batch * per; i < min((batch+1)*per, n); i++ {
			put := &pb.PutRequest{Key: []byte(key(i)), Value: value}
			if lease != nil {
				put.Lease = lease(i)
			}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		_, err := pb.NewKVClient(conn).Txn(ctx, txn)
		return err
	}
	return parallel(t.ctx, t.server, clients, (n+per-1)/per, work)
}

// revision gives the server's current revision.
func revision(t *trial) (int64, error) {
	conn, err := t.server.Dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r, err := pb.NewKVClient(conn).Range(t.ctx, &pb.RangeRequest{Key: []byte("revision")})
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}
