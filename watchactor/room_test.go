package watchactor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRoom_Transcripts runs testdata/room/*.txt on the whole room: a model store, one hub, its groups and streams, on
// one goroutine. Every command runs the actors to rest and prints the frames that the streams have, unless the stream
// is not being read.
func TestRoom_Transcripts(t *testing.T) {
	datadriven.Walk(t, "testdata/room", func(t *testing.T, path string) {
		r := &room{t: t}
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string { return r.run(d) })
		r.stop()
	})
}

type room struct {
	t       *testing.T
	step    *actorstest.Stepper
	clock   *actorstest.ManualClock
	model   *model
	client  *Client
	streams map[int]*Stream
	unread  map[int]bool
	untold  []*proto.EventBatch
}

// start makes an empty room. Arguments: outbox, request (max-request-bytes; responses stay below it), groups.
func (r *room) start(d *datadriven.TestData) {
	r.stop()
	outbox, request, groups := 0, 0, 0
	d.MaybeScanArgs(r.t, "outbox", &outbox)
	d.MaybeScanArgs(r.t, "response", &request)
	d.MaybeScanArgs(r.t, "groups", &groups)
	if request > 0 {
		request -= responseAllowanceBytes - responseOverheadBytes
	}
	r.step, r.clock, r.model = actorstest.NewStepper(1), actorstest.NewManualClock(), newModel()
	r.streams, r.unread, r.untold = map[int]*Stream{}, map[int]bool{}, nil
	sys := actors.NewSystem(actors.Config{Name: "room", Clock: r.clock, Dispatcher: r.step})
	c, err := Spawn(sys, Config{
		History: r.model, OutboxBytes: outbox, MaxRequestBytes: request, Groups: groups,
		Random: func() float64 { return 0.5 },
		Permit: func(_ context.Context, m *etcdserverpb.WatchCreateRequest) string {
			if strings.HasPrefix(string(m.Key), "secret") {
				return "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
			}
			return ""
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.client = c
}

func (r *room) stop() {
	if r.client == nil {
		return
	}
	if err := r.client.Stop(context.Background()); err != nil {
		r.t.Error(err)
	}
	r.step.Run(10_000)
	if n := testutil.ToFloat64(r.client.metrics.groups) + testutil.ToFloat64(r.client.metrics.watches) +
		testutil.ToFloat64(r.client.metrics.buffered); n != 0 {
		r.t.Errorf("%v things are left", n)
	}
}

func (r *room) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		r.start(d)
		return ""
	case "write": // one transaction per line: key=value, or key alone to delete; "publish=no" keeps it from the hub
		var txns [][]op
		for line := range strings.Lines(d.Input) {
			txns = append(txns, opsOf(line))
		}
		r.untold = append(r.untold, r.model.batch(txns...))
		if !d.HasArg("unpublished") {
			r.publish()
		}
	case "publish":
		r.publish()
	case "compact":
		d.ScanArgs(r.t, "at", (*int64)(&r.model.compacted))
	case "open":
		return r.open(number(r.t, d, "stream"))
	case "close":
		r.streams[number(r.t, d, "stream")].Close()
	case "create", "cancel", "progress":
		return r.request(d)
	case "sleep":
		r.unread[number(r.t, d, "stream")] = true
	case "wake":
		delete(r.unread, number(r.t, d, "stream"))
	case "wait":
		seconds := number(r.t, d, "seconds")
		r.clock.Advance(time.Duration(seconds) * time.Second)
	case "lost":
		r.client.Lost(r.model.revision)
	case "break":
		r.breakActor(d)
	case "count":
		return r.count()
	default:
		r.t.Fatalf("unknown command %s", d.Cmd)
	}
	return r.frames()
}

func (r *room) publish() {
	for _, b := range r.untold {
		r.client.Publish(b)
	}
	r.untold = nil
}

func (r *room) open(id int) string {
	s, err := r.client.Open(nil)
	if err != nil {
		return err.Error() + "\n"
	}
	r.streams[id] = s
	return r.frames()
}

// breakActor makes an actor panic by a message it cannot understand.
func (r *room) breakActor(d *datadriven.TestData) {
	var name string
	d.ScanArgs(r.t, "actor", &name)
	switch name {
	case "hub":
		_ = r.client.hub.Tell(actors.Normal, nil)
	case "group":
		for _, id := range sortedKeys(r.client.groups) {
			_ = r.client.groups[id].Tell(actors.Normal, nil)
			return
		}
	case "stream":
		_ = r.streams[number(r.t, d, "stream")].getRef().Tell(actors.Normal, nil)
	}
}

func (r *room) request(d *datadriven.TestData) string {
	m := &etcdserverpb.WatchRequest{}
	switch d.Cmd {
	case "create":
		m.RequestUnion = &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: createOf(r.t, d)}
	case "cancel":
		m.RequestUnion = &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: int64(number(r.t, d, "id"))},
		}
	case "progress":
		m.RequestUnion = &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}
	}
	if err := r.streams[number(r.t, d, "stream")].Request(context.Background(), m); err != nil {
		return err.Error() + "\n"
	}
	return r.frames()
}

// createOf reads key, end, rev, id and the flags prev, fragment, notify, noput, nodelete. "*" stands for "\x00".
func createOf(t *testing.T, d *datadriven.TestData) *etcdserverpb.WatchCreateRequest {
	m := &etcdserverpb.WatchCreateRequest{}
	key, end := "", ""
	d.MaybeScanArgs(t, "key", &key)
	d.MaybeScanArgs(t, "end", &end)
	m.Key, m.RangeEnd = []byte(strings.ReplaceAll(key, "*", "\x00")), []byte(strings.ReplaceAll(end, "*", "\x00"))
	d.MaybeScanArgs(t, "rev", &m.StartRevision)
	d.MaybeScanArgs(t, "id", &m.WatchId)
	m.PrevKv, m.Fragment, m.ProgressNotify = d.HasArg("prev"), d.HasArg("fragment"), d.HasArg("notify")
	if d.HasArg("noput") {
		m.Filters = append(m.Filters, etcdserverpb.WatchCreateRequest_NOPUT)
	}
	if d.HasArg("nodelete") {
		m.Filters = append(m.Filters, etcdserverpb.WatchCreateRequest_NODELETE)
	}
	return m
}

// frames runs everything to rest and prints what the streams have.
func (r *room) frames() string {
	var b strings.Builder
	for empty := 0; empty < 2; empty++ { // a reader that finds nothing makes room, and the stream goes on
		r.step.Run(100_000)
		for _, id := range sortedKeys(r.streams) {
			if r.unread[id] {
				continue
			}
			f, found, err := r.streams[id].poll()
			switch {
			case err != nil:
				fmt.Fprintf(&b, "%d: ended: %v\n", id, err)
				delete(r.streams, id)
			case found:
				fmt.Fprintf(&b, "%d: %s\n", id, printFrame(&f))
				empty = -1
			}
		}
	}
	if b.Len() == 0 {
		return "ok\n"
	}
	return b.String()
}

func (r *room) count() string {
	m := r.client.metrics
	return fmt.Sprintf("streams %v watches %v slow %v groups %v pending %v encodings %v resyncs %v\n",
		testutil.ToFloat64(m.streams), testutil.ToFloat64(m.watches), testutil.ToFloat64(m.slow),
		testutil.ToFloat64(m.groups), testutil.ToFloat64(m.waiting), testutil.ToFloat64(m.encoded),
		testutil.ToFloat64(m.lost))
}

func printFrame(f *Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "id=%d rev=%d", f.WatchID, f.HeaderRevision)
	for flag, set := range map[string]bool{" created": f.Created, " fragment": f.Fragment} {
		if set {
			b.WriteString(flag)
		}
	}
	if f.Canceled {
		fmt.Fprintf(&b, " canceled compact=%d reason=%q", f.CompactRevision, f.CancelReason)
	}
	for _, e := range eventsOf(f) {
		fmt.Fprintf(&b, " %s %s@%d", e.Type, e.Kv.Key, e.Kv.ModRevision)
		if e.PrevKv != nil {
			fmt.Fprintf(&b, " prev@%d", e.PrevKv.ModRevision)
		}
	}
	return b.String()
}

func eventsOf(f *Frame) []*event {
	var all []byte
	for _, p := range f.Events {
		all = append(all, p...)
	}
	var m etcdserverpb.WatchResponse
	if err := pb.Unmarshal(all, &m); err != nil {
		panic(err)
	}
	return m.Events
}

// opsOf reads "a=1 b" as a put of a and a delete of b. "a=x*100" repeats the value.
func opsOf(line string) []op {
	var ops []op
	for _, word := range strings.Fields(line) {
		key, value, isPut := strings.Cut(word, "=")
		if !isPut {
			ops = append(ops, del(key))
			continue
		}
		if unit, times, many := strings.Cut(value, "*"); many {
			n := 0
			_, _ = fmt.Sscan(times, &n)
			value = strings.Repeat(unit, n)
		}
		ops = append(ops, put(key, value))
	}
	return ops
}

func number(t *testing.T, d *datadriven.TestData, key string) int {
	n := 1
	d.MaybeScanArgs(t, key, &n)
	return n
}
