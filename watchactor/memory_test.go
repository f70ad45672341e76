package watchactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// TestOutboxes_HoldTwiceTheirTotalAndOneResponseEach is field report T09: streams whose clients stop reading, and then
// read again all at once, hold no more together than the bound says, and each gets its complete sequence.
func TestOutboxes_HoldTwiceTheirTotalAndOneResponseEach(t *testing.T) {
	const streams, total, value, piece, writes = 40, 200_000, 2000, 30_000, 400
	const most = 2*total + streams*(piece+2*value)
	c, m, step := steppedRoom(t, func(cfg *Config, b *bounds) { cfg.OutboxTotalBytes, b.catchupBytes = total, piece })
	var list []*follower
	for range streams {
		f := newFollower(t, c)
		f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l")})
		list = append(list, f)
	}
	readAll(step, list)
	peak := int64(0)
	look := func() { peak = max(peak, c.budget.held.Load()) }
	for i := range writes {
		c.Publish(m.batch([]op{{fmt.Sprint("k", i%5), make([]byte, value)}}))
		for range 200 {
			step.Step()
			look()
		}
	}
	step.Run(1_000_000)
	if look(); peak < total {
		t.Fatalf("%d bytes were held at most; the test does not reach the bound", peak)
	}
	for empty := 0; empty < 3; empty++ {
		for range 500 {
			step.Step()
			look()
		}
		for _, f := range list {
			if f.read(2) {
				empty = -1
			}
		}
	}
	if peak > most {
		t.Errorf("%d bytes were held, the bound is %d", peak, most)
	}
	for i, f := range list {
		if f.seen[0] != writes {
			t.Errorf("stream %d saw %d events of %d", i, f.seen[0], writes)
		}
	}
	if held := c.budget.held.Load(); held != 0 {
		t.Errorf("%d bytes are left", held)
	}
}

// deafCrowd are streams whose clients do not read what they have been sent, and the clock that their retries need.
type deafCrowd struct {
	t     *testing.T
	c     *Client
	m     *model
	step  *actorstest.Stepper
	clock *actorstest.ManualClock
	list  []*follower
}

const (
	crowdTotal, crowdValue, crowdPiece, crowdWrites = 50_000, 2000, 5_000, 50
	// crowdOver is what turns of two processors may put on top of a wall.
	crowdOver = 2 * (wantsMax*crowdPiece + 2*crowdValue)
)

func newDeafCrowd(t *testing.T) *deafCrowd {
	t.Helper()
	d := &deafCrowd{t: t, m: newModel(), step: actorstest.NewStepper(1), clock: actorstest.NewManualClock()}
	b := boundsDefault
	b.restPerEvent, b.restPerMebibyte, b.catchupBytes = 0, 0, crowdPiece
	var err error
	d.c, err = Spawn(actors.NewSystem(actors.Config{Name: "wall", Clock: d.clock, Dispatcher: d.step}),
		Config{History: d.m, OutboxTotalBytes: crowdTotal, bounds: &b})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *deafCrowd) open(owner *Owner) *follower {
	d.t.Helper()
	s, err := d.c.Open(owner)
	if err != nil {
		d.t.Fatal(err)
	}
	f := &follower{t: d.t, stream: s, seen: map[int64]int{}, last: map[int64]int64{}}
	f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	return f
}

// fill writes more than the crowd may hold, of which all together never hold more than a wall and what of history was
// asked for below it.
func (d *deafCrowd) fill(owners func(i int) *Owner, wall int64) {
	d.t.Helper()
	for i := range 200 {
		f := d.open(owners(i))
		f.deaf = true
		d.list = append(d.list, f)
	}
	asked := int64(0)
	for i := range 2 * crowdWrites {
		if i < crowdWrites {
			d.c.Publish(d.m.batch([]op{{"k", make([]byte, crowdValue)}}))
		}
		for range 1000 {
			d.step.Step()
			asked = max(asked, d.c.budget.reserved.Load())
			if held := d.c.budget.held.Load(); held > wall+asked+crowdOver {
				d.t.Fatalf("%d bytes are held, the wall is at %d", held, wall)
			}
		}
		for _, f := range d.list {
			f.read(10)
		}
		d.clock.Advance(wallPause)
	}
	if held := d.c.budget.held.Load(); held < wall || asked > wall || !d.c.Full() {
		d.t.Fatalf("%d bytes are held, %d were asked for; the test does not reach the wall", held, asked)
	}
}

// settle runs a healthy stream until nothing more comes.
func (d *deafCrowd) settle(f *follower) {
	for range 10 {
		d.clock.Advance(wallPause)
		readAll(d.step, []*follower{f})
	}
}

// cutOff is the end of the crowd's connections.
func (d *deafCrowd) cutOff() {
	d.t.Helper()
	for i, f := range d.list {
		if f.seen[0] == crowdWrites {
			d.t.Errorf("stream %d got everything, though its client has read nothing", i)
		}
		f.stream.Close()
		f.stream.GiveBack(f.lent)
	}
}

func (d *deafCrowd) end() {
	d.t.Helper()
	if held := d.c.budget.held.Load(); held != 0 || d.c.Full() {
		d.t.Errorf("%d bytes are left", held)
	}
	if err := d.c.Stop(d.t.Context()); err != nil {
		d.t.Error(err)
	}
}

// TestOutboxes_NoneGetsAnythingBeyondTheWall: what clients that do not read have been sent counts. However many they
// are, all together hold no more than the wall; who reads gets everything when those are cut off.
func TestOutboxes_NoneGetsAnythingBeyondTheWall(t *testing.T) {
	d := newDeafCrowd(t)
	d.fill(func(int) *Owner { return nil }, outboxWall*crowdTotal)
	healthy := d.open(nil)
	d.step.Run(1_000_000)
	if healthy.read(1000); healthy.seen[0] != 0 {
		t.Errorf("%d events beyond the wall", healthy.seen[0])
	}
	d.cutOff()
	if d.settle(healthy); healthy.seen[0] != crowdWrites {
		t.Errorf("%d events of %d afterwards", healthy.seen[0], crowdWrites)
	}
	d.end()
}

// TestOutboxes_AClientThatDoesNotReadKeepsNobodyElseWaiting: however many streams it has.
func TestOutboxes_AClientThatDoesNotReadKeepsNobodyElseWaiting(t *testing.T) {
	d := newDeafCrowd(t)
	owner := new(Owner)
	d.fill(func(int) *Owner { return owner }, ownerWall*crowdTotal)
	healthy := d.open(nil)
	if d.settle(healthy); healthy.seen[0] != crowdWrites {
		t.Errorf("%d events of %d", healthy.seen[0], crowdWrites)
	}
	if d.cutOff(); owner.held.Load() != 0 {
		t.Errorf("%d bytes are left of the owner's", owner.held.Load())
	}
	d.end()
}

// TestOutbox_ReservationsEndAskingNotDelivering: when very many streams ask for history at a time, no more is asked
// for, but events still come. What is there ends both, that of all streams and that of one owner.
func TestOutbox_ReservationsEndAskingNotDelivering(t *testing.T) {
	const total = 1000
	newOutbox := func(b *budget, owner *Owner) *outbox {
		return &outbox{budget: b, owner: owner, metrics: &metrics{}, bytesMax: total, aheadMax: total}
	}
	for _, c := range []struct {
		name           string
		wall           int
		sameOwner      bool
		reserved       bool
		delivers, asks bool
	}{
		{"below the wall of all", outboxWall*total - 1, false, false, true, true},
		{"all have asked", outboxWall * total, false, true, true, false},
		{"all hold", outboxWall * total, false, false, false, false},
		{"the owner has asked", ownerWall * total, true, true, true, false},
		{"the owner holds", ownerWall * total, true, false, false, false},
	} {
		b, owner := &budget{total: total}, new(Owner)
		other := newOutbox(b, new(Owner))
		if c.sameOwner {
			other.owner = owner
		}
		if c.reserved {
			other.reserve(c.wall)
		} else {
			other.lend(c.wall)
		}
		room := newOutbox(b, owner).room()
		if (room.bytes > 0) != c.delivers || (room.ahead > 0) != c.asks {
			t.Errorf("%s: there is room for %+v", c.name, room)
		}
	}
}

// TestOutbox_GivesTheTransportOneFrameAtATimeWhenAllHoldMuch: only then; and as soon as it has left, the next follows.
func TestOutbox_GivesTheTransportOneFrameAtATimeWhenAllHoldMuch(t *testing.T) {
	c, m, step := steppedRoom(t, func(cfg *Config, _ *bounds) { cfg.OutboxTotalBytes = 150_000 })
	s := mustOpen(t, c)
	watchKey(t, s, "k")
	drain(t, step, s, 2)
	write := func() {
		c.Publish(m.batch([]op{{"k", make([]byte, joinedFrameBytesMax)}}))
		step.Run(1000)
	}
	next := func() (bytes int, found bool) {
		f, found, err := s.poll()
		if err != nil {
			t.Fatal(err)
		}
		return f.bytes, found
	}
	write()
	first, _ := next()
	s.Lend(first)
	if _, found := next(); found || s.outbox.await() == nil {
		t.Fatal("there is nothing, and it need not be waited for")
	}
	write()
	second, found := next()
	if !found {
		t.Fatal("a frame is withheld though little is held")
	}
	s.Lend(second)
	if _, found := next(); found {
		t.Fatal("there is nothing more")
	}
	<-s.outbox.filled
	write() // now all hold much
	if _, found := next(); found {
		t.Fatal("a frame is given though the transport has not sent those before it")
	}
	filled := s.outbox.await()
	if filled == nil {
		t.Fatal("the reader is sent round in a circle")
	}
	s.GiveBack(first)
	s.GiveBack(second)
	select {
	case <-filled:
	default:
		t.Fatal("the reader is not woken when everything was sent")
	}
	if n, found := next(); !found || n < joinedFrameBytesMax {
		t.Fatalf("%d bytes, %v", n, found)
	}
}

// TestOutboxes_CountHistoryThatIsAskedFor: streams that begin to read history all at once, with several watches each,
// ask for no more together than the bound says, though nothing of it has come yet.
func TestOutboxes_CountHistoryThatIsAskedFor(t *testing.T) {
	const streams, watches, total, value, piece, writes = 40, wantsMax, 200_000, 2000, 30_000, 100
	const most = 2*total + streams*(piece+2*value)
	c, m, step := steppedRoom(t, func(cfg *Config, b *bounds) { cfg.OutboxTotalBytes, b.catchupBytes = total, piece })
	for range writes {
		m.batch([]op{{"k", make([]byte, value)}})
	}
	var list []*follower
	for range streams {
		f := newFollower(t, c)
		for range watches {
			f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		}
		list = append(list, f)
	}
	step.Run(1_000_000)
	if held := c.budget.held.Load(); held < total || held > most {
		t.Errorf("%d bytes are held, the bound is %d", held, most)
	}
	readAll(step, list)
	for i, f := range list {
		for id := range int64(watches) {
			if f.seen[id] != writes {
				t.Errorf("stream %d, watch %d saw %d events of %d", i, id, f.seen[id], writes)
			}
		}
	}
	if held := c.budget.held.Load(); held != 0 {
		t.Errorf("%d bytes are left", held)
	}
}

// TestTransit_IsBounded: when groups and streams do not keep up, what is on its way to all of them stays within one
// bound; the rest is left to history, and nothing is missing.
func TestTransit_IsBounded(t *testing.T) {
	const most, value, writes = 50_000, 10_000, 100
	c, m, step := steppedRoom(t, func(_ *Config, b *bounds) { b.transitBytes = most })
	var list []*follower
	for i := range 10 {
		f := newFollower(t, c)
		f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte(fmt.Sprint("l", i))})
		list = append(list, f)
	}
	readAll(step, list)
	for range writes {
		c.Publish(m.batch([]op{{"k", make([]byte, value)}}))
		for range 6 { // the hub gets turns, and few of the ten groups and ten streams
			step.Step()
			if held := c.transit.held.Load(); held > most+value+1000 {
				t.Fatalf("%d bytes are on their way", held)
			}
		}
	}
	if testutil.ToFloat64(c.metrics.crowded) == 0 {
		t.Fatal("the bound was not reached")
	}
	readAll(step, list)
	for i, f := range list {
		if f.seen[0] != writes {
			t.Errorf("stream %d saw %d events of %d", i, f.seen[0], writes)
		}
	}
	if held := c.transit.held.Load(); held != 0 {
		t.Errorf("%d bytes are left on their way", held)
	}
}

// TestShelf_IsBounded: kept pieces stay within the bound, encodings included, and go when nobody uses them.
func TestShelf_IsBounded(t *testing.T) {
	const most = 30_000
	m, step, clock, b := newModel(), actorstest.NewStepper(1), actorstest.NewManualClock(), boundsDefault
	b.shelfBytes, b.catchupBytes, b.restPerEvent, b.restPerMebibyte = most, 4000, 0, 0
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "room", Clock: clock, Dispatcher: step}),
		Config{History: m, bounds: &b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	for range 1000 {
		m.batch([]op{{"k", make([]byte, 100)}})
	}
	f := newFollower(t, c)
	for _, prev := range []bool{true, false} {
		f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, PrevKv: prev})
	}
	peak := 0.0
	for empty := 0; empty < 3; empty++ {
		for range 50 {
			step.Step()
			peak = max(peak, testutil.ToFloat64(c.metrics.shelved))
		}
		if f.read(10) {
			empty = -1
		}
	}
	if peak == 0 || peak > most {
		t.Errorf("%v bytes were kept at most", peak)
	}
	for range 2 {
		clock.Advance(shelfKept)
		step.Run(1000)
	}
	if kept := testutil.ToFloat64(c.metrics.shelved); kept != 0 {
		t.Errorf("%v bytes are kept for nobody", kept)
	}
}

// TestGroup_TellsManyWatchersTogether: a group with many watchers is at rest after it has told them, tells them at once
// when nothing came before, and together what came meanwhile. A question does not wait for the rest.
func TestGroup_TellsManyWatchersTogether(t *testing.T) {
	m, step, clock, b := newModel(), actorstest.NewStepper(1), actorstest.NewManualClock(), boundsDefault
	b.restPerDelivery = time.Duration(runtime.GOMAXPROCS(0)) * time.Millisecond
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "room", Clock: clock, Dispatcher: step}),
		Config{History: m, bounds: &b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	const watches, writes = 30, 50
	f := newFollower(t, c)
	for i := range watches {
		r := &etcdserverpb.WatchCreateRequest{Key: []byte("k")}
		if i%2 == 0 {
			r.RangeEnd = []byte("l")
		}
		f.watch(r)
	}
	write := func(n int) {
		for range n {
			c.Publish(m.batch([]op{put("k", "v")}))
		}
		step.Run(100_000)
		for f.read(100) {
			step.Run(100_000)
		}
	}
	write(0)
	write(1)
	if f.seen[0] != 1 || f.seen[1] != 1 {
		t.Fatalf("the first event was not told at once: %v", f.seen)
	}
	encoded, frames := testutil.ToFloat64(c.metrics.encoded), f.frames
	write(writes)
	if f.seen[0] != 1 {
		t.Fatalf("%d events were told during the rest", f.seen[0])
	}
	clock.Advance(groupRestMax)
	write(0)
	for id := range int64(watches) {
		if f.seen[id] != 1+writes {
			t.Fatalf("watch %d saw %d events", id, f.seen[id])
		}
	}
	if got := testutil.ToFloat64(c.metrics.encoded) - encoded; got != 2 {
		t.Errorf("%v encodings for two ranges", got)
	}
	if got := f.frames - frames; got != watches {
		t.Errorf("%d responses for %d watches", got, watches)
	}
	write(1) // at rest again
	f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l")})
	write(0)
	if f.seen[0] != 2+writes || f.seen[1] != 1+writes {
		t.Errorf("a join does not come behind what was told before: %v", f.seen)
	}
}

// ending is a room with streams that end in the middle of everything.
type ending struct {
	t    *testing.T
	c    *Client
	m    *model
	step *actorstest.Stepper
}

func (e *ending) some(turns int) {
	for range turns {
		e.step.Step()
	}
}

// open makes a stream with watches of every kind: behind, in step, of keys and of ranges.
func (e *ending) open() *follower {
	f := newFollower(e.t, e.c)
	for i := range 10 {
		f.watch(&etcdserverpb.WatchCreateRequest{
			Key: []byte(fmt.Sprint("k", i)), RangeEnd: []byte("l"), StartRevision: int64(2 * (i % 2)), ProgressNotify: true,
		})
		f.watch(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: int64(200 * (i % 2))})
	}
	e.some(50)
	e.c.Publish(e.m.batch([]op{put("k", "v"), put("k1", "v")}))
	return f
}

// ways are the ways in which a stream ends.
func (e *ending) ways() map[string]func(*follower) {
	return map[string]func(f *follower){
		"closed at once": func(f *follower) { f.stream.Close() },
		"closed in the middle": func(f *follower) {
			e.some(200)
			f.read(7)
			f.stream.Close()
		},
		"cancelled by the client": func(f *follower) {
			for range 4 {
				e.step.Run(100_000)
				f.read(100)
			}
			for id := range int64(20) {
				r := &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}
				if err := f.stream.Request(context.Background(), &etcdserverpb.WatchRequest{RequestUnion: r}); err != nil {
					e.t.Fatal(err)
				}
			}
			readAll(e.step, []*follower{f})
			if n := testutil.ToFloat64(e.c.metrics.watches) + testutil.ToFloat64(e.c.metrics.groups); n != 0 {
				e.t.Errorf("%v watches and groups after all were cancelled", n)
			}
			f.stream.Close()
		},
		"overtaken by compaction": func(f *follower) {
			e.some(300)
			e.m.compacted = e.m.revision
			readAll(e.step, []*follower{f})
			e.m.compacted = 0
			f.stream.Close()
		},
		"failed": func(f *follower) { f.stream.fail(ErrStreamFailed) },
		"by a panic of the reader of history": func(*follower) {
			e.some(300)
			_ = e.c.history.Tell(actors.Normal, nil)
		},
	}
}

// ended reads what the reader has in its hand, which may still be sent, and gives why the stream has ended.
func (f *follower) ended() (err error) {
	for n := 0; err == nil && n <= handFramesMax; n++ {
		_, _, err = f.stream.poll()
	}
	return err
}

// TestStreams_FreeEverythingHoweverTheyEnd ends streams in every way there is, in the middle of everything, and looks
// for what is left: gauges, bytes and actors.
func TestStreams_FreeEverythingHoweverTheyEnd(t *testing.T) {
	c, m, step := steppedRoom(t, func(cfg *Config, b *bounds) { cfg.OutboxBytes, b.catchupBytes = 5000, 1000 })
	e := &ending{t, c, m, step}
	base := actorsOf(c)
	for range 300 {
		m.batch([]op{{"k", make([]byte, 200)}})
	}
	ways := e.ways()
	for _, name := range sortedKeys(ways) {
		f := e.open()
		ways[name](f)
		step.Run(1_000_000)
		if f.ended() == nil {
			t.Errorf("%s: the stream goes on", name)
		}
		for what, n := range map[string]float64{
			"streams": testutil.ToFloat64(c.metrics.streams), "watches": testutil.ToFloat64(c.metrics.watches),
			"slow": testutil.ToFloat64(c.metrics.slow), "pending": testutil.ToFloat64(c.metrics.waiting),
			"groups": testutil.ToFloat64(c.metrics.groups), "bytes": testutil.ToFloat64(c.metrics.buffered),
			"on their way": testutil.ToFloat64(c.metrics.onTheWay),
		} {
			if n != 0 {
				t.Errorf("%s: %v %s are left", name, n, what)
			}
		}
		if left := actorsOf(c); left != base {
			t.Errorf("%s: actors %s, at first %s", name, left, base)
		}
	}
	f := e.open()
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := f.ended(); !errors.Is(err, ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	step.Run(1000)
	if left := actorsOf(c); left != "" {
		t.Errorf("actors %s outlive the stop", left)
	}
}

func actorsOf(c *Client) string {
	var names []string
	for _, s := range c.sys.Snapshot() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// TestIdleWatches_FitAMillionIntoAGibibyte measures what a watch of a single key costs while nothing happens, its share
// of the stream included, when there are a hundred on each of many streams.
func TestIdleWatches_FitAMillionIntoAGibibyte(t *testing.T) {
	const streams, each = 300, 100
	c, _, step := steppedRoom(t, nil)
	before := heap()
	list := make([]*Stream, streams)
	for i := range list {
		list[i] = mustOpen(t, c)
		for k := range each {
			watchKey(t, list[i], fmt.Sprintf("/registry/pods/namespace-%04d/pod-%08d", i, k))
		}
		step.Run(100_000)
		for {
			if _, found, _ := list[i].poll(); !found {
				break
			}
		}
	}
	step.Run(1_000_000)
	cost := (heap() - before) / (streams * each)
	t.Logf("an idle watch costs %d bytes", cost)
	if cost > 1000 {
		t.Errorf("an idle watch costs %d bytes", cost)
	}
	runtime.KeepAlive(list)
}
