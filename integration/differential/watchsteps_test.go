package differential

import (
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// progressMarkers is how many answers follow a progress request before it counts as unanswered. etcd's answer may be
// overtaken by the answer to a later request, with even odds each time.
const progressMarkers = 24

// watchRequest runs one request on a watch stream.
func (w *world) watchRequest(s step) *difference {
	if w.closed[s.stream] {
		return nil // the script has nothing to say there any more
	}
	both(w, func(side *side) any {
		if side.watches[s.stream] == nil {
			side.watches[s.stream] = w.openStream(side)
		}
		return nil
	})
	request := s.request.(*pb.WatchRequest)
	switch r := request.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		return w.createWatch(s, r.CreateRequest)
	case *pb.WatchRequest_CancelRequest:
		return w.cancelWatch(s, r.CancelRequest.GetWatchId())
	case *pb.WatchRequest_ProgressRequest:
		return w.askProgress(s)
	default:
		_, d := w.exchange(s, true)
		return d
	}
}

// exchange sends a request on both sides and compares the control answers; it gives etcd's.
func (w *world) exchange(s step, uncertain bool) ([]*pb.WatchResponse, *difference) {
	type result struct {
		answers []*pb.WatchResponse
		text    string
	}
	request := proto.Clone(s.request).(*pb.WatchRequest)
	shift(request, w.base)
	results := both(w, func(side *side) result {
		answers, ending := side.watches[s.stream].exchange(request, uncertain, w.limit())
		texts := []string{ending}
		for _, a := range answers {
			blank(a, func(string) {})
			texts = append(texts, text(a))
		}
		return result{answers, strings.Join(texts, "; ")}
	})
	if a, b := results[etcdSide].text, results[troupeSide].text; a != b {
		return nil, &difference{s.String(), a, b}
	}
	return results[etcdSide].answers, nil
}

// createWatch opens a watch, and waits for its end if its revisions are gone.
func (w *world) createWatch(s step, r *pb.WatchCreateRequest) *difference {
	answers, d := w.exchange(s, false)
	if d != nil || len(answers) == 0 || answers[0].Canceled {
		return d
	}
	m := &watchModel{stream: s.stream, id: answers[0].WatchId, request: r,
		from: r.StartRevision, now: w.now, compacted: w.compact}
	if m.from == 0 {
		m.from = w.now + 1
	}
	w.models = append(w.models, m)
	if m.from >= w.compact {
		return nil
	}
	m.gone = true
	ends := both(w, func(side *side) string {
		ws := side.watches[s.stream]
		ws.await(w.limit(), func() bool { return ws.watches[m.id].compacted != nil })
		ws.mu.Lock()
		defer ws.mu.Unlock()
		end := ws.watches[m.id].compacted
		if end == nil {
			return "not ended, though its start is compacted"
		}
		blank(end, func(string) {})
		return text(end)
	})
	if ends[etcdSide] != ends[troupeSide] {
		return &difference{s.String(), ends[etcdSide], ends[troupeSide]}
	}
	return nil
}

// cancelWatch cancels a watch after it has got everything.
func (w *world) cancelWatch(s step, id int64) *difference {
	if d := w.settle(); d != nil {
		return d
	}
	answers, d := w.exchange(s, true)
	if d == nil && len(answers) > 0 {
		w.models = slices.DeleteFunc(w.models, func(m *watchModel) bool { return m.stream == s.stream && m.id == id })
	}
	return d
}

// askProgress sends a progress request when all is quiet, so that whether it is answered is certain.
func (w *world) askProgress(s step) *difference {
	if d := w.settle(); d != nil {
		return d
	}
	w.synchronise()
	answers := both(w, func(side *side) string {
		ws := side.watches[s.stream]
		ws.mu.Lock()
		before := len(ws.progress)
		ws.mu.Unlock()
		ws.send(s.request.(*pb.WatchRequest))
		for range progressMarkers {
			ws.exchange(marker(), false, w.limit())
		}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		return progressText(ws, before)
	})
	if answers[etcdSide] != "" && answers[troupeSide] == "" {
		ws := w.sides[troupeSide].watches[s.stream]
		before := 0
		ws.await(w.limit(), func() bool {
			answers[troupeSide] = progressText(ws, before)
			return answers[troupeSide] != ""
		})
	}
	both(w, func(side *side) any {
		ws := side.watches[s.stream]
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.progress = nil
		return nil
	})
	etcd, troupe := answer{text: answers[etcdSide]}, answer{text: answers[troupeSide]}
	if etcd.text != troupe.text && !w.deliberate(s, etcd, troupe) {
		return &difference{s.String(), etcd.text, troupe.text}
	}
	return nil
}

// progressText gives the progress answers after the first ones. Called under the lock.
func progressText(ws *watchStream, before int) string {
	var texts []string
	for _, r := range ws.progress[min(before, len(ws.progress)):] {
		r = proto.Clone(r).(*pb.WatchResponse)
		blank(r, func(string) {})
		texts = append(texts, text(r))
	}
	return strings.Join(texts, "; ")
}

// halfClose says that no more requests come. The watches go on.
func (w *world) halfClose(s step) *difference {
	if w.closed[s.stream] || w.sides[0].watches[s.stream] == nil {
		return nil
	}
	w.closed[s.stream] = true
	errs := both(w, func(side *side) error { return side.watches[s.stream].stream.CloseSend() })
	if errs[0] != nil || errs[1] != nil {
		return &difference{s.String(), fmt.Sprint(errs[0]), fmt.Sprint(errs[1])}
	}
	return nil
}

// closeStream leaves a stream, after its watches have got everything.
func (w *world) closeStream(s step) *difference {
	if d := w.settle(); d != nil {
		return d
	}
	both(w, func(side *side) any {
		if ws := side.watches[s.stream]; ws != nil {
			ws.cancel()
			side.watches[s.stream] = nil
		}
		return nil
	})
	w.closed[s.stream] = false
	w.models = slices.DeleteFunc(w.models, func(m *watchModel) bool { return m.stream == s.stream })
	return nil
}
