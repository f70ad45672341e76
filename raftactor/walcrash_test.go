package raftactor

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
)

// The property: whatever a crash leaves, the member starts, and what it starts from is a prefix of what was written
// that contains everything of which anyone was told that it is durable. The test plays raft: it gives the wal actor's
// behaviour batches of messages, on a disk that stops at a random operation, and believes the answers.

const (
	crashWALDir  = "/member/wal"
	crashSnapDir = "/member/snap"
)

// logged is one record as the log should have it.
type logged struct {
	entry    *raftpb.Entry
	state    *raftpb.HardState
	snapshot *SnapshotRecord
}

// crashRun is one seeded history with crashes.
type crashRun struct {
	random *rand.Rand
	disk   *disktest.Disk
	actor  *walActor
	meta   LogMeta

	// histories are what may be in the log: one, except after a crash that more than one explains.
	histories [][]logged
	// durable is how many records, of each history, must be there.
	durable int
	// confirmed and saved are what was answered to confirmations and snapshots.
	confirmed, saved proto.Index
	created          bool
	// killed says that the last life ended without the power: what it wrote is visible, and maybe volatile.
	killed bool
	broken map[string][]byte

	term, vote, commit, last uint64
	seq                      uint64
	// runEnds maps the number of an append to the number of records that are durable with it.
	runEnds map[uint64]int
	// snapEnds is the number of records that are durable with each snapshot under way, in order.
	snapEnds []int
	// space is nil when the disk has no end and nobody brings spares.
	space *crashSpace
}

var errStoppedInTurn = errors.New("stopped in the turn")

func newCrashRun(seed uint64, point disk.Point) *crashRun {
	d := disktest.New(seed)
	if point != "" {
		d.Break(point)
	}
	if err := d.MakeDir(crashSnapDir); err != nil {
		panic(err)
	}
	c := &crashRun{
		random: rand.New(rand.NewPCG(seed, 7)), disk: d,
		meta:      LogMeta{Member: 0x8e9e05c52164694d, Cluster: 0xcdf818194e3a8c32},
		histories: [][]logged{{{snapshot: &SnapshotRecord{}}}}, broken: map[string][]byte{}, term: 1,
	}
	if seed%2 == 1 {
		c.space = &crashSpace{}
		d.SetSegmentBytes(4 << 10 << c.random.IntN(4))
	}
	return c
}

// run plays a number of lives and gives what went wrong.
func (c *crashRun) run(lives int) error {
	for life := range lives {
		if err := c.start(); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		c.live()
		c.end()
	}
	c.disk.StopAt(0)
	return c.open()
}

// start starts the member, through crashes in the middle of the start.
func (c *crashRun) start() error {
	for {
		if c.random.IntN(4) == 0 {
			c.stopSomewhere(14)
		}
		mustOpen := c.fillBeforeStart()
		err := c.open()
		if err == nil {
			c.disk.StopAt(0)
			return nil
		}
		if !c.disk.Stopped() && (mustOpen || !disk.Full(err)) {
			return err
		}
		c.actor = nil
		c.end()
	}
}

// stopSomewhere lets the disk stop at one of the next operations, or at the next sync of some kind: the rare ones,
// and the moments right before them, get their share so.
func (c *crashRun) stopSomewhere(operations int) {
	if points := disk.Points(); c.random.IntN(2) == 0 {
		c.disk.StopAtSync(points[c.random.IntN(len(points))])
		return
	}
	c.disk.StopAt(1 + c.random.IntN(operations))
}

// end ends the process, mostly together with the power.
func (c *crashRun) end() {
	c.killed = !c.killed && c.random.IntN(2) == 0
	if c.killed {
		c.disk.Kill()
		return
	}
	c.disk.Crash(c.random.Uint64())
}

// open opens or creates the log and compares it with what it should hold.
func (c *crashRun) open() error {
	exists, err := LogExists(c.disk, crashWALDir)
	if err != nil {
		return err
	}
	if !exists {
		if c.created {
			return errors.New("the log is gone")
		}
		log, err := CreateLog(c.disk, crashWALDir, c.meta)
		if err != nil {
			return err
		}
		c.created, c.durable = true, 1
		c.spawn(log)
		return nil
	}
	if err := c.checkBroken(); err != nil {
		return err
	}
	tail, before, err := c.readTail()
	if err != nil {
		return err
	}
	delete(c.broken, tail)
	log, recovered, err := OpenLog(c.disk, crashWALDir)
	if err != nil {
		return err
	}
	if recovered.Repaired && !recovered.Uncopied {
		c.broken[tail] = before
	}
	if recovered.Uncopied && c.space == nil {
		return errors.New("no copy of the torn segment on a disk without an end")
	}
	if err := c.check(recovered); err != nil {
		return err
	}
	c.created = true
	c.spawn(log)
	return c.checkBroken()
}

// readTail gives name and content of the last segment.
func (c *crashRun) readTail() (string, []byte, error) {
	segments, err := listSegments(c.disk, crashWALDir)
	if err != nil {
		return "", nil, err
	}
	name := path.Join(crashWALDir, segments[len(segments)-1].name())
	content, err := c.disk.ReadFile(name)
	return name, content, err
}

// checkBroken looks for the copies that repairs made.
func (c *crashRun) checkBroken() error {
	for name, want := range c.broken {
		have, err := c.disk.ReadFile(name + brokenSuffix)
		if err != nil {
			return fmt.Errorf("the copy of the torn %s: %w", name, err)
		}
		if !bytes.Equal(have, want) {
			return fmt.Errorf("the copy of the torn %s is not what it was", name)
		}
	}
	return nil
}

// check finds the histories that explain what was recovered, and goes on with those.
func (c *crashRun) check(r *Recovered) error {
	if r.Meta != c.meta {
		return fmt.Errorf("metadata %+v", r.Meta)
	}
	var next [][]logged
	for _, history := range c.histories {
		for n := c.durable; n <= len(history); n++ {
			if explains(history[:n], r) {
				next = append(next, slices.Clone(history[:n]))
			}
		}
	}
	if len(next) == 0 {
		return fmt.Errorf("no prefix with the durable %d of %d records explains start %d, %d entries, state %v",
			c.durable, len(c.histories[0]), r.Start.Index, len(r.Entries), r.HardState)
	}
	if commit := proto.Index(r.HardState.GetCommit()); commit < c.confirmed {
		return fmt.Errorf("commit %d was confirmed, %d is there", c.confirmed, commit)
	}
	if r.Start.Index < c.saved {
		return fmt.Errorf("snapshot %d was saved, the log starts at %d", c.saved, r.Start.Index)
	}
	if r.Start.Index > 0 {
		s, err := ReadSnapFile(c.disk, path.Join(crashSnapDir, snapFileName(r.Start.Term, r.Start.Index)))
		if err != nil {
			return fmt.Errorf("the record at %d has no file: %w", r.Start.Index, err)
		}
		if !bytes.Equal(s.GetData(), snapData(r.Start.Index)) {
			return fmt.Errorf("the file of the record at %d holds something else", r.Start.Index)
		}
	}
	c.histories = next
	c.durable = 0
	for i, history := range next {
		if i == 0 || len(history) < c.durable {
			c.durable = len(history)
		}
	}
	c.term, c.vote = max(r.HardState.GetTerm(), 1), r.HardState.GetVote()
	c.commit, c.last = r.HardState.GetCommit(), uint64(r.Last())
	if n := len(r.Entries); n > 0 {
		c.term = max(c.term, r.Entries[n-1].GetTerm())
	}
	return nil
}

// explains computes, after etcd's definition and without regard to how the reader does it, what a log with these
// records says, and compares.
func explains(history []logged, r *Recovered) bool {
	var state *raftpb.HardState
	for _, rec := range history {
		if rec.state != nil {
			state = rec.state
		}
	}
	at, entriesFrom, commit := -1, 0, uint64(0)
	for i, rec := range history {
		if rec.state != nil {
			commit = rec.state.GetCommit()
		}
		if rec.snapshot == nil || uint64(rec.snapshot.Index) > state.GetCommit() {
			continue
		}
		at = i
		if uint64(rec.snapshot.Index) > commit && !passedBy(history[i+1:], rec.snapshot.Index) {
			entriesFrom = i // from the leader: what was before is void
		}
	}
	if at < 0 {
		return false
	}
	start := history[at].snapshot
	var entries []*raftpb.Entry
	for _, rec := range history[entriesFrom:] {
		if rec.entry == nil {
			continue
		}
		if proto.Index(rec.entry.GetIndex()) <= start.Index {
			entries = entries[:0]
			continue
		}
		if rec.entry.GetIndex() > uint64(start.Index)+uint64(len(entries))+1 {
			return false
		}
		entries = append(entries[:rec.entry.GetIndex()-uint64(start.Index)-1], rec.entry)
	}
	same := func(a, b *raftpb.Entry) bool {
		return a.GetIndex() == b.GetIndex() && a.GetTerm() == b.GetTerm() && bytes.Equal(a.GetData(), b.GetData())
	}
	return start.Index == r.Start.Index && slices.EqualFunc(entries, r.Entries, same) &&
		state.GetTerm() == r.HardState.GetTerm() && state.GetVote() == r.HardState.GetVote() &&
		state.GetCommit() == r.HardState.GetCommit()
}

// passedBy reports whether the records go on as if the snapshot had not come.
func passedBy(after []logged, index proto.Index) bool {
	next := uint64(index) + 1
	for _, rec := range after {
		if rec.state != nil && rec.state.GetCommit() >= uint64(index) {
			return false
		}
		if rec.entry == nil {
			continue
		}
		if i := rec.entry.GetIndex(); i <= uint64(index) || i > next {
			return true
		}
		next = rec.entry.GetIndex() + 1
	}
	return false
}

func (c *crashRun) spawn(log *Log) {
	commit := proto.Index(log.state.commit)
	c.runEnds, c.snapEnds = map[uint64]int{}, nil
	c.actor = &walActor{
		cfg: walConfig{
			log: log, disk: c.disk, snapDir: crashSnapDir, owner: c, segmentsKept: 2, snapFilesKept: 2,
			logger: zerolog.Nop(),
		},
		core: walCore{written: commit, synced: commit},
	}
	c.supply(log)
}

func (c *crashRun) persisted(upTo uint64, room logRoom) {
	c.takeRoom(room)
	if n, ok := c.runEnds[upTo]; ok {
		c.durable = max(c.durable, n)
	}
}

func (c *crashRun) snapshotSaved(index proto.Index) {
	c.durable, c.snapEnds = max(c.durable, c.snapEnds[0]), c.snapEnds[1:]
	c.saved = max(c.saved, index)
}

// live gives the actor batches until the disk stops, or for a while.
func (c *crashRun) live() {
	if c.killed && c.random.IntN(2) == 0 {
		return // a start alone must have made durable what it read
	}
	if c.random.IntN(3) > 0 {
		c.stopSomewhere(40)
	}
	for range max(0, c.random.IntN(16)-3) {
		c.fillOrFree()
		if c.turn(append(c.deliveries(), c.batch()...)) != nil {
			return
		}
		if c.space != nil { // snapshot records are told of with the next completion; real ones are lost in the reserve
			c.takeRoom(c.actor.room())
		}
	}
	if c.random.IntN(3) == 0 && !c.disk.Stopped() {
		c.actor.Stop()
		if !c.disk.Stopped() {
			c.allDurable()
		}
	}
}

func (c *crashRun) allDurable() {
	for i, history := range c.histories {
		if i == 0 || len(history) < c.durable {
			c.durable = len(history)
		}
	}
}

// turn runs one turn; the actor panics when the disk stops.
func (c *crashRun) turn(batch []walMessage) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if !c.disk.Stopped() {
				panic(r)
			}
			err = errStoppedInTurn
		}
	}()
	c.actor.Handle(actors.Self[walMessage]{}, batch)
	return nil
}

// batch makes the messages of one turn and adds to the histories what the log should hold after it: the entries of a
// run of appends, then its last hard state.
func (c *crashRun) batch() []walMessage {
	var batch []walMessage
	var state *raftpb.HardState
	var run []*walAppend
	closeRun := func() {
		if state != nil {
			c.add(logged{state: state})
		}
		state = nil
		sync := slices.ContainsFunc(run, func(a *walAppend) bool { return a.mustSync })
		if len(run) > 0 && sync {
			c.runEnds[run[len(run)-1].seq] = c.shortest()
		}
		run = nil
	}
	for range 1 + c.random.IntN(5) {
		m := c.message()
		if !c.admit(m) {
			continue
		}
		batch = append(batch, m)
		switch m := m.(type) {
		case *walAppend:
			run = append(run, m)
			for _, e := range m.entries {
				c.add(logged{entry: e})
			}
			if m.hardState != nil {
				state = m.hardState
			}
		case *walSnapshot:
			closeRun()
			c.add(logged{snapshot: &m.record})
			if m.hardState != nil {
				c.commit, c.last = uint64(m.record.Index), uint64(m.record.Index)
				c.add(logged{state: m.hardState})
			}
			c.snapEnds = append(c.snapEnds, c.shortest())
		}
	}
	closeRun()
	return batch
}

func (c *crashRun) add(rec logged) {
	for i := range c.histories {
		c.histories[i] = append(c.histories[i], rec)
	}
}

// shortest is the length of the shortest history: what is durable in each of them.
func (c *crashRun) shortest() int {
	n := len(c.histories[0])
	for _, history := range c.histories {
		n = min(n, len(history))
	}
	return n
}

// message makes what raft could say next.
func (c *crashRun) message() walMessage {
	switch c.random.IntN(12) {
	case 0: // a new term, and with it another leader's entries over the uncommitted ones
		c.term++
		c.vote = c.random.Uint64()
		if c.last > c.commit && c.random.IntN(2) == 0 {
			c.last = c.commit + c.random.Uint64N(c.last-c.commit)
			return c.append(c.entries(), true)
		}
		return c.append(nil, true)
	case 1, 2: // only the commit index
		c.advance()
		return c.append(nil, false)
	case 3, 4:
		index := proto.Index(c.commit)
		return &walConfirm{index: index, done: func(error) { c.confirmed = max(c.confirmed, index) }}
	case 5:
		if c.commit == 0 {
			break
		}
		return c.snapshotAt(proto.Index(c.commit))
	case 6:
		if c.random.IntN(4) == 0 && c.space == nil {
			s := c.snapshotAt(proto.Index(c.commit + 1 + c.random.Uint64N(12)))
			s.hardState = logState(c.term, c.vote, uint64(s.record.Index))
			return s
		}
	}
	entries := c.entries()
	if c.random.IntN(2) == 0 {
		c.advance()
	}
	return c.append(entries, true)
}

func (c *crashRun) advance() {
	if c.last > c.commit {
		c.commit += 1 + c.random.Uint64N(c.last-c.commit)
	}
}

func (c *crashRun) entries() []*raftpb.Entry {
	entries := make([]*raftpb.Entry, 1+c.random.IntN(3))
	for i := range entries {
		c.last++
		entries[i] = logEntry(c.term, c.last, c.data())
	}
	return entries
}

// data makes bytes without zeros, so that no piece of an entry looks like a lost sector.
func (c *crashRun) data() []byte {
	size := c.random.IntN(64)
	if c.random.IntN(2) == 0 {
		size = c.random.IntN(1500)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(1 + c.random.IntN(255))
	}
	return data
}

func (c *crashRun) append(entries []*raftpb.Entry, mustSync bool) *walAppend {
	c.seq++
	return &walAppend{hardState: logState(c.term, c.vote, c.commit), entries: entries, mustSync: mustSync, seq: c.seq}
}

func (c *crashRun) snapshotAt(index proto.Index) *walSnapshot {
	return &walSnapshot{
		record: SnapshotRecord{Index: index, Term: proto.Term(c.term), ConfState: &raftpb.ConfState{Voters: []uint64{1}}},
		data:   snapData(index),
	}
}

func snapData(index proto.Index) []byte { return fmt.Appendf(nil, "state at %d", index) }

func logEntry(term, index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Term: &term, Index: &index, Data: data}
}

func logState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

const (
	crashSeeds    = 1500
	crashLives    = 8
	mutationSeeds = 200
)

// runSeed runs one seed; a panic is a failure like any other. space is what happened on a disk that fills up.
func runSeed(seed uint64, point disk.Point) (space crashSpace, err error) {
	c := newCrashRun(seed, point)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		if c.space != nil {
			space = *c.space
		}
	}()
	return space, c.run(crashLives)
}

func TestLog_RecoversWhatWasAcknowledgedAfterAnyCrash(t *testing.T) {
	var all crashSpace
	for seed := range uint64(crashSeeds) {
		space, err := runSeed(seed, "")
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		all.add(&space)
	}
	t.Logf("%+v", all.counts)
	if c := all.counts; min(c.full, c.refused, c.unsaved, c.ready, c.recovered) < crashSeeds/20 {
		t.Errorf("the disk was not full often enough to show anything: %+v", c)
	}
}

// Each sync is needed: with one of them broken, the property above fails.
func TestLog_EverySyncIsNeeded(t *testing.T) {
	for _, point := range disk.Points() {
		t.Run(string(point), func(t *testing.T) {
			for seed := range uint64(mutationSeeds) {
				if _, err := runSeed(seed, point); err != nil {
					t.Logf("caught by seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("nothing is lost without the sync %q", point)
		})
	}
}
