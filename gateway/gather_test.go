package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"troupe/proto"
	"troupe/storeactor"
)

// keysRoom is a fake with many keys that are read in pieces. It counts the bodies that have been made and not released.
type keysRoom struct {
	*fakeRoom
	kvs []*mvccpb.KeyValue

	mu        sync.Mutex
	held      int
	heldMost  int
	compacted int // how many more pieces behind the first are refused as compacted
}

func (r *keysRoom) from(key []byte) []*mvccpb.KeyValue {
	for i, kv := range r.kvs {
		if bytes.Compare(kv.Key, key) >= 0 {
			return r.kvs[i:]
		}
	}
	return nil
}

func (r *keysRoom) RangeChunk(ctx context.Context, _ *pb.RangeRequest, from []byte, limit int64) (
	storeactor.RangeChunk, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from != nil && r.compacted > 0 {
		r.compacted--
		return storeactor.RangeChunk{}, storeactor.ErrCompacted
	}
	chunk := storeactor.RangeChunk{At: 8, Result: &proto.Result{Revision: 9}}
	kvs := r.from(from)
	if int64(len(kvs)) > limit {
		chunk.Next = kvs[limit].Key
		kvs = kvs[:limit]
	}
	for _, kv := range kvs {
		encoded, err := protobuf.Marshal(kv)
		if err != nil {
			return chunk, err
		}
		piece := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), encoded)
		chunk.Result.Body.Pieces = append(chunk.Result.Body.Pieces, piece)
	}
	chunk.Keys, chunk.Bytes = int64(len(kvs)), chunk.Result.Body.Len()
	size := chunk.Bytes
	r.held += size
	r.heldMost = max(r.heldMost, r.held)
	chunk.Result.Body.Release = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held -= size
	}
	return chunk, nil
}

func (r *keysRoom) CountFrom(_ *pb.RangeRequest, from []byte) (int64, error) {
	return int64(len(r.from(from))), nil
}

// newKeysEdge serves keys whose values have the sizes.
func newKeysEdge(t testing.TB, bytesMax int64, sizes ...int) (*edge, *keysRoom) {
	room := &keysRoom{}
	for i, size := range sizes {
		room.kvs = append(room.kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "key%06d", i), Value: make([]byte, size),
			CreateRevision: int64(i), ModRevision: int64(i), Version: 1})
	}
	return newReadyEdge(t, func(c *Config) {
		room.fakeRoom = c.Store.(*fakeRoom)
		c.Store, c.AnswerBytesMax = room, bytesMax
	}), room
}

func TestGather_PiecesAreTheWholeRange(t *testing.T) {
	var e *edge
	var room *keysRoom
	e, room = newKeysEdge(t, 32<<20)
	kv := pb.NewKVClient(e.conn)
	rapid.Check(t, func(rt *rapid.T) {
		small := rapid.SliceOfN(rapid.IntRange(0, 300), 0, 3000)
		large := rapid.SliceOfN(rapid.SampledFrom([]int{0, 10, 1000, 70_000, 900_000}), 0, 25)
		sizes := append(small.Draw(rt, "small"), large.Draw(rt, "large")...)
		kvs := make([]*mvccpb.KeyValue, len(sizes))
		for i, size := range sizes {
			kvs[i] = &mvccpb.KeyValue{Key: fmt.Appendf(nil, "key%06d", i), Value: bytes.Repeat([]byte{byte(i)}, size),
				ModRevision: int64(i + 1)}
		}
		room.mu.Lock()
		room.kvs, room.compacted = kvs, rapid.IntRange(0, 3).Draw(rt, "compactions")
		room.mu.Unlock()
		want := &pb.RangeResponse{Kvs: kvs, Count: int64(len(kvs))}
		q := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}
		if q.Limit = int64(rapid.IntRange(0, len(kvs)+1).Draw(rt, "limit")); q.Limit > 0 && q.Limit < want.Count {
			want.Kvs, want.More = kvs[:q.Limit], true
		}
		got, err := kv.Range(within(t), q, grpc.MaxCallRecvMsgSize(64<<20))
		if err != nil {
			rt.Fatal(err)
		}
		want.Header = &pb.ResponseHeader{ClusterId: 5, MemberId: 7, Revision: 9, RaftTerm: 3}
		if !protobuf.Equal(got, want) {
			rt.Fatalf("%d keys, count %d, more %v, want %d, %d, %v", len(got.Kvs), got.Count, got.More, len(want.Kvs),
				want.Count, want.More)
		}
	})
	eventually(t, "everything is released", func() bool {
		room.mu.Lock()
		defer room.mu.Unlock()
		return room.held == 0 && e.answers.numbers().inUse == 0
	})
}

// Many readers of an answer that fills half the bound: what exists at a time stays near the bound, nobody is refused.
func TestGather_ManyReadersStayWithinTheBound(t *testing.T) {
	const readers, keys, size, bound = 12, 400, 32 << 10, 24 << 20 // an answer has 12.5 MiB
	sizes := make([]int, keys)
	for i := range sizes {
		sizes[i] = size
	}
	e, room := newKeysEdge(t, bound, sizes...)
	var wait sync.WaitGroup
	for range readers {
		conn := dialGRPC(t, e)
		wait.Go(func() {
			got, err := pb.NewKVClient(conn).Range(within(t), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")},
				grpc.MaxCallRecvMsgSize(64<<20))
			if err != nil || len(got.Kvs) != keys {
				t.Errorf("%d keys: %v", len(got.GetKvs()), err)
			}
		})
	}
	wait.Wait()
	eventually(t, "all bytes are back", func() bool { return e.answers.numbers().inUse == 0 })
	if n := e.answers.numbers(); n.highWater > bound || n.highWater < bound/2 {
		t.Errorf("%d bytes were in flight, the bound is %d", n.highWater, bound)
	}
	room.mu.Lock()
	defer room.mu.Unlock()
	// The piece that each is reading comes on top; the first ones are guessed twice as large as pieces should be.
	if most := bound + readers*3*pieceBytes; room.held != 0 || room.heldMost > most {
		t.Errorf("%d bytes existed at a time, at most %d were expected; %d are left", room.heldMost, most, room.held)
	}
}

// An answer larger than the whole bound is made when it is alone.
func TestGather_LargerThanTheBoundGoesAlone(t *testing.T) {
	sizes := make([]int, 12)
	for i := range sizes {
		sizes[i] = 1 << 20
	}
	e, _ := newKeysEdge(t, 1<<20, sizes...)
	for range 2 {
		got, err := pb.NewKVClient(e.conn).Range(within(t), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")},
			grpc.MaxCallRecvMsgSize(64<<20))
		if err != nil || len(got.Kvs) != len(sizes) {
			t.Fatalf("%d keys: %v", len(got.GetKvs()), err)
		}
	}
}

// A read of the past that a compaction passes is refused; one of what is current begins again, but not for ever.
func TestGather_CompactionThatPassesTheRange(t *testing.T) {
	sizes := make([]int, 20)
	for i := range sizes {
		sizes[i] = 200 << 10
	}
	e, room := newKeysEdge(t, 64<<20, sizes...)
	ask := func(revision int64, compactions int) error {
		room.mu.Lock()
		room.compacted = compactions
		room.mu.Unlock()
		_, err := pb.NewKVClient(e.conn).Range(within(t), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"),
			Revision: revision}, grpc.MaxCallRecvMsgSize(64<<20))
		return err
	}
	if err := ask(0, 3); err != nil {
		t.Errorf("a read of what is current: %v", err)
	}
	const compacted = "etcdserver: mvcc: required revision has been compacted"
	wantStatus(t, ask(8, 1), codes.OutOfRange, compacted)
	wantStatus(t, ask(0, 1000), codes.OutOfRange, compacted)
	eventually(t, "all bytes are back", func() bool { return e.answers.numbers().inUse == 0 })
}

func TestReadEntered_LetsGoWhileItWaits(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.AnswerBytesMax = 1 << 20 })
	e.answers.enterNow(1 << 20)
	var mu sync.Mutex
	held, reads := 0, 0
	read := func() (*proto.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		held++
		reads++
		return &proto.Result{Body: proto.Body{Pieces: [][]byte{make([]byte, 512<<10)}, Release: func() {
			mu.Lock()
			defer mu.Unlock()
			held--
		}}}, nil
	}
	type outcome struct {
		claim *claim
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		_, held, err := e.readEntered(within(t), read)
		done <- outcome{held, err}
	}()
	eventually(t, "it waits", func() bool { return e.answers.numbers().waiting == 1 })
	mu.Lock()
	if held != 0 || reads != 1 {
		t.Errorf("%d answers are held while it waits, read %d times", held, reads)
	}
	mu.Unlock()
	e.answers.leave(1 << 20)
	got := <-done
	if got.err != nil || e.answers.numbers().inUse != 512<<10 || reads != 2 {
		t.Errorf("%v, %+v, read %d times", got.err, e.answers.numbers(), reads)
	}
	got.claim.drop()
	broken := errors.New("broken")
	fails := func() (*proto.Result, error) { return nil, broken }
	if _, _, err := e.readEntered(within(t), fails); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if n := e.answers.numbers(); n.inUse != 0 {
		t.Errorf("%+v", n)
	}
}

func TestReadsMany_IsWhatMayBeLarge(t *testing.T) {
	get := &pb.RangeRequest{Key: []byte("k")}
	all := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}
	count := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), CountOnly: true}
	for name, c := range map[string]struct {
		read  *pb.RangeRequest
		times int
		many  bool
	}{
		"nothing": {get, 0, false}, "few keys": {get, fewGets, false}, "many keys": {get, fewGets + 1, true},
		"a range": {all, 1, true}, "a count": {count, 1, false},
	} {
		var ops []*pb.RequestOp
		for range c.times {
			ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: c.read}})
		}
		if readsMany(&pb.TxnRequest{Success: ops}) != c.many || readsMany(&pb.TxnRequest{Failure: ops}) != c.many {
			t.Errorf("%s: not %v", name, c.many)
		}
	}
}

func TestWhole_ReadsOfUnknownSizeAreFewAtATime(t *testing.T) {
	e := newReadyEdge(t, nil)
	running, letGo := make(chan struct{}, wholeReadsMax+1), make(chan struct{})
	var wait sync.WaitGroup
	for range wholeReadsMax + 1 {
		wait.Go(func() {
			_, _ = e.whole(context.Background(), func() (*proto.Result, error) {
				running <- struct{}{}
				<-letGo
				return nil, nil
			})
		})
	}
	for range wholeReadsMax {
		<-running
	}
	short, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.whole(short, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("one too many: %v", err)
	}
	close(letGo)
	wait.Wait()
}
