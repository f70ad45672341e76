package diskfull

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of so many bytes and gives its directory. It is gone with the test.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("a small file system cannot be mounted here (it needs the right to mount): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// freeBytes is what others than root may still write.
func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// fill leaves at most so many bytes free, and gives what takes the ballast away.
func fill(t *testing.T, dir string, leave int64) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for more := freeBytes(t, dir) - leave; more > 0; more = freeBytes(t, dir) - leave {
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		// The server may be faster; then there is less to take.
		if err := syscall.Fallocate(int(f.Fd()), 0, info.Size(), more); err != nil && err != syscall.ENOSPC {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}
