package watchactor

import "sync/atomic"

// transit bounds the bytes of batches that are on their way from the hub to the outboxes, over all groups and streams.
// A batch counts once for all groups it goes to, and what a group makes of it once for all its streams, as the memory
// is shared. The bound of each mailbox alone would not do: there is one for each range and for each client.
type transit struct {
	held atomic.Int64
	most int64
}

// passage is one batch, or what a group made of one, on its way to several mailboxes. The last of them that is done
// with it gives its bytes back.
type passage struct {
	transit *transit
	bytes   int64
	left    atomic.Int32
}

// enter begins a passage to n mailboxes; nil when there is no room, and then the batch has to be forgotten. One batch
// of any size is let in when nothing else is on its way.
func (t *transit) enter(bytes, n int) *passage {
	if now := t.held.Add(int64(bytes)); now > t.most && now > int64(bytes) {
		t.held.Add(-int64(bytes))
		return nil
	}
	p := &passage{transit: t, bytes: int64(bytes)}
	p.left.Store(int32(n))
	return p
}

// done says that one mailbox is done with it. A nil passage, of a test, counts nothing.
func (p *passage) done() {
	if p != nil && p.left.Add(-1) == 0 {
		p.transit.held.Add(-p.bytes)
	}
}

// Abort is for a batch that a group has not handled when it ends.
func (m routed) Abort(error) { m.passage.done() }

// Abort is for a delivery that a stream has not handled when it ends.
func (m *delivered) Abort(error) { m.passage.done() }

// lost gives what stands for a batch that a group is not told of.
func (m routed) lost() lostBatches {
	first := m.batch.Events[0].Version.Main
	if m.picks != nil {
		first = m.batch.Events[m.picks[0]].Version.Main
	}
	return lostBatches{first, m.batch.Revision}
}

// send enters the batch that the effects carry and gives it to the groups, or has them read it from history.
func (h *hubActor) send(effects []hubEffect) {
	n, bytes := 0, 0
	for _, e := range effects {
		if to, is := e.(tellGroup); is {
			if m, is := to.message.(routed); is {
				n++
				bytes = m.batch.Size()
			}
		}
	}
	if n == 0 {
		return
	}
	p := h.client.transit.enter(bytes, n)
	for i, e := range effects {
		to, is := e.(tellGroup)
		if !is {
			continue
		}
		if m, is := to.message.(routed); is {
			if p == nil {
				to.message = m.lost()
				h.client.metrics.crowded.Inc()
			} else {
				m.passage = p
				to.message = m
			}
			effects[i] = to
		}
	}
}

// send enters what the group made of a batch and gives it to the streams, or has them read it from history.
func (g *groupActor) send(effects []groupEffect) {
	n := 0
	for i := range effects {
		if _, is := effects[i].message.(*delivered); is {
			n++
		}
	}
	if n == 0 {
		return
	}
	p := g.client.transit.enter(g.core.made, n)
	for i := range effects {
		m, is := effects[i].message.(*delivered)
		switch {
		case !is:
		case p == nil:
			effects[i].message = lostDeliveries{m.group, m.first()}
			g.client.metrics.crowded.Inc()
		default:
			m.passage = p
		}
	}
}
