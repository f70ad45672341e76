package raftactor

import (
	"errors"
	"fmt"

	"troupe/raftactor/disk"
)

// Errors of the files: the log's segments and the snapshot files. All of them stop a start; none is answered to a
// client.
var (
	// ErrLogLocked says that another process holds the log: a second daemon on the same directory.
	ErrLogLocked = disk.ErrLocked
	// ErrLogDamaged says that the log on disk is not what a writer, or a crash of a writer, could have left behind.
	// It is always wrapped by a LogDamage, which carries file, offset and reason.
	ErrLogDamaged = errors.New("raftactor: the log is damaged")
	// ErrLogMissing says that the directory holds no segment.
	ErrLogMissing = errors.New("raftactor: no log in the directory")
	// ErrLogExists says that CreateLog was called for a directory that already holds a log.
	ErrLogExists = errors.New("raftactor: the directory already holds a log")
	// ErrLogDirNotEmpty says that CreateLog was called for a directory with foreign files in it, which the rename of
	// the finished log would have to delete.
	ErrLogDirNotEmpty = errors.New("raftactor: the directory of the log holds other files")
	// ErrNoSnapshotFile says that no readable .snap file was found.
	ErrNoSnapshotFile = errors.New("raftactor: no snapshot file")
	// ErrSnapshotFileDamaged says that a .snap file fails its checksum or cannot be decoded.
	ErrSnapshotFileDamaged = errors.New("raftactor: the snapshot file is damaged")
)

// LogDamage is the refusal to use a log. errors.Is(err, ErrLogDamaged) holds for it.
type LogDamage struct {
	// File is the path of the segment.
	File string
	// Offset is the position of the record in the file, in bytes.
	Offset int64
	// Reason says what is wrong there.
	Reason string
}

// Error names the place, the reason and what an operator can do.
func (d *LogDamage) Error() string {
	return fmt.Sprintf("%v: file %s, offset %d: %s; restore this member from a snapshot, or remove it from the cluster "+
		"and add it again with an empty data directory", ErrLogDamaged, d.File, d.Offset, d.Reason)
}

// Unwrap makes errors.Is(err, ErrLogDamaged) true.
func (d *LogDamage) Unwrap() error { return ErrLogDamaged }
