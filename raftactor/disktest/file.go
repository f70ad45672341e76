package disktest

import (
	"fmt"
	"io"
	"syscall"

	"troupe/raftactor/disk"
)

// file is an open file of a Disk.
type file struct {
	disk       *Disk
	node       *node
	generation int
	name       string
	closed     bool
}

var _ disk.File = (*file)(nil)

// enter takes the disk's lock for an operation that changes nothing.
func (f *file) enter() error {
	f.disk.mu.Lock()
	if f.closed || f.disk.stopped || f.generation != f.disk.generation {
		f.disk.mu.Unlock()
		return ErrStopped
	}
	return nil
}

// ReadAt implements disk.File.
func (f *file) ReadAt(p []byte, offset int64) (int, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	if offset >= f.node.size && len(p) > 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), f.node.size-offset))
	clear(p[:n])
	if offset < int64(len(f.node.data)) {
		copy(p[:n], f.node.data[offset:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements disk.File.
func (f *file) WriteAt(p []byte, offset int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	apply, err := f.disk.change(f.generation)
	if !apply {
		return 0, err
	}
	fits := f.disk.grow(f.node, offset+int64(len(p)))
	if fits < offset+int64(len(p)) {
		n := max(0, fits-offset)
		f.node.write(p[:n], offset)
		return int(n), fmt.Errorf("write %s: %w", f.name, syscall.ENOSPC)
	}
	f.node.write(p, offset)
	return len(p), err
}

// grow gives the size, of that asked for, that fits. The lock is held.
func (d *Disk) grow(n *node, size int64) int64 {
	if size <= n.size {
		return size
	}
	return n.size + min(size-n.size, d.free())
}

// Size implements disk.File.
func (f *file) Size() (int64, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	return f.node.size, nil
}

// Truncate implements disk.File.
func (f *file) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	apply, err := f.disk.change(f.generation)
	if apply {
		f.node.truncate(size)
	}
	return err
}

// Preallocate implements disk.File.
func (f *file) Preallocate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	apply, err := f.disk.change(f.generation)
	if !apply || f.node.size >= size {
		return err
	}
	if f.disk.grow(f.node, size) < size {
		return fmt.Errorf("preallocate %s: %w", f.name, syscall.ENOSPC)
	}
	f.node.truncate(size)
	return err
}

// Sync implements disk.File.
func (f *file) Sync(point disk.Point) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	apply, err := f.disk.sync(f.generation, point)
	if apply {
		f.node.settle()
	}
	return err
}

// Lock implements disk.File.
func (f *file) Lock() error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	if l := f.node.lock; l != nil && l != f && !l.closed && l.generation == f.disk.generation {
		return fmt.Errorf("%w: %s", disk.ErrLocked, f.name)
	}
	f.node.lock = f
	return nil
}

// Close implements disk.File. Closing twice, or after a crash, is harmless.
func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.closed = true
	return nil
}
