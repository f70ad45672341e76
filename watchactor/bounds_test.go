package watchactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// steppedRoom is a client on a stepper with lowered bounds.
func steppedRoom(t testing.TB, change func(*Config, *bounds)) (*Client, *model, *actorstest.Stepper) {
	t.Helper()
	step, m, b := actorstest.NewStepper(1), newModel(), boundsDefault
	b.restPerEvent, b.restPerMebibyte = 0, 0
	cfg := Config{History: m, bounds: &b}
	if change != nil {
		change(&cfg, &b)
	}
	sys := actors.NewSystem(actors.Config{Name: "bounds", Clock: actorstest.NewManualClock(), Dispatcher: step})
	c, err := Spawn(sys, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c, m, step
}

func createRequest(r *etcdserverpb.WatchCreateRequest) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: r}}
}

func watchKey(t testing.TB, s *Stream, key string) {
	t.Helper()
	r := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte(key)})
	if err := s.Request(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, c *Client) *Stream {
	t.Helper()
	s, err := c.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drain runs everything and gives the revisions of the events the stream gets, which must rise by one.
func drain(t testing.TB, step *actorstest.Stepper, s *Stream, next int64) int64 {
	t.Helper()
	for empty := 0; empty < 2; { // a reader that finds nothing makes room, and the stream goes on
		step.Run(100_000)
		f, found, err := s.poll()
		if err != nil {
			t.Fatal(err)
		}
		if empty++; found {
			empty = 0
		}
		for _, e := range eventsOf(&f) {
			if e.Kv.ModRevision != next {
				t.Fatalf("event of revision %d, want %d", e.Kv.ModRevision, next)
			}
			next++
		}
	}
	return next
}

// TestMailboxes_ForgetAndReadAgain fills each mailbox past its bound, and checks that it holds no more than its bound
// and that nothing is missing afterwards.
func TestMailboxes_ForgetAndReadAgain(t *testing.T) {
	small := actors.Bound{Messages: 4, Bytes: 1 << 20}
	for name, c := range map[string]struct {
		lower func(*bounds)
		tell  func(*Client, *Stream, *proto.EventBatch)
		depth func(*Client, *Stream) int
	}{
		"hub": {
			func(b *bounds) { b.hub = small },
			func(c *Client, _ *Stream, b *proto.EventBatch) { c.Publish(b) },
			func(c *Client, _ *Stream) int { return c.hub.Depth(actors.Normal) },
		},
		"group": {
			func(b *bounds) { b.group = small },
			func(c *Client, _ *Stream, b *proto.EventBatch) { _ = c.groups[1].Tell(actors.Normal, routed{batch: b}) },
			func(c *Client, _ *Stream) int { return c.groups[1].Depth(actors.Normal) },
		},
		"stream": {
			func(b *bounds) { b.stream = small },
			func(_ *Client, s *Stream, b *proto.EventBatch) {
				r := encodeRun(selection{events: b.Events}, 0, noPrevious, 1<<20)
				_ = s.ref.Tell(actors.Normal, &delivered{group: 1, position: b.Revision, items: []item{{0, 1, r}}})
			},
			func(_ *Client, s *Stream) int { return s.ref.Depth(actors.Normal) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			cl, m, step := steppedRoom(t, func(_ *Config, b *bounds) { c.lower(b) })
			s := mustOpen(t, cl)
			watchKey(t, s, "k")
			if drain(t, step, s, 2) != 2 {
				t.Fatal("events of nothing")
			}
			for range 200 {
				c.tell(cl, s, m.batch([]op{put("k", "v")}))
			}
			if n := c.depth(cl, s); n != small.Messages+1 {
				t.Fatalf("%d messages wait", n)
			}
			if next := drain(t, step, s, 2); next != 202 {
				t.Fatalf("saw events up to %d", next-1)
			}
			if testutil.ToFloat64(cl.metrics.lost) != 1 {
				t.Fatal("the watch did not go back to history")
			}
		})
	}
}

// TestOutbox_IsBoundedInBytes is field report T09: a client that never reads costs the outbox bound and no more, and
// gets everything once it reads.
func TestOutbox_IsBoundedInBytes(t *testing.T) {
	const bound, value = 100_000, 10_000
	c, m, step := steppedRoom(t, func(cfg *Config, _ *bounds) { cfg.OutboxBytes = bound })
	s := mustOpen(t, c)
	watchKey(t, s, "k")
	step.Run(1000)
	for range 500 {
		c.Publish(m.batch([]op{{"k", make([]byte, value)}}))
		step.Run(1000)
		if held := c.budget.held.Load(); held > bound+value+1000 {
			t.Fatalf("%d bytes are held", held)
		}
	}
	if next := drain(t, step, s, 2); next != 502 {
		t.Fatalf("saw events up to %d", next-1)
	}
	if c.budget.held.Load() != 0 {
		t.Fatal("bytes are left")
	}
}

// TestOutboxes_AreBoundedTogether: past the total every outbox is held to the minimum.
func TestOutboxes_AreBoundedTogether(t *testing.T) {
	const streams, total, value = 20, 200_000, 1000
	c, m, step := steppedRoom(t, func(cfg *Config, _ *bounds) { cfg.OutboxTotalBytes = total })
	var list []*Stream
	for range streams {
		s := mustOpen(t, c)
		watchKey(t, s, "k")
		list = append(list, s)
	}
	step.Run(10_000)
	for range 300 {
		c.Publish(m.batch([]op{{"k", make([]byte, value)}}))
		step.Run(10_000)
	}
	if held := c.budget.held.Load(); held > total+streams*(outboxBytesMin+2*value) {
		t.Fatalf("%d bytes are held", held)
	}
	for _, s := range list {
		if next := drain(t, step, s, 2); next != 302 {
			t.Fatalf("saw events up to %d", next-1)
		}
	}
}

// TestRequests_WaitWhenAnswersAreNotRead: answers are never dropped; past their bound requests are no longer taken.
func TestRequests_WaitWhenAnswersAreNotRead(t *testing.T) {
	c, _, step := steppedRoom(t, nil)
	s := mustOpen(t, c)
	for range requestsMax {
		watchKey(t, s, "k")
		step.Run(100)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	gaveUp := errors.New("gave up")
	cancel(gaveUp)
	full := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})
	if err := s.Request(ctx, full); !errors.Is(err, gaveUp) {
		t.Fatalf("one more request: %v", err)
	}
	if _, found, _ := s.poll(); !found {
		t.Fatal("no answer")
	}
	if err := s.Request(context.Background(), full); err != nil {
		t.Fatal(err)
	}
	for range requestsMax {
		step.Run(100)
		if f, found, _ := s.poll(); !found || !f.Created {
			t.Fatal("an answer is missing")
		}
	}
	s.Close()
	if err := s.Request(context.Background(), full); !errors.Is(err, ErrClosed) {
		t.Fatalf("request after close: %v", err)
	}
}

// TestProgress_WaitsInBoundedNumber: requests on a stream that is not in step wait, up to a bound; the rest are
// dropped and hold no credit.
func TestProgress_WaitsInBoundedNumber(t *testing.T) {
	c, m, step := steppedRoom(t, nil)
	s := mustOpen(t, c)
	watchKey(t, s, "k")
	step.Run(1000)
	m.txn(put("k", "v")) // published, but the hub has not heard of it
	progress := &etcdserverpb.WatchRequest{
		RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}},
	}
	const sent = 3 * progressWantedMax
	for range sent {
		if err := s.Request(context.Background(), progress); err != nil {
			t.Fatal(err)
		}
		step.Run(1000)
	}
	c.Lost(m.revision)
	answers := 0
	for {
		step.Run(1000)
		f, found, _ := s.poll()
		if !found {
			break
		}
		if f.WatchID == watchIDNone {
			answers++
		}
	}
	if answers == 0 || answers > progressWantedMax+1 {
		t.Fatalf("%d answers to %d requests", answers, sent)
	}
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if s.outbox.credits != 0 || s.outbox.creditBytes != 0 {
		t.Fatalf("%d credits and %d bytes are held", s.outbox.credits, s.outbox.creditBytes)
	}
}

// TestRetired_IsBounded: ids of watches that compaction has cancelled are remembered, but not for ever.
func TestRetired_IsBounded(t *testing.T) {
	core := newStreamCore(streamAddress{}, 1000, 1000)
	for i := range retiredIDsMax + 10 {
		create := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, WatchId: int64(i + 1)})
		core.step(request{message: create}, position{100, 50}, space{1000, 1000})
	}
	if len(core.retired) != retiredIDsMax || len(core.watches) != 0 {
		t.Fatalf("%d ids remembered, %d watches", len(core.retired), len(core.watches))
	}
}

// TestLimits_Fit states the relations between the bounds.
func TestLimits_Fit(t *testing.T) {
	for name, ok := range map[string]bool{
		"an outbox holds a response": outboxBytesDefault > requestBytesDefault+responseAllowanceBytes,
		"the total exceeds one":      outboxTotalDefault > outboxBytesDefault && outboxBytesMin < outboxBytesDefault,
		"requests fit the lane":      streamControlMessages > requestsMax && streamControlBytes > 2*requestBytesMax,
		"what is read ahead fits":    catchupAheadBytes <= outboxBytesDefault,
		"history pieces fit":         catchupBytesMax*wantsMax <= catchupAheadBytes,
		"the shelf holds pieces":     2*catchupBytesMax*4 < shelfBytesMax,
		"pieces are small responses": catchupBytesMax < responseBytesWanted && responseBytesWanted < requestBytesDefault,
		"joined frames are small":    joinedFrameBytesMax <= catchupBytesMax,
		"what a group gathers fits":  gatheredBytesMax <= groupInboxBytes && gatheredBytesMax < outboxBytesDefault,
		"one batch is no crowd":      hubInboxBytes <= transitBytesMax,
		"rests are worth a timer":    restMin < groupRestMax && restMin < restMax,
		"progress fits the requests": progressWantedMax < requestsMax,
	} {
		if !ok {
			t.Errorf("does not hold: %s", name)
		}
	}
}

// TestIdleWatch_CostsLittle measures what a watch of a single key costs while nothing happens.
func TestIdleWatch_CostsLittle(t *testing.T) {
	const watches = 50_000
	c, _, step := steppedRoom(t, nil)
	s := mustOpen(t, c)
	before := heap()
	for i := range watches {
		watchKey(t, s, fmt.Sprintf("/registry/pods/default/pod-%08d", i))
		step.Run(100)
		if _, found, _ := s.poll(); !found {
			t.Fatal("not created")
		}
	}
	step.Run(1000)
	each := (heap() - before) / watches
	t.Logf("an idle watch costs %d bytes", each)
	if each > 800 {
		t.Fatalf("an idle watch costs %d bytes", each)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// lockedModel is a model for many goroutines.
type lockedModel struct {
	mu sync.Mutex
	m  *model
}

func (l *lockedModel) Position() (proto.Revision, proto.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Position()
}

func (l *lockedModel) Events(r Range, from, through proto.Revision, bytes int) ([]proto.Event, proto.Revision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Events(r, from, through, bytes)
}

func (l *lockedModel) Value(v proto.Version) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Value(v)
}

// write publishes the state, then tells the hub, as the store does.
func (l *lockedModel) write(c *Client, ops ...op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Publish(l.m.batch(ops))
}

// TestStreams_UnderLoad runs writers, readers and progress requests on goroutines with low bounds, and a transport that
// keeps what the readers give it for a while; every watch sees every event once, and progress is never ahead.
func TestStreams_UnderLoad(t *testing.T) {
	const writes = 2000
	l := &lockedModel{m: newModel()}
	b := boundsDefault
	b.hub.Messages, b.group.Messages, b.stream.Messages, b.catchupBytes = 8, 8, 8, 500
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "load"}), Config{
		History: l, OutboxBytes: 2000, OutboxTotalBytes: 3000, bounds: &b,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		s := mustOpen(t, c)
		r := &etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, PrevKv: i%2 == 0}
		if i%3 == 0 {
			r.RangeEnd = []byte("l")
		}
		if err := s.Request(ctx, createRequest(r)); err != nil {
			t.Fatal(err)
		}
		sends := make(chan int, 1+i)
		wg.Go(func() {
			for bytes := range sends {
				for range 100 { // a slow one
					runtime.Gosched()
				}
				s.GiveBack(bytes)
			}
		})
		wg.Go(func() {
			defer close(sends)
			follow(ctx, t, s, writes, sends)
		})
	}
	for i := range writes {
		l.write(c, put("k", fmt.Sprint(i)))
	}
	wg.Wait()
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(c.metrics.buffered) + testutil.ToFloat64(c.metrics.groups); n != 0 {
		t.Fatalf("%v things are left", n)
	}
}

// countedGroups notes groups that are counted out only when Client.Stop no longer waits for them.
type countedGroups struct {
	prometheus.Gauge
	client *Client
	late   atomic.Int32
}

func (g *countedGroups) Dec() {
	g.client.mu.Lock()
	if len(g.client.groups) == 0 {
		g.late.Add(1)
	}
	g.client.mu.Unlock()
	g.Gauge.Dec()
}

// TestClient_StopWaitsUntilEveryGroupIsCountedOut: what looks at the gauges after a stop finds zero.
func TestClient_StopWaitsUntilEveryGroupIsCountedOut(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "counted"}), Config{History: &lockedModel{m: newModel()}})
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedGroups{Gauge: c.metrics.groups, client: c}
	c.metrics.groups = counted
	s := mustOpen(t, c)
	if err := s.Request(ctx, createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(ctx); err != nil { // the group is there
		t.Fatal(err)
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if n, late := testutil.ToFloat64(counted.Gauge), counted.late.Load(); n != 0 || late != 0 {
		t.Fatalf("%v groups are left, %d were counted out late", n, late)
	}
}

// lookedAt is a history that notes whether a reader in Next asked for the position, which turns of streams do.
type lookedAt struct {
	lockedModel
	byReader atomic.Bool
}

func (l *lookedAt) Position() (proto.Revision, proto.Revision) {
	stack := make([]byte, 16<<10)
	if bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("watchactor.(*Stream).Next")) {
		l.byReader.Store(true)
	}
	return l.lockedModel.Position()
}

// TestStream_AReaderThatWaitsRunsItsTurns: a delivery wakes the reader only, not an actor that then wakes the reader.
func TestStream_AReaderThatWaitsRunsItsTurns(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &lookedAt{lockedModel: lockedModel{m: newModel()}}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "taken"}), Config{History: l})
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, c)
	create := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k")})
	if err := s.Request(ctx, create); err != nil {
		t.Fatal(err)
	}
	var writes sync.WaitGroup
	defer writes.Wait()
	for i := 0; !l.byReader.Load(); i++ { // a turn that finds the reader not yet waiting runs elsewhere
		writes.Go(func() { l.write(c, put("k", fmt.Sprint(i))) })
		if _, err := s.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestStream_AReaderTakesNoTurnWhileHistoryIsOnItsWay: what comes in two pieces, one right behind the other, should
// leave in one response, as etcd's does.
func TestStream_AReaderTakesNoTurnWhileHistoryIsOnItsWay(t *testing.T) {
	o := &outbox{budget: &budget{total: 1 << 20}, owner: new(Owner), bytesMax: 1 << 20, aheadMax: 1 << 20}
	filled := o.await()
	o.reserve(100)
	if o.takeTurn(func() {}) {
		t.Fatal("a turn was taken before the history has come")
	}
	o.reserve(0)
	if !o.takeTurn(func() {}) {
		t.Fatal("no turn was taken")
	}
	if <-filled == nil {
		t.Fatal("the reader was woken without the turn")
	}
}

// TestNext_ContextsMayEndWhileTurnsAreTaken: a reader whose context ends just when it is given a turn runs it and loses
// no event. It gives up and comes back all the time.
func TestNext_ContextsMayEndWhileTurnsAreTaken(t *testing.T) {
	const writes = 3000
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &lockedModel{m: newModel()}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "impatient"}), Config{History: l})
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, c)
	create := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	if err := s.Request(ctx, create); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range writes {
			l.write(c, put("k", fmt.Sprint(i)))
			if i%64 == 0 {
				runtime.Gosched()
			}
		}
	})
	for next, patience := int64(2), 0; next < writes+2; patience++ {
		moment, end := context.WithTimeout(ctx, time.Duration(patience%50)*time.Microsecond)
		f, err := s.Next(moment)
		end()
		switch {
		case ctx.Err() != nil:
			t.Fatalf("only %d events came", next-2)
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			t.Fatal(err)
		}
		for _, e := range eventsOf(&f) {
			if e.Kv.ModRevision != next {
				t.Fatalf("event of %d, want %d", e.Kv.ModRevision, next)
			}
			next++
		}
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// follow reads until all writes have been seen, asking for progress all the time, and tells the transport what it has
// lent to it.
func follow(ctx context.Context, t *testing.T, s *Stream, writes int, transport chan<- int) {
	next, progress := int64(2), proto.Revision(0)
	for next < int64(writes)+2 {
		f, err := s.Next(ctx)
		if err != nil {
			t.Errorf("after %d events: %v", next-2, err)
			return
		}
		if f.WatchID == watchIDNone {
			if int64(f.HeaderRevision) != next-1 || f.HeaderRevision < progress {
				t.Errorf("progress at %d after %d", f.HeaderRevision, next-1)
			}
			progress = f.HeaderRevision
		}
		if f.bytes > 0 {
			s.Lend(f.bytes)
			transport <- f.bytes
		}
		for _, e := range eventsOf(&f) {
			if e.Kv.ModRevision != next {
				t.Errorf("event of %d, want %d", e.Kv.ModRevision, next)
				return
			}
			next++
		}
		ask := &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}
		if next%7 == 0 {
			if err := s.Request(ctx, &etcdserverpb.WatchRequest{RequestUnion: ask}); err != nil {
				t.Errorf("progress request: %v", err)
			}
		}
	}
	s.Close()
}
