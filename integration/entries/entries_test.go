package entries

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

var (
	seedFlag  = flag.Uint64("entries.seed", 0, "replay this one seed; 0 runs fixed seeds")
	freshFlag = flag.Bool("entries.fresh", false, "with fixed seeds, run a new one too")
	stepsFlag = flag.Int("entries.steps", 4000, "requests per seed")
)

// scriptShown is how many requests before a difference are printed; the seed gives the rest.
const scriptShown = 12

func TestEntries_SameRequestsGiveSameAnswersAndSameHashesAsOnEtcd(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *freshFlag {
		seeds = append(seeds, uint64(time.Now().UnixNano()))
	}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { runSeed(t, seed, *stepsFlag) })
	}
}

// pair is the two servers that must agree.
type pair struct {
	troupe, etcd         *harness.Server
	troupeConn, etcdConn *grpc.ClientConn
	generator            *generator
	script               []string
	steps, refused, done int
}

func runSeed(t *testing.T, seed uint64, steps int) {
	p := &pair{
		troupe:    harness.Start(t, harness.Options{Kind: harness.Troupe}),
		etcd:      harness.Start(t, harness.Options{Kind: harness.Etcd}),
		generator: newGenerator(seed),
	}
	p.troupeConn, p.etcdConn = p.troupe.Conn(t), p.etcd.Conn(t)
	ctx := harness.Context(t, 5*time.Minute)
	for p.steps = range steps {
		if p.steps == steps/2 { // what was recovered must behave like what was never interrupted
			p.troupe.Kill(t)
			p.troupe.Start(t)
			p.troupeConn = p.troupe.Conn(t)
		}
		if !p.step(ctx) {
			t.Fatalf("seed %d, step %d (repeat with -entries.seed=%d -entries.steps=%d):\n%s",
				seed, p.steps, seed, p.steps+1, strings.Join(p.script, "\n"))
		}
	}
	t.Logf("%d requests: %d answered, %d refused, revision %d", steps, p.done, p.refused, p.generator.revision)
	if p.done < steps/2 || p.refused < steps/50 || p.generator.revision < int64(steps/6) {
		t.Errorf("the generator aims badly: it proves too little")
	}
	p.compareEnd(ctx, t)
}

// step sends one request to both servers and reports whether they agree.
func (p *pair) step(ctx context.Context) bool {
	request := p.generator.next()
	answers := make(chan answer, 1)
	go func() { answers <- send(ctx, p.etcdConn, proto.Clone(request.(proto.Message))) }()
	got := send(ctx, p.troupeConn, request)
	want := <-answers
	if len(p.script) == scriptShown {
		p.script = p.script[1:]
	}
	text := prototext.MarshalOptions{}.Format(request.(proto.Message))
	p.script = append(p.script, fmt.Sprintf("%d %T{%s} -> %s%s", p.steps, request, text, want.err, want.text))
	if want.err != "" {
		p.refused++
	} else {
		p.done++
	}
	p.generator.observe(request, want)
	if got != want {
		p.script = append(p.script, fmt.Sprintf("but troupe -> %s%s", got.err, got.text))
		return false
	}
	return true
}

// compareEnd compares what is left at the end: the hash at every revision and the history that a watch replays, now and
// after troupe has been killed and started again.
func (p *pair) compareEnd(ctx context.Context, t *testing.T) {
	t.Helper()
	want := p.etcd.Hashes(t)
	harness.SameHashes(t, "troupe", p.troupe.Hashes(t), "etcd", want)
	from := max(p.generator.compact, 1)
	events := history(ctx, t, p.etcdConn, from, p.generator.revision)
	sameEvents(t, history(ctx, t, p.troupeConn, from, p.generator.revision), events)
	p.troupe.Kill(t)
	p.troupe.Start(t)
	harness.SameHashes(t, "troupe after kill -9", p.troupe.Hashes(t), "etcd", want)
	sameEvents(t, history(ctx, t, p.troupe.Conn(t), from, p.generator.revision), events)
}

// history watches every key from a revision through another, with previous values.
func history(ctx context.Context, t *testing.T, conn *grpc.ClientConn, from, through int64) []*mvccpb.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	create := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: from, PrevKv: true}
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
	if err := stream.Send(request); err != nil {
		t.Fatalf("watch: %v", err)
	}
	var events []*mvccpb.Event
	last := int64(0)
	for last < through {
		r, err := stream.Recv()
		if err != nil {
			t.Fatalf("watch from %d through %d, at %d: %v", from, through, last, err)
		}
		if r.Canceled {
			t.Fatalf("watch from %d was cancelled: %v", from, r)
		}
		for _, e := range r.Events {
			last = e.Kv.ModRevision
		}
		events = append(events, r.Events...)
	}
	return events
}

func sameEvents(t *testing.T, got, want []*mvccpb.Event) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("event %d of the history: troupe gives %v, etcd %v", i, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("history: troupe gives %d events, etcd %d", len(got), len(want))
	}
}
