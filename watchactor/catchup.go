package watchactor

import "slices"

// space is how many bytes the outbox takes: of what groups tell, and of history, which waits until the client has read
// most of what it has. Not positive: none now.
type space struct{ bytes, ahead int }

// ask asks the reader of history for watches that are behind, as far as the client has room for the answers. Watches
// take turns, so that one that is far behind does not keep the others waiting; nothing is read for a client that has no
// room for it, so that the work is proportional to what is delivered.
func (c *streamCore) ask() {
	if c.progress.out {
		return // history is ahead of the point in time the answer speaks of
	}
	for len(c.behind) > 0 {
		w := c.behind[0]
		switch {
		case c.watches[w.id] != w || w.state != watchBehind:
			c.dequeue()
		case w.through > c.now.revision:
			c.effects.retry = true
			return
		case w.sent >= c.now.revision:
			c.dequeue()
			c.join(w)
		case w.sent+1 < c.now.compacted:
			c.dequeue()
			c.compacted(w, c.now.compacted)
		case c.reading == wantsMax || c.reading > 0 && c.room.ahead <= c.reading*c.pieceBytes:
			return // an answer comes, and then the rest is asked for
		case c.room.ahead <= 0:
			c.effects.drain = true
			return
		default:
			c.dequeue()
			c.read(w)
		}
	}
}

// read asks for the next piece for one watch.
func (c *streamCore) read(w *watch) {
	w.state = watchReading
	c.epoch++
	w.epoch = c.epoch
	c.reading++
	c.place = w.sent
	c.effects.wants = append(c.effects.wants, want{
		watch: w.id, epoch: w.epoch, from: w.sent + 1, keys: w.keys, as: w.as,
	})
}

func (c *streamCore) dequeue() {
	c.behind[0].queued = false
	c.behind[0] = nil
	if c.behind = c.behind[1:]; len(c.behind) == 0 {
		c.behind = nil
	}
}

// refused takes back what the reader of history did not take. The effects are valid until the next step.
func (c *streamCore) refused(list []want, now position, r space) *streamEffects {
	list = slices.Clone(list) // it is part of the effects of the last step
	c.begin(now, r)
	c.reading -= len(list)
	for i := range list {
		if w := c.readingWatch(list[i].watch, list[i].epoch); w != nil {
			c.fallBehind(w)
		}
	}
	c.effects.retry = true
	return &c.effects
}

// readingWatch gives the watch that waits for an answer to that want, nil if there is none any more.
func (c *streamCore) readingWatch(id int64, e epoch) *watch {
	if w := c.watches[id]; w != nil && w.epoch == e && w.state == watchReading {
		return w
	}
	return nil
}

// take takes pieces of history.
func (c *streamCore) take(m *served) {
	c.reading -= len(m.items)
	for i := range m.items {
		one := &m.items[i]
		w := c.readingWatch(one.watch, one.epoch)
		switch {
		case one.err != nil:
			c.effects.failed = one.err
		case w == nil: // cancelled
		case one.compacted != 0:
			c.compacted(w, one.compacted)
		case one.lost:
			c.fallBehind(w)
		default:
			if one.run != nil {
				c.send(w, one.run, one.at)
			}
			w.sent = max(w.sent, one.next-1)
			if w.sent >= c.now.revision {
				c.join(w)
			} else {
				c.fallBehind(w)
			}
		}
	}
}
