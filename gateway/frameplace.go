package gateway

import "encoding/binary"

// Frames of HTTP/2 (RFC 9113, sections 4.1 and 6): a header of three bytes of length, type, flags and four bytes of
// stream, then the payload.
const (
	frameHeaderBytes = 9
	dataType         = 0x0
	headersType      = 0x1
	settingsType     = 0x4
	pushType         = 0x5
	pingType         = 0x6
	continuationType = 0x9
	ackFlag          = 0x1
	endHeadersFlag   = 0x4
	pingBytes        = 8
)

// framePlace follows the frames of one direction of a connection. The zero value stands before the first one.
type framePlace struct {
	// passing is how much is still to come of what is on its way.
	passing int
	// header is the beginning of a frame's header, begun its length.
	header [frameHeaderBytes]byte
	begun  int
	// block is true from a frame that begins a block of headers to the one that ends it. No other frame may stand in it
	// (section 6.10).
	block bool
}

// between reports whether the next byte begins a frame, and any frame may be put before it.
func (f *framePlace) between() bool { return f.passing == 0 && f.begun == 0 && !f.block }

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
		switch f.header[3] {
		case headersType, pushType, continuationType:
			f.block = f.header[4]&endHeadersFlag == 0
		}
	}
	return n
}

// walk goes over all of the bytes.
func (f *framePlace) walk(p []byte) {
	for len(p) > 0 {
		p = p[f.step(p):]
	}
}
