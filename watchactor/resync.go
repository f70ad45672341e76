package watchactor

import (
	"troupe/actors"
)

// The three mailboxes of this room drop what can be read again and keep, in order, what cannot. What is kept is bounded
// elsewhere: a watch has at most one join and one leave on the way, a stream one progress question.

func hubPolicy(b actors.Bound) actors.Policy[hubMessage] {
	return actors.Resync(b,
		func(first hubMessage) hubMessage { return new(replayHub).add(first) },
		func(marker, m hubMessage) hubMessage { return marker.(*replayHub).add(m) },
	)
}

// add appends m; batches merge into the lostBatches before them.
func (r *replayHub) add(m hubMessage) hubMessage {
	lost, is := m.(lostBatches)
	if p, batch := m.(published); batch {
		if len(p.batch.Events) == 0 {
			return r
		}
		lost, is = lostBatches{p.batch.Events[0].Version.Main, p.batch.Revision}, true
	}
	if !is {
		r.messages = append(r.messages, m)
		return r
	}
	r.messages = appendLost(r.messages, lost)
	return r
}

// appendLost appends lost batches, or merges them into those that stand last. M is one of the two kinds of message that
// lostBatches is.
func appendLost[M any](messages []M, lost lostBatches) []M {
	if n := len(messages); n > 0 {
		if before, ok := any(messages[n-1]).(lostBatches); ok {
			both := lostBatches{min(before.first, lost.first), max(before.through, lost.through)}
			messages[n-1] = any(both).(M)
			return messages
		}
	}
	return append(messages, any(lost).(M))
}

func groupPolicy(b actors.Bound) actors.Policy[groupMessage] {
	return actors.Resync(b,
		func(first groupMessage) groupMessage { return new(replayGroup).add(first) },
		func(marker, m groupMessage) groupMessage { return marker.(*replayGroup).add(m) },
	)
}

// add appends m; batches merge into the lostBatches before them.
func (r *replayGroup) add(m groupMessage) groupMessage {
	lost, is := m.(lostBatches)
	if p, batch := m.(routed); batch {
		p.passage.done()
		lost, is = p.lost(), true
	}
	if !is {
		r.messages = append(r.messages, m)
		return r
	}
	r.messages = appendLost(r.messages, lost)
	return r
}

func streamPolicy(b actors.Bound) actors.Policy[streamMessage] {
	return actors.Lanes(
		actors.Block[streamMessage](actors.Bound{Messages: streamControlMessages, Bytes: streamControlBytes}),
		actors.Resync(b,
			func(first streamMessage) streamMessage { return new(replayStream).add(first) },
			func(marker, m streamMessage) streamMessage { return marker.(*replayStream).add(m) },
		),
	)
}

// add appends m. A delivery becomes a lostDeliveries, unless one of its group is already there and nothing of that
// group came in between: what came in between may have admitted watches that the earlier loss does not speak of.
func (r *replayStream) add(m streamMessage) streamMessage {
	switch m := m.(type) {
	case *delivered:
		m.passage.done()
		if i, noted := r.lost[m.group]; noted {
			r.messages[i] = lostDeliveries{m.group, min(r.messages[i].(lostDeliveries).first, m.first())}
			return r
		}
		if r.lost == nil {
			r.lost = make(map[groupID]int)
		}
		r.lost[m.group] = len(r.messages)
		r.messages = append(r.messages, lostDeliveries{m.group, m.first()})
		return r
	case *served:
		r.messages = append(r.messages, m.forget())
		return r
	case admitted:
		delete(r.lost, m.group)
	case readOn:
		delete(r.lost, m.group)
	case behind:
		delete(r.lost, m.group)
	case probed:
		delete(r.lost, m.group)
	}
	r.messages = append(r.messages, m)
	return r
}
