package differential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

const (
	// callLimit is for one call on a slow machine.
	callLimit = 30 * time.Second
	// eventLimit is how long an event may take that must come; once something has differed, and is being shrunk, less.
	eventLimit, eventLimitShrinking = 30 * time.Second, 3 * time.Second
	// streamsMax is how many watch streams a script may use.
	streamsMax = 3
	// sequencesPerPair is after how many random scripts the servers are replaced by fresh ones, which have no history.
	sequencesPerPair = 100
)

// serverFlags make the limits small, so that small requests reach them, and periodic progress frequent.
var serverFlags = []string{"--max-request-bytes", "20000", "--max-txn-ops", "8",
	"--watch-progress-notify-interval", "200ms", "--max-learners", "2"}

// The two sides. etcd is the one that is right.
const (
	etcdSide = iota
	troupeSide
	sides
)

// side is one of the two servers, with what a script has open on it.
type side struct {
	server    *harness.Server
	conn      *grpc.ClientConn
	members   []uint64 // the ids that scripts call 1, 2, 3: the server's own, and those added, in order
	watches   [streamsMax]*watchStream
	recorder  *watchStream // sees all events of the script
	keepAlive grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
}

// world runs scripts on both servers.
type world struct {
	t     *testing.T
	sides [sides]*side
	// base is what scripts' revisions lack to the servers'. now and compact are in the script's revisions.
	base, now, compact int64
	// alarmed says that an alarm may be raised. It only guides the generator.
	alarmed  bool
	script   []step
	history  []*event      // of the script, as recorded
	models   []*watchModel // the watches that are open
	failed   bool          // something has differed in this run
	ready    bool          // the servers are equal and have nothing of a script
	shortest []step        // that found a difference
	served   int           // scripts on these servers
	closed   [streamsMax]bool
	// added holds the second up to which members with these URLs were added: their ids are made of both.
	added map[string]int64
	// updateRefused says that an update of a member was refused in this script.
	updateRefused bool
	counters      counters
}

// counters are what a run did.
type counters struct {
	scripts, steps, refused, events, restarts int
	snapshots, records                        int // compared, with the records in them
	used                                      map[string]int
	// outcomes counts what etcd said: how well the generator aims.
	outcomes map[string]int
}

// difference is what the two servers disagree about.
type difference struct{ step, etcd, troupe string }

func (d *difference) Error() string {
	return fmt.Sprintf("%s\n   etcd: %s\n troupe: %s", d.step, d.etcd, d.troupe)
}

func newWorld(t *testing.T) *world {
	return &world{t: t, added: make(map[string]int64),
		counters: counters{used: make(map[string]int), outcomes: make(map[string]int)}}
}

func (w *world) use(name string) { w.counters.used[name]++ }

// both runs f for both sides at once.
func both[R any](w *world, f func(*side) R) (out [sides]R) {
	var wait sync.WaitGroup
	for i, s := range w.sides {
		wait.Go(func() { out[i] = f(s) })
	}
	wait.Wait()
	return out
}

// begin makes both servers ready for the next script: fresh ones, or those of the last script with everything removed.
func (w *world) begin() {
	w.script, w.history, w.models, w.alarmed, w.closed = nil, nil, nil, false, [streamsMax]bool{}
	w.updateRefused = false
	w.counters.scripts++
	if w.sides[0] == nil || w.served >= sequencesPerPair || !w.ready && w.clean() != nil {
		w.replace()
	}
	w.served++
	w.ready = false
	w.record()
}

// replace starts fresh servers.
func (w *world) replace() {
	w.stop()
	kinds := [sides]harness.Kind{etcdSide: harness.Etcd, troupeSide: harness.Troupe}
	for i, kind := range kinds {
		w.sides[i] = &side{server: harness.New(w.t, harness.Options{Kind: kind, Args: serverFlags})}
	}
	w.start()
	w.served, w.ready = 0, true
	w.base, w.now, w.compact = 0, 1, -1
}

// start starts both servers.
func (w *world) start() {
	errs := both(w, func(s *side) error {
		if err := s.server.Run(); err != nil {
			return err
		}
		conn, err := s.server.Dial()
		if err != nil {
			return err
		}
		s.conn = conn
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		r, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
		if err != nil {
			return err
		}
		if len(s.members) == 0 {
			s.members = []uint64{r.Header.MemberId}
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			w.t.Fatalf("start: %v", err)
		}
	}
}

// stop ends both servers.
func (w *world) stop() {
	for i, s := range w.sides {
		if s == nil {
			continue
		}
		s.leave()
		s.conn.Close()
		s.server.Close()
		w.sides[i] = nil
	}
}

// leave closes the streams that a script has open.
func (s *side) leave() {
	for i, open := range s.watches {
		if open != nil {
			open.cancel()
			s.watches[i] = nil
		}
	}
	if s.recorder != nil {
		s.recorder.cancel()
		s.recorder = nil
	}
	s.keepAlive = nil
}

// countResponses counts what of the watches' responses was left out of the comparison.
func (w *world) countResponses() {
	for _, s := range w.sides {
		for _, ws := range append(s.watches[:], s.recorder) {
			if ws != nil {
				ws.mu.Lock()
				w.counters.used[leftPeriodic] += ws.periodic
				w.counters.used[leftGrouping] += ws.grouped
				ws.mu.Unlock()
			}
		}
	}
}

// state is what must be equal when a script begins.
type state struct {
	revision int64
	hash     uint32
	err      string
}

// clean removes what a script has left, and compares what there is then.
func (w *world) clean() *difference {
	w.countResponses()
	states := both(w, func(s *side) state {
		s.leave()
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		st, err := s.clean(ctx)
		if err != nil {
			st.err = err.Error()
		}
		return st
	})
	etcd, troupe := states[etcdSide], states[troupeSide]
	w.base, w.now, w.compact = etcd.revision-1, 1, 1
	if etcd == troupe && etcd.err == "" {
		w.ready = true
		return nil
	}
	if etcd.hash == troupe.hash {
		etcd.hash, troupe.hash = 1, 1
	} else {
		etcd.hash, troupe.hash = 1, 2
	}
	troupe.revision -= etcd.revision
	etcd.revision = 0
	return &difference{"(the state after everything was removed)", fmt.Sprintf("%+v", etcd), fmt.Sprintf("%+v", troupe)}
}

// resetKey is written and deleted between two scripts, so that each begins with the same history: its deletion.
const resetKey = "reset"

func (s *side) clean(ctx context.Context) (st state, err error) {
	if err := s.cleanMembers(ctx); err != nil {
		return st, err
	}
	maintenance, kv, leases := pb.NewMaintenanceClient(s.conn), pb.NewKVClient(s.conn), pb.NewLeaseClient(s.conn)
	alarms, err := maintenance.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	if err != nil {
		return st, err
	}
	for _, a := range alarms.Alarms {
		off := &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: a.MemberID, Alarm: a.Alarm}
		if _, err := maintenance.Alarm(ctx, off); err != nil {
			return st, err
		}
	}
	all, err := leases.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	if err != nil {
		return st, err
	}
	slices.SortFunc(all.Leases, byID) // what each revocation deletes has a revision of its own
	for _, l := range all.Leases {
		if _, err := leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: l.ID}); err != nil {
			return st, err
		}
	}
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(resetKey)}); err != nil {
		return st, err
	}
	if _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte(resetKey)}); err != nil {
		return st, err
	}
	after := []byte(resetKey + "\x00")
	if _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: after, RangeEnd: []byte{0}}); err != nil {
		return st, err
	}
	if _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(resetKey)}); err != nil {
		return st, err
	}
	hash, err := maintenance.HashKV(ctx, &pb.HashKVRequest{})
	if err != nil {
		return st, err
	}
	st.revision, st.hash = hash.Header.Revision, hash.Hash
	_, err = kv.Compact(ctx, &pb.CompactionRequest{Revision: st.revision, Physical: true})
	return st, err
}

// end compares everything that a script has left, and removes it.
func (w *world) end() *difference {
	if d := w.settle(); d != nil {
		return d
	}
	if d := w.look(false); d != nil {
		return d
	}
	return w.clean()
}

// look compares all state that calls show; with deep, the past too.
func (w *world) look(deep bool) *difference {
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	steps := []step{call("Range", all), call("LeaseLeases", &pb.LeaseLeasesRequest{}),
		call("Alarm", &pb.AlarmRequest{}), call("HashKV", &pb.HashKVRequest{Revision: w.now})}
	if w.now == w.compact { // where etcd's answer depends on how far its compaction has come
		steps = steps[:len(steps)-1]
	}
	if deep {
		for r := max(w.compact+1, 1); r <= w.now; r++ {
			steps = append(steps, call("HashKV", &pb.HashKVRequest{Revision: r}),
				call("Range", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: r}))
		}
		for _, id := range leaseIDs {
			steps = append(steps, call("LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: id, Keys: true}))
		}
		steps = append(steps, call("Status", &pb.StatusRequest{}),
			call("MemberList", &pb.MemberListRequest{Linearizable: true}))
	}
	for _, s := range steps {
		if d := w.unary(s); d != nil {
			w.script = append(w.script, s)
			return d
		}
	}
	return nil
}

// run runs one step.
func (w *world) run(s step) (d *difference) {
	w.script = append(w.script, s)
	w.counters.steps++
	if why := deliberatelyRefused(s); why != nil {
		d = w.refusedByTroupe(s, why)
	} else {
		d = w.execute(s)
	}
	if d != nil {
		w.failed = true
	}
	return d
}

func (w *world) execute(s step) *difference {
	switch s.verb {
	case verbWatch:
		return w.watchRequest(s)
	case verbHalfClose:
		return w.halfClose(s)
	case verbClose:
		return w.closeStream(s)
	case verbShortLease:
		return w.shortLease(s)
	case verbFill:
		return w.fill(s)
	case verbExpire:
		return w.expire(s)
	case verbSnapshot:
		return w.snapshot(s)
	case verbDownAndUp:
		return w.downAndUp(s)
	case verbKill, verbRestart:
		return w.restart(s)
	case verbRangeStream, verbKeepAlive:
		return w.compare(s, w.ask(s))
	case "Compact": // what is overtaken by a compaction is a race
		if d := w.settle(); d != nil {
			return d
		}
		w.synchronise()
	}
	return w.unary(s)
}

// unary makes a unary call on both sides and compares the answers.
func (w *world) unary(s step) *difference { return w.compare(s, w.ask(s)) }

// restart restarts both servers and compares everything there is.
func (w *world) restart(s step) *difference {
	if d := w.settle(); d != nil {
		return d
	}
	w.use("how streams end with their server")
	w.counters.restarts++
	members := w.membersBefore()
	both(w, func(side *side) any {
		side.leave()
		side.conn.Close()
		if s.verb == verbKill {
			side.server.Kill(w.t)
		} else {
			side.server.Terminate(w.t)
		}
		return nil
	})
	w.start()
	w.membersAgain(members)
	w.models, w.closed = nil, [streamsMax]bool{}
	w.record()
	if d := w.look(true); d != nil {
		return d
	}
	return w.snapshot(step{verb: verbSnapshot})
}

// fill puts many keys.
func (w *world) fill(s step) *difference {
	for i := range s.count {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "%s%02d", s.prefix, i), Value: fmt.Appendf(nil, "*%d", s.size)}
		if d := w.unary(call("Put", put)); d != nil {
			return d
		}
	}
	return nil
}

// expire waits until a lease has ended on both sides.
func (w *world) expire(s step) *difference {
	gone := both(w, func(side *side) string {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		for {
			r, err := pb.NewLeaseClient(side.conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			if err != nil {
				return status.Convert(err).Message()
			}
			if !slices.ContainsFunc(r.Leases, func(l *pb.LeaseStatus) bool { return l.ID == int64(s.stream) }) {
				return "gone"
			}
			<-time.After(20 * time.Millisecond)
		}
	})
	if gone[0] != gone[1] || gone[0] != "gone" {
		return &difference{s.String(), gone[etcdSide], gone[troupeSide]}
	}
	return w.unary(call("Range", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}))
}

// shortLeaseSafe is how old a lease of the shortest time may be while its answers are compared.
const shortLeaseSafe = 1200 * time.Millisecond

// shortLease compares a lease of a time too short for a script; on a machine that is too slow for it, nothing.
func (w *world) shortLease(s step) *difference {
	id := s.request.(*pb.LeaseGrantRequest).ID
	begun := time.Now()
	var first *difference
	for _, one := range []step{call("LeaseGrant", s.request),
		call("LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: id}),
		{verb: verbKeepAlive, request: &pb.LeaseKeepAliveRequest{ID: id}},
		call("LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: id}),
		call("LeaseRevoke", &pb.LeaseRevokeRequest{ID: id})} {
		if d := w.compare(one, w.ask(one)); d != nil && first == nil {
			first = d
		}
	}
	if first != nil && time.Since(begun) > shortLeaseSafe {
		w.use("short leases on a slow machine")
		return nil
	}
	return first
}

// answer is what one server said to one call.
type answer struct {
	reply proto.Message // nil after an error
	err   string
	text  string
}

// ask makes a call on both sides, and gives the answers in the script's revisions, tidied.
func (w *world) ask(s step) [sides]answer {
	request := proto.Clone(s.request)
	expand(request)
	shift(request, w.base)
	if add, ok := request.(*pb.MemberAddRequest); ok {
		defer w.awaitNextID(add)()
	}
	answers := both(w, func(side *side) answer {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		reply, err := side.call(ctx, s.verb, side.outbound(request))
		if err != nil {
			got := status.Convert(err)
			return answer{err: fmt.Sprintf("%v: %s", got.Code(), got.Message())}
		}
		shift(reply, -w.base)
		side.inbound(reply)
		return answer{reply: reply}
	})
	if answers[0].reply != nil && answers[1].reply != nil {
		w.tidy(s, answers[0].reply, answers[1].reply)
	}
	for i := range answers {
		a := &answers[i]
		if a.text = a.err; a.reply != nil {
			contract(a.reply)
			a.text = "{" + text(a.reply) + "}"
		}
	}
	return answers
}

// call makes one call.
func (s *side) call(ctx context.Context, verb string, request proto.Message) (proto.Message, error) {
	switch verb {
	case verbRangeStream:
		return s.rangeStream(ctx, request.(*pb.RangeRequest))
	case verbKeepAlive:
		return s.renew(request.(*pb.LeaseKeepAliveRequest))
	}
	m := methods[verb]
	reply := m.reply.ProtoReflect().New().Interface()
	return reply, s.conn.Invoke(ctx, m.path, request, reply)
}

// rangeStream puts the chunks of a stream together. Where they end is kept: a kv without a key stands between them.
func (s *side) rangeStream(ctx context.Context, request *pb.RangeRequest) (proto.Message, error) {
	stream, err := pb.NewKVClient(s.conn).RangeStream(ctx, request)
	if err != nil {
		return nil, err
	}
	all := &pb.RangeResponse{}
	for chunks := 0; ; chunks++ {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if chunks > 0 {
			all.Kvs = append(all.Kvs, &mvccpb.KeyValue{})
		}
		proto.Merge(all, r.RangeResponse)
	}
}

// renew sends one request on the stream of the script.
func (s *side) renew(request *pb.LeaseKeepAliveRequest) (proto.Message, error) {
	if s.keepAlive == nil {
		stream, err := pb.NewLeaseClient(s.conn).LeaseKeepAlive(context.Background())
		if err != nil {
			return nil, err
		}
		s.keepAlive = stream
	}
	err := s.keepAlive.Send(request)
	var reply *pb.LeaseKeepAliveResponse
	if err == nil {
		reply, err = s.keepAlive.Recv()
	}
	if err != nil {
		s.keepAlive = nil
		return nil, err
	}
	return reply, nil
}

// compare compares two answers, and learns from etcd's.
func (w *world) compare(s step, answers [sides]answer) *difference {
	etcd, troupe := answers[etcdSide], answers[troupeSide]
	outcome, _, _ := strings.Cut(s.verb+": "+cmp.Or(etcd.err, "OK"), " (") // sizes are behind it
	w.counters.outcomes[outcome]++
	if etcd.err != "" {
		w.counters.refused++
	}
	if etcd.text != troupe.text && !w.deliberate(s, etcd, troupe) {
		return &difference{s.String(), etcd.text, troupe.text}
	}
	if etcd.reply == nil {
		w.updateRefused = w.updateRefused || s.verb == "MemberUpdate"
		return nil
	}
	if h, ok := etcd.reply.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		w.now = max(w.now, h.GetHeader().GetRevision())
	}
	switch r := s.request.(type) {
	case *pb.CompactionRequest:
		w.compact = r.Revision
	case *pb.AlarmRequest:
		w.alarmed = len(etcd.reply.(*pb.AlarmResponse).Alarms) > 0 && r.Action != pb.AlarmRequest_DEACTIVATE
	}
	return nil
}
