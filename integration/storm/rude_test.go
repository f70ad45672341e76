package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"troupe/integration/harness"
)

// preface is how an HTTP/2 client begins, with an empty SETTINGS frame.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// vanish is a client whose connection breaks with everything on it: watches, renewals, a streamed range, a put on its
// way. Every other time the break is a reset, which tells the member nothing before.
func vanish(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	r := source(seed)
	var mu sync.Mutex
	var sockets []*net.TCPConn
	reset := r.IntN(2) == 0
	conn, err := grpc.NewClient("passthrough:///"+s.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			socket, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			sockets = append(sockets, socket.(*net.TCPConn))
			return socket, nil
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(inner)
	if err != nil {
		return err
	}
	for range 20 {
		if err := stream.Send(anyWatch(r, int64(r.IntN(2)))); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if _, err := pb.NewLeaseClient(conn).LeaseKeepAlive(inner); err != nil {
		return err
	}
	whole := &pb.RangeRequest{Key: []byte(stormPrefix), RangeEnd: []byte(stormEnd)}
	if _, err := pb.NewKVClient(conn).RangeStream(inner, whole); err != nil {
		return err
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	calls.Go(func() {
		// What becomes of these is not known, as with any request whose connection breaks.
		_, _ = pb.NewKVClient(conn).Put(inner, &pb.PutRequest{Key: stormKey(r), Value: make([]byte, largeValueBytes)})
		_, _ = pb.NewKVClient(conn).Range(inner, whole)
	})
	pause(ctx, time.Duration(seed%3)*20*time.Millisecond)
	mu.Lock()
	for _, socket := range sockets {
		if reset {
			_ = socket.SetLinger(0) // the close becomes a reset
		}
		_ = socket.Close()
	}
	mu.Unlock()
	cancel()
	c.ok("vanished", nil)
	return nil
}

// beRude is a connection that is no client at all.
func beRude(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Endpoint())
	if err != nil {
		return err
	}
	socket := connection.(*net.TCPConn)
	defer connection.Close()
	r := source(seed)
	switch r.IntN(4) {
	case 0:
		// Says nothing, and leaves without a word.
		pause(ctx, 50*time.Millisecond)
		return rudely(c, "half-open", socket.SetLinger(0))
	case 1:
		_, err := io.WriteString(socket, preface[:10+r.IntN(len(preface)-10)])
		pause(ctx, 20*time.Millisecond)
		_ = socket.SetLinger(0)
		return rudely(c, "reset", err)
	case 2:
		// A frame that announces more than it brings, then the end.
		_, err := io.WriteString(socket, preface+"\x00\xff\xff\x01\x04\x00\x00\x00\x01")
		pause(ctx, 20*time.Millisecond)
		return rudely(c, "cut frame", err)
	default:
		garbage := make([]byte, 1+r.IntN(400))
		for i := range garbage {
			garbage[i] = byte(r.Uint32())
		}
		_, err := fmt.Fprintf(socket, "%s\r\n\r\n", garbage)
		pause(ctx, 20*time.Millisecond)
		return rudely(c, "garbage", err)
	}
}

// rudely counts what was done to a connection. A connection that the member has closed before is as good.
func rudely(c *tally, name string, _ error) error {
	c.ok(name, nil)
	return nil
}
