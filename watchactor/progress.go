package watchactor

import "troupe/proto"

// progressState is how a stream finds out how far all its watches are.
//
// A progress answer at R promises that every event up to R has been sent, and on one stream no event up to R may
// follow it and no earlier frame may speak of more than R. A watch whose range is quiet hears nothing from its group,
// so its own position says little; and the store's revision says nothing about events still on their way. The stream
// therefore asks the hub, which marks the same point between two batches in the mailbox of every group the stream
// uses; each group answers behind all it has told before that point. From a group's answer until the last one the
// stream holds back what that group tells, and reads neither history nor requests: then the marked revision is
// exactly what has been sent.
type progressState struct {
	wanted  int // requests of the client that wait for an answer
	counted int // of them, covered by the question that is out
	out     bool
	groups  []groupID // that have answered
	held    []streamMessage
	bytes   int           // of the deliveries held
	marker  *replayStream // takes the place of what would be too much; last in held
	// requests wait too: what they create would be ahead of the answer.
	requests []request
}

// wantProgress takes a manual progress request; false when it has no answer: the stream has no watches, or one whose
// start has not been reached.
func (c *streamCore) wantProgress() bool {
	if len(c.watches) == 0 || c.progress.wanted == progressWantedMax || c.startsAfter(c.now.revision) {
		return false
	}
	c.progress.wanted++
	return true
}

// startsAfter reports whether a watch begins in the future.
func (c *streamCore) startsAfter(r proto.Revision) bool {
	for _, w := range c.watches {
		if w.start > r {
			return true
		}
	}
	return false
}

// markDue notes which watches get a periodic progress frame: those that are in step, were quiet since the last tick,
// and whose client reads.
func (c *streamCore) markDue() {
	c.armed = c.notified > 0
	c.effects.arm = c.armed
	for _, w := range c.watches {
		if w.notify {
			w.due = w.quiet && w.state == watchJoined && c.room.bytes > 0
			w.quiet = true
		}
	}
}

// askProgress asks the hub, if there is something to answer and no question out.
func (c *streamCore) askProgress() {
	p := &c.progress
	if p.out || p.wanted == 0 && c.notified == 0 || len(c.watches) == 0 {
		return
	}
	p.counted = 0
	if c.joined == len(c.watches) {
		p.counted = p.wanted
	}
	if p.counted == 0 && !c.someDue() {
		return
	}
	p.out = true
	c.effects.hub = append(c.effects.hub, askProgress{c.address, c.now.revision})
}

func (c *streamCore) someDue() bool {
	if c.notified == 0 {
		return false
	}
	for _, w := range c.watches {
		if w.due && w.state == watchJoined {
			return true
		}
	}
	return false
}

// hold keeps a message back that must not be handled before the progress answer, and reports that it did.
func (c *streamCore) hold(m streamMessage) bool {
	p := &c.progress
	if !p.out {
		return false
	}
	var from groupID
	size := 0
	switch m := m.(type) {
	case request:
		p.requests = append(p.requests, m)
		return true
	case *served:
		c.keep(m, m.Size())
		return true
	case *delivered:
		from, size = m.group, m.Size()
	case admitted:
		from = m.group
	case readOn:
		from = m.group
	case behind:
		from = m.group
	case lostDeliveries:
		from = m.group
	default:
		return false
	}
	if !p.hasAnswered(from) {
		return false
	}
	c.keep(m, size)
	return true
}

// keep holds a message back, or what stands for it when that would be too much.
func (c *streamCore) keep(m streamMessage, size int) {
	p := &c.progress
	switch {
	case p.marker != nil:
		p.marker.add(m)
	case p.bytes+size > c.heldBytes:
		p.marker = new(replayStream)
		p.marker.add(m)
		p.held = append(p.held, p.marker)
	default:
		p.bytes += size
		p.held = append(p.held, m)
	}
}

func (p *progressState) hasAnswered(g groupID) bool {
	for _, one := range p.groups {
		if one == g {
			return true
		}
	}
	return false
}

// answered takes one group's answer; the last one makes the progress frames.
func (c *streamCore) answered(m probed) {
	p := &c.progress
	if !p.out {
		return
	}
	if p.groups = append(p.groups, m.group); len(p.groups) < m.groups {
		return
	}
	c.report(m.at)
	held, requests := p.held, p.requests
	*p = progressState{wanted: p.wanted}
	for _, one := range held {
		c.handle(one)
	}
	for i, one := range requests {
		c.askProgress()
		if p.out {
			p.requests = append(p.requests, requests[i:]...)
			break
		}
		c.request(one)
	}
}

// report emits the frames of a finished question. A watch is covered if it is joined now: its join was ahead of the
// question in the hub's mailbox, for while a question is out nothing joins behind it and what an answered group
// admits is held. A manual request needs all watches covered and begun, and otherwise waits for the next question.
func (c *streamCore) report(at proto.Revision) {
	p := &c.progress
	all := true
	for _, id := range sortedKeys(c.watches) {
		w := c.watches[id]
		if w.state != watchJoined {
			all = false
			continue
		}
		w.sent = max(w.sent, at)
		if w.due && w.start <= at {
			c.effects.frames = append(c.effects.frames, Frame{WatchID: w.id, HeaderRevision: at})
		}
		w.due = false
	}
	if !all || p.counted == 0 {
		return
	}
	if c.startsAfter(at) {
		c.effects.credits += p.counted
	} else {
		for range p.counted {
			c.answer(Frame{WatchID: watchIDNone, HeaderRevision: at})
		}
	}
	p.wanted -= p.counted
}
