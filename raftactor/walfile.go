package raftactor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"troupe/proto"
	"troupe/raftactor/disk"

	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"
)

// LogMeta is the identity that every segment of a log carries.
type LogMeta struct {
	Member  proto.MemberID
	Cluster proto.ClusterID
}

// SnapshotRecord says that the state up to Index is durable outside the log.
type SnapshotRecord struct {
	Index proto.Index
	Term  proto.Term
	// ConfState is required once Index > 0.
	ConfState *raftpb.ConfState
}

// Log is the open log: etcd's write-ahead log, segments of a fixed size that are preallocated, chained by checksum and
// locked against other processes.
//
// Appends gather in a buffer; Flush writes them with one write, Sync makes them durable too. Nothing is durable before
// Sync. A record that does not fit into what is left of a segment begins the next one, so that all that is written goes
// into space that was reserved before. After an error from any method but Release and Purge the log must not be used
// again: what is on disk is unknown until the next OpenLog, and an fsync that is repeated after a failure may report
// success for pages that are lost.
//
// It belongs to one goroutine.
type Log struct {
	disk         Disk
	dir          string
	meta         []byte // data of the metadata record
	segmentBytes int64

	// segments may still be needed; the last one is written. All are open and locked.
	segments []segment
	// released are no longer needed but still on disk. They are closed, so that etcd's purge may have them too.
	released []segment

	// spare is the next segment, prepared ahead of need; nil when there is none.
	spare disk.File
	// supplied is set when someone brings spares; then a segment without one goes on past its size, and cut never has to
	// reserve space itself.
	supplied bool

	encoder recordEncoder
	// offset is where the next write goes in the last segment, reserved up to where there is space for it.
	offset, reserved int64
	// last is the index of the last entry appended.
	last proto.Index
	// state is the last hard state appended.
	state stateFields
	// unsynced is set while bytes were written that no sync has covered.
	unsynced bool
	// failed is the error after which nothing works any more.
	failed error
	meter  *logMeter
}

// stateFields is a hard state by value.
type stateFields struct{ term, vote, commit uint64 }

func (s *stateFields) set(hs *raftpb.HardState) {
	*s = stateFields{term: hs.GetTerm(), vote: hs.GetVote(), commit: hs.GetCommit()}
}

// CreateLog makes the log of a new member in dir, which must not exist or be empty. It holds checksum, metadata, and a
// snapshot record for index 0. Everything is durable when it returns; before, a crash leaves nothing that LogExists
// takes for a log, because the log is built in a temporary directory beside and then renamed.
func CreateLog(d Disk, dir string, meta LogMeta) (*Log, error) {
	if err := prepareLogDir(d, dir); err != nil {
		return nil, err
	}
	temporary := dir + ".tmp"
	if err := d.RemoveAll(temporary); err != nil {
		return nil, fmt.Errorf("remove an unfinished log: %w", err)
	}
	if err := d.MakeDir(temporary); err != nil {
		return nil, fmt.Errorf("make the directory of the log: %w", err)
	}
	l := &Log{disk: d, dir: dir, meta: meta.encode(), segmentBytes: segmentBytesOf(d), segments: make([]segment, 1)}
	if err := l.build(temporary); err != nil {
		return nil, errors.Join(err, closeSegments(l.segments))
	}
	return l, nil
}

// prepareLogDir makes sure that the finished log can be renamed to dir.
func prepareLogDir(d Disk, dir string) error {
	exists, err := LogExists(d, dir)
	if err != nil {
		return err
	}
	if exists {
		return fmt.Errorf("%w: %s", ErrLogExists, dir)
	}
	if err := d.MakeDir(path.Dir(dir)); err != nil {
		return fmt.Errorf("make the parent of the log: %w", err)
	}
	names, err := d.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the directory of the log: %w", err)
	}
	if len(names) > 0 {
		return fmt.Errorf("%w: %s", ErrLogDirNotEmpty, dir)
	}
	if err := d.Remove(dir); err != nil {
		return fmt.Errorf("remove the empty directory of the log: %w", err)
	}
	return nil
}

// build writes the first segment in a temporary directory and renames that.
func (l *Log) build(temporary string) (err error) {
	if err := l.encoder.openSegment(l.meta); err != nil {
		return err
	}
	if err := l.encoder.snapshot(SnapshotRecord{}); err != nil {
		return err
	}
	tail := l.tail()
	if tail.file, err = prepareSegment(l.disk, path.Join(temporary, tail.name()), l.segmentBytes); err != nil {
		return err
	}
	if err := l.fillSegment(tail, disk.CreateFile); err != nil {
		return err
	}
	if err := l.disk.SyncDir(temporary, disk.CreateDir); err != nil {
		return err
	}
	if err := l.disk.Rename(temporary, l.dir); err != nil {
		return fmt.Errorf("give the log its name: %w", err)
	}
	return l.disk.SyncDir(path.Dir(l.dir), disk.CreateParent)
}

// openSegment appends the records that every segment begins with.
func (e *recordEncoder) openSegment(meta []byte) error {
	if len(e.buf) != 0 {
		return errors.New("records of another segment are still buffered")
	}
	e.chain()
	e.record(recordMetadata, meta)
	return nil
}

// fillSegment writes what is buffered to the beginning of a prepared segment and syncs it.
func (l *Log) fillSegment(s *segment, point disk.Point) error {
	if _, err := s.file.WriteAt(l.encoder.buf, 0); err != nil {
		return fmt.Errorf("write the head of a segment: %w", err)
	}
	l.offset, l.reserved = int64(len(l.encoder.buf)), l.segmentBytes
	l.encoder.buf = l.encoder.buf[:0]
	return s.file.Sync(point)
}

func (l *Log) tail() *segment { return &l.segments[len(l.segments)-1] }

// Append buffers entries and a hard state, in this order, so that any prefix of the log has a commit index that its
// entries reach. hs may be nil or empty. The entries must follow on the last one or overwrite a part of the log.
func (l *Log) Append(hs *raftpb.HardState, entries []*raftpb.Entry) error {
	if l.failed != nil {
		return l.failed
	}
	for _, entry := range entries {
		index := proto.Index(entry.GetIndex())
		if index == 0 || index > l.last+1 {
			return l.fail(fmt.Errorf("raftactor: entry %d appended behind entry %d", index, l.last))
		}
		if err := l.makeRoom(int64(entryBytes(entry))); err != nil {
			return err
		}
		l.encoder.entry(entry)
		l.last = index
	}
	if hs == nil || hs.GetTerm() == 0 && hs.GetVote() == 0 && hs.GetCommit() == 0 {
		return nil
	}
	if err := l.makeRoom(entryOverheadBytes); err != nil {
		return err
	}
	l.state.set(hs)
	l.encoder.hardState(l.state.term, l.state.vote, l.state.commit)
	return nil
}

// makeRoom begins the next segment when a record of at most that many bytes would not fit into this one. What is
// buffered is written to this one.
func (l *Log) makeRoom(bytes int64) error {
	if l.offset+int64(len(l.encoder.buf))+bytes <= l.reserved || !l.mayCut() {
		return nil
	}
	if err := l.Flush(); err != nil {
		return err
	}
	if l.offset <= segmentHeadBytesMax || l.offset+bytes <= l.reserved || !l.mayCut() {
		return nil // the record is longer than a segment, or Flush has cut
	}
	return l.cut()
}

// mayCut reports whether the next segment can begin without a search for space, or if nobody else looks for it.
func (l *Log) mayCut() bool { return l.spare != nil || !l.supplied }

// Flush writes what is buffered, with one write, and cuts the segment when that passed its size.
func (l *Log) Flush() error {
	if l.failed != nil {
		return l.failed
	}
	if len(l.encoder.buf) == 0 {
		return nil
	}
	// A record longer than a segment, or what raft itself must write to a full disk whose reserve is used up: the space
	// is taken first, so that a failure is not a torn record too.
	if end := l.offset + int64(len(l.encoder.buf)); end > l.reserved {
		if err := l.tail().file.Preallocate(end); err != nil {
			return l.fail(fmt.Errorf("the segment of the log is used up and cannot grow: %w", err))
		}
		l.reserved = end
	}
	done := l.meter.startWrite(len(l.encoder.buf))
	if _, err := l.tail().file.WriteAt(l.encoder.buf, l.offset); err != nil {
		return l.fail(fmt.Errorf("write the log: %w", err))
	}
	done()
	l.offset += int64(len(l.encoder.buf))
	l.unsynced = true
	l.encoder.buf = l.encoder.buf[:0]
	if cap(l.encoder.buf) > writeBufferBytesKept {
		l.encoder.buf = nil
	}
	if l.offset >= l.segmentBytes && l.mayCut() {
		return l.cut()
	}
	return nil
}

// Sync makes everything appended so far durable.
func (l *Log) Sync() error { return l.sync(disk.Append) }

func (l *Log) sync(point disk.Point) error {
	if err := l.Flush(); err != nil {
		return err
	}
	if !l.unsynced {
		return nil
	}
	done := l.meter.startSync()
	if err := l.tail().file.Sync(point); err != nil {
		return l.fail(err)
	}
	done()
	l.unsynced = false
	return nil
}

// AppendSnapshot records that the state up to r.Index is durable elsewhere, and syncs. r.Index must be at or below the
// commit index of the last hard state, else the record does not count at the next start.
func (l *Log) AppendSnapshot(r SnapshotRecord) error { return l.appendSnapshot(r, nil) }

// appendSnapshot writes the record and, right behind it, a hard state. A record ahead of the last entry is that of a
// snapshot from the leader: the log goes on behind it.
func (l *Log) appendSnapshot(r SnapshotRecord, hs *raftpb.HardState) error {
	if l.failed != nil {
		return l.failed
	}
	if r.Index > 0 && r.ConfState == nil {
		return l.fail(errSnapshotFields)
	}
	if err := l.makeRoom(int64(entryOverheadBytes + protobuf.Size(r.ConfState))); err != nil {
		return err
	}
	if err := l.encoder.snapshot(r); err != nil {
		return l.fail(err)
	}
	l.last = max(l.last, r.Index)
	if err := l.Append(hs, nil); err != nil {
		return err
	}
	return l.sync(disk.SnapRecord)
}

// cut ends the last segment and starts the next, all of what is buffered being written. The order makes every crash in
// between harmless: the old segment is whole and durable before the next exists, and the next one's head is durable
// before it gets a segment's name, so only the end of the last segment can ever be torn.
func (l *Log) cut() error {
	tail := l.tail()
	if err := tail.file.Truncate(l.offset); err != nil {
		return l.fail(fmt.Errorf("end a segment: %w", err))
	}
	done := l.meter.startSync()
	if err := tail.file.Sync(disk.CutTail); err != nil {
		return l.fail(err)
	}
	done()
	l.unsynced = false
	next := segment{number: tail.number + 1, first: l.last + 1}
	if err := l.encoder.openSegment(l.meta); err != nil {
		return l.fail(err)
	}
	if l.state != (stateFields{}) {
		l.encoder.hardState(l.state.term, l.state.vote, l.state.commit)
	}
	temporary := path.Join(l.dir, nextSegmentTemporary(next.number))
	if err := l.nextFile(&next, temporary); err != nil {
		return l.fail(err)
	}
	l.segments = append(l.segments, next)
	if err := l.fillSegment(&next, disk.CutNew); err != nil {
		return l.fail(err)
	}
	if err := l.disk.Rename(temporary, path.Join(l.dir, next.name())); err != nil {
		return l.fail(fmt.Errorf("give a segment its name: %w", err))
	}
	if err := l.disk.SyncDir(l.dir, disk.CutDir); err != nil {
		return l.fail(err)
	}
	return nil
}

// nextFile gives the next segment its file: the spare, or one that is prepared now.
func (l *Log) nextFile(next *segment, temporary string) (err error) {
	if next.file, l.spare = l.spare, nil; next.file == nil {
		next.file, err = prepareSegment(l.disk, temporary, l.segmentBytes)
	}
	return err
}

// fail makes every later call fail with the same error.
func (l *Log) fail(err error) error {
	l.failed = err
	return err
}

// Release gives up the segments that a start at the snapshot record for upTo does not read. That record must be
// durable. The segment that holds the entry behind upTo, and all after it, stay.
func (l *Log) Release(upTo proto.Index) error {
	keep := 0
	for i := range l.segments {
		if l.segments[i].first <= upTo {
			keep = i
		}
	}
	err := closeSegments(l.segments[:keep])
	l.released = append(l.released, l.segments[:keep]...)
	l.segments = append([]segment(nil), l.segments[keep:]...)
	return err
}

// Purge deletes released segments, oldest first, while the log has more than keep. It stops at the first error, which
// harms nothing: the next purge tries again. The removals are not synced: segments that come back after a crash, also
// with a gap between them, are older than what a start needs.
func (l *Log) Purge(keep int) error {
	for len(l.released) > 0 && len(l.released)+len(l.segments) > keep {
		if err := l.disk.Remove(path.Join(l.dir, l.released[0].name())); err != nil {
			return fmt.Errorf("purge the log: %w", err)
		}
		l.released = l.released[1:]
	}
	return nil
}

// Last is the index of the last entry appended, durable or not.
func (l *Log) Last() proto.Index { return l.last }

// Close makes durable what was appended, and gives up the locks and the spare. After a failure it only gives up the
// locks.
func (l *Log) Close() error {
	var err error
	if l.failed == nil {
		err = l.Sync()
		l.dropSpare()
	}
	err = errors.Join(err, closeSegments(l.segments))
	if l.failed == nil {
		l.failed = errLogClosed
	}
	return err
}

// errLogClosed is what a closed log answers; using it is a mistake of the caller.
var errLogClosed = errors.New("raftactor: the log is closed")
