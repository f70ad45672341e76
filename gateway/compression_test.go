package gateway

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

// countedConn counts what comes.
type countedConn struct {
	net.Conn
	came *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.came.Add(int64(n))
	return n, err
}

// TestCompression_OfRequestsOnly: a client that compresses is served, its answers come as they are, and what a few
// bytes of it expand to is bounded as if it had sent that.
func TestCompression_OfRequestsOnly(t *testing.T) {
	const size = 1 << 20
	e := newReadyEdge(t, nil)
	largeReads(e, size)
	var came atomic.Int64
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return countedConn{c, &came}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	kv := pb.NewKVClient(conn)
	if _, err := kv.Range(within(t), &pb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	if n := came.Load(); n < size {
		t.Errorf("an answer of %d zeros came in %d bytes", size, n)
	}
	_, err = kv.Put(within(t), &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 64<<20)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("64 MiB in one compressed request: %v", err)
	}
	renewals, err := pb.NewLeaseClient(conn).LeaseKeepAlive(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := renewals.Send(&pb.LeaseKeepAliveRequest{ID: 7}); err != nil {
		t.Fatal(err)
	}
	if r, err := renewals.Recv(); err != nil || r.ID != 7 {
		t.Errorf("a renewal on a stream: %v, %v", r, err)
	}
}
