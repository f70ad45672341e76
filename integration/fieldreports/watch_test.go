package fieldreports

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

func progress() *pb.WatchRequest {
	return &pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}},
	}
}

// T01 (etcd-io/etcd#15220): a progress answer promises that every event up to its revision was delivered.
func TestWatch_ProgressAnswerNeverOvertakesEvents(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	const writes = 3000
	var done atomic.Bool
	written := make(chan error, 1)
	conn := s.Conn(t)
	go func() {
		defer done.Store(true)
		for n := range writes {
			request := &pb.PutRequest{Key: fmt.Appendf(nil, "p/%d", n%10), Value: []byte("v")}
			if _, err := pb.NewKVClient(conn).Put(a.ctx, request); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	stream := a.watch(&pb.WatchCreateRequest{Key: []byte("p/"), RangeEnd: []byte("p0"), StartRevision: 2})
	asked := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for range ticker.C {
			if err := stream.Send(progress()); err != nil || done.Load() {
				asked <- err
				return
			}
		}
	}()
	answers, promised, events, seen := 0, int64(0), 0, int64(0)
	for events < writes {
		r := a.receive(stream)
		if len(r.Events) == 0 && !r.Created {
			answers++
			if r.Header.Revision < seen || r.Header.Revision < promised {
				t.Fatalf("progress answer %v after an event at %d and an answer at %d", r, seen, promised)
			}
			promised = r.Header.Revision
		}
		for _, e := range r.Events {
			events++
			if seen = e.Kv.ModRevision; seen <= promised {
				t.Fatalf("event at revision %d after a progress answer at %d", seen, promised)
			}
		}
	}
	if err := <-written; err != nil {
		t.Fatalf("put: %v", err)
	}
	if err := <-asked; err != nil {
		t.Fatalf("progress request: %v", err)
	}
	t.Logf("%d progress answers among %d events", answers, events)
}

// T01, the other half: a fresh watch of a key that nobody writes gets an answer too.
func TestWatch_QuietFreshWatchGetsItsProgressAnswer(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	revision := a.put("other", "1")
	for _, start := range []int64{0, revision, 1} {
		stream := a.watch(&pb.WatchCreateRequest{Key: []byte("idle"), StartRevision: start})
		answered := make(chan *pb.WatchResponse, 1)
		go func() {
			for {
				r, err := stream.Recv()
				if err != nil || !r.Created && len(r.Events) == 0 {
					answered <- r
					return
				}
			}
		}()
		// A watch that reads history first may have to be asked again: nothing may be promised before it has read it.
		harness.Eventually(t, limit, "progress answer", func() error {
			if err := stream.Send(progress()); err != nil {
				t.Fatalf("progress request: %v", err)
			}
			select {
			case r := <-answered:
				if r == nil || r.Header.Revision < revision {
					t.Errorf("progress answer %v, want revision %d", r, revision)
				}
				return nil
			case <-time.After(200 * time.Millisecond):
				return fmt.Errorf("no answer")
			}
		})
	}
}

// T02 (etcd-io/etcd#18089): compaction at a deletion's revision keeps that deletion for watches.
func TestWatch_DeletionAtTheCompactedRevisionIsStillShown(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	first := a.put("k", "v")
	gone := a.remove("k")
	a.compact(gone)
	check := func() {
		a.wantDeletion("k", gone)
		stream := a.watch(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: first})
		r := a.receive(stream)
		if r.Created && !r.Canceled {
			r = a.receive(stream)
		}
		if !r.Canceled || r.CompactRevision != gone || len(r.Events) > 0 {
			t.Errorf("the watch from below the compacted revision %d: %v", gone, r)
		}
	}
	check()
	s.Kill(t)
	s.Start(t)
	a = newAPI(t, s)
	check()
}

// T03 (etcd-io/etcd#19179): the same deletion survives a crash in the middle of the compaction.
func TestCompaction_CrashInTheMiddleLosesNoDeletion(t *testing.T) {
	s := harness.Start(t, harness.Options{
		Args: []string{"--compaction-batch-limit=2", "--compaction-sleep-interval=5ms"},
	})
	for round := range 8 {
		a := newAPI(t, s)
		keys := make([]string, 12)
		for i := range keys {
			keys[i] = fmt.Sprintf("round %d/%d", round, i)
			a.put(keys[i], "v")
			a.put(keys[i], "w")
		}
		gone := a.remove(keys[0])
		time.AfterFunc(rand.N(50*time.Millisecond), func() { s.Signal(syscall.SIGKILL) })
		// The compaction may be answered or not: the kill comes at any moment.
		_, err := a.kv.Compact(a.ctx, &pb.CompactionRequest{Revision: gone, Physical: true})
		s.ExitCode(t)
		s.Start(t)
		a = newAPI(t, s)
		a.wantDeletion(keys[0], gone)
		for _, key := range keys[1:] {
			if value, ok := a.get(key, gone); !ok || value != "w" {
				t.Errorf("round %d (compaction: %v): %s is %q, %v", round, err, key, value, ok)
			}
		}
	}
}

// T12 (etcd-io/etcd#6819): a watch of an empty range is refused, and its cancellation or end harms nobody.
func TestWatch_EmptyRangeIsRefusedAndTheServerStaysUp(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	for range 3 {
		a.put("key", "v")
	}
	for _, end := range []string{"key", "ke", "a"} {
		stream := a.watch(&pb.WatchCreateRequest{Key: []byte("key"), RangeEnd: []byte(end), StartRevision: 1})
		if r := a.receive(stream); !r.Created || !r.Canceled || r.CancelReason == "" || r.WatchId != -1 {
			t.Errorf("watch of [key, %s): %v", end, r)
		}
		if err := stream.CloseSend(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for _, args := range [][]string{{"watch", "key", "key", "--rev=1"}, {"watch", "key", "a", "--rev=1"}} {
		s.Ctl(t, args...)
	}
	// The empty key means the first one: with "\0" as end, everything.
	stream := a.watch(&pb.WatchCreateRequest{Key: []byte{}, RangeEnd: []byte{0}, StartRevision: 1})
	if r := a.receive(stream); !r.Created || r.Canceled {
		t.Errorf("watch of everything: %v", r)
	}
	if r := a.receive(stream); len(r.Events) == 0 {
		t.Errorf("watch of everything shows nothing: %v", r)
	}
	if !s.Running() {
		t.Fatalf("the server has died")
	}
	a.put("key", "after")
}
