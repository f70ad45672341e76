package raftactor

import (
	"errors"
	"fmt"
	"path"

	"troupe/proto"
	"troupe/raftactor/disk"
)

// logRoom is how much the log surely takes, whatever happens to the disk: wal measures it, raft spends it. The zero
// value is a log without a limit.
//
// The log writes into space that was reserved before, so a full disk does not show in an append but in the reservation
// of the next segment, long before anything is lost. From then on the room only shrinks, and the end of it belongs to
// those who need it most: see logUse.
type logRoom struct {
	// limited says that bytes counts.
	limited bool
	// bytes is what can be appended behind the append that the room is told with, each entry counted as entryBytes.
	bytes int64
	// reserve is the part of it that is kept from requests of clients.
	reserve int64
	// segment is what an empty segment takes.
	segment int64
	// full says that the next segment could not be reserved.
	full bool
	// release is the least index at which a snapshot would give back a segment; 0 when none would.
	release proto.Index
}

// logUse is what an entry is for, and so how much of the log's last room must be left over behind it.
type logUse uint8

const (
	// useClient is any request of a client: all of the reserve is kept.
	useClient logUse = iota
	// useFreeing is a request that gives space back, or says that there is none: deletions, compactions, the end of
	// leases, alarms. Half of the reserve is kept.
	useFreeing
	// useOwn is what the cluster itself proposes, what is no request, as changes of the membership, and entries of
	// another leader: a quarter is kept, for the terms, votes and first entries of raft, and the snapshot records, which
	// nobody is asked about.
	useOwn
)

// kept is the part of the reserve that must be left over.
func (r *logRoom) kept(use logUse) int64 { return r.reserve >> use }

// fits reports whether the log takes that many bytes behind those that are under way.
func (r *logRoom) fits(underWay, bytes int64, use logUse) bool {
	if !r.limited || !r.full && underWay == 0 && bytes+r.reserve > r.segment {
		return true // longer than a segment, and alone: the segment grows, as etcd's does
	}
	return underWay+bytes+r.kept(use) <= r.bytes
}

// prepareSegment makes a segment's file, takes its lock and reserves its space. After an error nothing of it is left.
func prepareSegment(d Disk, name string, bytes int64) (disk.File, error) {
	file, err := d.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create a segment: %w", err)
	}
	if err = file.Lock(); err == nil {
		err = file.Preallocate(bytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a segment: %w", err), file.Close(), d.Remove(name))
	}
	return file, nil
}

// wantsSpare reports whether it is time to prepare the next segment: so much of this one is used that another will be
// needed, and so little that there is time.
func (l *Log) wantsSpare() bool {
	return l.spare == nil && l.failed == nil && l.offset*spareAtPart >= l.segmentBytes
}

// sparePath is the name of the next segment's file until it is in use.
func (l *Log) sparePath() string { return path.Join(l.dir, nextSegmentTemporary(l.tail().number+1)) }

// takeSpare makes a file from prepareSegment, under sparePath, the next segment.
func (l *Log) takeSpare(file disk.File) { l.spare = file }

// dropSpare deletes the spare. It holds nothing, and the next start would delete it.
func (l *Log) dropSpare() {
	if l.spare == nil {
		return
	}
	_ = l.spare.Close()
	_ = l.disk.Remove(l.sparePath())
	l.spare = nil
}

// room gives what the log surely takes behind what was appended. full says that there will be no other spare for now.
func (l *Log) room(full bool) logRoom {
	r := logRoom{
		limited: full || l.segmentBytes >= creditSegmentBytesMin,
		bytes:   l.reserved - l.offset - int64(len(l.encoder.buf)),
		reserve: l.segmentBytes / logReservePart,
		segment: l.segmentBytes - segmentHeadBytesMax,
		full:    full,
	}
	if l.spare != nil {
		// What is left of this segment does not count: the first entry that does not fit there leaves it empty.
		r.bytes = max(r.bytes, l.segmentBytes-segmentHeadBytesMax)
	}
	if len(l.segments) > 1 {
		r.release = l.segments[1].first
	}
	return r
}
