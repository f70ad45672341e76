package watchactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// TestInspect_ShowsTheFurthestBehindFirst: a client that does not read is what one sees, with its watches and the
// revision each has come to; a stream that has ended meanwhile is shown without watches, and nobody waits.
func TestInspect_ShowsTheFurthestBehindFirst(t *testing.T) {
	m := newModel()
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "inspect"}), Config{History: m, OutboxBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 20 {
		m.batch([]op{put("k", "v")})
		m.batch([]op{{"k", make([]byte, 500)}})
	}
	idle, slow := mustOpen(t, c), mustOpen(t, c)
	watchKey(t, idle, "other")
	for _, start := range []int64{30, 2} {
		r := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: start})
		if err := slow.Request(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for { // until the slow stream has filled its outbox and stands still
		infos, err := c.Inspect(ctx, 1, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) != 1 {
			t.Fatalf("%d streams are shown", len(infos))
		}
		one := infos[0]
		if one.Stream != uint64(slow.id) || one.Watches != 2 || one.QueuedBytes < 500 || len(one.Shown) != 2 {
			continue
		}
		if w := one.Shown[0]; !w.Behind || w.Next > one.Shown[1].Next || string(w.Key) != "k" || string(w.End) != "l" {
			t.Fatalf("shows %+v", one.Shown)
		}
		break
	}
	if infos, err := c.Inspect(ctx, 10, 1); err != nil || len(infos) != 2 || len(infos[0].Shown) != 1 {
		t.Fatalf("shows %+v, %v", infos, err)
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Inspect(ctx, 1, 1); !errors.Is(err, ErrStopped) {
		t.Fatalf("after the stop: %v", err)
	}
}

// TestInspect_DoesNotWaitForAStreamThatDoesNotAnswer: what a stream publishes is shown all the same.
func TestInspect_DoesNotWaitForAStreamThatDoesNotAnswer(t *testing.T) {
	c, _, step := steppedRoom(t, nil)
	s := mustOpen(t, c)
	watchKey(t, s, "k")
	step.Run(1000)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for s.shown.asked.Load() == 0 {
			runtime.Gosched()
		}
		cancel()
	}()
	infos, err := c.Inspect(ctx, 1, 1) // nobody steps
	if err != nil || len(infos) != 1 || infos[0].Watches != 1 || infos[0].Shown != nil {
		t.Fatalf("shows %+v, %v", infos, err)
	}
}

// TestInspect_LeavesRoomForWhatTheStreamTellsItself: however often a stream that has no turn is looked at, a few
// questions wait at it, and it answers again later.
func TestInspect_LeavesRoomForWhatTheStreamTellsItself(t *testing.T) {
	c, _, step := steppedRoom(t, nil)
	s := mustOpen(t, c)
	for i := range requestsMax {
		watchKey(t, s, fmt.Sprint("k", i))
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	for range 10 * inspectsMax {
		if infos := inspectStreams(gone, []*Stream{s}, 1); infos[0].Shown != nil {
			t.Fatalf("shows %+v", infos)
		}
	}
	if n := s.shown.asked.Load(); n != inspectsMax {
		t.Errorf("%d questions wait", n)
	}
	if err := s.getRef().Tell(actors.Control, drained{}); err != nil {
		t.Fatalf("the stream cannot be told that there is room: %v", err)
	}
	step.Run(10_000)
	if n := s.shown.asked.Load(); n != 0 {
		t.Errorf("%d questions wait after the answers", n)
	}
	s.ask(1, actors.NewReply[[]proto.WatchInfo]())
	s.Close()
	step.Run(1000)
	if n := s.shown.asked.Load(); n != 0 {
		t.Errorf("%d questions wait after the end", n)
	}
}
