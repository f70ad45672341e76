package disk

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unsynced is how many pages of the file the kernel has and the disk has not; the test is skipped where the kernel does
// not tell (cachestat(2), Linux 6.5).
func unsynced(t *testing.T, f *os.File) uint64 {
	t.Helper()
	const sysCachestat = 451 // the same on all architectures
	var whole struct{ offset, length uint64 }
	var stat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, errno := syscall.Syscall6(sysCachestat, f.Fd(),
		uintptr(unsafe.Pointer(&whole)), uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	if errno != 0 {
		t.Skipf("cachestat: %v", errno)
	}
	return stat.dirty + stat.writeback
}

// withSyncers runs the test for a syncer with asynchronous I/O, and for one that has to do without.
func withSyncers(t *testing.T, test func(*testing.T, *syncer)) {
	t.Run("asynchronous", func(t *testing.T) {
		s := newSyncer()
		if s.context == 0 {
			t.Skip("no asynchronous I/O here")
		}
		defer func() {
			if s.context == 0 {
				t.Error("asynchronous I/O was given up")
			}
			_, _, _ = syscall.Syscall(unix.SYS_IO_DESTROY, s.context, 0, 0)
			_ = s.event.Close()
		}()
		test(t, s)
	})
	t.Run("plain", func(t *testing.T) { test(t, &syncer{}) })
}

func TestSyncer_LeavesNothingDirty(t *testing.T) {
	withSyncers(t, func(t *testing.T, s *syncer) {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dirty := 0
		for range 20 {
			if _, err := f.WriteAt(make([]byte, 1<<20), 0); err != nil {
				t.Fatal(err)
			}
			if unsynced(t, f) > 0 {
				dirty++
			}
			if err := s.dataSync(int(f.Fd())); err != nil {
				t.Fatal(err)
			}
			if n := unsynced(t, f); n > 0 {
				t.Fatalf("%d pages are not on the disk after a sync", n)
			}
		}
		if dirty == 0 {
			t.Skip("this file system writes at once")
		}
	})
}

// Only one call is on its way; the others must neither wait for it nor take its answer.
func TestSyncer_IsSharedByManyCallers(t *testing.T) {
	withSyncers(t, func(t *testing.T, s *syncer) {
		var callers sync.WaitGroup
		for range 8 {
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			callers.Go(func() {
				for range 20 {
					if _, err := f.WriteAt([]byte("some bytes"), 0); err != nil {
						t.Error(err)
					}
					if err := s.dataSync(int(f.Fd())); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
	})
}

// What cannot be synced is an error either way, and the next call is not harmed.
func TestSyncer_SaysWhatCannotBeSynced(t *testing.T) {
	withSyncers(t, func(t *testing.T, s *syncer) {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := s.dataSync(-1); !errors.Is(err, unix.EBADF) {
			t.Errorf("no file at all: %v", err)
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		defer write.Close()
		if err := s.dataSync(int(write.Fd())); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a pipe: %v", err)
		}
		if err := s.dataSync(int(f.Fd())); err != nil {
			t.Errorf("a file after that: %v", err)
		}
	})
}

// The kernel reads these byte by byte: 64 and 32 of them, see linux/aio_abi.h.
func TestSyncer_SpeaksTheKernelsLayout(t *testing.T) {
	var request controlBlock
	var done completion
	if unsafe.Sizeof(request) != 64 || unsafe.Offsetof(request.operation) != 16 ||
		unsafe.Offsetof(request.file) != 20 || unsafe.Offsetof(request.flags) != 56 ||
		unsafe.Offsetof(request.notify) != 60 {
		t.Errorf("a request has %d bytes: %+v", unsafe.Sizeof(request), request)
	}
	if unsafe.Sizeof(done) != 32 || unsafe.Offsetof(done.result) != 16 {
		t.Errorf("a completion has %d bytes", unsafe.Sizeof(done))
	}
}
