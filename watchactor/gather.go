package watchactor

import (
	"time"

	"troupe/proto"
)

// gather has a group with very many watchers tell them of several batches at once. Telling 2,000 watchers takes far
// longer than a write, nearly all of it in wake-ups and sends whose number does not depend on how much each of them is
// told. So after a batch the group rests for about as long as its delivery takes, and what arrives meanwhile is
// delivered together, as the log writer makes durable together what arrived during the last fsync. A batch that comes
// after a rest is delivered at once, and so is every batch of a group with few watchers: their rest would be too short
// for a timer.
type gather struct {
	per     time.Duration // rest per delivery
	resting bool
	rest    time.Duration // not 0: the shell arms restOver
	waiting []routed
	bytes   int
}

// add keeps a batch for later, false if it has to be delivered now.
func (g *gather) add(m routed) bool {
	if !g.resting || g.bytes+m.Size() > gatheredBytesMax {
		return false
	}
	g.bytes += m.Size()
	g.waiting = append(g.waiting, m)
	return true
}

// take gives what was kept, as one batch.
func (g *gather) take() (m routed, some bool) {
	if len(g.waiting) == 0 {
		return routed{}, false
	}
	m = merged(g.waiting)
	clear(g.waiting)
	g.waiting, g.bytes = g.waiting[:0], 0
	return m, true
}

// delivered begins a rest after so many deliveries, when it is worth it.
func (g *gather) delivered(items int) {
	if rest := time.Duration(items) * g.per; rest >= restMin && !g.resting {
		g.resting, g.rest = true, min(rest, groupRestMax)
	}
}

// merged makes one batch of several that follow each other.
func merged(list []routed) routed {
	if len(list) == 1 {
		return list[0]
	}
	last := list[len(list)-1].batch
	b := &proto.EventBatch{Revision: last.Revision, Compacted: last.Compacted}
	for _, m := range list {
		s := selection{m.batch.Events, m.picks}
		for i := range s.len() {
			b.Events = append(b.Events, *s.at(i))
		}
	}
	return routed{batch: b}
}
