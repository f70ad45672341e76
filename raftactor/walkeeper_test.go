package raftactor

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
)

// busyDisk notes whether a file is made or space reserved while an actor that must not wait for that has its turn.
type busyDisk struct {
	*disktest.Disk
	turn     bool
	reserved int
}

func (d *busyDisk) Create(name string) (disk.File, error) {
	if d.turn {
		d.reserved++
	}
	f, err := d.Disk.Create(name)
	return busyFile{f, d}, err
}

type busyFile struct {
	disk.File
	disk *busyDisk
}

func (f busyFile) Preallocate(size int64) error {
	if f.disk.turn {
		f.disk.reserved++
	}
	return f.File.Preallocate(size)
}

// handWAL is a wal actor whose helper and timer are the test's hands.
type handWAL struct {
	t      *testing.T
	disk   *busyDisk
	actor  *walActor
	owner  *completions
	log    bytes.Buffer
	orders []spareOrder
	delays []time.Duration
	seq    uint64
}

func newHandWAL(t *testing.T, segment int64) *handWAL {
	t.Helper()
	w := &handWAL{t: t, disk: &busyDisk{Disk: disktest.New(1)}, owner: &completions{}}
	w.disk.SetSegmentBytes(segment)
	if err := w.disk.MakeDir(crashSnapDir); err != nil {
		t.Fatal(err)
	}
	log, err := CreateLog(w.disk, crashWALDir, readMeta)
	if err != nil {
		t.Fatal(err)
	}
	log.supplied = true
	w.actor = &walActor{
		cfg: walConfig{log: log, disk: w.disk, snapDir: crashSnapDir, owner: w.owner, segmentsKept: 5, snapFilesKept: 5,
			logger: zerolog.New(&w.log), order: func(o spareOrder) { w.orders = append(w.orders, o) }},
		after: func(d time.Duration, _ walMessage) { w.delays = append(w.delays, d) },
	}
	return w
}

// turn gives the actor messages.
func (w *handWAL) turn(batch ...walMessage) {
	w.disk.turn = true
	w.actor.Handle(actors.Self[walMessage]{}, batch)
	w.disk.turn = false
}

// write appends an entry of that size and commits it.
func (w *handWAL) write(size int) {
	w.seq++
	w.turn(&walAppend{hardState: logState(1, 1, w.seq), mustSync: true, seq: w.seq,
		entries: []*raftpb.Entry{logEntry(1, w.seq, make([]byte, size))}})
}

// deliver lets the helper answer the last order.
func (w *handWAL) deliver() {
	w.t.Helper()
	o := w.orders[len(w.orders)-1]
	file, err := prepareSegment(w.disk, o.path, o.bytes)
	w.turn(&walSpare{disk: w.disk, path: o.path, generation: o.generation, file: file, err: err})
}

func (w *handWAL) retry() { w.turn(&walRetry{w.actor.spares.generation}) }

func (w *handWAL) snapshot() {
	w.turn(&walSnapshot{
		record: SnapshotRecord{Index: proto.Index(w.seq), Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{1}}},
		data:   []byte("{}"),
	})
}

func (w *handWAL) segments() int {
	w.t.Helper()
	segments, err := listSegments(w.disk, crashWALDir)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(segments)
}

func (w *handWAL) lines(text string) int { return strings.Count(w.log.String(), text) }

// The actor's turns make no file of the log and reserve nothing, however many segments are filled.
func TestWAL_NoTurnWaitsForSpace(t *testing.T) {
	w := newHandWAL(t, 64<<10)
	answered := 0
	for range 100 {
		w.write(3000)
		for ; answered < len(w.orders); answered++ {
			w.deliver()
		}
	}
	if n := w.segments(); n < 4 {
		t.Fatalf("only %d segments were filled", n)
	}
	if w.disk.reserved > 0 {
		t.Errorf("turns made files or reserved space %d times", w.disk.reserved)
	}
	if n := len(w.orders); n > w.segments() {
		t.Errorf("%d orders for %d segments", n, w.segments())
	}
}

// A helper that is late lets the segment grow, as etcd's may; one that brings the spare later brings the cut.
func TestWAL_ALateSpareHoldsNothingUp(t *testing.T) {
	w := newHandWAL(t, 64<<10)
	for range 40 {
		w.write(3000)
	}
	if n := w.segments(); n != 1 || len(w.orders) != 1 {
		t.Fatalf("%d segments, %d orders", n, len(w.orders))
	}
	if seq, _ := w.owner.last(); seq != 40 {
		t.Errorf("durable up to %d", seq)
	}
	w.deliver()
	w.write(3000)
	if n := w.segments(); n != 2 {
		t.Errorf("%d segments", n)
	}
}

// The full disk is said once, tried again with a back-off that has an end, and is over once, said once.
func TestWAL_AFullDiskIsSaidOnceAndTriedAgain(t *testing.T) {
	w := newHandWAL(t, 64<<10)
	w.disk.SetSpace(0)
	w.write(20_000)
	for range 8 {
		w.deliver()
		if !w.owner.room.full || !w.owner.room.limited {
			t.Fatalf("raft was told %+v", w.owner.room)
		}
		w.retry()
	}
	if len(w.orders) != 9 || w.delays[0] != spareRetryMin || w.delays[7] != spareRetryMax || !slices.IsSorted(w.delays) {
		t.Errorf("%d orders, pauses of %v", len(w.orders), w.delays)
	}
	w.disk.SetSpace(-1)
	w.deliver()
	if w.owner.room.full || w.actor.cfg.log.spare == nil {
		t.Errorf("with space raft was told %+v", w.owner.room)
	}
	for _, line := range []string{"the disk of the log is full", "has space again"} {
		if n := w.lines(line); n != 1 {
			t.Errorf("%d lines %q in\n%s", n, line, &w.log)
		}
	}
	// The answer to an old order is not taken, and its file goes.
	w.turn(&walSpare{disk: w.disk, path: crashWALDir + "/old.tmp", generation: 1,
		file: busyFile{mustCreate(t, w.disk), w.disk}})
	if names, _ := w.disk.List(crashWALDir); slices.Contains(names, "old.tmp") {
		t.Errorf("left over: %v", names)
	}
}

func mustCreate(t *testing.T, d Disk) disk.File {
	t.Helper()
	f, err := d.Create(crashWALDir + "/old.tmp")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Before a full disk is one, the segments go that no start reads, and a snapshot lets more of them go.
func TestWAL_WhatNobodyNeedsMakesRoom(t *testing.T) {
	w := newHandWAL(t, 64<<10)
	fillSegments := func(n int) {
		for have := w.segments(); w.segments() < have+n; {
			orders := len(w.orders)
			if w.write(10_000); len(w.orders) > orders {
				w.deliver()
			}
		}
	}
	fillSegments(2)
	w.snapshot()
	if n := w.segments(); n != 3 {
		t.Fatalf("%d segments", n)
	}
	w.disk.SetSpace(100)
	for orders := len(w.orders); len(w.orders) == orders; {
		w.write(5000)
	}
	w.deliver() // fails, deletes two released segments, and orders again
	w.deliver()
	if w.owner.room.full || w.actor.cfg.log.spare == nil || w.segments() != 1 {
		t.Fatalf("%d segments, room %+v", w.segments(), w.owner.room)
	}
	if n := w.lines("segments that no start needs were deleted"); n != 1 {
		t.Errorf("%d lines in\n%s", n, &w.log)
	}
	// Nothing is released now. The next segment cannot be reserved, and raft hears which snapshot would help.
	w.disk.SetSpace(100)
	for w.segments() == 1 {
		w.write(5000)
	}
	for orders := len(w.orders); len(w.orders) == orders; {
		w.write(5000)
	}
	w.deliver()
	if !w.owner.room.full || w.owner.room.release == 0 || uint64(w.owner.room.release) > w.seq {
		t.Fatalf("room %+v at %d", w.owner.room, w.seq)
	}
	orders := len(w.orders)
	w.snapshot()
	if n := w.segments(); n != 1 {
		t.Errorf("%d segments after a snapshot on a full disk", n)
	}
	if len(w.orders) == orders {
		t.Fatal("the space that was given back is not used at once")
	}
	w.deliver()
	if w.owner.room.full {
		t.Errorf("room %+v", w.owner.room)
	}
}

// A snapshot whose file finds no room changes nothing, is said once, leaves no file behind, and works later.
func TestWAL_ASnapshotWithoutRoomIsPutOff(t *testing.T) {
	w := newHandWAL(t, 64<<10)
	w.write(1000)
	w.disk.SetSpace(10)
	for range 3 {
		w.snapshot()
	}
	if len(w.owner.failures) != 3 || len(w.owner.snapshots) != 0 {
		t.Fatalf("failed %v, saved %v", w.owner.failures, w.owner.snapshots)
	}
	if names, _ := w.disk.List(crashSnapDir); len(names) != 0 {
		t.Errorf("left over: %v", names)
	}
	if n := w.lines("no room for a snapshot file"); n != 1 {
		t.Errorf("%d lines in\n%s", n, &w.log)
	}
	w.disk.SetSpace(-1)
	w.snapshot()
	if len(w.owner.snapshots) != 1 {
		t.Errorf("saved %v", w.owner.snapshots)
	}
	w.disk.Crash(1)
	_, r, err := OpenLog(w.disk, crashWALDir)
	if err != nil || uint64(r.Start.Index) != w.seq {
		t.Errorf("starts at %+v, %v", r, err)
	}
}

// The helper's answer finds a full mailbox, or an actor that has ended: it comes later, or leaves no file behind.
func TestSpares_NoAnswerIsLostOrLeftBehind(t *testing.T) {
	stepper, clock := actorstest.NewStepper(1), actorstest.NewManualClock()
	f := spawnTestWAL(t, actors.Config{Name: "wal", Dispatcher: stepper, Clock: clock})
	stepper.Run(10)
	order := func(name string) {
		err := f.client.spares.Tell(actors.Normal, spareOrder{path: crashWALDir + "/" + name, bytes: 1000, to: f.client.ref})
		if err != nil {
			t.Fatal(err)
		}
	}
	left := func(name string) bool {
		names, err := f.disk.List(crashWALDir)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(names, name)
	}
	order("x.tmp")
	armed := false
	for seq := uint64(1); !armed && seq < 10*walInboxMessagesMax; stepper.Step() {
		for f.client.tell(entryAppend(seq)) == nil {
			seq++
		}
		_, armed = clock.Next()
	}
	if !armed || !left("x.tmp") {
		t.Fatalf("the helper does not wait for room: %v, %v", armed, left("x.tmp"))
	}
	stepper.Run(1000)
	clock.Advance(spareRetryMin)
	stepper.Run(1000)
	if left("x.tmp") { // wal has not ordered it, so it has dropped what it got
		t.Error("the answer was lost")
	}
	if err := f.client.ref.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	order("y.tmp")
	stepper.Run(1000)
	if left("y.tmp") || left("0.tmp") || left("1.tmp") {
		t.Error("a file is left behind")
	}
	if err := f.client.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A stalled disk can use up the time of a shutdown, so that the helper has ended and the actor works on: it writes what
// it was given and does without a spare.
func TestWAL_AHelperThatHasEndedIsNotMissed(t *testing.T) {
	stepper := actorstest.NewStepper(1)
	f := spawnTestWAL(t, actors.Config{Name: "wal", Dispatcher: stepper})
	stepper.Run(10)
	if err := f.client.spares.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	const bytes = 400 << 10 // more than a quarter of a segment
	for seq := uint64(1); seq <= 4; seq++ {
		m := entryAppend(seq)
		m.entries[0].Data = make([]byte, bytes)
		if err := f.client.tell(m); err != nil {
			t.Fatal(err)
		}
		stepper.Run(10)
	}
	if seq, _ := f.owner.last(); seq != 4 {
		t.Errorf("durable up to %d", seq)
	}
	if err := f.client.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// The hard state of a snapshot from the leader becomes durable with its record: without room for the snapshot nobody
// may be told of it.
func TestWAL_ALeadersSnapshotWithoutRoomIsNotPutOff(t *testing.T) {
	w := newHandWAL(t, 64<<10)
	w.write(1000)
	w.disk.SetSpace(10)
	defer func() {
		if r := recover(); r == nil || len(w.owner.failures) > 0 {
			t.Errorf("it goes on: %v, failed %v", r, w.owner.failures)
		}
	}()
	w.turn(&walSnapshot{hardState: logState(1, 1, 9), data: []byte("{}"),
		record: SnapshotRecord{Index: 9, Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{1}}}})
}
