package gateway

// pingSieve takes pings out of the bytes that a client of an HTTP/2 connection sends. A gRPC client sends one for
// nearly every answer that it gets, to measure the connection; led through gRPC it wakes the connection's writer, which
// is as much work as a small answer. The ackJoiner answers instead.
//
// It takes only a ping that gRPC would permit in any case: one that comes after the server has sent something. All
// others pass, so that gRPC can object to a client that pings too often: one ping later than if it had seen all. A ping
// that does not arrive in one piece passes, too. One goroutine uses it.
type pingSieve struct{ place framePlace }

// newPingSieve makes the sieve for a connection from its first byte on, the preface.
func newPingSieve() *pingSieve { return &pingSieve{framePlace{passing: len(http2Preface)}} }

// sift takes the pings that answer wants out of the next bytes and gives the rest, in the same storage. answer gets the
// payload, which it may not keep, and reports whether the ping is answered.
func (s *pingSieve) sift(p []byte, answer func(payload []byte) bool) []byte {
	for i := 0; i < len(p); {
		if s.place.between() && isPing(p[i:]) && answer(p[i+frameHeaderBytes:i+frameHeaderBytes+pingBytes]) {
			p = append(p[:i], p[i+frameHeaderBytes+pingBytes:]...)
			continue
		}
		i += s.place.step(p[i:])
	}
	return p
}

// isPing reports whether the bytes begin with a whole ping that wants to be answered.
func isPing(p []byte) bool {
	return len(p) >= frameHeaderBytes+pingBytes && [frameHeaderBytes]byte(p) == [...]byte{2: pingBytes, 3: pingType, 8: 0}
}
