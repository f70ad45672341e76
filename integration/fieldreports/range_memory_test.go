package fieldreports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

// The lists of T57: forty of 32 MiB at a time are far more than answers may hold, and than the server may have.
const (
	listKeys       = 320
	listValueBytes = 100 << 10
	listReaders    = 40
	listMemoryMax  = 1100 << 20
)

// fillList writes the keys list/000 and on, and gives the last revision.
func fillList(a *api) (revision int64) {
	value := bytes.Repeat([]byte("v"), listValueBytes)
	for i := range listKeys {
		revision = a.put(fmt.Sprintf("list/%03d", i), string(value))
	}
	return revision
}

func listRange(revision int64) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte("list/"), RangeEnd: []byte("list0"), Revision: revision}
}

// counted is a message of which only the size is kept: decoding gigabytes would be all that the test does.
type counted struct{ bytes int }

// countingCodec decodes into a counted.
type countingCodec struct{}

func (countingCodec) Name() string { return "proto" }

func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := protobuf.Marshal(v.(protobuf.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*counted).bytes += data.Len()
	return nil
}

// ask sends the request of a call and reads nothing of its answer.
func ask(ctx context.Context, conn *grpc.ClientConn, method string, q *pb.RangeRequest) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/etcdserverpb.KV/"+method,
		grpc.ForceCodecV2(countingCodec{}))
	if err == nil {
		err = stream.SendMsg(q)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	return stream, err
}

// answersInFlight waits until no large answer is left and checks that there were never more bytes than the bound.
func answersInFlight(t *testing.T, s *harness.Server) {
	t.Helper()
	harness.Eventually(t, limit, "the bytes of answers go back to zero", func() error {
		if n := metric(t, s, "troupe_gateway_answer_bytes_in_flight"); n != 0 {
			return fmt.Errorf("%.0f are in flight", n)
		}
		return nil
	})
	most := metric(t, s, "troupe_gateway_answer_bytes_high_water")
	bound := metric(t, s, "troupe_gateway_answer_bytes_bound")
	if most > bound || most == 0 {
		t.Errorf("%.0f bytes of answers were in flight, the bound is %.0f", most, bound)
	}
}

// T57 (etcd-io/etcd#14667 and others): many lists of everything at a time hold a bounded number of bytes, be they read
// or not, and every reader that waits gets its list. Lease renewals and probes go on meanwhile.
func TestRange_ManyLargeListsHoldABoundedNumberOfBytes(t *testing.T) {
	harness.TroupeOnly(t, "etcd holds them all")
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	fillList(a)
	granted, err := pb.NewLeaseClient(a.conn).LeaseGrant(a.ctx, &pb.LeaseGrantRequest{TTL: 600})
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	renewals, err := pb.NewLeaseClient(a.conn).LeaseKeepAlive(a.ctx)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*grpc.ClientConn, listReaders)
	for i := range conns {
		conns[i] = s.Conn(t)
	}
	// From here on the test must not dawdle: who does not read while others wait is disconnected after a while.
	streams := make([]grpc.ClientStream, listReaders)
	for i := range streams {
		if streams[i], err = ask(a.ctx, conns[i], "Range", listRange(0)); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, limit, "the bound is reached, and readers wait", func() error {
		if metric(t, s, "troupe_gateway_answer_waiters") == 0 {
			return errors.New("nobody waits")
		}
		return nil
	})
	if err := renewals.Send(&pb.LeaseKeepAliveRequest{ID: granted.ID}); err != nil {
		t.Fatal(err)
	}
	if r, err := renewals.Recv(); err != nil || r.TTL != 600 {
		t.Errorf("renewal: %v %v", r, err)
	}
	if resident := metric(t, s, "process_resident_memory_bytes"); resident > listMemoryMax {
		t.Errorf("%.0f bytes are resident", resident)
	}
	var wait sync.WaitGroup
	for i, stream := range streams {
		wait.Go(func() {
			var got counted
			if err := stream.RecvMsg(&got); err != nil || got.bytes < listKeys*listValueBytes {
				t.Errorf("list %d: %d bytes: %v", i, got.bytes, err)
			}
		})
	}
	wait.Wait()
	answersInFlight(t, s)
	if resident := metric(t, s, "process_resident_memory_bytes"); resident > listMemoryMax {
		t.Errorf("%.0f bytes are resident afterwards", resident)
	}
}

// T57: a list that is streamed while others write and compact is the list at its revision, and streams that are
// abandoned in the middle leave nothing behind.
func TestRange_StreamedListsAreTheListAndAbandonedOnesCostNothing(t *testing.T) {
	harness.TroupeOnly(t, "the official server of this version needs a flag for RangeStream, and has no such gauge")
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	revision := fillList(a)
	whole, err := a.kv.Range(a.ctx, listRange(revision))
	if err != nil {
		t.Fatal(err)
	}
	stop, writing := make(chan struct{}), sync.WaitGroup{}
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, err := a.kv.Put(a.ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "list/%03d", i%listKeys), Value: []byte("new")})
			if err == nil && i == 10 {
				_, err = a.kv.Compact(a.ctx, &pb.CompactionRequest{Revision: revision})
			}
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
	})
	var reading sync.WaitGroup
	for i := range 10 {
		conn := s.Conn(t)
		reading.Go(func() {
			if i%2 == 1 {
				abandon(t, a.ctx, conn, revision)
				return
			}
			got, err := readStream(a.ctx, conn, revision)
			if err != nil || !protobuf.Equal(&pb.RangeResponse{Kvs: got}, &pb.RangeResponse{Kvs: whole.Kvs}) {
				t.Errorf("stream %d has %d keys: %v", i, len(got), err)
			}
		})
	}
	reading.Wait()
	close(stop)
	writing.Wait()
	answersInFlight(t, s)
}

func readStream(ctx context.Context, conn *grpc.ClientConn, revision int64) (kvs []*mvccpb.KeyValue, err error) {
	stream, err := pb.NewKVClient(conn).RangeStream(ctx, listRange(revision))
	for err == nil {
		var r *pb.RangeStreamResponse
		if r, err = stream.Recv(); err == nil {
			kvs = append(kvs, r.RangeResponse.Kvs...)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return kvs, err
}

// abandon reads two messages of a stream and leaves.
func abandon(t *testing.T, ctx context.Context, conn *grpc.ClientConn, revision int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewKVClient(conn).RangeStream(ctx, listRange(revision))
	for range 2 {
		if err == nil {
			_, err = stream.Recv()
		}
	}
	if err != nil {
		t.Errorf("the stream to abandon: %v", err)
	}
}

// A flood of reads and writes does not keep clients from renewing, nor probes from being answered. The limit is far
// above what either takes on any machine and far below the lease's time to live; what is kept out waits for ever.
func TestRange_FloodLeavesRenewalsAndProbesAlone(t *testing.T) {
	const most = 20 * time.Second
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	fillList(a)
	ctx, cancel := context.WithCancel(a.ctx)
	var flood sync.WaitGroup
	for i := range 64 {
		flood.Go(func() {
			for ctx.Err() == nil {
				if i%16 == 0 {
					_, _ = a.kv.Range(ctx, listRange(0))
				} else {
					_, _ = a.kv.Put(ctx, &pb.PutRequest{Key: []byte("flood"), Value: make([]byte, 1000)})
				}
			}
		})
	}
	defer flood.Wait()
	defer cancel()
	conn := s.Conn(t)
	granted, err := pb.NewLeaseClient(conn).LeaseGrant(a.ctx, &pb.LeaseGrantRequest{TTL: 60})
	if err != nil {
		t.Fatal(err)
	}
	renewals, err := pb.NewLeaseClient(conn).LeaseKeepAlive(a.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		began := time.Now()
		if err := renewals.Send(&pb.LeaseKeepAliveRequest{ID: granted.ID}); err != nil {
			t.Fatal(err)
		}
		if r, err := renewals.Recv(); err != nil || r.TTL != 60 {
			t.Fatalf("renewal: %v %v", r, err)
		}
		if took := time.Since(began); took > most {
			t.Errorf("a renewal took %v", took)
		}
		began = time.Now()
		metric(t, s, "process_resident_memory_bytes")
		if took := time.Since(began); took > most {
			t.Errorf("the metrics took %v", took)
		}
	}
}
