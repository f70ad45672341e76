package durability

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/integration/harness"
)

// watcher follows every key over all rounds: its stream breaks with each kill and resumes after the last revision it
// has. It keeps what it was shown, so that an event seen before a crash can be looked for after it.
type watcher struct {
	server *harness.Server
	ledger *ledger
	last   int64           // last revision whose events have arrived
	events map[int64]write // by revision; every write of this test changes one key
	gaps   [][2]int64      // revisions lost to a compaction: first, last
	broken error           // what a watch must never do; the stream's end is not part of it
}

func newWatcher(s *harness.Server, l *ledger) *watcher {
	return &watcher{server: s, ledger: l, last: 1, events: map[int64]write{}}
}

// follow watches until the stream ends or until the revision has arrived (0: until the stream ends).
func (w *watcher) follow(ctx context.Context, until int64) {
	conn, err := w.server.Dial()
	if err != nil {
		w.broken = err
		return
	}
	defer conn.Close()
	for w.broken == nil && w.followOnce(ctx, conn, until) {
	}
}

// followOnce runs one watch and reports whether it was cancelled by a compaction: then the next one starts there.
func (w *watcher) followOnce(ctx context.Context, conn *grpc.ClientConn, until int64) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return false
	}
	create := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: w.last + 1}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	for err == nil && (until == 0 || w.last < until) {
		var r *pb.WatchResponse
		if r, err = stream.Recv(); err != nil {
			return false
		}
		if r.Canceled {
			return w.cancelled(r)
		}
		w.take(r)
	}
	return false
}

// cancelled checks a cancellation: it must name the compact revision, and one that some client has asked for.
func (w *watcher) cancelled(r *pb.WatchResponse) bool {
	w.ledger.mu.Lock()
	asked := w.ledger.asked
	w.ledger.mu.Unlock()
	if r.CompactRevision <= w.last || r.CompactRevision > asked {
		w.broken = fmt.Errorf("watch from %d was cancelled without need: %v; compactions asked for: up to %d",
			w.last+1, r, asked)
		return false
	}
	if r.CompactRevision > w.last+1 {
		w.gaps = append(w.gaps, [2]int64{w.last + 1, r.CompactRevision - 1})
	}
	w.last = r.CompactRevision - 1
	return true
}

// take notes the events of one response; revisions must only rise, and each write of this test is one event.
func (w *watcher) take(r *pb.WatchResponse) {
	for _, e := range r.Events {
		if e.Kv.ModRevision <= w.last {
			w.broken = fmt.Errorf("event at revision %d came after %d", e.Kv.ModRevision, w.last)
			return
		}
		w.last = e.Kv.ModRevision
		w.events[w.last] = write{
			key: string(e.Kv.Key), value: string(e.Kv.Value), deleted: e.Type == 1, revision: w.last,
		}
	}
	w.ledger.saw(r.Header.Revision)
	w.ledger.saw(w.last)
}

// missed reports whether a revision fell into a gap that a compaction made.
func (w *watcher) missed(revision int64) bool {
	for _, gap := range w.gaps {
		if gap[0] <= revision && revision <= gap[1] {
			return true
		}
	}
	return false
}
