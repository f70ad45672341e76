//go:build unix

package gateway

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"troupe/proto"
)

// plainKV is the least that the generated code and grpc-go's default options can do: the floor to compare with.
type plainKV struct{ pb.UnimplementedKVServer }

func (plainKV) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: &pb.ResponseHeader{ClusterId: 5, MemberId: 7, Revision: 9, RaftTerm: 3}}, nil
}

// freeRoom answers puts at once.
type freeRoom struct {
	*fakeRoom
	result proto.Result
	status proto.RaftStatus
}

func (f *freeRoom) Propose(context.Context, *pb.InternalRaftRequest) (*proto.Result, error) {
	return &f.result, nil
}

func (f *freeRoom) Status() *proto.RaftStatus { return &f.status }

// BenchmarkServe_EmptyPut is what a put costs, client included, when the rooms cost nothing: 256-byte values, many
// calls at a time on a few connections.
func BenchmarkServe_EmptyPut(b *testing.B) {
	b.Run("gateway", func(b *testing.B) {
		e := newReadyEdge(b, func(c *Config) {
			c.Raft = &freeRoom{fakeRoom: newFakeRoom(), result: proto.Result{Revision: 9},
				status: proto.RaftStatus{Member: 7, Leader: 7, Term: 3}}
		})
		benchmarkPuts(b, e.addr)
	})
	b.Run("generated", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := grpc.NewServer()
		pb.RegisterKVServer(s, plainKV{})
		go func() { _ = s.Serve(l) }()
		defer s.Stop()
		benchmarkPuts(b, l.Addr().String())
	})
}

func benchmarkPuts(b *testing.B, addr string) {
	const connections = 4
	var clients [connections]pb.KVClient
	for i := range clients {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		clients[i] = pb.NewKVClient(c)
	}
	value := make([]byte, 256)
	var next atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(50)
	before := processorTime(b)
	defer func() {
		used := processorTime(b) - before
		b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/op")
	}()
	b.RunParallel(func(p *testing.PB) {
		client := clients[next.Add(1)%connections]
		for p.Next() {
			if _, err := client.Put(context.Background(), &pb.PutRequest{Key: []byte("key"), Value: value}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// processorTime is the processor time the process has used: on a machine that others use too, it says more than the
// clock.
func processorTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkCodec_SpliceList encodes a list of 10,000 values of 256 bytes, the large range of the comparison with etcd.
func BenchmarkCodec_SpliceList(b *testing.B) {
	c := newTestCodec()
	pieces := make([][]byte, 10000)
	for i := range pieces {
		pieces[i] = make([]byte, 300)
	}
	b.ReportAllocs()
	for b.Loop() {
		out, err := c.Marshal(&answer{header: header{5, 7, 9, 3}, body: proto.Body{Pieces: pieces}})
		if err != nil {
			b.Fatal(err)
		}
		out.Free()
	}
}
