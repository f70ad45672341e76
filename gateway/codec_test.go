package gateway

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"troupe/proto"
)

func newTestCodec() *codec {
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	}
	return &codec{sent: counter("sent"), received: counter("received"), chunks: newChunkPool()}
}

// cut splits bytes into pieces at drawn places.
func cut(t *rapid.T, b []byte) [][]byte {
	var pieces [][]byte
	for len(b) > 0 {
		n := rapid.IntRange(1, len(b)).Draw(t, "piece")
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}

func TestCodec_SplicedAnswerIsTheOfficialMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newTestCodec()
		body := &pb.RangeResponse{More: rapid.Bool().Draw(t, "more"), Count: rapid.Int64().Draw(t, "count")}
		for range rapid.IntRange(0, 40).Draw(t, "keys") {
			body.Kvs = append(body.Kvs, &mvccpb.KeyValue{
				Key:         rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "key"),
				Value:       make([]byte, rapid.SampledFrom([]int{0, 1, 300, 5000, 40000}).Draw(t, "value")),
				ModRevision: rapid.Int64().Draw(t, "revision"),
			})
		}
		encoded, err := protobuf.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		h := header{cluster: proto.ClusterID(rapid.Uint64().Draw(t, "cluster")),
			member:   proto.MemberID(rapid.Uint64().Draw(t, "member")),
			revision: proto.Revision(rapid.Int64().Draw(t, "revision")),
			term:     proto.Term(rapid.Uint64().Draw(t, "term"))}
		released := 0
		a := &answer{header: h, body: proto.Body{Pieces: cut(t, encoded), Release: func() { released++ }}}
		ledger := newLedger(1 << 30)
		if size := int64(a.body.Len()); rapid.Bool().Draw(t, "entered") {
			if err := ledger.enter(context.Background(), size); err != nil {
				t.Fatal(err)
			}
			a.entered = newClaim(context.Background(), ledger, size)
		}
		out, err := c.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		body.Header = &pb.ResponseHeader{ClusterId: uint64(h.cluster), MemberId: uint64(h.member),
			Revision: int64(h.revision), RaftTerm: uint64(h.term)}
		got := new(pb.RangeResponse)
		if err := c.Unmarshal(out, got); err != nil {
			t.Fatal(err)
		}
		if !protobuf.Equal(got, body) {
			t.Fatalf("got %v\nwant %v", got, body)
		}
		out.Free()
		if released != 1 {
			t.Fatalf("the body was released %d times", released)
		}
		if inUse, _ := ledger.inFlight(); inUse != 0 {
			t.Fatalf("%d bytes are still entered after the buffers were freed", inUse)
		}
	})
}

func TestCodec_WatchFrameIsTheOfficialMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newTestCodec()
		want := &pb.WatchResponse{
			Header:          &pb.ResponseHeader{ClusterId: 1, MemberId: 2, Revision: rapid.Int64().Draw(t, "rev"), RaftTerm: 4},
			WatchId:         rapid.Int64().Draw(t, "id"),
			Created:         rapid.Bool().Draw(t, "created"),
			Canceled:        rapid.Bool().Draw(t, "canceled"),
			CompactRevision: rapid.Int64().Draw(t, "compacted"),
			CancelReason:    rapid.StringN(0, 400, -1).Draw(t, "reason"),
			Fragment:        rapid.Bool().Draw(t, "fragment"),
		}
		frame := &WatchFrame{WatchID: want.WatchId, Revision: proto.Revision(want.Header.Revision),
			Created: want.Created, Canceled: want.Canceled, CompactRevision: proto.Revision(want.CompactRevision),
			CancelReason: want.CancelReason, Fragment: want.Fragment}
		for i := range rapid.IntRange(0, 5).Draw(t, "events") {
			event := &mvccpb.Event{Type: mvccpb.Event_EventType(i % 2),
				Kv: &mvccpb.KeyValue{Key: []byte{byte(i)}, Value: make([]byte, i*20000)}}
			want.Events = append(want.Events, event)
			encoded, err := protobuf.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			piece := protowire.AppendTag(nil, 11, protowire.BytesType)
			frame.Events = append(frame.Events, protowire.AppendBytes(piece, encoded))
		}
		out, err := c.Marshal(&answer{header: header{1, 2, frame.Revision, 4}, frame: frame,
			body: proto.Body{Pieces: frame.Events}})
		if err != nil {
			t.Fatal(err)
		}
		got := new(pb.WatchResponse)
		if err := c.Unmarshal(out, got); err != nil {
			t.Fatal(err)
		}
		if !protobuf.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
		out.Free()
	})
}

// TestCodec_StreamsShareTheBytesOfALargeEvent: what gRPC holds for clients that do not read is not a copy for each.
func TestCodec_StreamsShareTheBytesOfALargeEvent(t *testing.T) {
	c := newTestCodec()
	event := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, 2*chunkBytes)}}
	large := encode(t, &pb.WatchResponse{Events: []*mvccpb.Event{event}})
	head, value := large[:100], large[100:]
	frame := &WatchFrame{Revision: 5, Events: [][]byte{head, value}}
	out, err := c.Marshal(&answer{frame: frame, body: proto.Body{Pieces: frame.Events}})
	if err != nil {
		t.Fatal(err)
	}
	last := out[len(out)-1].ReadOnlyData()
	if &last[0] != &value[0] || len(last) != len(value) || len(out) != 2 {
		t.Errorf("%d buffers, the last with %d bytes that are not the event's own", len(out), len(last))
	}
}

func TestCodec_OrdinaryMessagesOfAllSizes(t *testing.T) {
	c := newTestCodec()
	for _, size := range []int{0, 1, pooledBytesMin - 10, pooledBytesMin, 5000, 3 << 20} {
		want := &pb.SnapshotResponse{Blob: bytes.Repeat([]byte{7}, size), RemainingBytes: uint64(size)}
		out, err := c.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := new(pb.SnapshotResponse)
		if err := c.Unmarshal(out, got); err != nil || !protobuf.Equal(got, want) {
			t.Fatalf("size %d: %v", size, err)
		}
		out.Free()
	}
}

// TestCodec_AnswersTakeLittleMoreMemoryThanTheirBytes: clients that do not read make the member hold what gRPC was
// given. The sizes are those around the steps of gRPC's buffer pool, which jumps from 32 KiB to 1 MiB, and around ours.
func TestCodec_AnswersTakeLittleMoreMemoryThanTheirBytes(t *testing.T) {
	c := newTestCodec()
	held := func(v any) (total int) {
		t.Helper()
		out, err := c.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range out {
			total += cap(b.ReadOnlyData())
		}
		out.Free()
		return total
	}
	for _, size := range []int{
		answerBytesCounted, 5000, 17 << 10, chunkBytes - 100, chunkBytes, chunkBytes + 100, 50_000, lentBytesMin, 300_000,
	} {
		most := 2*size + 2*chunkBytes
		body := func() proto.Body { // a small part of the chunk it was written to
			return proto.Body{Pieces: [][]byte{make([]byte, max(size, 256<<10))[:size:size]}}
		}
		if n := held(&answer{bare: []byte{}, body: body()}); n > most {
			t.Errorf("an answer of %d bytes holds %d", size, n)
		}
		l := newLedger(1 << 20)
		l.enterNow(int64(size))
		lent := &answer{bare: []byte{}, body: body(), entered: newClaim(t.Context(), l, int64(size))}
		released := 0
		lent.body.Release = func() { released++ }
		if n := held(lent); n > most {
			t.Errorf("an entered answer of %d bytes holds %d", size, n)
		}
		if inUse, _ := l.inFlight(); inUse != 0 || released != 1 {
			t.Errorf("%d of %d bytes are still entered, released %d times", inUse, size, released)
		}
		if n := held(&pb.SnapshotResponse{Blob: make([]byte, size)}); n > most {
			t.Errorf("a message of %d bytes holds %d", size, n)
		}
	}
}

func TestCodec_RefusesWhatItCannotEncodeOrDecode(t *testing.T) {
	c := newTestCodec()
	if _, err := c.Marshal("text"); err == nil {
		t.Error("encoded a string")
	}
	if err := c.Unmarshal(nil, new(int)); err == nil {
		t.Error("decoded into an int")
	}
	broken := mem.BufferSlice{mem.SliceBuffer{0xff, 0xff}}
	if err := c.Unmarshal(broken, new(pb.RangeRequest)); err == nil {
		t.Error("decoded a broken message")
	}
	badText := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff")
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(badText)}, new(pb.AuthUserAddRequest)); err == nil {
		t.Error("decoded text that is not UTF-8")
	}
}

// The request must be a copy: gRPC reuses the buffer as soon as Unmarshal returns, and the request lives in the log.
func TestCodec_RequestDoesNotAliasTheBuffer(t *testing.T) {
	c := newTestCodec()
	encoded, err := protobuf.Marshal(&pb.PutRequest{Key: []byte("key"), Value: []byte("value")})
	if err != nil {
		t.Fatal(err)
	}
	got := new(pb.PutRequest)
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, got); err != nil {
		t.Fatal(err)
	}
	clear(encoded)
	if string(got.Key) != "key" || string(got.Value) != "value" {
		t.Fatalf("the request changed with the buffer: %q %q", got.Key, got.Value)
	}
}

func TestLedger_ReadersWaitInOrderAndLargeOnesGoAlone(t *testing.T) {
	l := newLedger(100)
	ctx := context.Background()
	if err := l.enter(ctx, 1000); err != nil { // larger than the bound: admitted alone
		t.Fatal(err)
	}
	order := make(chan int, 2)
	for i, size := range []int64{60, 10} {
		go func() {
			if err := l.enter(ctx, size); err != nil {
				t.Error(err)
			}
			order <- i
		}()
		eventually(t, "the reader waits", func() bool { _, waiting := l.inFlight(); return waiting == i+1 })
	}
	l.leave(1000)
	<-order
	<-order
	if inUse, waiting := l.inFlight(); inUse != 70 || waiting != 0 {
		t.Fatalf("in use %d, waiting %d", inUse, waiting)
	}
	// A small one does not overtake a large one that waits.
	done := make(chan struct{})
	go func() { _ = l.enter(ctx, 90); close(done) }()
	eventually(t, "the large reader waits", func() bool { _, waiting := l.inFlight(); return waiting == 1 })
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := l.enter(short, 1); err == nil {
		t.Fatal("a small reader overtook a large one")
	}
	l.leave(70)
	<-done
	l.leave(90)
	if inUse, waiting := l.inFlight(); inUse != 0 || waiting != 0 {
		t.Fatalf("in use %d, waiting %d", inUse, waiting)
	}
}

func TestLedger_RefusesWhenTooManyWait(t *testing.T) {
	l := newLedger(10)
	l.waiting = 1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := l.enter(ctx, 10); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- l.enter(ctx, 10) }()
	eventually(t, "one waits", func() bool { _, waiting := l.inFlight(); return waiting == 1 })
	if err := l.enter(ctx, 1); !errors.Is(err, ErrTooManyAnswers) {
		t.Fatalf("got %v", err)
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, waiting := l.inFlight(); waiting != 0 {
		t.Fatal("a reader that gave up still waits")
	}
}
