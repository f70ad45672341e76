package watchactor

// response is the events of one WatchResponse.
type response struct {
	pieces [][]byte
	bytes  int
	events int
	// fragment marks every part of a divided revision but the last.
	fragment bool
}

// responseLimit is the size a response must stay below, for servers that accept requests of that many bytes: what a
// client with default settings of the same cluster can receive (api.md 3.2).
func responseLimit(requestBytesMax int) int {
	return requestBytesMax + responseAllowanceBytes - responseOverheadBytes
}

// divide works out the responses of a run that does not fit into one. It always divides between revisions, where that
// keeps responses near responseBytesWanted and below limit; within one only for watchers that asked for fragments, and
// only what reaches limit, because a revision is one transaction and must arrive whole elsewhere, however large. It
// runs where the run is made, before the run is shared.
func (r *run) divide(limit int) {
	wanted := min(limit, responseBytesWanted)
	if r.bytes < wanted {
		return
	}
	start, from := 0, 0 // first event and first byte of the open response
	for i := 0; i < len(r.marks); {
		next := i + 1
		for next < len(r.marks) && r.marks[next].revision == r.marks[i].revision {
			next++
		}
		if r.marks[next-1].end-from >= wanted && i > start {
			r.close(start, i, from, limit)
			start, from = i, r.marks[i-1].end
		}
		i = next
	}
	r.close(start, len(r.marks), from, limit)
}

// close ends a response of the events [start, end) whose first byte is from.
func (r *run) close(start, end, from, limit int) {
	to := r.marks[end-1].end
	whole := response{pieces: r.cut(from, to), bytes: to - from, events: end - start}
	r.whole = append(r.whole, whole)
	if whole.bytes < limit {
		r.fragmented = append(r.fragmented, whole)
		return
	}
	for i := start; i < end; {
		next := i + 1
		for next < end && r.marks[next].end-from < limit {
			next++
		}
		to := r.marks[next-1].end
		r.fragmented = append(r.fragmented, response{
			pieces: r.cut(from, to), bytes: to - from, events: next - i, fragment: next < end,
		})
		from, i = to, next
	}
}

// responses calls f for each response of the run, in order.
func (r *run) responses(fragment bool, f func(response)) {
	list := r.whole
	if fragment {
		list = r.fragmented
	}
	if list == nil {
		f(response{pieces: r.pieces, bytes: r.bytes, events: len(r.marks)})
		return
	}
	for _, one := range list {
		f(one)
	}
}
