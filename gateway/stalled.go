package gateway

import (
	"time"
)

// closeStalled closes the connections whose clients take nothing of their large answers while others wait for the room
// that those have. A client that sends requests and never reads would otherwise keep everybody else from large answers,
// or from watches, for as long as it likes. It is a goroutine of its own, until the member stops.
func (s *Server) closeStalled(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.lifetime.Done():
			return
		case <-ticker.C:
			s.closeThoseStalled(every)
		}
	}
}

// closeThoseStalled looks at each connection once, if anybody waits; passed is how long ago that was done last.
func (s *Server) closeThoseStalled(passed time.Duration) {
	_, waiting := s.answers.inFlight()
	wanted := wantedRoom{answers: waiting > 0, watches: s.cfg.Watch.Full()}
	if !wanted.answers && !wanted.watches {
		return
	}
	for _, c := range s.conns.list() {
		bytes, since := c.stalled(wanted, passed)
		if since < answerStallMax {
			continue
		}
		s.metrics.stalled.Inc()
		if s.gates.lines.allow(time.Now()) {
			s.cfg.Log.Warn().Str("remote", c.addr.String()).Int64("bytes", bytes).Str("stalled", since.String()).
				Msg("client does not read its answers while others wait for their memory, closing its connection")
		}
		_ = c.Close()
	}
}

// wantedRoom says which bytes others wait for: those of ordinary answers or those that watch streams hold.
type wantedRoom struct{ answers, watches bool }

// stalled gives how many bytes of what is wanted the connection has, and for how long its client has taken none of
// them. It is called for one look, which comes a time after the last.
func (c *connection) stalled(wanted wantedRoom, passed time.Duration) (bytes int64, since time.Duration) {
	read, fell := c.reads(passed)
	entered, stuck := c.claimedOf(wanted, passed)
	held, gone := c.watches.Held()
	watched := gone != c.goneSeen
	c.goneSeen = gone
	// What the system has got rid of may be of either kind; it counts for the one if the other has not moved.
	if wanted.answers {
		bytes = entered
		since = c.answersStalled.look(entered > 0 && !read && (!fell || watched), passed)
	}
	if wanted.watches {
		bytes += held
		still := c.watchesStalled.look(held > 0 && !watched && (!fell || read), passed)
		if since = max(since, still); stuck >= answerStuckMax {
			since = max(since, stuck)
		}
	}
	return bytes, since
}

// stall is for how long something has stood still.
type stall time.Duration

// look notes whether it does, and gives for how long.
func (s *stall) look(still bool, passed time.Duration) time.Duration {
	*s += stall(passed)
	if !still {
		*s = 0
	}
	return time.Duration(*s)
}

// claimedOf gives how many bytes the connection has in the ledger, and for how long the longest of its claims for watch
// responses has not become smaller while others waited.
func (c *connection) claimedOf(wanted wantedRoom, passed time.Duration) (entered int64, stuck time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for held := range c.claims {
		left := held.left.Load()
		switch {
		case !held.ofWatch():
			entered += left
		case wanted.watches:
			stuck = max(stuck, held.stuck.look(left == held.leftSeen, passed))
			held.leftSeen = left
		}
	}
	return entered, stuck
}

// reads reports whether the client has taken anything of its answers since the last look, and whether the system has
// got rid of some: gRPC hands it lumps of megabytes, which a slow client takes longer over than it may take nothing.
func (c *connection) reads(passed time.Duration) (read, fell bool) {
	taken, left := c.taken.Load(), unsent(c.Conn)
	read, fell = taken != c.takenSeen, c.unsentSeen-left >= int64(passed.Seconds()*answerReadRateMin)
	c.takenSeen, c.unsentSeen = taken, left
	return read, fell
}
