//go:build unix

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"
)

// Modes of what the log creates; etcd's.
const (
	fileMode = 0o600
	dirMode  = 0o700
)

// OS gives the operating system's file system.
func OS() Disk { return osDisk{} }

type osDisk struct{}

func (osDisk) Open(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osDisk) Create(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) RemoveAll(path string) error { return os.RemoveAll(path) }

func (osDisk) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

func (d osDisk) MakeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s: %w", dir, unix.ENOTDIR)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := d.MakeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.SyncDir(parent, makeDir)
}

func (osDisk) SyncDir(dir string, point Point) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory (%s): %w", point, err)
	}
	return nil
}

// osFile is a file of the operating system.
type osFile struct{ f *os.File }

func (o *osFile) ReadAt(p []byte, offset int64) (int, error) { return o.f.ReadAt(p, offset) }

func (o *osFile) WriteAt(p []byte, offset int64) (int, error) { return o.f.WriteAt(p, offset) }

func (o *osFile) Truncate(size int64) error { return o.f.Truncate(size) }

func (o *osFile) Close() error { return o.f.Close() }

func (o *osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *osFile) Lock() error {
	err := retryInterrupted(func() error { return unix.Flock(int(o.f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s", ErrLocked, o.f.Name())
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", o.f.Name(), err)
	}
	return nil
}

// retryInterrupted repeats a system call that a signal broke off; Go's runtime preempts by signals.
func retryInterrupted(call func() error) error {
	for {
		err := call()
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
