package gateway

import "encoding/binary"

// pingSieve takes pings out of the bytes that a client of an HTTP/2 connection sends. A gRPC client sends one for
// nearly every answer that it gets, to measure the connection; led through gRPC it wakes the connection's writer, which
// is as much work as a small answer. The ackJoiner answers instead.
//
// It takes only a ping that gRPC would have no more to do with than to answer it: one that comes after the server has
// sent something, which is always permitted. All others pass, so that gRPC can object to a client that pings too often,
// and so does one that does not arrive in one piece. One goroutine uses it.
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

// framePlace follows the frames of one direction of a connection. The zero value stands before the first one.
type framePlace struct {
	// passing is how much is still to come of what is on its way.
	passing int
	// header is the beginning of a frame's header, begun its length.
	header [frameHeaderBytes]byte
	begun  int
}

// between reports whether the next byte begins a frame.
func (f *framePlace) between() bool { return f.passing == 0 && f.begun == 0 }

// step goes on to the end of a header or of a payload at most, and tells how far.
func (f *framePlace) step(p []byte) int {
	if f.passing > 0 {
		n := min(f.passing, len(p))
		f.passing -= n
		return n
	}
	n := copy(f.header[f.begun:], p)
	if f.begun += n; f.begun == frameHeaderBytes {
		f.passing, f.begun = int(binary.BigEndian.Uint32(f.header[:])>>8), 0
	}
	return n
}

// walk goes over all of the bytes.
func (f *framePlace) walk(p []byte) {
	for len(p) > 0 {
		p = p[f.step(p):]
	}
}

// isPing reports whether the bytes begin with a whole ping that wants to be answered.
func isPing(p []byte) bool {
	return len(p) >= frameHeaderBytes+pingBytes && [frameHeaderBytes]byte(p) == [...]byte{2: pingBytes, 3: pingType, 8: 0}
}
