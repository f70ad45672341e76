package raftactor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"troupe/raftactor/disk"
)

// segmentScanner reads the frames of one segment, and judges what it finds where a frame should be.
//
// Three things can be there. The end: zeros, as they were preallocated. Damage: something no writer wrote. And, in the
// last segment only, a tear: what a crash leaves of a write that nobody was told of. A disk writes sectors, each as a
// whole but in any order, so a torn record shows sectors that are still zero, or ends with the file. A length word is
// 8 bytes at a multiple of 8 and can therefore not be torn itself: a word that no writer makes is damage, and so is a
// word that contradicts the record behind it, unless that part of the record is one of the missing sectors.
type segmentScanner struct {
	file disk.File
	path string
	// size is the length of the file, in bytes.
	size int64
	// last is true for the last segment of the log.
	last bool
	// offset is where the next frame begins: behind the last good record.
	offset int64

	window   []byte // bytes of the file from windowAt on
	windowAt int64
}

// verdict is what a scanner found where a frame should be.
type verdict uint8

const (
	frameFound verdict = iota
	endOfSegment
	tornTail
)

func newSegmentScanner(file disk.File, path string, last bool) (*segmentScanner, error) {
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", path, err)
	}
	return &segmentScanner{file: file, path: path, size: size, last: last}, nil
}

// damage makes the refusal for the current offset.
func (s *segmentScanner) damage(format string, args ...any) error {
	return &LogDamage{File: s.path, Offset: s.offset, Reason: fmt.Sprintf(format, args...)}
}

// bytes gives length bytes of the file from offset on; they must exist. The slice is valid until the next call.
func (s *segmentScanner) bytes(offset, length int64) ([]byte, error) {
	if offset < s.windowAt || offset+length > s.windowAt+int64(len(s.window)) {
		want := min(max(length, readWindowBytes), s.size-offset)
		if int64(cap(s.window)) < want {
			s.window = make([]byte, want)
		}
		s.window, s.windowAt = s.window[:want], offset
		if n, err := s.file.ReadAt(s.window, offset); int64(n) < want {
			s.window = s.window[:0]
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %s at %d: %w", s.path, offset, err)
		}
	}
	return s.window[offset-s.windowAt:][:length], nil
}

// next reads the record at offset. With frameFound the record's data is valid until the next call, and advance must be
// called once the record was found good.
func (s *segmentScanner) next() (r rawRecord, frame int64, v verdict, err error) {
	left := s.size - s.offset
	if left < frameWordBytes {
		v, err = s.judgeRest(left)
		return r, 0, v, err
	}
	head, err := s.bytes(s.offset, frameWordBytes)
	if err != nil {
		return r, 0, 0, err
	}
	word := binary.LittleEndian.Uint64(head)
	if word == 0 {
		v, err = s.judgeZeroWord()
		return r, 0, v, err
	}
	size, pad, err := frameSizes(word)
	if err != nil {
		return r, 0, 0, s.damage("%v (%016x)", err, word)
	}
	frame = frameWordBytes + size + pad
	if frame > left {
		v, err = s.judgeShort(size, left-frameWordBytes)
		return r, 0, v, err
	}
	record, err := s.bytes(s.offset+frameWordBytes, size+pad)
	if err != nil {
		return r, 0, 0, err
	}
	r, err = parseRecord(record, size)
	if err != nil {
		v, err = s.judgeBad(record[:size], err)
		return r, 0, v, err
	}
	return r, frame, frameFound, nil
}

// advance moves behind a good record.
func (s *segmentScanner) advance(frame int64) { s.offset += frame }

// judgeRest judges fewer bytes than a length word has.
func (s *segmentScanner) judgeRest(left int64) (verdict, error) {
	rest, err := s.bytes(s.offset, left)
	switch {
	case err != nil:
		return 0, err
	case allZero(rest):
		return endOfSegment, nil
	case s.last:
		return tornTail, nil
	}
	return 0, s.damage("the segment ends in the middle of a length word")
}

// judgeZeroWord judges a word of zeros: the end, unless something follows. In the last segment that may be a write
// whose first sectors are missing, but then the rest of this sector is missing too.
func (s *segmentScanner) judgeZeroWord() (verdict, error) {
	sector := min(s.offset-s.offset%sectorBytes+sectorBytes, s.size)
	zero, err := s.zeros(s.offset, sector)
	if err != nil {
		return 0, err
	}
	if !zero {
		return 0, s.damage("the length word is zero, but not what follows it")
	}
	zero, err = s.zeros(sector, s.size)
	switch {
	case err != nil:
		return 0, err
	case zero:
		return endOfSegment, nil
	case s.last:
		return tornTail, nil
	}
	return 0, s.damage("records are missing in the middle of the segment")
}

// zeros reports whether all bytes from one offset to another are zero.
func (s *segmentScanner) zeros(from, to int64) (bool, error) {
	for from < to {
		n := min(to-from, readWindowBytes)
		b, err := s.bytes(from, n)
		if err != nil {
			return false, err
		}
		if !allZero(b) {
			return false, nil
		}
		from += n
	}
	return true, nil
}

// judgeShort judges a frame that goes on beyond the end of the file.
func (s *segmentScanner) judgeShort(size, left int64) (verdict, error) {
	if !s.last {
		return 0, s.damage("the record goes on beyond the end of the segment")
	}
	head, err := s.bytes(s.offset+frameWordBytes, min(left, recordHeaderMax))
	if err != nil {
		return 0, err
	}
	// A header that was cut off itself says nothing; one that is whole must agree with the length word.
	_, _, err = parseHeader(head, size)
	if err == nil || left < recordHeaderMax || hasLostSector(head, s.offset+frameWordBytes) {
		return tornTail, nil
	}
	return 0, s.damage("the record goes on beyond the end of the file, and %v", err)
}

// judgeBad judges a record that is all there but wrong.
func (s *segmentScanner) judgeBad(record []byte, cause error) (verdict, error) {
	if s.last && hasLostSector(record, s.offset+frameWordBytes) {
		head := record[:min(len(record), recordHeaderMax)]
		_, _, err := parseHeader(head, int64(len(record)))
		if err == nil || hasLostSector(head, s.offset+frameWordBytes) {
			return tornTail, nil
		}
	}
	return 0, s.damage("%v", cause)
}

// hasLostSector reports whether b, which lies at offset in a file, has nothing but zeros in its part of some sector.
func hasLostSector(b []byte, offset int64) bool {
	for len(b) > 0 {
		n := min(int64(len(b)), sectorBytes-offset%sectorBytes)
		if allZero(b[:n]) {
			return true
		}
		b, offset = b[n:], offset+n
	}
	return false
}

// allZero reports whether b holds only zeros.
func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
