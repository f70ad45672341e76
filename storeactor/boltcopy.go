package storeactor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"go.etcd.io/bbolt"

	"troupe/actors"
)

// boltGeneration is one database under the path of a boltFile, with the handles that are open on it. When a copy has
// taken its place it is a file without a name, which goes with its last handle.
type boltGeneration struct {
	db *bbolt.DB

	mu    sync.Mutex
	views int
	// retired, once set, runs when no handle is left.
	retired func()
}

// enter counts a handle. It is called under the lock of the file.
func (g *boltGeneration) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.views++
}

// leave counts a handle that was given back.
func (g *boltGeneration) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.views--
	g.end()
}

// retire closes the database as soon as no handle is left, in a goroutine: giving back a large mapping takes
// milliseconds, and the last handle may be given back in an actor's turn.
func (g *boltGeneration) retire(closing *sync.WaitGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closing.Add(1)
	g.retired = func() {
		go func() {
			defer closing.Done()
			_ = g.db.Close()
		}()
	}
	g.end()
}

func (g *boltGeneration) end() {
	if g.views == 0 && g.retired != nil {
		g.retired()
		g.retired = nil
	}
}

// boltCopy is FileCopy over a second bbolt database beside the first.
type boltCopy struct {
	*boltFile // the copy
	of        *boltFile
}

// Copy implements File.
func (f *boltFile) Copy() (FileCopy, error) {
	temporary, err := os.CreateTemp(filepath.Dir(f.path), copyPattern)
	if err != nil {
		return nil, describeWriteError(err)
	}
	path := temporary.Name()
	if err := temporary.Close(); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	options := f.options
	options.NoSync = true // until Become; Flush does it in between
	options.AddressBytes = f.address
	copied, err := openBoltFile(path, options)
	if err != nil {
		return nil, errors.Join(describeWriteError(err), os.Remove(path))
	}
	copied.generation.db.NoGrowSync = true
	return &boltCopy{boltFile: copied, of: f}, nil
}

// Flush implements FileCopy.
func (c *boltCopy) Flush() error {
	if c.of.options.NoSync {
		return nil
	}
	return describeWriteError(c.generation.db.Sync())
}

// Discard implements FileCopy.
func (c *boltCopy) Discard() error {
	return errors.Join(c.Close(), os.Remove(c.path))
}

// Become implements FileCopy. Both names are in one directory, so that the rename is one step of the file system: after
// a crash the name stands for the old database or for the new one, both whole and with the same records.
func (c *boltCopy) Become() (renamed bool, err error) {
	if err := errors.Join(c.of.atCopyStep(CopyBeforeSync), c.Flush()); err != nil {
		return false, err
	}
	if err := c.of.atCopyStep(CopyBeforeRename); err != nil {
		return false, err
	}
	if err := os.Rename(c.path, c.of.path); err != nil {
		return false, err
	}
	if err := c.of.atCopyStep(CopyAfterRename); err != nil {
		return true, err
	}
	if err := syncDirectory(filepath.Dir(c.of.path)); err != nil {
		return true, fmt.Errorf("sync the directory of %s: %w", c.of.path, err)
	}
	if err := c.of.atCopyStep(CopyAfterSync); err != nil {
		return true, err
	}
	c.of.replace(c.boltFile)
	return true, nil
}

// replace puts the database of a copy into the place of the present one. The copy must not be used after that.
func (f *boltFile) replace(copied *boltFile) {
	db := copied.generation.db
	db.NoSync, db.NoGrowSync = f.options.NoSync, false
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed { // the process is ending; the next one finds the copy
		copied.generation.retire(&f.closing)
		return
	}
	actors.Must(!f.writing && len(copied.open) == 0, "file %s replaced in the middle of something", f.path)
	old := f.generation
	f.generation, f.address = copied.generation, copied.address
	f.sizes.Store(copied.sizes.Load())
	old.retire(&f.closing)
}

func (f *boltFile) atCopyStep(step CopyStep) error {
	if f.options.AtCopyStep == nil {
		return nil
	}
	return f.options.AtCopyStep(step)
}

// Scratch implements File.
func (f *boltFile) Scratch() (Scratch, error) {
	file, err := os.CreateTemp(filepath.Dir(f.path), scratchPattern)
	if err != nil {
		return nil, describeWriteError(err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &boltScratch{File: file, noSync: f.options.NoSync}, nil
}

// boltScratch is Scratch over a file that has lost its name.
type boltScratch struct {
	*os.File
	noSync bool
}

// Flush implements Scratch.
func (s *boltScratch) Flush() error {
	if s.noSync {
		return nil
	}
	return syncData(s.File)
}

// Write implements Scratch.
func (s *boltScratch) Write(b []byte) (int, error) {
	n, err := s.File.Write(b)
	return n, describeWriteError(err)
}

// describeWriteError marks an error that a full disk makes and that has changed nothing, so that the write may be tried
// again. An error of a sync is none, whatever its number: nobody knows then what the disk holds.
func describeWriteError(err error) error {
	if err == nil {
		return nil
	}
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		var at *os.PathError
		written := errors.As(err, &at) && at.Op != "sync" && errors.Is(err, full)
		// bbolt passes the error of making the file longer on as text.
		resized := strings.HasPrefix(err.Error(), "file resize error: ") && strings.HasSuffix(err.Error(), full.Error())
		if written || resized {
			return fmt.Errorf("%w: %w", ErrDiskFull, err)
		}
	}
	return err
}
