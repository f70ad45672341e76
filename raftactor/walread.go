package raftactor

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"path"

	"troupe/proto"
	"troupe/raftactor/disk"

	"go.etcd.io/raft/v3/raftpb"
)

// Recovered is what OpenLog read.
type Recovered struct {
	Meta LogMeta
	// Start is the last valid snapshot record: its index is at or below HardState's commit.
	Start SnapshotRecord
	// HardState is the last one in the log, nil if there is none.
	HardState *raftpb.HardState
	// Entries follow After without a gap. They belong to the caller.
	Entries []*raftpb.Entry
	// After and AfterTerm are index and term of what comes before the first entry: Start, or a later place when entries
	// that the file holds were left out to bound memory.
	After     proto.Index
	AfterTerm proto.Term
	// Repaired says that a torn tail, or the record of a snapshot that was not taken in whole, was cut off.
	Repaired bool
	// Uncopied says that the disk had no room for a copy of what was cut off.
	Uncopied bool
}

// Last is the index of the last entry, or of what comes before the first when there is none.
func (r *Recovered) Last() proto.Index { return r.After + proto.Index(len(r.Entries)) }

// OpenLog is OpenLogBehind for a file that holds nothing.
func OpenLog(d Disk, dir string) (*Log, *Recovered, error) { return OpenLogBehind(d, dir, 0) }

// OpenLogBehind reads the log of a stopped member and opens it for appending. It gives what the member starts from.
//
// A torn tail of the last segment is cut off, after a copy was made beside it; see segmentScanner for what counts as
// torn. Everything else that no writer leaves behind is a LogDamage. ErrLogLocked when another process has the log,
// ErrLogMissing when there is none.
//
// applied is the index up to which the file behind the store holds everything. Committed entries up to it are not
// needed for a start; of those only the newest are kept, up to the bytes that the log in memory keeps for slow members.
// So a start needs no more memory than the run before it.
//
// All that it gives is durable: a process that was killed may have left records in the page cache that no fsync
// reached, and who reads them would promise what a power failure takes back. So the last segment, the directory and
// its parent are synced.
func OpenLogBehind(d Disk, dir string, applied proto.Index) (*Log, *Recovered, error) {
	segments, err := listSegments(d, dir)
	if err != nil {
		return nil, nil, err
	}
	if len(segments) == 0 {
		return nil, nil, fmt.Errorf("%w: %s", ErrLogMissing, dir)
	}
	if err := openSegments(d, dir, segments); err != nil {
		return nil, nil, err
	}
	reader := logReader{dir: dir, collect: newLogCollector(segments[0].first)}
	reader.collect.applied = applied
	recovered, err := reader.read(segments)
	if err != nil {
		return nil, nil, errors.Join(err, closeSegments(segments))
	}
	log := &Log{
		disk: d, dir: dir, meta: reader.meta, segmentBytes: segmentBytesOf(d), segments: segments,
		offset: reader.end, last: recovered.Last(), encoder: recordEncoder{crc: reader.crc},
	}
	log.state.set(recovered.HardState)
	if recovered.Uncopied, err = log.settle(reader.torn); err != nil {
		return nil, nil, errors.Join(err, closeSegments(segments))
	}
	recovered.Repaired = reader.torn
	if err := log.Release(recovered.Start.Index); err != nil {
		return nil, nil, errors.Join(err, closeSegments(segments))
	}
	return log, recovered, nil
}

// logReader reads all segments in order.
type logReader struct {
	dir     string
	collect logCollector
	crc     uint32
	meta    []byte // data of the metadata records, nil before the first
	// segment is the place of the current segment in the run.
	segment int
	// end is the offset in the last segment behind the last good record.
	end int64
	// torn says that something behind end must be cut off.
	torn bool
}

func (l *logReader) read(segments []segment) (*Recovered, error) {
	var scanner *segmentScanner
	for i := range segments {
		var err error
		name := path.Join(l.dir, segments[i].name())
		scanner, err = newSegmentScanner(segments[i].file, name, i == len(segments)-1)
		if err != nil {
			return nil, err
		}
		l.segment = i
		if err := l.readSegment(scanner); err != nil {
			return nil, err
		}
	}
	l.end = scanner.offset
	if place, ok := l.collect.cutAt(l.segment); ok {
		l.end, l.crc, l.torn = place.offset, place.crc, true
	}
	recovered, err := l.collect.finish()
	if err != nil {
		return nil, scanner.damage("%v", err)
	}
	if recovered.Meta, err = decodeMeta(l.meta); err != nil {
		return nil, scanner.damage("%v", err)
	}
	return recovered, nil
}

// readSegment reads one segment to its end.
func (l *logReader) readSegment(s *segmentScanner) error {
	for count := 0; ; count++ {
		raw, frame, v, err := s.next()
		if err != nil {
			return err
		}
		if v != frameFound {
			// A segment gets its name after its head was synced, so the head cannot be missing.
			if count < 2 {
				return s.damage("the segment's head is missing")
			}
			l.torn = v == tornTail
			return nil
		}
		place := recordPlace{segment: l.segment, offset: s.offset, crc: l.crc}
		if err := l.checkSum(raw, count == 0); err != nil {
			v, err := s.judgeBad(raw.whole, err)
			if err != nil {
				return err
			}
			l.torn = v == tornTail
			return s.headless(count)
		}
		if err := l.take(raw, count, place); err != nil {
			return s.damage("%s record: %v", raw.kind, err)
		}
		s.advance(frame)
	}
}

// headless refuses a segment of which not even the head was good.
func (s *segmentScanner) headless(records int) error {
	if records < 2 {
		return s.damage("the segment's head is damaged")
	}
	return nil
}

// checkSum follows the chain of checksums. A segment begins with the sum that the one before ended with; the first
// segment there is may begin with any.
func (l *logReader) checkSum(raw rawRecord, head bool) error {
	if head {
		if raw.kind != recordCRC || raw.hasData {
			return errRecordHeader
		}
		if l.segment == 0 {
			l.crc = raw.crc
		}
	}
	sum := crc32.Update(l.crc, crcTable, raw.data)
	if sum != raw.crc {
		return errChecksum
	}
	l.crc = sum
	return nil
}

// take gives a good record to the collector. count is its place in the segment.
func (l *logReader) take(raw rawRecord, count int, place recordPlace) error {
	if (raw.kind == recordCRC) != (count == 0) || (raw.kind == recordMetadata) != (count == 1) {
		return errors.New("the record is out of place")
	}
	switch raw.kind {
	case recordCRC:
		return nil
	case recordMetadata:
		if l.meta == nil {
			l.meta = append([]byte{}, raw.data...)
		}
		if !bytes.Equal(l.meta, raw.data) {
			return errors.New("the segments belong to different members")
		}
		return nil
	case recordEntry:
		entry, err := decodeEntry(raw.data)
		if err != nil {
			return err
		}
		return l.collect.entry(entry)
	case recordState:
		hs, err := decodeHardState(raw.data)
		if err != nil {
			return err
		}
		return l.collect.hardState(hs)
	case recordSnapshot:
		record, err := decodeSnapshotRecord(raw.data)
		if err != nil {
			return err
		}
		return l.collect.snapshot(record, place)
	}
	return errors.New("the type is none that a writer writes")
}

// settle makes the last segment fit for appending and makes everything durable that was read. uncopied says that a torn
// tail was cut off without a copy.
func (l *Log) settle(torn bool) (uncopied bool, err error) {
	for number := range uint64(2) {
		// A segment that was prepared and never named; not worth 64 MB.
		left := path.Join(l.dir, nextSegmentTemporary(number))
		if err := l.disk.RemoveAll(left); err != nil {
			return false, fmt.Errorf("remove an unfinished segment: %w", err)
		}
	}
	if torn {
		if uncopied, err = l.cutTorn(); err != nil {
			return false, err
		}
	}
	if err := l.reserveTail(); err != nil {
		return false, err
	}
	if err := l.tail().file.Sync(disk.Open); err != nil {
		return false, err
	}
	if err := l.disk.SyncDir(l.dir, disk.OpenDir); err != nil {
		return false, err
	}
	return uncopied, l.disk.SyncDir(path.Dir(l.dir), disk.OpenParent)
}

// cutTorn cuts off the torn tail. A human may want to look at it, so there is a copy. What is in it was promised to
// nobody, so a full disk is no reason not to start: then there is none.
func (l *Log) cutTorn() (uncopied bool, err error) {
	tail := l.tail()
	name := path.Join(l.dir, tail.name())
	size, err := tail.file.Size()
	if err != nil {
		return false, fmt.Errorf("size of %s: %w", name, err)
	}
	err = copyFile(l.disk, tail.file, name+brokenSuffix, size)
	if disk.Full(err) {
		uncopied, err = true, l.disk.RemoveAll(name+brokenSuffix)
	}
	if err != nil {
		return false, fmt.Errorf("keep a copy of the torn segment: %w", err)
	}
	if err := tail.file.Truncate(l.offset); err != nil {
		return false, fmt.Errorf("cut off the torn tail: %w", err)
	}
	return uncopied, nil
}

// reserveTail reserves the rest of the last segment. It has been reserved since the segment was made, unless the file
// was copied or its tail cut off. On a full disk a start needs no more of it than raft itself does.
func (l *Log) reserveTail() error {
	l.reserved = max(l.segmentBytes, l.offset)
	err := l.tail().file.Preallocate(l.reserved)
	if disk.Full(err) {
		l.reserved = l.offset + max(l.segmentBytes/logReservePart, segmentHeadBytesMax)
		err = l.tail().file.Preallocate(l.reserved)
	}
	if disk.Full(err) {
		return fmt.Errorf("%w: the log has no room for what a start must write: free %d bytes on the disk of %s (%w)",
			ErrNoSpace, l.segmentBytes, l.dir, err)
	}
	if err != nil {
		return fmt.Errorf("preallocate: %w", err)
	}
	return nil
}

// copyFile copies the first size bytes of a file to a new one and syncs it.
func copyFile(d Disk, from disk.File, to string, size int64) error {
	file, err := d.Create(to)
	if err != nil {
		return err
	}
	err = copyBytes(from, file, size)
	if err == nil {
		err = file.Sync(disk.Broken)
	}
	return errors.Join(err, file.Close())
}

func copyBytes(from, to disk.File, size int64) error {
	buf := make([]byte, min(size, readWindowBytes))
	for offset := int64(0); offset < size; {
		part := buf[:min(int64(len(buf)), size-offset)]
		if n, err := from.ReadAt(part, offset); n < len(part) {
			return err
		}
		if !allZero(part) {
			if _, err := to.WriteAt(part, offset); err != nil {
				return err
			}
		}
		offset += int64(len(part))
	}
	return to.Truncate(size)
}
