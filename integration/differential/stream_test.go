package differential

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// event is one event in the script's revisions, without long values.
type event = mvccpb.Event

// received is what one watch has got.
type received struct {
	events []*event
	// split tells how many events each fragment had, of every revision that came alone and in fragments.
	split map[int64][]int
	// compacted is the answer that ended the watch because its revisions are gone.
	compacted *pb.WatchResponse
	// through is the highest revision that it was told about. While open, the next response goes on with it.
	through   int64
	open      []int
	openSince int64
	// notified is the lowest revision of a notification, 0 before the first.
	notified int64
}

// watchStream is one watch stream to one server. A goroutine reads it.
type watchStream struct {
	base   int64
	stream grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
	cancel context.CancelFunc

	mu    sync.Mutex
	grown chan struct{} // closed and replaced when something came
	// control holds the answers to creates and cancels, progress those to progress requests.
	control, progress []*pb.WatchResponse
	watches           map[int64]*received
	// broken says which of the rules that hold for every server the stream has broken.
	broken []string
	err    error
	// periodic counts notifications, grouped responses with events.
	periodic, grouped int
}

// openStream opens a watch stream.
func (w *world) openStream(s *side) *watchStream {
	ctx, cancel := context.WithCancel(context.Background())
	ws := &watchStream{base: w.base, cancel: cancel, grown: make(chan struct{}), watches: make(map[int64]*received)}
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err != nil {
		ws.err = err
		return ws
	}
	ws.stream = stream
	go ws.read()
	return ws
}

// read takes responses until the stream ends.
func (ws *watchStream) read() {
	for {
		r, err := ws.stream.Recv()
		ws.mu.Lock()
		if err != nil {
			ws.err = err
		} else {
			ws.take(r)
		}
		close(ws.grown)
		ws.grown = make(chan struct{})
		ws.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take sorts one response in.
func (ws *watchStream) take(r *pb.WatchResponse) {
	shift(r, -ws.base)
	contract(r)
	switch {
	case r.Created:
		if !r.Canceled {
			ws.watches[r.WatchId] = &received{split: make(map[int64][]int)}
		}
		ws.control = append(ws.control, r)
	case r.Canceled && r.CompactRevision == 0:
		ws.control = append(ws.control, r)
	case r.WatchId == -1 && len(r.Events) == 0:
		ws.progress = append(ws.progress, r)
		for _, got := range ws.watches { // everything up to it must have come
			got.through = max(got.through, r.Header.GetRevision())
		}
	case ws.watches[r.WatchId] == nil:
		ws.breaks("a response for watch %d, which does not exist: %s", r.WatchId, text(r))
	case r.Canceled:
		ws.watches[r.WatchId].compacted = r
	case len(r.Events) == 0:
		ws.periodic++
		got := ws.watches[r.WatchId]
		if r.Header.GetRevision() < got.through {
			ws.breaks("watch %d: notification at %d after %d", r.WatchId, r.Header.GetRevision(), got.through)
		}
		got.through = max(got.through, r.Header.GetRevision())
		if got.notified == 0 {
			got.notified = r.Header.GetRevision()
		}
	default:
		ws.takeEvents(r)
	}
}

// takeEvents checks what holds for events whatever shares a response with what.
func (ws *watchStream) takeEvents(r *pb.WatchResponse) {
	got := ws.watches[r.WatchId]
	first, last := r.Events[0].Kv.ModRevision, int64(0)
	for _, e := range r.Events {
		if e.Kv.ModRevision < last {
			ws.breaks("watch %d: revision %d after %d in one response", r.WatchId, e.Kv.ModRevision, last)
		}
		last = e.Kv.ModRevision
	}
	if first <= got.through && got.open == nil {
		ws.breaks("watch %d: revision %d after everything through %d", r.WatchId, first, got.through)
	}
	if r.Header.GetRevision() < last {
		ws.breaks("watch %d: event at %d under a header at %d", r.WatchId, last, r.Header.GetRevision())
	}
	ws.grouped++
	got.events = append(got.events, r.Events...)
	got.through = last
	if r.Fragment || got.open != nil {
		if got.open == nil {
			got.openSince = first
		}
		got.open = append(got.open, len(r.Events))
	}
	if !r.Fragment && got.open != nil {
		if got.openSince == last {
			got.split[last] = got.open
		}
		got.open = nil
	}
}

func (ws *watchStream) breaks(format string, args ...any) {
	ws.broken = append(ws.broken, fmt.Sprintf(format, args...))
}

// await waits until done holds, which runs under the lock. It reports false when the stream ends or the time is over.
func (ws *watchStream) await(limit time.Duration, done func() bool) bool {
	timeout := time.After(limit)
	for {
		ws.mu.Lock()
		ok, ended, grown := done(), ws.err != nil, ws.grown
		ws.mu.Unlock()
		if ok || ended {
			return ok
		}
		select {
		case <-grown:
		case <-timeout:
			return false
		}
	}
}

// send sends a request. An error ends the stream, which the reader sees.
func (ws *watchStream) send(r *pb.WatchRequest) {
	if ws.stream != nil {
		_ = ws.stream.Send(r)
	}
}

// ending says how a stream ended, "" while it is open. Called under the lock.
func (ws *watchStream) ending() string {
	if ws.err == nil {
		return ""
	}
	s := status.Convert(ws.err)
	return fmt.Sprintf("the stream ended: %v: %s", s.Code(), s.Message())
}

// marker is a request that is always refused: its answer says that those before it have been answered, if they are at
// all.
func marker() *pb.WatchRequest {
	return create(&pb.WatchCreateRequest{Key: []byte("z"), RangeEnd: []byte("a")})
}

func create(r *pb.WatchCreateRequest) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
}

// exchange sends a request and gives the control answers to it: one, or, with uncertain, none or one, which a marker
// behind it tells.
func (ws *watchStream) exchange(r *pb.WatchRequest, uncertain bool, limit time.Duration) (answers []*pb.WatchResponse,
	ending string) {
	ws.mu.Lock()
	before := len(ws.control)
	ws.mu.Unlock()
	ws.send(r)
	if uncertain {
		ws.send(marker())
	}
	came := ws.await(limit, func() bool {
		n := len(ws.control)
		return n > before && ws.control[n-1].Created
	})
	ws.mu.Lock()
	defer ws.mu.Unlock()
	answers = ws.control[before:]
	if ending = ws.ending(); ending == "" && !came {
		ending = "no answer"
	}
	if came && uncertain {
		answers = answers[:len(answers)-1]
	}
	return answers, ending
}
