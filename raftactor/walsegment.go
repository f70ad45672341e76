package raftactor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"troupe/proto"
	"troupe/raftactor/disk"
)

const (
	segmentSuffix = ".wal"
	brokenSuffix  = ".broken"
	// segmentNameDigits is the width of each of the two numbers in a segment's name.
	segmentNameDigits = 16
)

// segment is one file of the log.
type segment struct {
	// number counts the segments of the log from 0.
	number uint64
	// first is the index of the first entry the segment was to hold.
	first proto.Index
	// file is open, and locked, while the segment may be needed; nil once it was released.
	file disk.File
}

// name gives the file name: both numbers in hex, so that names sort as the segments do.
func (s *segment) name() string {
	return fmt.Sprintf("%0*x-%0*x%s", segmentNameDigits, s.number, segmentNameDigits, uint64(s.first), segmentSuffix)
}

// parseSegmentName reads a segment's name; ok is false for any other file.
func parseSegmentName(name string) (s segment, ok bool) {
	base, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(base) != 2*segmentNameDigits+1 || base[segmentNameDigits] != '-' {
		return segment{}, false
	}
	number, err := strconv.ParseUint(base[:segmentNameDigits], 16, 64)
	if err != nil {
		return segment{}, false
	}
	first, err := strconv.ParseUint(base[segmentNameDigits+1:], 16, 64)
	if err != nil {
		return segment{}, false
	}
	s = segment{number: number, first: proto.Index(first)}
	return s, s.name() == name
}

// nextSegmentTemporary names the file a segment is prepared as. Two names alternate, as in etcd, which opens the next
// one while the last may not have been renamed yet; a left-over is overwritten.
func nextSegmentTemporary(number uint64) string { return strconv.FormatUint(number%2, 10) + ".tmp" }

// listSegments gives the segments of a directory in order: those of the last unbroken run. A gap below it is what a
// purge leaves behind whose removals reached the disk out of order; whether the run is enough is decided by what is
// in it. A missing directory has no segments.
func listSegments(d Disk, dir string) ([]segment, error) {
	names, err := d.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the log: %w", err)
	}
	var run []segment
	for _, name := range names {
		s, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		if n := len(run); n > 0 && s.number != run[n-1].number+1 {
			run = run[:0]
		}
		run = append(run, s)
	}
	return run, nil
}

// LogExists reports whether dir holds a log: at least one segment. A directory that holds none does not belong to a
// member yet.
func LogExists(d Disk, dir string) (bool, error) {
	segments, err := listSegments(d, dir)
	return len(segments) > 0, err
}

// openSegments opens and locks all of them, so that nothing is read, let alone repaired, that another process writes.
func openSegments(d Disk, dir string, segments []segment) error {
	for i := range segments {
		name := path.Join(dir, segments[i].name())
		file, err := d.Open(name)
		if err != nil {
			return errors.Join(fmt.Errorf("open a segment: %w", err), closeSegments(segments))
		}
		segments[i].file = file
		if err := file.Lock(); err != nil {
			return errors.Join(err, closeSegments(segments))
		}
	}
	return nil
}

// closeSegments gives the locks back.
func closeSegments(segments []segment) error {
	var first error
	for i := range segments {
		if segments[i].file == nil {
			continue
		}
		if err := segments[i].file.Close(); err != nil && first == nil {
			first = err
		}
		segments[i].file = nil
	}
	return first
}
