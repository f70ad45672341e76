package watchactor

import (
	"context"
	"testing"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// While somebody writes, large frames for many watchers leave at the given pace; when nobody writes they leave at once.
func TestSendPace_LargeFramesAreSpreadWhileSomebodyWrites(t *testing.T) {
	const frames, bytes = 40, 64 << 10
	start := time.Unix(1000, 0)
	p := sendPace{mebibyte: 4 * time.Millisecond}
	for range sendBusyMin / (4 * time.Millisecond / 16) {
		if p.take(start, 7, bytes); p.busy(start) {
			t.Fatal("a few frames make it busy")
		}
	}
	p.free = start
	for i := range frames {
		if wait, want := p.take(start, 7, bytes), time.Duration(i)*4*time.Millisecond/16; wait != want {
			t.Fatalf("frame %d waits %v, want %v", i, wait, want)
		}
	}
	p.take(start, 7, bytes)
	if last := start.Add(sendBusyAfter); !p.busy(last.Add(-1)) || p.busy(last) {
		t.Errorf("busy within a second after frames waited %v, then %v", p.busy(last.Add(-1)), p.busy(last))
	}
	p.free = start.Add(frames * 4 * time.Millisecond / 16)
	// Those that come when these have left do not wait for them.
	later := start.Add(frames * 4 * time.Millisecond / 16)
	if wait := p.take(later, 8, bytes); wait != 0 {
		t.Errorf("a frame behind a pause waits %v", wait)
	}
	still := later.Add(sendStillAfter + time.Millisecond)
	for range frames {
		if wait := p.take(still, 8, bytes); wait != 0 {
			t.Fatalf("nobody writes and a frame waits %v", wait)
		}
	}
}

// The wait has a bound, and what waited that long does not make others wait for more than theirs.
func TestSendPace_NoFrameWaitsLongerThanTheBound(t *testing.T) {
	now := time.Unix(1000, 0)
	p := sendPace{mebibyte: time.Second}
	longest := time.Duration(0)
	for r := range proto.Revision(1000) {
		longest = max(longest, p.take(now, r, 1<<20))
		now = now.Add(sendWaitMax)
	}
	if longest != sendWaitMax {
		t.Errorf("the longest wait is %v, the bound %v", longest, sendWaitMax)
	}
}

// The reader of a stream takes its turn for a large frame and for no other. A frame that waits for its turn is given to
// a reader whose context ends: it has been taken out, and nobody would see it again.
func TestSendPace_LargeFramesTakeTheirTurnAndNoneIsLost(t *testing.T) {
	c, err := Spawn(actors.NewSystem(actors.Config{Name: t.Name()}), Config{History: newModel()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s := mustOpen(t, c)
	defer s.Close()
	next := func(ctx context.Context, bytes int) {
		t.Helper()
		s.outbox.put([]Frame{{WatchID: int64(bytes), bytes: bytes, events: 1}}, 0)
		if f, err := s.Next(ctx); err != nil || f.WatchID != int64(bytes) {
			t.Fatalf("a frame of %d bytes is lost: %+v, %v", bytes, f, err)
		}
	}
	next(t.Context(), sendPacedMin-1)
	if !c.sendPace.free.IsZero() {
		t.Error("a small frame has taken a turn")
	}
	next(t.Context(), sendPacedMin)
	if c.sendPace.free.IsZero() {
		t.Error("a large frame has not taken its turn")
	}
	// Somebody writes, and others are to be sent for an hour.
	c.sendPace.moved = time.Now().Add(time.Hour)
	c.sendPace.free = c.sendPace.moved
	gone, leave := context.WithCancel(t.Context())
	leave()
	next(gone, sendPacedMin)
}
