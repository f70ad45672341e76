package storeactor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

func newTestCheckpointer() *checkpointer {
	return &checkpointer{limits: checkpointLimits{interval: 100 * time.Millisecond, writes: 10, bytes: 1000}}
}

func testWrite(index proto.Index, writes, bytes int) *backendWrite {
	return &backendWrite{index: index, term: 1, batch: make([]proto.BucketWrite, writes), bytes: bytes}
}

// TestCheckpointer_AsksAtEachLimit: time, writes, bytes or a wish, and not before.
func TestCheckpointer_AsksAtEachLimit(t *testing.T) {
	start := time.Unix(0, 0)
	cases := map[string]struct {
		writes, bytes int
		after         time.Duration
		wish          bool
		asks          bool
	}{
		"nothing reached":   {writes: 9, bytes: 999, after: 99 * time.Millisecond},
		"interval is over":  {after: 100 * time.Millisecond, asks: true},
		"writes reached":    {writes: 10, asks: true},
		"bytes reached":     {bytes: 1000, asks: true},
		"wished":            {wish: true, asks: true},
		"an empty write, 0": {},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			core := newTestCheckpointer()
			if action, _, _ := core.next(start); action != checkpointIdle {
				t.Fatalf("action %d with nothing to do", action)
			}
			core.admit(start, testWrite(7, c.writes, c.bytes))
			if c.wish && core.want() != 7 {
				t.Fatal("the wish is not for index 7")
			}
			action, index, wait := core.next(start.Add(c.after))
			switch {
			case c.asks && (action != checkpointAsk || index != 7):
				t.Fatalf("action %d for index %d", action, index)
			case !c.asks && (action != checkpointLater || wait != 100*time.Millisecond-c.after):
				t.Fatalf("action %d after %v", action, wait)
			}
		})
	}
}

// TestCheckpointer_CommitsWhatWasConfirmedAndNoMore.
func TestCheckpointer_CommitsWhatWasConfirmedAndNoMore(t *testing.T) {
	now := time.Unix(0, 0)
	core := newTestCheckpointer()
	first := testWrite(3, 1, 10)
	first.confState = []byte("conf")
	core.admit(now, first)
	core.admit(now, testWrite(5, 1, 10))
	core.want()
	if action, index, _ := core.next(now); action != checkpointAsk || index != 5 {
		t.Fatalf("action %d for index %d", action, index)
	}
	core.admit(now, testWrite(6, 2, 20)) // after the question
	core.want()
	if action, _, _ := core.next(now); action != checkpointAsked {
		t.Fatalf("action %d while the answer is out", action)
	}
	core.answered(now, 5, nil)
	if action, _, _ := core.next(now); action != checkpointCommit {
		t.Fatalf("action %d after the answer", action)
	}
	plan := core.take()
	if len(plan.writes) != 2 || plan.position.index != 5 || plan.bytes != 20 || !plan.confStateDirty {
		t.Fatalf("plan %+v", plan)
	}
	if action, index, _ := core.next(now); action != checkpointAsk || index != 6 {
		t.Fatalf("action %d for index %d", action, index)
	}
	core.answered(now, 6, nil)
	plan = core.take()
	if len(plan.writes) != 1 || plan.confStateDirty || string(plan.position.confState) != "conf" {
		t.Fatalf("plan %+v", plan)
	}
	if len(core.waiting) != 0 || core.writes != 0 || core.bytes != 0 {
		t.Fatalf("left: %+v", core)
	}
}

// TestCheckpointer_RefusalIsNotRepeatedInACircle: a log that is stopping is asked once per interval.
func TestCheckpointer_RefusalIsNotRepeatedInACircle(t *testing.T) {
	now := time.Unix(0, 0)
	core := newTestCheckpointer()
	core.admit(now, testWrite(1, 1, 1))
	core.want()
	core.next(now)
	core.answered(now, 1, errors.New("stopping"))
	if action, _, wait := core.next(now); action != checkpointLater || wait != 100*time.Millisecond {
		t.Fatalf("action %d after %v", action, wait)
	}
}

// stillLog answers only when it is told to.
type stillLog struct {
	questions chan func(error)
	views     chan FileView
}

func (l stillLog) ConfirmCommit(_ proto.Index, done func(error)) { l.questions <- done }
func (l stillLog) diskFull()                                     {}
func (l stillLog) compactedPhysically(*compactedPhysically)      {}
func (l stillLog) checkpointed(c *checkpointed) {
	l.views <- c.view
	for _, caller := range c.callers {
		caller.reply.Send(struct{}{})
	}
}

func startStill(t *testing.T, clock actors.Clock, file File, died func(any)) (stillLog, backendHandle) {
	t.Helper()
	log := stillLog{questions: make(chan func(error), 100), views: make(chan FileView, 100)}
	sys := actors.NewSystem(actors.Config{
		Name: "test", Clock: clock, Fatal: func(_ string, reason any, _ []byte) { died(reason) },
	})
	handle, err := spawnBackend(sys, backendConfig{
		File: file, Log: log, Store: log, Revision: 1, CheckpointWrites: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return log, handle
}

func emptyHash(reply actors.Reply[HashResult]) *hashRequest {
	return &hashRequest{state: &State{Revision: 1, Compacted: -1, tree: newKeyTree()}, reply: reply}
}

func receive[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

// TestBackend_FailedCommitEndsTheProcess: it is not tried again.
func TestBackend_FailedCommitEndsTheProcess(t *testing.T) {
	full := errors.New("no space left on device")
	commits := 0
	file := NewModelFile(ModelOptions{AtStep: func(s ModelStep) error {
		if s == ModelBeforeSync {
			commits++
			return full
		}
		return nil
	}})
	died := make(chan any, 1)
	log, handle := startStill(t, actorstest.NewManualClock(), file, func(reason any) { died <- reason })
	handle.write(testWrite(1, 0, 0))
	handle.hash(emptyHash(actors.NewReply[HashResult]()))
	receive(t, log.questions)(nil)
	if err, ok := receive(t, died).(error); !ok || !errors.Is(err, full) {
		t.Fatalf("died of %v", err)
	}
	if commits != 1 {
		t.Fatalf("%d commits were tried", commits)
	}
}

// TestBackend_StopReportsWhatTheLogRefused, and leaves it out of the file.
func TestBackend_StopReportsWhatTheLogRefused(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	log, handle := startStill(t, actorstest.NewManualClock(), file, func(reason any) { t.Error(reason) })
	handle.write(&backendWrite{index: 1, term: 1, batch: make([]proto.BucketWrite, 0)})
	stopped := make(chan error, 1)
	go func() { stopped <- handle.stop(context.Background()) }()
	refused := errors.New("the log is closed")
	receive(t, log.questions)(refused)
	if err := receive(t, stopped); !errors.Is(err, refused) {
		t.Fatalf("stop: %v", err)
	}
	view, err := file.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	if _, found, _ := view.Append(nil, proto.BucketMeta, metaConsistentIndex); found {
		t.Fatal("an unconfirmed index is in the file")
	}
	if n := file.OpenViews(); n != 1 {
		t.Fatalf("%d read handles are open, one is ours", n)
	}
}

// TestBackend_HashQueueIsBounded fills it while the log does not answer; all are answered in the end.
func TestBackend_HashQueueIsBounded(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	log, handle := startStill(t, actorstest.NewManualClock(), file, func(reason any) { t.Error(reason) })
	handle.write(testWrite(1, 0, 0))
	var replies []actors.Reply[HashResult]
	for range hashesWaitingMax + 5 {
		reply := actors.NewReply[HashResult]()
		handle.hash(emptyHash(reply))
		replies = append(replies, reply)
	}
	for i := hashesWaitingMax; i < len(replies); i++ {
		if _, err := replies[i].Wait(t.Context()); !errors.Is(err, ErrHashesWaiting) {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	receive(t, log.questions)(nil)
	for i := range hashesWaitingMax {
		if _, err := replies[i].Wait(t.Context()); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestBackend_HandleHeldTooLongIsCutOff: a reader that keeps an old commit loses it after viewAgeMax, the present one
// is never taken away.
func TestBackend_HandleHeldTooLongIsCutOff(t *testing.T) {
	clock := actorstest.NewManualClock()
	log, handle := startStill(t, clock, NewModelFile(ModelOptions{}), func(reason any) { t.Error(reason) })
	first := commitEmpty(t, handle, log, 1)
	second := commitEmpty(t, handle, log, 2)
	clock.Advance(viewAgeMax + time.Second)
	if _, _, err := first.Append(nil, proto.BucketMeta, metaTerm); err != nil {
		t.Fatalf("cut off without a newer commit: %v", err)
	}
	third := commitEmpty(t, handle, log, 3)
	if _, _, err := first.Append(nil, proto.BucketMeta, metaTerm); !errors.Is(err, ErrViewCutOff) {
		t.Fatalf("the old handle answers %v", err)
	}
	for _, v := range []FileView{second, third} {
		if _, _, err := v.Append(nil, proto.BucketMeta, metaTerm); err != nil {
			t.Fatalf("a handle that was replaced just now: %v", err)
		}
	}
	for _, v := range []FileView{first, second, third} {
		v.Release()
	}
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// commitEmpty brings an entry that writes nothing into the file and gives the handle of that commit. The hash makes the
// backend commit without waiting for a limit.
func commitEmpty(t *testing.T, handle backendHandle, log stillLog, index proto.Index) FileView {
	t.Helper()
	handle.write(testWrite(index, 0, 0))
	handle.hash(emptyHash(actors.NewReply[HashResult]()))
	receive(t, log.questions)(nil)
	return receive(t, log.views)
}

// TestBackend_FullMailboxIsABrokenInvariant: the store's credit is far below the bound, so a write that does not fit is
// a bug of the sender and says so; a hash request, which a client can repeat, is refused.
func TestBackend_FullMailboxIsABrokenInvariant(t *testing.T) {
	commits := make(chan struct{}, 10)
	goOn := make(chan struct{})
	file := NewModelFile(ModelOptions{AtStep: func(s ModelStep) error {
		if s == ModelBeforeWrite {
			commits <- struct{}{}
			<-goOn
		}
		return nil
	}})
	log, handle := startStill(t, actorstest.NewManualClock(), file, func(reason any) { t.Error(reason) })
	handle.write(&backendWrite{index: 1, term: 1, batch: []proto.BucketWrite{record(proto.BucketMeta, "a", "b")}})
	receive(t, log.questions)(nil)
	receive(t, commits) // the backend is inside a commit and takes nothing
	handle.write(testWrite(2, 0, backendBytesMax))
	reply := actors.NewReply[HashResult]()
	handle.hash(emptyHash(reply))
	if _, err, done := reply.Poll(); !done || !errors.Is(err, actors.ErrFull) {
		t.Errorf("a hash beyond the bound: %v %v", done, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a write beyond the bound was taken")
			}
		}()
		handle.write(testWrite(3, 0, 1))
	}()
	close(goOn)
	receive(t, log.questions)(nil)
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointer_WaitsAfterARefusal: a log that is ending refuses at once. However much waits, the question comes
// back only after the interval, or on a wish; it would go round in a circle otherwise.
func TestCheckpointer_WaitsAfterARefusal(t *testing.T) {
	now := time.Unix(0, 0)
	core := newTestCheckpointer()
	core.admit(now, testWrite(7, 10, 1000))
	if action, _, _ := core.next(now); action != checkpointAsk {
		t.Fatalf("action %d with limits reached", action)
	}
	core.answered(now, 7, errors.New("refused"))
	if action, _, wait := core.next(now); action != checkpointLater || wait != core.limits.interval {
		t.Fatalf("action %d, %v after the refusal", action, wait)
	}
	if action, _, _ := core.next(now.Add(core.limits.interval)); action != checkpointAsk {
		t.Fatalf("action %d an interval after the refusal", action)
	}
	core.answered(now, 7, errors.New("refused"))
	core.want()
	if action, _, _ := core.next(now); action != checkpointAsk {
		t.Fatalf("action %d on a wish", action)
	}
}

// TestBackend_LargeValuesAreCommittedBeforeTheInterval: the log's fsync waits behind a commit on the same disk, so
// commits of large values are many and small. The clock stands still: only the bytes bring the commit.
func TestBackend_LargeValuesAreCommittedBeforeTheInterval(t *testing.T) {
	const value = 64 << 10
	log := stillLog{questions: make(chan func(error), 100), views: make(chan FileView, 100)}
	sys := actors.NewSystem(actors.Config{
		Name: "test", Clock: actorstest.NewManualClock(), Fatal: func(_ string, reason any, _ []byte) { t.Error(reason) },
	})
	handle, err := spawnBackend(sys, backendConfig{
		File: NewModelFile(ModelOptions{}), Log: log, Store: log, Revision: 1, Logger: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	// What wakes a backend that does not listen may wait in its mailbox when the bytes for a commit are together.
	const least, most = checkpointBytesMax, checkpointBytesMax + actors.WhisperBytesMax
	for sent := range (most + least) / value {
		if sent*value < least && len(log.questions) > 0 {
			t.Fatalf("a commit was begun with %d bytes", sent*value)
		}
		handle.write(testWrite(proto.Index(sent+2), 0, value))
		if (sent+1)*value == most {
			receive(t, log.questions)(nil)
			receive(t, log.views).Release()
		}
	}
	go func() { // what is left is committed at the end
		for question := range log.questions {
			question(nil)
		}
	}()
	if err := handle.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(log.questions)
}
