package watchactor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

var (
	seedFlag = flag.Uint64("watch.seed", 0, "run this seed only")
	runsFlag = flag.Int("watch.runs", 60, "number of seeds")
)

// TestStreams_SeeEveryEventOnce runs random writes, compactions, slow readers and failures against random watches, one
// seed after the other, and checks every frame against the model.
func TestStreams_SeeEveryEventOnce(t *testing.T) {
	if *seedFlag != 0 {
		newWorld(t, *seedFlag).run(400)
		return
	}
	runs := *runsFlag
	if testing.Short() {
		runs /= 4
	}
	for _, seed := range []uint64{689, 1948} { // these catch builds that ignore epochs
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newWorld(t, seed).run(400) })
	}
	for seed := uint64(1); seed <= uint64(runs); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newWorld(t, seed).run(400) })
	}
}

// world is one seeded run: a model store, the room on a stepper, and clients that check what they get.
type world struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	step    *actorstest.Stepper
	clock   *actorstest.ManualClock
	model   *model
	client  *Client
	untold  []*proto.EventBatch
	clients []*tester
	gone    []*tester
	broken  int
}

// tester is one client with one stream.
type tester struct {
	w        *world
	stream   *Stream
	slow     int // reads one frame in so many chances
	creates  []*tested
	watches  map[int64]*tested
	progress proto.Revision // of the last manual answer
	newest   proto.Revision // highest event revision seen
	spoken   proto.Revision // highest header of an answer with events or of a progress answer
	asked    int
	late     map[int64]bool // cancelled by compaction while a cancel was on its way
	lent     []func()       // give back what its transport holds
}

// tested is one watch as its client sees it.
type tested struct {
	request *etcdserverpb.WatchCreateRequest
	keys    Range
	as      variant
	created bool
	since   proto.Revision // first revision it must see
	seen    int            // events of the model it has passed
	partial []*mvccpb.Event
	cancel  bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 7)), step: actorstest.NewStepper(seed),
		clock: actorstest.NewManualClock(), model: newModel(),
	}
	w.model.forget = w.random.IntN(2) == 0
	low := bounds{
		hub: w.lowBound(20), group: w.lowBound(10), stream: w.lowBound(8),
		history: w.lowBound(6), transitBytes: int64(200 + w.random.IntN(20_000)),
		heldBytes: w.random.IntN(2000), catchupBytes: 1 + w.random.IntN(2000),
		aheadBytes: 1 + w.random.IntN(4000), shelfBytes: w.random.IntN(8000),
		restPerEvent:    time.Duration(w.random.IntN(2)) * time.Millisecond,
		restPerDelivery: time.Duration(w.random.IntN(3)) * 20 * time.Millisecond,
	}
	sys := actors.NewSystem(actors.Config{Name: "seeded", Clock: w.clock, Dispatcher: w.step})
	c, err := Spawn(sys, Config{
		History: w.model, Random: w.random.Float64, ProgressInterval: time.Second, Groups: 2,
		MaxRequestBytes: 2000 - responseAllowanceBytes, OutboxBytes: 3000,
		OutboxTotalBytes: int64(1000 + w.random.IntN(9000)), bounds: &low,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.client = c
	w.model.race = w.race
	return w
}

// lowBound is small in half of the runs.
func (w *world) lowBound(messages int) actors.Bound {
	if w.random.IntN(2) == 0 {
		return actors.Bound{Messages: 1000, Bytes: 1 << 20}
	}
	return actors.Bound{Messages: 1 + w.random.IntN(messages), Bytes: int64(200 + w.random.IntN(4000))}
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d (go test ./watchactor -run SeeEveryEventOnce -watch.seed=%d): %s",
		w.seed, w.seed, fmt.Sprintf(format, args...))
}

func (w *world) run(turns int) {
	for range 3 {
		w.open()
	}
	for range turns {
		w.act()
		for range w.random.IntN(12) {
			w.step.Step()
		}
		for _, c := range w.clients {
			if w.random.IntN(c.slow) == 0 {
				c.read()
			}
		}
	}
	w.finish()
}

func (w *world) key() string { return string(rune('a' + w.random.IntN(6))) }

func (w *world) act() {
	switch n := w.random.IntN(100); {
	case n < 45:
		w.write()
	case n < 60:
		w.tellHub()
	case n < 72:
		w.create(w.pick())
	case n < 76:
		w.cancel(w.pick())
	case n < 84:
		w.askProgress(w.pick())
	case n < 88:
		w.compact()
	case n < 92:
		w.clock.Advance(time.Duration(w.random.IntN(1500)) * time.Millisecond)
	case n < 94:
		w.close(w.pick())
		w.open()
	case n < 95:
		w.breakHub()
	case n < 96:
		w.client.Lost(w.model.revision)
	case n < 97 && len(w.gone) > 0:
		w.gone[w.random.IntN(len(w.gone))].transport(1)
	default:
		c := w.pick()
		c.slow = 1 + w.random.IntN(40)
	}
}

func (w *world) pick() *tester { return w.clients[w.random.IntN(len(w.clients))] }

func (w *world) open() {
	s, err := w.client.Open(nil)
	if err != nil {
		w.failf("open: %v", err)
	}
	w.clients = append(w.clients, &tester{
		w: w, stream: s, slow: 1 + w.random.IntN(10), watches: map[int64]*tested{}, late: map[int64]bool{},
	})
}

func (w *world) close(c *tester) {
	c.stream.Close()
	for i := range w.clients {
		if w.clients[i] == c {
			w.clients = append(w.clients[:i], w.clients[i+1:]...)
			w.gone = append(w.gone, c)
			return
		}
	}
}

// write applies a few transactions as one batch. The state is published at once; the hub hears of it later, in order.
func (w *world) write() {
	var txns [][]op
	for range 1 + w.random.IntN(3) {
		used := map[string]bool{}
		var ops []op
		for range 1 + w.random.IntN(4) {
			k := w.key() + w.key()
			if used[k] {
				continue
			}
			used[k] = true
			if w.random.IntN(4) == 0 {
				ops = append(ops, del(k))
			} else {
				ops = append(ops, op{k, bytes.Repeat([]byte{'v'}, w.random.IntN(300))})
			}
		}
		txns = append(txns, ops)
	}
	if b := w.model.batch(txns...); len(b.Events) > 0 {
		w.untold = append(w.untold, b)
	}
}

func (w *world) tellHub() {
	for range 1 + w.random.IntN(4) {
		if len(w.untold) > 0 {
			w.client.Publish(w.untold[0])
			w.untold = w.untold[1:]
		}
	}
}

// race is what the store and others do while an actor is in its turn.
func (w *world) race() {
	switch w.random.IntN(20) {
	case 0:
		w.write()
	case 1:
		w.write()
		for len(w.untold) > 0 {
			w.tellHub()
		}
	case 2:
		w.compact()
	}
}

func (w *world) compact() {
	w.model.compacted = max(w.model.compacted, w.model.revision-proto.Revision(w.random.IntN(12)))
}

// breakHub makes the hub panic; its mailbox is lost with it, and every stream ends.
func (w *world) breakHub() {
	if w.broken++; w.broken > 3 {
		return // it would stay down
	}
	_ = w.client.hub.Tell(actors.Normal, nil)
}

func (w *world) create(c *tester) {
	r := &etcdserverpb.WatchCreateRequest{Key: []byte(w.key() + w.key())}
	switch w.random.IntN(4) {
	case 0:
		r.Key, r.RangeEnd = []byte(w.key()), []byte("g")
	case 1:
		r.Key, r.RangeEnd = []byte(w.key()), []byte{0}
	}
	switch w.random.IntN(3) {
	case 0:
		r.StartRevision = int64(max(1, w.model.revision-proto.Revision(w.random.IntN(30))))
	case 1:
		r.StartRevision = int64(w.model.revision) + w.random.Int64N(8)
	}
	if id := int64(100 + w.random.IntN(3)); w.random.IntN(2) == 0 && c.free(id) {
		r.WatchId = id // an id that comes back
	}
	r.PrevKv = w.random.IntN(2) == 0
	r.Fragment = w.random.IntN(3) == 0
	r.ProgressNotify = w.random.IntN(3) == 0
	if w.random.IntN(4) == 0 {
		r.Filters = []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_FilterType(w.random.IntN(2))}
	}
	if c.request(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: r}}) {
		c.creates = append(c.creates, &tested{request: r, keys: rangeOf(r.Key, r.RangeEnd), as: variantOf(r)})
	}
}

// free reports whether the client knows that the stream does not use the id. It may be wrong about ids that
// compaction has just cancelled, or whose cancel is on its way.
func (c *tester) free(id int64) bool {
	for _, one := range c.creates {
		if one.request.WatchId == id {
			return false
		}
	}
	return c.watches[id] == nil && !c.late[id]
}

func (w *world) cancel(c *tester) {
	for _, id := range sortedKeys(c.watches) {
		if !c.watches[id].cancel {
			m := &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}
			c.watches[id].cancel = c.request(&etcdserverpb.WatchRequest{RequestUnion: m})
			return
		}
	}
}

func (w *world) askProgress(c *tester) {
	m := &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}
	if c.request(&etcdserverpb.WatchRequest{RequestUnion: m}) {
		c.asked++
	}
}

// request sends if the stream takes requests now.
func (c *tester) request(r *etcdserverpb.WatchRequest) bool {
	c.stream.outbox.mu.Lock()
	ready := c.stream.outbox.ended == nil && c.stream.outbox.credits < requestsMax
	c.stream.outbox.mu.Unlock()
	if !ready {
		return false
	}
	if err := c.stream.Request(context.Background(), r); err != nil {
		c.w.failf("request: %v", err)
	}
	return true
}

// read takes a few frames. The transport keeps half of them for a while, also beyond the end of their stream.
func (c *tester) read() bool {
	any := c.transport(c.w.random.IntN(4))
	for range 1 + c.w.random.IntN(4) {
		f, found, err := c.stream.poll()
		if err != nil {
			c.ended(err)
			return false
		}
		if !found {
			break
		}
		any = true
		c.check(&f)
		if s := c.stream; f.bytes > 0 && c.w.random.IntN(2) == 0 {
			s.Lend(f.bytes)
			c.lent = append(c.lent, func() { s.GiveBack(f.bytes) })
		}
	}
	return any
}

// transport sends so many frames, and reports whether there was one.
func (c *tester) transport(frames int) bool {
	n := min(frames, len(c.lent))
	for _, giveBack := range c.lent[:n] {
		giveBack()
	}
	c.lent = c.lent[n:]
	return n > 0
}

// ended replaces a stream that was ended by the hub's restart.
func (c *tester) ended(err error) {
	if !errors.Is(err, ErrRestarted) {
		c.w.failf("stream ended: %v", err)
	}
	s, err := c.w.client.Open(nil)
	if err != nil {
		c.w.failf("open again: %v", err)
	}
	*c = tester{w: c.w, stream: s, slow: c.slow, watches: map[int64]*tested{}, late: map[int64]bool{}, lent: c.lent}
}

func (c *tester) check(f *Frame) {
	w := c.w
	switch {
	case f.Created:
		next := c.creates[0]
		c.creates = c.creates[1:]
		if f.Canceled {
			if next.request.WatchId == 0 || f.CancelReason != reasonDuplicateID {
				w.failf("create %v refused: %s", next.request, f.CancelReason)
			}
			return
		}
		next.created = true
		next.since = f.HeaderRevision + 1
		if next.request.StartRevision > 0 {
			next.since = proto.Revision(next.request.StartRevision)
		}
		if c.watches[f.WatchID] != nil {
			w.failf("id %d given twice", f.WatchID)
		}
		c.watches[f.WatchID] = next
	case f.Canceled:
		watch := c.watches[f.WatchID]
		if watch == nil {
			if !c.late[f.WatchID] {
				w.failf("watch %d cancelled, which is not there", f.WatchID)
			}
			delete(c.late, f.WatchID)
			return
		}
		if f.CompactRevision != 0 {
			c.late[f.WatchID] = watch.cancel
			if f.HeaderRevision != 0 || f.CancelReason != "" {
				w.failf("compaction cancel with header %d and reason %q", f.HeaderRevision, f.CancelReason)
			}
			c.overtaken(watch, f.CompactRevision)
		} else if !watch.cancel {
			w.failf("watch %d cancelled by nobody", f.WatchID)
		}
		delete(c.watches, f.WatchID)
	case len(f.Events) == 0:
		c.checkSpoken(f)
		c.checkProgress(f)
	default:
		c.checkSpoken(f)
		c.checkEvents(f)
	}
}

// checkSpoken checks that no answer speaks of less than one before it.
func (c *tester) checkSpoken(f *Frame) {
	if f.HeaderRevision < c.spoken {
		c.w.failf("header %d after header %d", f.HeaderRevision, c.spoken)
	}
	c.spoken = f.HeaderRevision
}

// overtaken checks that a watch cancelled by compaction was really behind it.
func (c *tester) overtaken(watch *tested, compacted proto.Revision) {
	if compacted > c.w.model.compacted || watch.since >= compacted {
		c.w.failf("watch from %d cancelled at compact revision %d", watch.since, compacted)
	}
	if len(watch.partial) > 0 {
		c.w.failf("watch cancelled inside a revision")
	}
}

// checkEvents compares a frame with what the watch must see next.
func (c *tester) checkEvents(f *Frame) {
	w, watch := c.w, c.watches[f.WatchID]
	if watch == nil {
		w.failf("events for watch %d, which is not there", f.WatchID)
	}
	size := 0
	var all []byte
	for _, p := range f.Events {
		all = append(all, p...)
		size += len(p)
	}
	var r etcdserverpb.WatchResponse
	if err := pb.Unmarshal(all, &r); err != nil {
		w.failf("frame does not decode: %v", err)
	}
	revisions := map[int64]bool{}
	for _, e := range r.Events {
		c.checkEvent(watch, e)
		revisions[e.Kv.ModRevision] = true
	}
	limit := w.client.limit
	if size >= limit && (len(revisions) > 1 || watch.request.Fragment && len(r.Events) > 1) {
		w.failf("a response of %d bytes could have been divided below %d", size, limit)
	}
	if f.Fragment && !watch.request.Fragment {
		w.failf("unwanted fragment")
	}
	whole := watch.next()
	if !f.Fragment && whole != nil && whole.Version.Main == proto.Revision(r.Events[len(r.Events)-1].Kv.ModRevision) {
		w.failf("revision %d was divided", whole.Version.Main)
	}
	if f.HeaderRevision < c.newest {
		w.failf("header %d after an event of %d", f.HeaderRevision, c.newest)
	}
}

func (t *tested) skip(events []proto.Event) {
	for t.seen < len(events) {
		e := &events[t.seen]
		if e.Version.Main >= t.since && t.keys.Contains(e.Key) && t.as.passes(e) {
			return
		}
		t.seen++
	}
}

// model is set by checkEvent; next gives the event a watch must see next, nil when it has seen all.
var nextEvents []proto.Event

func (t *tested) next() *proto.Event {
	t.skip(nextEvents)
	if t.seen == len(nextEvents) {
		return nil
	}
	return &nextEvents[t.seen]
}

func (c *tester) checkEvent(watch *tested, e *mvccpb.Event) {
	w := c.w
	nextEvents = w.model.events
	want := watch.next()
	if want == nil {
		w.failf("unexpected event %s@%d", e.Kv.Key, e.Kv.ModRevision)
	}
	if !bytes.Equal(marshal(e.Kv), want.KeyValue) || uint8(e.Type) != uint8(want.Kind) {
		w.failf("watch of %v from %d: got %v %s@%d, want %s@%d", watch.keys, watch.since, e.Type, e.Kv.Key,
			e.Kv.ModRevision, want.Key, want.Version.Main)
	}
	switch previous := w.model.values[want.Previous]; {
	case e.PrevKv != nil:
		if watch.as&variantPrevious == 0 || !bytes.Equal(marshal(e.PrevKv), previous) {
			w.failf("wrong previous value of %s@%d", want.Key, want.Version.Main)
		}
	case watch.as&variantPrevious != 0 && !want.Created && want.Version.Main > w.model.compacted:
		w.failf("no previous value of %s@%d", want.Key, want.Version.Main)
	}
	watch.seen++
	watch.since = want.Version.Main
	c.newest = max(c.newest, want.Version.Main)
}

func (c *tester) checkProgress(f *Frame) {
	w := c.w
	nextEvents = w.model.events
	ids := []int64{f.WatchID}
	if f.WatchID == watchIDNone {
		ids = sortedKeys(c.watches)
		if c.asked--; c.asked < 0 {
			w.failf("progress nobody asked for")
		}
		if f.HeaderRevision < c.newest || f.HeaderRevision < c.progress {
			w.failf("progress at %d after events of %d and progress at %d", f.HeaderRevision, c.newest, c.progress)
		}
		c.progress = f.HeaderRevision
	}
	for _, id := range ids {
		watch := c.watches[id]
		if watch == nil {
			w.failf("progress for watch %d, which is not there", id)
		}
		if e := watch.next(); e != nil && e.Version.Main <= f.HeaderRevision {
			w.failf("progress at %d, but watch %d of %v has not seen %s@%d", f.HeaderRevision, id, watch.keys, e.Key,
				e.Version.Main)
		}
		if proto.Revision(watch.request.StartRevision) > f.HeaderRevision {
			w.failf("progress at %d for a watch from %d", f.HeaderRevision, watch.request.StartRevision)
		}
		watch.since = max(watch.since, f.HeaderRevision+1)
	}
}

// finish lets everything arrive, checks that nothing is missing, closes, and checks that nothing is left.
func (w *world) finish() {
	w.model.race = nil
	for len(w.untold) > 0 {
		w.tellHub()
	}
	for _, c := range w.gone {
		c.transport(len(c.lent))
	}
	// Rests and retries are timed, so that a round without a frame is not the end of it.
	for quiet := 0; quiet < 20; quiet++ {
		w.step.Run(100_000)
		any := false
		for _, c := range w.clients {
			any = c.read() || any
		}
		w.step.Run(100_000)
		if any || len(w.client.streams) != len(w.clients) {
			quiet = 0
		}
		w.clock.Advance(restMax)
	}
	nextEvents = w.model.events
	for _, c := range w.clients {
		if len(c.creates) > 0 {
			w.failf("%d creates unanswered", len(c.creates))
		}
		for id, watch := range c.watches {
			if e := watch.next(); e != nil {
				w.failf("watch %d of %v never saw %s@%d (now %d)", id, watch.keys, e.Key, e.Version.Main, w.model.revision)
			}
		}
		c.stream.Close()
	}
	for _, c := range append(w.gone, w.clients...) {
		c.transport(len(c.lent))
	}
	w.step.Run(100_000)
	w.checkEmpty()
	if err := w.client.Stop(context.Background()); err != nil {
		w.failf("stop: %v", err)
	}
}

func (w *world) checkEmpty() {
	m := w.client.metrics
	for name, n := range map[string]float64{
		"streams": testutil.ToFloat64(m.streams), "watches": testutil.ToFloat64(m.watches),
		"slow": testutil.ToFloat64(m.slow), "pending": testutil.ToFloat64(m.waiting),
		"groups": testutil.ToFloat64(m.groups), "bytes": testutil.ToFloat64(m.buffered),
		"bytes on their way": testutil.ToFloat64(m.onTheWay),
		"registered streams": float64(len(w.client.streams)), "registered groups": float64(len(w.client.groups)),
	} {
		if n != 0 {
			w.failf("%v %s are left after everything was closed", n, name)
		}
	}
}
