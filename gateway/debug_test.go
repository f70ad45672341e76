package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"troupe/actors"
	"troupe/proto"
)

// freshPicture makes the next look take a picture.
func (e *edge) freshPicture() {
	e.pictures.mu.Lock()
	defer e.pictures.mu.Unlock()
	e.pictures.until = time.Time{}
}

// theatre is a gateway over a real actor system with a calm, a stuck and a full actor in it.
type theatre struct {
	*edge
	sys  *actors.System
	calm actors.Ref[int]
}

type blocker struct{ release chan struct{} }

func (blocker) Start(actors.Self[int]) error { return nil }
func (blocker) Stop()                        {}
func (b blocker) Handle(_ actors.Self[int], batch []int) {
	if batch[0] < 0 {
		<-b.release
	}
}

const evilName = `store/<script>alert("x")</script>`

func newTheatre(t *testing.T, change func(*Config)) *theatre {
	t.Helper()
	sys := actors.NewSystem(actors.Config{Name: "theatre"})
	release := make(chan struct{})
	play := &theatre{sys: sys}
	refs := map[string]actors.Ref[int]{}
	for _, name := range []string{"lease", "raft", "store", evilName} {
		ref, err := actors.Spawn(sys, actors.Spec[int]{Name: name,
			Policy:   actors.Reject[int](actors.Bound{Messages: 8, Bytes: 4096}),
			Behavior: func() actors.Behavior[int] { return blocker{release} }})
		if err != nil {
			t.Fatal(err)
		}
		refs[name] = ref
		t.Cleanup(func() { _ = ref.Stop(context.Background()) })
	}
	t.Cleanup(func() { close(release) })
	play.calm = refs["lease"]
	for _, name := range []string{"raft", "store"} { // they begin a turn that does not end
		_ = refs[name].Tell(actors.Normal, -1)
		eventually(t, name+" is busy", func() bool { return refs[name].Depth(actors.Normal) == 0 })
	}
	for range 30 {
		_ = refs["store"].Tell(actors.Normal, 1)
	}
	play.edge = newReadyEdge(t, func(c *Config) {
		c.Actors = sys
		if change != nil {
			change(c)
		}
	})
	// "raft" counts as stuck after a second of its turn.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if play.actor(t, "raft").BusySeconds >= 1 {
			return play
		}
		if time.Now().After(deadline) {
			t.Fatal("never stuck")
		}
	}
}

// view reads the JSON.
func (p *theatre) view(t *testing.T, query string) troupeView {
	t.Helper()
	p.freshPicture()
	code, body := get(t, p.edge, "/debug/actors?format=json"+query)
	var v troupeView
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != 200 {
		t.Fatalf("%d %v in %s", code, err, body)
	}
	return v
}

// actor reads one actor of the JSON.
func (p *theatre) actor(t *testing.T, name string) actorView {
	t.Helper()
	v := p.view(t, "")
	i := slices.IndexFunc(v.Actors, func(a actorView) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no actor %s in %+v", name, v.Actors)
	}
	return v.Actors[i]
}

func TestDebugActors_AFullMailboxIsTheFirstThingInEveryForm(t *testing.T) {
	p := newTheatre(t, nil)
	v := p.view(t, "")
	var order []string
	for _, a := range v.Actors {
		order = append(order, a.Name+" "+a.Condition)
	}
	if got := strings.Join(order, ", "); got != "store full, raft stuck, lease calm, "+evilName+" calm" {
		t.Fatalf("the order is %s", got)
	}
	store := v.Actors[0]
	if l := store.Lanes[0]; l.Depth != 8 || l.Bound != 8 || l.Fill != 1 || l.Rejected == 0 || l.HighWater != 8 ||
		l.Policy != "reject" || l.Bytes != 8*64 || l.BytesBound != 4096 || l.Lane != "normal" {
		t.Errorf("its lane is %+v", l)
	}
	if store.BusySeconds <= 0 || store.BusyWith != "int" || store.Room != "store" {
		t.Errorf("it is %+v", store)
	}
	if v.Totals.Full != 1 || v.Totals.Stuck != 1 || v.Totals.Actors != 4 {
		t.Errorf("the totals are %+v", v.Totals)
	}
	_, text := get(t, p.edge, "/debug/actors")
	if lines := strings.Split(text, "\n"); !strings.Contains(lines[0], "depth") ||
		!regexp.MustCompile(`^store \(full\)\s+normal\s+reject`).MatchString(strings.TrimSpace(lines[1])) {
		t.Errorf("the text is\n%s", text)
	}
	page := p.page(t, "/debug/actors")
	if !regexp.MustCompile(`(?s)id="alarms"[^>]*>\s*<section class="alarm full"><h3>store is full`).MatchString(page) ||
		!regexp.MustCompile(`(?s)<tbody id="rows">\s*<tr class="full"><td>store</td>`).MatchString(page) {
		t.Errorf("the page does not begin with what is full:\n%.3000s", page)
	}
}

// page fetches a page as a browser does, and checks what protects its reader.
func (p *theatre) page(t *testing.T, path string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+p.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v %v", path, answer.Status, err)
	}
	policy := answer.Header.Get("Content-Security-Policy")
	nonce := regexp.MustCompile(`script-src 'nonce-(\w+)'`).FindStringSubmatch(policy)
	if nonce == nil || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Fatalf("the policy is %s", policy)
	}
	for _, tag := range regexp.MustCompile(`<(script|style)[^>]*>`).FindAllString(string(body), -1) {
		if !strings.Contains(tag, `nonce="`+nonce[1]+`"`) {
			t.Errorf("%s is not of this answer", tag)
		}
	}
	if answer.Header.Get("Access-Control-Allow-Origin") != "" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", answer.Header)
	}
	return string(body)
}

// text fetches a page as a terminal does.
func (p *theatre) text(t *testing.T, addr, path string) string {
	t.Helper()
	answer, err := pages.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestDebugActors_NamesAreTextOnThePage(t *testing.T) {
	p := newTheatre(t, nil)
	page := p.page(t, "/debug/actors")
	if strings.Contains(page, "<script>alert") || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Error("a name is markup")
	}
	if found := regexp.MustCompile(`(src|href|url)\s*[=(]\s*["']?(https?:)?//`).FindString(page); found != "" {
		t.Errorf("the page loads %s from elsewhere", found)
	}
}

func TestDebugActors_NumbersMoveAndHaveRates(t *testing.T) {
	p := newTheatre(t, nil)
	before := p.actor(t, "lease")
	for range 5 {
		_ = p.calm.Tell(actors.Normal, 1)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		after := p.actor(t, "lease")
		if after.Rate == nil {
			t.Fatalf("no rate in %+v", after)
		}
		if after.Handled == before.Handled+5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("handled %d, then %d", before.Handled, after.Handled)
		}
	}
}

func TestDebugActors_SelectsAKindAndBoundsTheRest(t *testing.T) {
	stats := make([]actors.Stats, 40)
	for i := range stats {
		name := fmt.Sprintf("watch/stream/%02d", i)
		stats[i] = actors.Stats{Name: name, Kind: "watch/stream", Lanes: []actors.LaneStats{{}}}
	}
	stats = append(stats, actors.Stats{Name: "raft", Kind: "raft", Lanes: []actors.LaneStats{{}}})
	e := newReadyEdge(t, func(c *Config) { c.Actors = fakeActors{stats} })
	for query, want := range map[string]int{
		"": pictureActorsShown + 1, "&kind=watch/stream": 40, "&kind=watch/stream&top=3": 3, "&limit=2": 2, "&top=1": 2,
		"&kind=nothing": 0, "&limit=-1": pictureActorsShown + 1,
	} {
		_, body := get(t, e, "/debug/actors?format=json"+query)
		if n := strings.Count(body, `"name":"watch`) + strings.Count(body, `"name":"raft"`); n != want {
			t.Errorf("%q shows %d actors, want %d", query, n, want)
		}
	}
	empty := newReadyEdge(t, nil)
	if _, body := get(t, empty, "/debug/actors?format=json"); !strings.Contains(body, `"actors":[]`) {
		t.Errorf("no actors: %s", body)
	}
}

// TestPictures_RecentQuantilesAreAboutNow: a month of quick turns does not hide a minute of slow ones.
func TestPictures_RecentQuantilesAreAboutNow(t *testing.T) {
	var work actors.Histogram
	work.Counts[3] = 1_000_000
	p := &pictures{edge: func() (memberView, gatewayView) { return memberView{}, gatewayView{} },
		take: func() *actors.Picture {
			lanes := []actors.LaneStats{{Wait: work}}
			sums := []actors.LaneSums{{LaneStats: lanes[0]}}
			return &actors.Picture{At: time.Now(), Actors: []actors.Stats{{Name: "a", Lanes: lanes, Work: work}},
				Kinds: []actors.KindStats{{Kind: "a", Lanes: sums, Work: work}}}
		}}
	look := func() *troupeView {
		p.until = time.Time{}
		return p.view()
	}
	if first := look(); first.RecentSeconds != 0 || first.Actors[0].Work.RecentCount != 0 {
		t.Errorf("recent at the first look: %+v", first)
	}
	work.Counts[20] += 5
	v := look()
	for name, got := range map[string]timesView{"work": v.Actors[0].Work, "wait": v.Actors[0].Lanes[0].Wait,
		"work of the kind": v.Kinds[0].Work, "wait of the kind": v.Kinds[0].Lanes[0].Wait} {
		if got.RecentCount != 5 || got.RecentP99 != work.UpperBound(20).Seconds() || got.P99 != work.UpperBound(3).Seconds() {
			t.Errorf("%s is %+v", name, got)
		}
	}
	p.newer.at = p.newer.at.Add(-recentSpan) // half a minute later
	if look(); p.older.actors == nil || !p.newer.at.After(p.older.at) {
		t.Error("the time over which quantiles are recent does not move on")
	}
	work = actors.Histogram{} // an actor of the same name began anew
	work.Counts[1] = 7
	if got := look().Actors[0].Work; got.RecentCount != 7 {
		t.Errorf("after a new beginning: %+v", got)
	}
}

// TestPictures_AreSharedAndRest: however many look, a slow picture is taken a twentieth of the time.
func TestPictures_AreSharedAndRest(t *testing.T) {
	taken := 0
	took := time.Hour
	p := &pictures{edge: func() (memberView, gatewayView) { return memberView{}, gatewayView{} },
		take: func() *actors.Picture {
			taken++
			return &actors.Picture{At: time.Now(), Took: took}
		}}
	for range 1000 {
		p.view()
	}
	if rest := time.Until(p.until); taken != 1 || rest < 18*time.Hour {
		t.Errorf("%d pictures taken, the next in %v", taken, rest)
	}
	p.until, took = time.Time{}, 0
	p.view()
	if rest := time.Until(p.until); taken != 2 || rest > pictureAgeMin {
		t.Errorf("%d pictures taken, the next in %v", taken, rest)
	}
}

func TestDebugActors_ARefusalSinceTheLastLookIsFullADropIsStrain(t *testing.T) {
	for _, c := range []struct {
		change func(*actors.LaneStats)
		want   actors.Condition
	}{
		{func(*actors.LaneStats) {}, actors.Calm},
		{func(l *actors.LaneStats) { l.Rejected += 3 }, actors.Full},
		{func(l *actors.LaneStats) { l.Dropped += 3 }, actors.Strained},
		{func(l *actors.LaneStats) { l.Resynced += 3 }, actors.Strained},
	} {
		lane := actors.LaneStats{Bound: actors.Bound{Messages: 10, Bytes: 100}}
		now := time.Now()
		first := rater{now: now, after: counted{actors: map[string]counters{}}}
		first.actor(&actors.Stats{Name: "a", Lanes: []actors.LaneStats{lane}})
		c.change(&lane)
		second := rater{now: now, seconds: 1, before: first.after, after: counted{actors: map[string]counters{}}}
		if v := second.actor(&actors.Stats{Name: "a", Lanes: []actors.LaneStats{lane}}); v.rank != c.want {
			t.Errorf("%+v: %v, want %v", lane, v.rank, c.want)
		}
	}
}

// introspect asks the Introspect service.
func introspect(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func getPicture(t *testing.T, conn *grpc.ClientConn, in *proto.IntrospectRequest) (*proto.IntrospectPicture, error) {
	t.Helper()
	out := new(proto.IntrospectPicture)
	err := conn.Invoke(within(t), "/"+serviceIntrospect+"/Get", in, out)
	return out, err
}

func watchPictures(ctx context.Context, t *testing.T, conn *grpc.ClientConn,
	in *proto.IntrospectRequest) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+serviceIntrospect+"/Watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(in); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestIntrospect_HasEveryFieldOfTheJSON compares the names, at every level, and the values that do not move.
func TestIntrospect_HasEveryFieldOfTheJSON(t *testing.T) {
	p := newTheatre(t, nil)
	p.view(t, "")
	v := p.look(selection{top: 8, limit: 8})
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	message := pictureMessage(v)
	wire, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(wire, &got); err != nil {
		t.Fatal(err)
	}
	compareFields(t, "", want, got)
	if a, b := message.Actors[0], v.Actors[0]; a.Name != b.Name || a.Lanes[0].Depth != int64(b.Lanes[0].Depth) ||
		a.Lanes[0].Wait.P99Seconds != b.Lanes[0].Wait.P99 || len(message.Actors) != len(v.Actors) {
		t.Errorf("%v is not %+v", a, b)
	}
}

// compareFields reports fields of the JSON that the message lacks or has with another text.
func compareFields(t *testing.T, path string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name, value := range w {
			other, ok := g[name]
			if !ok && value != nil {
				t.Errorf("the message lacks %s.%s", path, name)
				continue
			}
			compareFields(t, path+"."+name, value, other)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			t.Errorf("%s has %d elements, the message %d", path, len(w), len(g))
			return
		}
		for i := range w {
			compareFields(t, path, w[i], g[i])
		}
	default:
		if want != nil && strings.TrimRight(fmt.Sprint(want), "Z0") != strings.TrimRight(fmt.Sprint(got), "Z0") {
			if n, ok := want.(float64); !ok || fmt.Sprint(int64(n)) != fmt.Sprint(got) { // whole numbers of 64 bits are text
				t.Errorf("%s is %v, in the message %v", path, want, got)
			}
		}
	}
}

func TestIntrospect_GetAndWatchShowTheSamePictures(t *testing.T) {
	p := newTheatre(t, nil)
	conn := introspect(t, p.addr)
	out, err := getPicture(t, conn, &proto.IntrospectRequest{Kind: "store", Top: 1})
	if err != nil || len(out.Actors) != 1 || len(out.Kinds) != 1 || out.Actors[0].Condition != "full" {
		t.Fatalf("%v %v", out, err)
	}
	began := time.Now()
	stream := watchPictures(within(t), t, conn, &proto.IntrospectRequest{IntervalSeconds: 0.001})
	first := ""
	for n := 1; ; n++ {
		picture := new(proto.IntrospectPicture)
		if err := stream.RecvMsg(picture); err != nil {
			t.Fatal(err)
		}
		if picture.Actors[0].Name != "store" {
			t.Errorf("the first actor is %s", picture.Actors[0].Name)
		}
		// Two may be the same when the member was late with the first.
		if first = cmp.Or(first, picture.Time); n > 2 && picture.Time != first {
			break
		}
	}
	if took := time.Since(began); took < introspectIntervalMin {
		t.Errorf("three pictures within %v", took)
	}
}

func TestIntrospect_StreamsAreBoundedAndEndWithTheMember(t *testing.T) {
	p := newTheatre(t, nil)
	conn := introspect(t, p.addr)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var streams []grpc.ClientStream
	for range introspectStreamsMax {
		stream := watchPictures(ctx, t, conn, &proto.IntrospectRequest{})
		if err := stream.RecvMsg(new(proto.IntrospectPicture)); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	refused := watchPictures(ctx, t, conn, &proto.IntrospectRequest{})
	if err := refused.RecvMsg(new(proto.IntrospectPicture)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one stream too many: %v", err)
	}
	if _, err := getPicture(t, conn, &proto.IntrospectRequest{}); err != nil {
		t.Errorf("Get beside the streams: %v", err)
	}
	p.Drain()
	for _, stream := range streams {
		var err error
		for err == nil {
			err = stream.RecvMsg(new(proto.IntrospectPicture))
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("a stream ended with %v", err)
		}
	}
}

// TestDebugPort_TakesThePagesAndStaysOpenInADrain: with a port of their own they are not on the client port, and
// nothing but metrics and health is on a metrics port.
func TestDebugPort_TakesThePagesAndStaysOpenInADrain(t *testing.T) {
	p := newTheatre(t, nil)
	moved := newReadyEdge(t, func(c *Config) { c.Actors, c.DebugElsewhere, c.Profiling = p.sys, true, true })
	serve := func(with func(net.Listener) error) (addr string, done chan error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done = make(chan error, 1)
		go func() { done <- with(l) }()
		return l.Addr().String(), done
	}
	fetch := func(addr, path string) int {
		r, err := pages.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode
	}
	debug, done := serve(moved.ServeDebug)
	metrics, _ := serve(moved.ServeMetrics)
	expect := func(want []int, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if got := []int{fetch(moved.addr, path), fetch(metrics, path), fetch(debug, path)}; !slices.Equal(got, want) {
				t.Errorf("%s on the client, metrics and debug port: %v", path, got)
			}
		}
	}
	expect([]int{404, 404, 200}, "/debug/actors", "/debug/clients", "/debug/vars", "/debug/pprof/",
		"/debug/pprof/goroutine?debug=1")
	if text := p.text(t, debug, "/debug/pprof/goroutine?debug=1"); !strings.Contains(text, `"actor":"raft"`) {
		t.Error("the profile of goroutines does not name the actors")
	}
	expect([]int{200, 200, 404}, "/metrics", "/health", "/readyz")
	_, err := getPicture(t, introspect(t, moved.addr), &proto.IntrospectRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("Introspect on the client port: %v", err)
	}
	conn := introspect(t, debug)
	stream := watchPictures(within(t), t, conn, &proto.IntrospectRequest{})
	if err := stream.RecvMsg(new(proto.IntrospectPicture)); err != nil {
		t.Fatal(err)
	}
	moved.Drain()
	if _, err := getPicture(t, conn, &proto.IntrospectRequest{}); err != nil || fetch(debug, "/debug/actors") != 200 {
		t.Errorf("the debug port is closed in a drain: %v", err)
	}
	if err := moved.Stop(within(t)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the port ended with %v", err)
	}
	for err := error(nil); err == nil; {
		err = stream.RecvMsg(new(proto.IntrospectPicture))
	}
	if late, done := serve(moved.ServeDebug); <-done != nil {
		t.Errorf("a listener after the stop, %s, is not closed", late)
	}
}

func TestDebugPort_ConnectionsAreBounded(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.DebugElsewhere = true })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = e.ServeDebug(l) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var open []net.Conn
	for range debugConnectionsMax {
		open = append(open, dial())
	}
	eventually(t, "all are accepted", func() bool { return e.debug.gate.inside() == debugConnectionsMax })
	late := dial()
	_ = late.SetReadDeadline(time.Now().Add(testPatience))
	if n, err := late.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one connection too many read %d bytes, %v", n, err)
	}
	_ = open[0].Close()
	eventually(t, "there is room again", func() bool { return e.debug.gate.inside() < debugConnectionsMax })
}
