package disk

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Sync uses fdatasync: it writes the bytes and a changed length, but not the times, which saves a journal commit when
// the space was preallocated.
func (o *osFile) Sync(point Point) error {
	if err := retryInterrupted(func() error { return unix.Fdatasync(int(o.f.Fd())) }); err != nil {
		return fmt.Errorf("fdatasync %s (%s): %w", o.f.Name(), point, err)
	}
	return nil
}

// Preallocate uses fallocate, and settles for a longer file on file systems that do not have it. It asks for the whole
// range: a file of that length may have holes, as a copy of a data directory has. fallocate takes what there is before
// it finds that it is not enough, and others on the disk would see that for a moment each time it is tried; so the free
// space is looked at first.
func (o *osFile) Preallocate(size int64) error {
	fd := int(o.f.Fd())
	var have unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Fstat(fd, &have) }); err != nil {
		return fmt.Errorf("stat %s: %w", o.f.Name(), err)
	}
	missing := size - have.Blocks*statBlockBytes
	if have.Size >= size && missing <= 0 {
		return nil
	}
	if missing > 0 && missing > freeBytes(fd) {
		return fmt.Errorf("reserve %d bytes for %s: %w", missing, o.f.Name(), unix.ENOSPC)
	}
	err := retryInterrupted(func() error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		if have.Size >= size {
			return nil
		}
		return o.f.Truncate(size)
	}
	if err != nil {
		return fmt.Errorf("fallocate %s: %w", o.f.Name(), err)
	}
	return nil
}

// statBlockBytes is the unit in which stat counts the space of a file, whatever the file system's blocks are.
const statBlockBytes = 512

// freeBytes is how much this process may surely still write to the file system; as much as there can be when the file
// system does not say, as some that are reached over a network do not.
func freeBytes(fd int) int64 {
	var space unix.Statfs_t
	err := retryInterrupted(func() error { return unix.Fstatfs(fd, &space) })
	block := int64(space.Bsize) //nolint:unconvert // of 32 bits on some architectures
	if err != nil || space.Blocks == 0 || block <= 0 {
		return math.MaxInt64
	}
	free := space.Bavail
	if os.Geteuid() == 0 {
		free = space.Bfree // what is kept for root
	}
	if free > uint64(math.MaxInt64/block) {
		return math.MaxInt64
	}
	return int64(free) * block
}
