package storeactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// recordingBackend takes the place of the backend: it records, and reports only when told to.
type recordingBackend struct {
	writes   []*backendWrite
	compacts []*compactFile
	hashes   []*hashRequest
	said     *[]string
	disk     FileStatus
}

func (b *recordingBackend) write(w *backendWrite) {
	b.writes = append(b.writes, w)
	*b.said = append(*b.said, fmt.Sprintf("write %d", w.index))
}

func (b *recordingBackend) compact(c *compactFile)       { b.compacts = append(b.compacts, c) }
func (b *recordingBackend) hash(r *hashRequest)          { b.hashes = append(b.hashes, r) }
func (b *recordingBackend) snapshot(m *snapshotFile)     { m.fail(actors.ErrStopped) }
func (b *recordingBackend) defragment(m *defragmentFile) { m.reply.Fail(actors.ErrStopped) }
func (b *recordingBackend) status() FileStatus           { return b.disk }
func (b *recordingBackend) stop(context.Context) error   { return nil }

// stage is a store with a recording backend, stepped by the test.
type stage struct {
	t       *testing.T
	client  *Client
	backend *recordingBackend
	file    *ModelFile
	steps   *actorstest.Stepper
	clock   *actorstest.ManualClock
	link    *storeLink
	said    []string
	next    proto.Index
}

func newStage(t *testing.T) *stage {
	s := &stage{
		t: t, file: NewModelFile(ModelOptions{}), steps: actorstest.NewStepper(1), clock: actorstest.NewManualClock(),
		link: &storeLink{}, next: 1,
	}
	s.backend = &recordingBackend{said: &s.said}
	sys := actors.NewSystem(actors.Config{
		Name: t.Name(), Dispatcher: s.steps, Clock: s.clock,
		Fatal: func(_ string, reason any, stack []byte) { t.Errorf("%v\n%s", reason, stack) },
	})
	restored, err := Restore(s.file, 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		File: s.file, Restored: restored, Log: realStore{}, LeaseTTLMin: 2, QuotaBytes: -1, Logger: zerolog.Nop(),
	}
	s.client = &Client{backend: s.backend, out: &published{}}
	state := s.client.State
	cfg.Notify = Notify{
		Leases:  func(c []proto.LeaseChange) { s.say("leases %d at %d", len(c), state().Applied) },
		Events:  func(b *proto.EventBatch) { s.say("events %d at %d", len(b.Events), state().Applied) },
		Applied: func(i proto.Index) { s.say("applied %d at %d", i, state().Applied) },
		NoSpace: func() { s.say("no space") },
	}
	m := newMachine(&cfg)
	s.client.out.state.Store(m.state())
	if s.client.metrics, err = newStoreMetrics(nil, state); err != nil {
		t.Fatal(err)
	}
	if err := s.client.spawn(sys, &cfg, m, s.link); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// waiterOf records what becomes of a request under its name.
type waiterOf struct {
	s    *stage
	name string
	n    *int
}

func (w waiterOf) Send(*proto.Result) {
	*w.n++
	w.s.say("answer %s at %d", w.name, w.s.client.State().Applied)
}
func (w waiterOf) Fail(err error) { *w.n++; w.s.say("fail %s: %v", w.name, err) }

// batch makes a batch of requests with waiters that count.
func (s *stage) batch(answered *int, requests ...*pb.InternalRaftRequest) *proto.Batch {
	b := &proto.Batch{}
	for _, r := range requests {
		b.Commands = append(b.Commands, proto.Command{
			Index: s.next, Term: 1, Request: r, Answer: waiterOf{s, fmt.Sprint(s.next), answered},
		})
		s.next++
		b.Bytes += 64
	}
	return b
}

func (s *stage) apply(b *proto.Batch) {
	s.t.Helper()
	if err := s.client.Apply(b); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) run() {
	for s.steps.Step() {
	}
}

func (s *stage) checkpoint(index proto.Index, revision proto.Revision) {
	s.t.Helper()
	view, err := s.file.View()
	if err != nil {
		s.t.Fatal(err)
	}
	s.link.checkpointed(&checkpointed{index: index, revision: revision, view: view})
}

func putOf(key string, bytesOfValue int) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: bytes.Repeat([]byte("x"), bytesOfValue)}}
}

func grantOf(id int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: 9}}
}

// TestStore_TellsInOrder: state, lease, hub, backend, waiters, raft; and whoever is told finds the state that he is
// told of.
func TestStore_TellsInOrder(t *testing.T) {
	s := newStage(t)
	answered := 0
	s.apply(s.batch(&answered, grantOf(1), putOf("a", 1)))
	s.run()
	want := []string{"leases 1 at 2", "events 1 at 2", "write 2", "answer 1 at 2", "answer 2 at 2", "applied 2 at 2"}
	if !slices.Equal(s.said, want) {
		t.Fatalf("%q\nwant %q", s.said, want)
	}
}

// TestStore_CreditHoldsExecution: past the bound of what is on its way to the file nothing is executed, nothing is
// lost, and a checkpoint lets it go on.
func TestStore_CreditHoldsExecution(t *testing.T) {
	s := newStage(t)
	answered, sent := 0, 0
	for range 40 {
		s.apply(s.batch(&answered, putOf("a", 4<<20)))
		sent++
		s.run()
	}
	held := s.client.State().Applied
	if held < 10 || held >= 40 || answered != int(held) {
		t.Fatalf("applied %d, answered %d", held, answered)
	}
	out := s.client.State().Unwritten
	if out < backendBytesOutstandingMax-64<<10 || out > backendBytesOutstandingMax+8<<20 {
		t.Fatalf("%d bytes are on their way", out)
	}
	for round := 0; s.client.State().Applied < 40; round++ {
		if round > 40 {
			t.Fatal("checkpoints do not let it go on")
		}
		last := s.backend.writes[len(s.backend.writes)-1]
		s.checkpoint(last.index, last.revision)
		s.run()
	}
	last := s.backend.writes[len(s.backend.writes)-1]
	s.checkpoint(last.index, last.revision)
	s.run()
	state := s.client.State()
	if answered != sent || state.Unwritten != 0 || len(state.recent.full)+len(state.recent.tail) != 0 {
		t.Fatalf("answered %d of %d, %d unwritten, recent %+v", answered, sent, state.Unwritten, state.recent)
	}
	if s.file.OpenViews() != 1 {
		t.Fatalf("%d handles are open", s.file.OpenViews())
	}
}

// TestStore_FullDiskDoesNotHoldWhatWasProposed: when the disk fills while the credit is used up, what was proposed
// before is applied all the same, up to a second bound, because reads wait for it.
func TestStore_FullDiskDoesNotHoldWhatWasProposed(t *testing.T) {
	s := newStage(t)
	answered := 0
	for range 40 {
		s.apply(s.batch(&answered, putOf("a", 4<<20)))
		s.run()
	}
	held := s.client.State().Applied
	s.backend.disk = FileStatus{FullSince: time.Unix(1, 0)}
	s.link.diskFull()
	s.run()
	applied, out := s.client.State().Applied, s.client.State().Unwritten
	if applied <= held || out > backendBytesOutstandingMax+diskFullBytesExtra+8<<20 ||
		out < backendBytesOutstandingMax+diskFullBytesExtra-64<<10 {
		t.Fatalf("applied %d, before %d; %d bytes are on their way", applied, held, out)
	}
}

// TestStore_MailboxFull: what does not fit is refused and stays the sender's, what was admitted is answered once.
func TestStore_MailboxFull(t *testing.T) {
	s := newStage(t)
	answered, admitted := 0, 0
	for {
		b := s.batch(&answered, putOf("a", 1))
		if err := s.client.Apply(b); errors.Is(err, actors.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		admitted++
	}
	if admitted != storeMessagesMax {
		t.Fatalf("%d batches fit", admitted)
	}
	s.run()
	if answered != admitted || s.client.State().Applied != proto.Index(admitted) {
		t.Fatalf("answered %d of %d, applied %d", answered, admitted, s.client.State().Applied)
	}
}

// TestStore_StopAnswersEverybody: the executed, the held, the waiting for an index, and who comes late.
func TestStore_StopAnswersEverybody(t *testing.T) {
	s := newStage(t)
	answered, sent := 0, 30
	for range sent {
		s.apply(s.batch(&answered, putOf("a", 4<<20)))
	}
	if err := s.client.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if answered != sent {
		t.Fatalf("answered %d of %d", answered, sent)
	}
	if err := s.client.Apply(s.batch(&answered, putOf("a", 1))); !errors.Is(err, actors.ErrStopped) {
		t.Fatalf("after the end: %v", err)
	}
	if err := s.client.WaitApplied(context.Background(), 1000); !errors.Is(err, ErrStopped) {
		t.Fatalf("waiting after the end: %v", err)
	}
	if err := s.client.WaitApplied(context.Background(), 1); err != nil {
		t.Fatalf("waiting for what is applied: %v", err)
	}
	if _, err := s.client.HashKV(context.Background(), 0); !errors.Is(err, actors.ErrStopped) {
		t.Fatalf("hash after the end: %v", err)
	}
}

// TestStore_CompactionInStepsOneAfterTheOther: the answer comes at once, the backend is asked when the whole index is
// done, and a second compaction waits for the first one's deletions.
func TestStore_CompactionInStepsOneAfterTheOther(t *testing.T) {
	s := newStage(t)
	answered := 0
	var puts []*pb.InternalRaftRequest
	for i := range 3*compactionStepKeys + 5 {
		puts = append(puts, putOf(fmt.Sprint(i), 1))
	}
	s.apply(s.batch(&answered, puts...))
	s.apply(s.batch(&answered, compactAt(5), compactAt(7)))
	s.run()
	if answered < len(puts)+2 {
		t.Fatal("the compactions are not answered")
	}
	s.rest(3)
	if len(s.backend.compacts) != 1 || s.backend.compacts[0].revision != 5 {
		t.Fatalf("asked for %+v", s.backend.compacts)
	}
	s.link.compactedPhysically(&compactedPhysically{revision: 5})
	s.run()
	s.rest(3)
	if len(s.backend.compacts) != 2 || s.backend.compacts[1].revision != 7 || s.client.State().Compacted != 7 {
		t.Fatalf("asked for %+v", s.backend.compacts)
	}
}

// rest lets the pauses between so many steps of a compaction pass. None is made before its time, writes or not, and the
// backend hears of it only after the last.
func (s *stage) rest(steps int) {
	s.t.Helper()
	before := len(s.backend.compacts)
	answered := 0
	for range steps {
		s.apply(s.batch(&answered, putOf("between", 1)))
		s.run()
		if len(s.backend.compacts) != before {
			s.t.Fatal("the backend was asked before the index was compacted")
		}
		s.clock.Advance(compactionStepPause)
		s.run()
	}
	if answered != steps {
		s.t.Fatalf("%d of %d writes were answered between the steps", answered, steps)
	}
}

// TestStore_HashCarriesThePublishedState: and it leaves behind all writes of that state.
func TestStore_HashCarriesThePublishedState(t *testing.T) {
	s := newStage(t)
	answered := 0
	s.apply(s.batch(&answered, putOf("a", 1)))
	s.run()
	reply := actors.NewReply[HashResult]()
	if err := s.client.ref.Tell(actors.Normal, &hashRequest{reply: reply}); err != nil {
		t.Fatal(err)
	}
	s.run()
	if len(s.backend.hashes) != 1 || s.backend.hashes[0].state != s.client.State() {
		t.Fatalf("%+v", s.backend.hashes)
	}
	s.backend.hashes[0].reply.Send(HashResult{Hash: 5})
	if h, err, ok := reply.Poll(); !ok || err != nil || h.Hash != 5 {
		t.Fatal(h, err, ok)
	}
}

// TestWaitApplied_WakesAtThePublish: not before, not never, and the context ends it.
func TestWaitApplied_WakesAtThePublish(t *testing.T) {
	s := newStage(t)
	answered := 0
	done := make(chan error, 2)
	go func() { done <- s.client.WaitApplied(context.Background(), 2) }()
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("given up")
	go func() { done <- s.client.WaitApplied(ctx, 99) }()
	for s.client.out.waiters.waiting.Load() != 2 {
		runtime.Gosched()
	}
	s.apply(s.batch(&answered, putOf("a", 1)))
	s.run()
	select {
	case err := <-done:
		t.Fatalf("woken at index 1: %v", err)
	default:
	}
	s.apply(s.batch(&answered, putOf("a", 1)))
	s.run()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Fatal(err)
	}
	if n := s.client.out.waiters.waiting.Load(); n != 0 || len(s.client.out.waiters.queue) != 0 {
		t.Fatalf("%d still wait", n)
	}
}

// TestStore_DefragmentationIsAnsweredWhenItsSizesArePublished: who asked for it writes next, and the quota must know
// the new size by then.
func TestStore_DefragmentationIsAnsweredWhenItsSizesArePublished(t *testing.T) {
	s := newStage(t)
	view, err := s.file.View()
	if err != nil {
		t.Fatal(err)
	}
	var published FileSizes
	caller := &defragmentFile{reply: actors.ReplyTo(func(struct{}, error) { published = s.client.Sizes() })}
	s.link.checkpointed(&checkpointed{view: view, sizes: FileSizes{Total: 77}, callers: []*defragmentFile{caller}})
	for s.steps.Step() {
	}
	if published.Total != 77 {
		t.Errorf("answered while the published sizes were %+v", published)
	}
}
