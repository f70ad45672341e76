package gateway

import (
	"time"
)

// closeStalled closes the connections whose clients take nothing of their large answers while others wait for the room
// that those have. A client that sends requests and never reads would otherwise keep everybody else from large answers
// for as long as it likes. It is a goroutine of its own, until the member stops.
func (s *Server) closeStalled(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.lifetime.Done():
			return
		case <-ticker.C:
			if _, waiting := s.answers.inFlight(); waiting > 0 {
				s.closeThoseStalled(every)
			}
		}
	}
}

// closeThoseStalled looks at each connection once; passed is how long ago that was done last.
func (s *Server) closeThoseStalled(passed time.Duration) {
	for _, c := range s.conns.list() {
		if c.claimed() == 0 || c.reads(passed) {
			c.stalledFor = 0
			continue
		}
		if c.stalledFor += passed; c.stalledFor < answerStallMax {
			continue
		}
		s.metrics.stalled.Inc()
		if s.gates.lines.allow(time.Now()) {
			s.cfg.Log.Warn().Str("remote", c.addr.String()).Int64("bytes", c.claimed()).Str("stalled", c.stalledFor.String()).
				Msg("client does not read its answers while others wait for their memory, closing its connection")
		}
		_ = c.Close()
	}
}

// reads reports whether the client has taken anything since the last look. gRPC hands answers to the system in lumps of
// megabytes, which a slow client takes longer over than it may take nothing: so what the system still has counts, too.
func (c *connection) reads(passed time.Duration) bool {
	taken, left := c.taken.Load(), unsent(c.Conn)
	fell := c.unsentSeen - left
	moved := taken != c.takenSeen || fell >= int64(passed.Seconds()*answerReadRateMin)
	c.takenSeen, c.unsentSeen = taken, left
	return moved
}
