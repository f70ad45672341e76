package differential

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// watchModel is one open watch, and what it must have got.
type watchModel struct {
	stream  int
	id      int64
	request *pb.WatchCreateRequest
	// from is the first revision it gets. Events up to now at its creation came from history; before compacted there
	// was none.
	from, now, compacted int64
	seen                 int // of the script's history
	expected             []*event
	compared             int
	gone                 bool // its revisions were gone; the id stays taken
}

// limit is how long to wait for an event.
func (w *world) limit() time.Duration {
	if w.failed {
		return eventLimitShrinking
	}
	return eventLimit
}

// record begins to record all events after those recorded.
func (w *world) record() {
	request := create(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: true,
		StartRevision: max(w.now, w.compact) + 1 + w.base})
	if len(w.history) == 0 { // a script begins: what happened at the compacted revision belongs to it
		request.GetCreateRequest().StartRevision = w.now + w.base
	}
	both(w, func(s *side) any {
		s.recorder = w.openStream(s)
		s.recorder.exchange(request, false, callLimit)
		return nil
	})
}

// settle waits until every open watch has got what it must get, and compares that.
func (w *world) settle() *difference {
	if d := w.settleHistory(); d != nil {
		return d
	}
	for _, m := range w.models {
		w.expect(m)
	}
	for _, m := range w.models {
		if d := w.settleWatch(m); d != nil {
			return d
		}
	}
	for i := range streamsMax {
		if d := w.settleStream(i); d != nil {
			return d
		}
	}
	return nil
}

// settleHistory compares the history, and takes what is new in it.
func (w *world) settleHistory() *difference {
	type result struct {
		events []*event
		fault  string
	}
	known := int64(0)
	if w.base == 0 {
		known = 1 // a fresh store is at revision 1 and has no event
	}
	if n := len(w.history); n > 0 {
		known = w.history[n-1].Kv.ModRevision
	}
	results := both(w, func(s *side) (r result) {
		s.recorder.await(w.limit(), func() bool {
			got := s.recorder.watches[0]
			return got != nil && (w.now <= known || got.through >= w.now)
		})
		s.recorder.mu.Lock()
		defer s.recorder.mu.Unlock()
		if got := s.recorder.watches[0]; got != nil {
			r.events, got.events = got.events, nil
		}
		r.fault = strings.Join(append(slices.Clone(s.recorder.broken), s.recorder.ending()), "; ")
		return r
	})
	etcd, troupe := results[etcdSide], results[troupeSide]
	const what = "(the history, as a watch of all keys shows it)"
	if etcd.fault != "" || troupe.fault != "" {
		return &difference{what, etcd.fault, troupe.fault}
	}
	if d := sameEvents(what, etcd.events, troupe.events); d != nil {
		return d
	}
	w.history = append(w.history, etcd.events...)
	w.counters.events += len(etcd.events)
	return nil
}

// sameEvents compares two lists of events.
func sameEvents(what string, etcd, troupe []*event) *difference {
	for i := range max(len(etcd), len(troupe)) {
		a, b := "no event", "no event"
		if i < len(etcd) {
			a = text(etcd[i])
		}
		if i < len(troupe) {
			b = text(troupe[i])
		}
		if a != b {
			return &difference{fmt.Sprintf("%s, event %d", what, i), a, b}
		}
	}
	return nil
}

// expect works out which new events of the history a watch must get.
func (w *world) expect(m *watchModel) {
	news := w.history[m.seen:]
	m.seen = len(w.history)
	if m.gone {
		return
	}
	for _, e := range news {
		if e.Kv.ModRevision < m.from || !inRange(m.request, e.Kv.Key) {
			continue
		}
		filter := pb.WatchCreateRequest_NOPUT
		if e.Type == mvccpb.Event_DELETE {
			filter = pb.WatchCreateRequest_NODELETE
		}
		if slices.Contains(m.request.Filters, filter) {
			continue
		}
		e = proto.Clone(e).(*event)
		fromHistory := e.Kv.ModRevision <= m.now
		if !m.request.PrevKv || fromHistory && e.Kv.ModRevision-1 < m.compacted {
			e.PrevKv = nil
		}
		m.expected = append(m.expected, e)
	}
}

// inRange reports whether a watch is for a key.
func inRange(r *pb.WatchCreateRequest, key []byte) bool {
	begin := r.Key
	if len(begin) == 0 {
		begin = []byte{0}
	}
	switch {
	case len(r.RangeEnd) == 0:
		return bytes.Equal(begin, key)
	case bytes.Equal(r.RangeEnd, []byte{0}):
		return bytes.Compare(key, begin) >= 0
	default:
		return bytes.Compare(key, begin) >= 0 && bytes.Compare(key, r.RangeEnd) < 0
	}
}

// settleWatch waits for a watch's events and compares them.
func (w *world) settleWatch(m *watchModel) *difference {
	if m.compared == len(m.expected) {
		return nil // what it should not have got is found at the end of the script
	}
	type result struct {
		events []*event
		split  map[int64][]int
	}
	results := both(w, func(s *side) (r result) {
		ws := s.watches[m.stream]
		got := func() *received { return ws.watches[m.id] }
		ws.await(w.limit(), func() bool { return len(got().events) >= len(m.expected) })
		ws.mu.Lock()
		defer ws.mu.Unlock()
		return result{got().events, maps.Clone(got().split)}
	})
	what := fmt.Sprintf("(events of watch %d on stream %d: %s)", m.id, m.stream, text(m.request))
	for i, r := range results {
		if d := sameEvents(what, m.expected, r.events); d != nil {
			if i == etcdSide {
				d.step += ": etcd does not send what it should"
				d.etcd, d.troupe = d.troupe, "(should be "+d.etcd+")"
			}
			return d
		}
	}
	m.compared = len(m.expected)
	for revision, etcd := range results[etcdSide].split { // where one of them has put others to it, it is another response
		troupe, found := results[troupeSide].split[revision]
		if found && !slices.Equal(etcd, troupe) {
			what = fmt.Sprintf("%s, events in each fragment of revision %d", what, revision)
			return &difference{what, fmt.Sprint(etcd), fmt.Sprint(troupe)}
		}
	}
	return nil
}

// settleStream compares what a stream has that no step has asked for.
func (w *world) settleStream(i int) *difference {
	results := both(w, func(s *side) string {
		ws := s.watches[i]
		if ws == nil {
			return ""
		}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		faults := slices.Clone(ws.broken)
		for _, m := range w.models {
			if got := ws.watches[m.id]; m.stream == i && len(got.events) > len(m.expected) {
				faults = append(faults, fmt.Sprintf("watch %d got too much: %v", m.id, got.events[len(m.expected)]))
			}
			if got := ws.watches[m.id]; m.stream == i && got.notified > 0 && got.notified < m.request.StartRevision {
				faults = append(faults, fmt.Sprintf("watch %d was notified of revision %d, before its start at %d",
					m.id, got.notified, m.request.StartRevision))
			}
			if got := ws.watches[m.id]; m.stream == i && !m.gone && got.compacted != nil {
				faults = append(faults, fmt.Sprintf("watch %d was ended: %s", m.id, text(got.compacted)))
			}
		}
		if end := ws.ending(); end != "" {
			faults = append(faults, end)
		}
		return strings.Join(faults, "; ")
	})
	if results[etcdSide] != "" || results[troupeSide] != "" {
		return &difference{fmt.Sprintf("(stream %d)", i), results[etcdSide], results[troupeSide]}
	}
	return nil
}

// slowWatchers is the number of watches that are still in history.
const slowWatchers = "etcd_debugging_mvcc_slow_watcher_total "

// synchronise waits until no watch of either server reads history any more: until then a compaction may overtake it,
// and progress requests go unanswered.
func (w *world) synchronise() {
	if len(w.models) == 0 {
		return
	}
	both(w, func(s *side) any {
		for deadline := time.Now().Add(w.limit()); time.Now().Before(deadline); {
			// Twice: a create that was answered just now may not be counted yet.
			if first, second := s.slow(), s.slow(); first == "0" && second == "0" {
				break
			}
			<-time.After(5 * time.Millisecond)
		}
		return nil
	})
}

// slow gives etcd's gauge of watches that are behind.
func (s *side) slow() string {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/metrics", nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	_, after, _ := strings.Cut(string(page), "\n"+slowWatchers)
	value, _, _ := strings.Cut(after, "\n")
	return value
}
