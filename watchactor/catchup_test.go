package watchactor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// piecesOf is how many pieces of that many bytes a history of equal events makes when it is read from one end.
func piecesOf(m *model, bytes int) int {
	pieces, size := 1, 0
	for i := range m.events {
		if size >= bytes {
			pieces, size = pieces+1, 0
		}
		size += m.events[i].Size()
	}
	return pieces
}

// follower reads a stream and counts the events of each watch, which must come with rising revisions.
type follower struct {
	t      testing.TB
	stream *Stream
	seen   map[int64]int
	last   map[int64]int64
	frames int
	deaf   bool // what it takes stays in the transport
	lent   int
}

func newFollower(t testing.TB, c *Client) *follower {
	return &follower{t: t, stream: mustOpen(t, c), seen: map[int64]int{}, last: map[int64]int64{}}
}

func (f *follower) watch(r *etcdserverpb.WatchCreateRequest) {
	f.t.Helper()
	if err := f.stream.Request(context.Background(), createRequest(r)); err != nil {
		f.t.Fatal(err)
	}
}

// read takes at most so many frames and reports whether there were any.
func (f *follower) read(most int) bool {
	f.t.Helper()
	for n := range most {
		frame, found, err := f.stream.poll()
		if err != nil {
			f.t.Fatal(err)
		}
		if !found {
			return n > 0
		}
		f.frames++
		if f.deaf && frame.bytes > 0 {
			f.stream.Lend(frame.bytes)
			f.lent += frame.bytes
		}
		for _, e := range eventsOf(&frame) {
			if f.last[frame.WatchID] >= e.Kv.ModRevision {
				f.t.Fatalf("watch %d: event of %d after %d", frame.WatchID, e.Kv.ModRevision, f.last[frame.WatchID])
			}
			f.last[frame.WatchID] = e.Kv.ModRevision
			f.seen[frame.WatchID]++
		}
	}
	return true
}

// readAll runs everything until nothing more comes.
func readAll(step *actorstest.Stepper, list []*follower) {
	for empty := 0; empty < 3; empty++ {
		step.Run(1_000_000)
		for _, f := range list {
			if f.read(1000) {
				empty = -1
			}
		}
	}
}

// TestCatchUp_SharesWhatIsRead: watches at the same place read history together, whatever their number: the work of
// reading and encoding is that of one of them.
func TestCatchUp_SharesWhatIsRead(t *testing.T) {
	const revisions, piece = 500, 5000
	for _, shape := range []struct{ streams, watches int }{{1, 1}, {10, 1}, {1, 10}, {20, 100}} {
		t.Run(fmt.Sprintf("streams=%d/watches=%d", shape.streams, shape.watches), func(t *testing.T) {
			c, m, step := steppedRoom(t, func(_ *Config, b *bounds) { b.catchupBytes = piece })
			for i := range revisions {
				m.batch([]op{{fmt.Sprintf("k%02d", i%50), make([]byte, 100)}})
			}
			var list []*follower
			for range shape.streams {
				f := newFollower(t, c)
				list = append(list, f)
				for range shape.watches {
					f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 2})
					step.Run(1_000_000)
					f.read(1)
				}
			}
			readAll(step, list)
			for _, f := range list {
				for id := range int64(shape.watches) {
					if f.seen[id] != revisions {
						t.Fatalf("watch %d saw %d events of %d", id, f.seen[id], revisions)
					}
				}
			}
			alone, watches := piecesOf(m, piece), float64(shape.streams*shape.watches)
			if got := testutil.ToFloat64(c.metrics.history); got > 1.2*float64(alone)+2 {
				t.Errorf("%v pieces were read for %v watches, one alone needs %d", got, watches, alone)
			}
			if got := testutil.ToFloat64(c.metrics.encoded); got > 1.2*float64(alone)+2 {
				t.Errorf("%v encodings for %v watches of %d pieces", got, watches, alone)
			}
			if got := testutil.ToFloat64(c.metrics.historyServed); got < watches*float64(alone) {
				t.Errorf("%v answers to %v watches of %d pieces", got, watches, alone)
			}
		})
	}
}

// TestCatchUp_SharesAmongOverlappingRanges: ranges that overlap, and starts that are near each other, come to one
// place. What does not overlap is read by itself.
func TestCatchUp_SharesAmongOverlappingRanges(t *testing.T) {
	const revisions, piece = 2000, 20_000
	c, m, step := steppedRoom(t, func(_ *Config, b *bounds) { b.catchupBytes = piece })
	for i := range revisions {
		m.batch([]op{{string(rune('a' + i%20)), make([]byte, 100)}})
	}
	var list []*follower
	for i, r := range [][2]string{{"a", "m"}, {"g", "z"}, {"a", "\x00"}, {"c", "d"}, {"a", "m"}, {"b", "z"}} {
		f := newFollower(t, c)
		list = append(list, f)
		f.watch(&etcdserverpb.WatchCreateRequest{
			Key: []byte(r[0]), RangeEnd: []byte(r[1]), StartRevision: int64(2 + i), PrevKv: i%2 == 0,
		})
	}
	readAll(step, list)
	if list[2].seen[0] != revisions-2 {
		t.Errorf("the watch of everything saw %d events", list[2].seen[0])
	}
	if got, alone := testutil.ToFloat64(c.metrics.history), piecesOf(m, piece); got > 2*float64(alone) {
		t.Errorf("%v pieces were read for 6 overlapping watches, one alone needs %d", got, alone)
	}
}

// TestCatchUp_ReadsNothingForClientsThatDoNotRead is field report T08: however far behind a watch is, what is read for
// it is what its client takes, and a little ahead.
func TestCatchUp_ReadsNothingForClientsThatDoNotRead(t *testing.T) {
	const revisions, piece, ahead = 5000, 2000, 8000
	c, m, step := steppedRoom(t, func(_ *Config, b *bounds) { b.catchupBytes, b.aheadBytes = piece, ahead })
	for range revisions {
		m.batch([]op{{"k", make([]byte, 100)}})
	}
	f := newFollower(t, c)
	for range 20 {
		f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	}
	step.Run(1_000_000)
	const most = (ahead/piece + wantsMax + 1) * piece
	if got := testutil.ToFloat64(c.metrics.historyBytes); got > most {
		t.Fatalf("%v bytes were read for a client that takes nothing", got)
	}
	if held := c.budget.held.Load(); held > most {
		t.Fatalf("%d bytes are held", held)
	}
	before := testutil.ToFloat64(c.metrics.historyServed)
	f.read(24) // the 20 answers and a few pieces
	step.Run(1_000_000)
	if got := testutil.ToFloat64(c.metrics.historyServed) - before; got > 24+ahead/piece {
		t.Fatalf("%v pieces were served to a client that took a few", got)
	}
}

// TestCatchUp_ManyWatchesOnOneStreamWithCompaction is field report T06: hundreds of watches with previous values on one
// stream, whose client stops reading while history is compacted. Each gets its whole sequence or a cancellation with
// the compact revision.
func TestCatchUp_ManyWatchesOnOneStreamWithCompaction(t *testing.T) {
	const watches, writes = 500, 300
	c, m, step := steppedRoom(t, func(cfg *Config, _ *bounds) { cfg.OutboxBytes = 100_000 })
	f := newFollower(t, c)
	for i := range watches {
		f.watch(&etcdserverpb.WatchCreateRequest{
			Key: []byte("k"), RangeEnd: []byte(fmt.Sprintf("l%03d", i)), PrevKv: true, WatchId: int64(i + 1),
		})
		step.Run(1000)
		f.read(1)
	}
	for i := range writes {
		c.Publish(m.batch([]op{{fmt.Sprintf("k%d", i%7), make([]byte, 1000)}}))
		step.Run(100_000)
		if i == writes/2 {
			m.compacted = m.revision - 20
		}
		if i%100 == 0 {
			f.read(50)
		}
	}
	canceled := map[int64]bool{}
	next := map[int64]int64{}
	for id, last := range f.last {
		next[id] = last + 1
	}
	for empty := 0; empty < 3; empty++ {
		step.Run(1_000_000)
		for {
			frame, found, err := f.stream.poll()
			if err != nil {
				t.Fatal(err)
			}
			if !found {
				break
			}
			empty = -1
			id := frame.WatchID
			if frame.Canceled {
				if frame.CompactRevision == 0 || int64(frame.CompactRevision) <= max(next[id], 2) {
					t.Fatalf("watch %d at %d was cancelled at compact revision %d", id, next[id], frame.CompactRevision)
				}
				canceled[id] = true
			}
			for _, e := range eventsOf(&frame) {
				if want := max(next[id], 2); e.Kv.ModRevision != want || canceled[id] {
					t.Fatalf("watch %d got %d, want %d", id, e.Kv.ModRevision, want)
				}
				next[id] = e.Kv.ModRevision + 1
			}
		}
	}
	for id := int64(1); id <= watches; id++ {
		if !canceled[id] && next[id] != writes+2 {
			t.Fatalf("watch %d stands at %d and was not cancelled", id, next[id])
		}
	}
	if len(canceled) == 0 {
		t.Error("no watch was overtaken by the compaction; the test tests nothing")
	}
}

// TestCatchUp_AsksAgainWhenTheReaderIsFull: wants that the reader's mailbox refuses are asked again, and nothing is
// lost.
func TestCatchUp_AsksAgainWhenTheReaderIsFull(t *testing.T) {
	m, step, clock, b := newModel(), actorstest.NewStepper(1), actorstest.NewManualClock(), boundsDefault
	b.history = actors.Bound{Messages: 1, Bytes: 1000}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "room", Clock: clock, Dispatcher: step}),
		Config{History: m, bounds: &b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	m.batch([]op{put("k", "v")})
	var list []*follower
	for range 20 {
		f := newFollower(t, c)
		f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		list = append(list, f)
	}
	for range 40 {
		step.Run(1_000_000)
		clock.Advance(catchupRetryDelay)
	}
	refused := 0
	for _, s := range c.sys.Snapshot() {
		if s.Name == "watch/history" {
			refused = int(s.Lanes[0].Rejected)
		}
	}
	for i, f := range list {
		if f.read(10); f.seen[0] != 1 {
			t.Errorf("stream %d saw %d events", i, f.seen[0])
		}
	}
	if refused == 0 {
		t.Error("nothing was refused; the test tests nothing")
	}
}

// TestCatchUp_WaitsForAProgressAnswer: a piece that comes while a question is out may speak of more than the answer
// will; it comes behind the answer.
func TestCatchUp_WaitsForAProgressAnswer(t *testing.T) {
	m := newModel()
	m.batch([]op{put("a", "1")}, []op{put("a", "2")})
	core, now, space := newStreamCore(streamAddress{}, 1000, 1000), position{revision: 3}, space{1000, 1000}
	create := func(r *etcdserverpb.WatchCreateRequest) *streamEffects {
		return core.step(request{message: createRequest(r)}, now, space)
	}
	create(&etcdserverpb.WatchCreateRequest{Key: []byte("b"), ProgressNotify: true})
	core.step(admitted{1, 0, core.epoch}, now, space)
	asked := create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2}).wants[0]
	if e := core.step(progressDue{}, now, space); len(e.hub) != 1 {
		t.Fatalf("asks the hub %v", e.hub)
	}
	r := encodeRun(selection{events: m.events}, 0, noPrevious, 1000)
	piece := &served{items: []servedItem{{watch: asked.watch, epoch: asked.epoch, run: r, next: 6, at: 5}}}
	if e := core.step(piece, now, space); len(e.frames) != 0 {
		t.Fatalf("sends %+v before the answer", e.frames)
	}
	e := core.step(probed{group: 1, at: 3, groups: 1}, now, space)
	if len(e.frames) != 2 || e.frames[0].HeaderRevision != 3 || e.frames[1].HeaderRevision != 5 {
		t.Fatalf("sends %+v", e.frames)
	}
}

// TestPace_RestsForWhatIsDeliveredWhileSomebodyWrites: the reader of history leaves the machine to writers, and takes
// it when there are none.
func TestPace_RestsForWhatIsDeliveredWhileSomebodyWrites(t *testing.T) {
	p := pace{event: time.Microsecond, mebibyte: time.Millisecond}
	var rested time.Duration
	for r := range 100 {
		p.see(proto.Revision(r + 1))
		p.charge(100, 1<<20)
		rest := p.rest()
		if rest > 0 && rest < restMin || rest > restMax {
			t.Fatalf("rests %v", rest)
		}
		rested += rest
	}
	if want := 100 * (100*time.Microsecond + time.Millisecond); rested < want-restMin || rested > want {
		t.Errorf("rested %v for what costs %v", rested, want)
	}
	for range 2 * stillTurns {
		p.see(p.revision)
		p.charge(100, 1<<20)
		rested = p.rest()
	}
	if rested != 0 {
		t.Errorf("rests %v though nobody writes", rested)
	}
}
