package raftactor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"troupe/actors"
	"troupe/proto"
)

// testWAL is a wal that makes durable what it is told to, when it is told to.
type testWAL struct {
	owner walOwner
	mu    sync.Mutex
	// room is how many messages it still takes; negative: any number.
	room  int
	auto  bool
	taken []walMessage
	// forget keeps taken empty.
	forget bool
	// hold, if set, is called for a confirmation, in raft's turn.
	hold func()
}

func (w *testWAL) tell(m walMessage) error {
	if c, ok := m.(*walConfirm); ok && w.hold != nil {
		w.hold()
		c.done(nil)
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == 0 {
		return actors.ErrFull
	}
	w.room--
	if !w.forget {
		w.taken = append(w.taken, m)
	}
	if a, ok := m.(*walAppend); ok && w.auto {
		w.owner.persisted(a.seq, logRoom{})
	}
	return nil
}

func (w *testWAL) stop(context.Context) error { return nil }

// set changes what it does from now on.
func (w *testWAL) set(auto bool, room int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.auto, w.room = auto, room
}

// appends are the numbers of the appends it has taken.
func (w *testWAL) appends() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var seqs []uint64
	for _, m := range w.taken {
		if a, ok := m.(*walAppend); ok {
			seqs = append(seqs, a.seq)
		}
	}
	return seqs
}

// startOnWAL starts a member whose log is begun and whose file holds its first entry.
func startOnWAL(t testing.TB, wal *testWAL, timeout time.Duration) *testNode {
	t.Helper()
	return startTicking(t, wal, timeout, 5*time.Millisecond)
}

// startTicking is startOnWAL with a tick of choice.
func startTicking(t testing.TB, wal *testWAL, timeout, tick time.Duration) *testNode {
	t.Helper()
	n := &testNode{machine: &testMachine{last: 1}, system: actors.NewSystem(actors.Config{Log: zerolog.Nop()})}
	m := testMembership(1)
	client, err := Spawn(n.system, Config{
		Meta: LogMeta{Member: 1, Cluster: 7}, TickInterval: tick, RequestTimeout: timeout,
		Recovered: &Recovered{
			Meta: LogMeta{Member: 1, Cluster: 7}, Entries: bootstrapEntries(m.Members),
			HardState: &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(1))},
		},
		AppliedAtStart: 1, Membership: m, Machine: n.machine, Bind: n.machine.client.Store, Logger: zerolog.Nop(),
		startWAL: func(owner walOwner) (walLink, error) { wal.owner = owner; return wal, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.client = client
	return n
}

func TestShell_ADiskThatNeverAnswersFailsEachRequestOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	wal := &testWAL{auto: true, room: -1}
	n := startOnWAL(t, wal, 200*time.Millisecond)
	n.put(t, "a")
	wal.set(false, -1)
	// Taken while the disk looks well: the outcome is unknown.
	if _, err := n.client.Propose(testContext(t), putRequest("b")); !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %v", err)
	}
	// By now the append is older than an election timeout: refused at once. A member that is alone still reads, because
	// nobody else can have been elected.
	if _, err := n.client.Propose(testContext(t), putRequest("c")); !errors.Is(err, ErrDiskStalled) {
		t.Fatalf("got %v", err)
	}
	if index, err := n.client.ReadIndex(testContext(t)); err != nil || index < n.client.Status().Applied {
		t.Fatalf("read at %d: %v", index, err)
	}
	if s := n.client.Status(); s.DiskStalledTicks < 10 {
		t.Fatalf("status %+v", s)
	}
	// It comes back: the proposal that was given up on is committed, and nobody is told a second time.
	wal.set(true, -1)
	seqs := wal.appends()
	wal.owner.persisted(seqs[len(seqs)-1], logRoom{})
	eventually(t, "work again", func() bool {
		_, err := n.client.Propose(testContext(t), putRequest("d"))
		return err == nil
	})
	if keys, _, _ := n.machine.snapshot(); keys[0] != "a" || keys[1] != "b" {
		t.Fatalf("got %v", keys)
	}
	n.stop(t)
}

func TestShell_AFullWALLosesNothingAndKeepsTheOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	wal := &testWAL{auto: true, room: -1}
	n := startOnWAL(t, wal, 20*time.Second)
	n.put(t, "a")
	wal.set(true, 0)
	replies := make(chan error, 20)
	for range 20 {
		go func() {
			_, err := n.client.Propose(context.Background(), putRequest("x"))
			replies <- err
		}()
	}
	eventually(t, "all in raft", func() bool { return n.client.ref.Depth(actors.Normal) == 0 })
	wal.set(true, -1) // raft tries again at each turn, and ticks make turns
	for range 20 {
		if err := <-replies; err != nil {
			t.Fatal(err)
		}
	}
	for i, seq := range wal.appends() {
		if seq != uint64(i)+1 {
			t.Fatalf("append %d has number %d", i+1, seq)
		}
	}
	n.stop(t)
}

// While the log of a lone member is written, proposals gather without waking raft, and its answer makes one append of
// them all. No tick comes in the time of the test.
func TestShell_ProposalsGatherWhileTheLogIsWritten(t *testing.T) {
	defer goleak.VerifyNone(t)
	wal := &testWAL{auto: true, room: -1}
	n := startTicking(t, wal, 20*time.Minute, time.Minute)
	n.put(t, "a")
	wal.set(false, -1)
	before := len(wal.appends())
	replies := make(chan error, 21)
	propose := func(count int) {
		for range count {
			go func() {
				_, err := n.client.Propose(context.Background(), putRequest("x"))
				replies <- err
			}()
		}
	}
	propose(1)
	eventually(t, "an append under way, and raft asleep", func() bool {
		return len(wal.appends()) > before && raftStats(n).BusySince.IsZero()
	})
	heard := raftStats(n).Lanes[1].Whispered
	propose(20)
	eventually(t, "20 proposals that woke nobody", func() bool { return raftStats(n).Lanes[1].Whispered >= heard+20 })
	wal.set(true, -1)
	seqs := wal.appends()
	wal.owner.persisted(seqs[len(seqs)-1], logRoom{})
	for range 21 {
		if err := <-replies; err != nil {
			t.Fatal(err)
		}
	}
	n.stop(t)
	var entries []int
	for _, m := range wal.taken[before:] {
		if a, ok := m.(*walAppend); ok && len(a.entries) > 0 {
			entries = append(entries, len(a.entries))
		}
	}
	if !slices.Equal(entries, []int{1, 20}) {
		t.Errorf("appends of %v entries, want one of 1 and one of 20", entries)
	}
}

// raftStats is the picture of raft's mailbox.
func raftStats(n *testNode) actors.Stats {
	for _, a := range n.system.Snapshot() {
		if a.Name == "raft" {
			return a
		}
	}
	return actors.Stats{Lanes: make([]actors.LaneStats, 2)}
}

// The mailbox is filled to its bound: what does not fit is refused at once, what was taken is answered.
func TestShell_AFullMailboxRefuses(t *testing.T) {
	defer goleak.VerifyNone(t)
	gate, entered := make(chan struct{}), make(chan struct{}, 2)
	wal := &testWAL{auto: true, room: -1, hold: func() { entered <- struct{}{}; <-gate }}
	n := startOnWAL(t, wal, 20*time.Second)
	n.put(t, "a")
	// A wal that does not return keeps the raft actor in its turn.
	n.client.ConfirmCommit(1, func(error) {})
	<-entered
	answers := make(chan error, inboxMessagesMax+1)
	refused := 0
	for range inboxMessagesMax + 1 {
		reply := actors.ReplyTo(func(_ proto.Index, err error) { answers <- err })
		if err := n.client.ref.Tell(actors.Normal, &read{answer: reply}); err != nil {
			if !errors.Is(err, actors.ErrFull) {
				t.Fatal(err)
			}
			refused++
		}
	}
	if _, err := n.client.Propose(testContext(t), putRequest("b")); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("got %v", err)
	}
	close(gate)
	for range inboxMessagesMax + 1 - refused {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	n.stop(t)
}

// BenchmarkMember_Propose is the way of a put through raft, a wal that answers at once, apply, and back.
func BenchmarkMember_Propose(b *testing.B) {
	wal := &testWAL{auto: true, room: -1, forget: true}
	n := startOnWAL(b, wal, 20*time.Second)
	b.ReportAllocs()
	b.SetParallelism(50)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := n.client.Propose(context.Background(), putRequest("key")); err != nil {
				b.Error(err)
				return
			}
		}
	})
	if err := n.client.Stop(context.Background()); err != nil {
		b.Error(err)
	}
}
