package storeactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
)

// pairsWritten is how many keys every txn of the race writes with one value: a reader must see all of one txn.
const pairsWritten = 20

func pairTxn(i int) *pb.InternalRaftRequest {
	x := &pb.TxnRequest{}
	for k := range pairsWritten {
		x.Success = append(x.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: fmt.Appendf(nil, "pair/%02d", k), Value: fmt.Appendf(nil, "%0200d", i),
		}}})
	}
	return &pb.InternalRaftRequest{Txn: x}
}

// TestViews_ReadWhileTheStoreWrites: views, waiters, events and lease lists are read by many goroutines while the
// store executes, publishes, compacts, evicts and checkpoints as fast as it can, on both files. Every view is a state
// of its own: a txn is seen altogether or not at all, revisions do not go back, and a view stays what it is.
func TestViews_ReadWhileTheStoreWrites(t *testing.T) {
	for name, open := range map[string]func() File{
		"model": func() File { return NewModelFile(ModelOptions{}) },
		"bbolt": func() File { return openTestFile(t, BoltOptions{}) },
	} {
		t.Run(name, func(t *testing.T) { raceViews(t, open()) })
	}
}

func raceViews(t *testing.T, file File) {
	restored, err := Restore(file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	restored.Keys.cache.max = pairsWritten * 250 / 2 // half of it has to be read from the file
	sys := actors.NewSystem(actors.Config{Name: t.Name()})
	c, err := Spawn(sys, Config{
		File: file, Restored: restored, Log: realStore{}, QuotaBytes: -1, Logger: zerolog.Nop(),
		CheckpointInterval: time.Millisecond, CheckpointWrites: 50, CompactionBatch: 100, CompactionPause: time.Microsecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	var stop atomic.Bool
	for range 3 {
		readers.Go(func() { readPairs(t, c, &stop) })
	}
	const writes = 1500
	for i := 1; i <= writes; i++ {
		request := pairTxn(i)
		if i%50 == 0 {
			request = compactAt(c.State().Revision)
		}
		b := &proto.Batch{Commands: []proto.Command{{Index: proto.Index(i), Term: 1, Request: request}}, Bytes: 4000}
		for c.Apply(b) != nil {
			t.Error("a batch was refused")
		}
		if i%20 == 0 {
			if err := c.WaitApplied(context.Background(), proto.Index(i)); err != nil {
				t.Error(err)
			}
		}
	}
	stop.Store(true)
	readers.Wait()
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if n := file.OpenViews(); n > 1 {
		t.Errorf("%d handles are open", n)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	again := c.State()
	if again.Applied != writes || again.Unwritten != 0 && again.Sizes.Total == 0 {
		t.Errorf("applied %d", again.Applied)
	}
}

func readPairs(t *testing.T, c *Client, stop *atomic.Bool) {
	last := proto.Revision(0)
	for !stop.Load() {
		v := c.View()
		if v.State().Revision < last {
			t.Errorf("revision %d after %d", v.State().Revision, last)
		}
		last = v.State().Revision
		first := readPair(t, v, 0)
		again := readPair(t, v, 0)
		if first != again {
			t.Errorf("one view shows %q and then %q", first, again)
		}
		if at := last - 1; at >= v.State().Compacted && at > 1 {
			readPair(t, v, at)
		}
		from := max(last-3, v.State().Compacted)
		events, _, err := v.Events(NewKeyRange([]byte("pair/"), []byte("pair0")), from, last, 1<<20)
		if err != nil {
			t.Error(err)
		}
		for i := 1; i < len(events); i++ {
			if !events[i-1].Version.Less(events[i].Version) {
				t.Errorf("event %v after %v", events[i].Version, events[i-1].Version)
			}
		}
		v.Release()
	}
}

// readPair reads all keys and gives the value that all of them must have.
func readPair(t *testing.T, v *View, at proto.Revision) string {
	result, err := v.Range(&pb.RangeRequest{Key: []byte("pair/"), RangeEnd: []byte("pair0"), Revision: int64(at)})
	if err != nil {
		t.Error(err)
		return ""
	}
	answer := &pb.RangeResponse{}
	decode(t, result, answer)
	for _, kv := range answer.Kvs {
		if string(kv.Value) != string(answer.Kvs[0].Value) || len(answer.Kvs) != pairsWritten {
			t.Errorf("%d keys, %q beside %q", len(answer.Kvs), kv.Value, answer.Kvs[0].Value)
		}
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

// TestView_StaysWhatItWasWhileAllIsCompacted: a view opened before a compaction still reads the past, in memory and
// in the file, after everything below has been deleted.
func TestView_StaysWhatItWasWhileAllIsCompacted(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.put("a", fmt.Sprint(i))
	}
	r.delete("a")
	r.checkpoint()
	r.m.cache.max = 0
	s := r.m.state()
	if !s.file.Retain() {
		t.Fatal("no handle")
	}
	before := newView(s)
	defer before.Release()
	r.must(compactAt(7))
	r.compactAll()
	r.put("b", "1")
	r.must(compactAt(8))
	r.compactAll()
	wantList(t, "file", r.stored(), "8/0=b")
	for i := range 5 {
		result, err := before.Range(&pb.RangeRequest{Key: []byte("a"), Revision: int64(2 + i)})
		if err != nil {
			t.Fatal(err)
		}
		answer := &pb.RangeResponse{}
		decode(t, result, answer)
		if len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != fmt.Sprint(i) {
			t.Fatalf("at %d: %v", 2+i, answer)
		}
	}
	events, _, err := before.Events(NewKeyRange([]byte("a"), nil), 1, 99, 1<<20)
	if err != nil || len(events) != 6 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	kv := &mvccpb.KeyValue{}
	if b, ok := before.Value(proto.Version{Main: 3}); !ok || gproto.Unmarshal(b, kv) != nil || string(kv.Value) != "1" {
		t.Fatalf("value at 3: %v", kv)
	}
}

// TestClientRange_BeginsAgainAfterACutOff: a reader whose handle was taken away waits for the next state and answers
// from that; the store itself goes on with a new handle at once.
func TestClientRange_BeginsAgainAfterACutOff(t *testing.T) {
	s := newStage(t)
	answered := 0
	s.apply(s.batch(&answered, putOf("a", 3)))
	s.run()
	w := s.backend.writes[0]
	(&rig{tb: t, file: s.file, m: &machine{reader: reader{file: noView{}}}}).write(w.batch)
	s.checkpoint(w.index, w.revision)
	s.run()
	state := s.client.State()
	state.cache.max = 0
	state.cache.sweep(state.tree, 10)
	s.file.CutOff()
	q := &pb.RangeRequest{Key: []byte("a")}
	if _, err := s.client.View().Range(q); !errors.Is(err, ErrViewCutOff) {
		t.Fatalf("got %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.client.Range(ended, q); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	again := &pb.PutRequest{Key: []byte("a"), IgnoreValue: true, PrevKv: true}
	s.apply(s.batch(&answered, &pb.InternalRaftRequest{Put: again}))
	s.run()
	if answered != 2 {
		t.Fatal("the store did not get past the handle that was cut off")
	}
	if result, err := s.client.Range(context.Background(), q); err != nil || result.Body.Len() == 0 {
		t.Fatal(result, err)
	}
}

// noView is a handle that is only released.
type noView struct{ FileView }

func (noView) Release() {}
