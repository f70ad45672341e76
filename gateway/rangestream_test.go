package gateway

import (
	"errors"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// collect reads a stream to its end and checks that only the last message says what is known at the end.
func collect(t *testing.T, e *edge, r *pb.RangeRequest) (sizes []int, last *pb.RangeResponse) {
	t.Helper()
	stream, err := pb.NewKVClient(e.conn).RangeStream(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return sizes, last
		}
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && (last.Header != nil || last.More || last.Count != 0) {
			t.Errorf("message %d is not the last and says %v", len(sizes), last)
		}
		last = m.RangeResponse
		sizes = append(sizes, len(last.Kvs))
	}
}

func TestRangeStream_ChunksGrowAndTheLastOneTellsTheRest(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() { e.room.chunkKeys = 100 })
	for _, c := range []struct {
		limit int64
		sizes []int
		more  bool
	}{
		{0, []int{10, 20, 40, 30}, false},
		{25, []int{10, 15}, true},
		{100, []int{10, 20, 40, 30}, false},
	} {
		sizes, last := collect(t, e, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Limit: c.limit})
		if len(sizes) != len(c.sizes) {
			t.Fatalf("limit %d: chunks of %v keys, want %v", c.limit, sizes, c.sizes)
		}
		for i := range sizes {
			if sizes[i] != c.sizes[i] {
				t.Fatalf("limit %d: chunks of %v keys, want %v", c.limit, sizes, c.sizes)
			}
		}
		if last.Count != 100 || last.More != c.more || last.Header.GetRevision() != 9 {
			t.Errorf("limit %d: the last message says %v", c.limit, last)
		}
	}
}

func TestRangeStream_RefusesSortingAndFilters(t *testing.T) {
	e := newReadyEdge(t, nil)
	for text, r := range map[string]*pb.RangeRequest{
		"RangeStream does not support custom sort orders": {Key: []byte("a"), SortOrder: pb.RangeRequest_DESCEND},
		"RangeStream does not support revision filters":   {Key: []byte("a"), MinModRevision: 2},
	} {
		stream, err := pb.NewKVClient(e.conn).RangeStream(within(t), r)
		if err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, err, codes.Unimplemented, text)
	}
}
