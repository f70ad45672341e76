package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file of the right length may have holes, as a copy of a data directory has: they are filled, and nothing else
// changes.
func TestOSFile_PreallocateFillsHoles(t *testing.T) {
	const size = 1 << 20
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	f, err := OS().Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Preallocate(size); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(name, &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Size != size || stat.Blocks*statBlockBytes < size {
		t.Skipf("the file system reserves nothing: %d bytes, %d blocks", stat.Size, stat.Blocks)
	}
	content, err := os.ReadFile(name)
	if err != nil || !bytes.HasPrefix(content, []byte("kept\x00")) || len(content) != size {
		t.Errorf("%d bytes, %v", len(content), err)
	}
}

// More than there is is refused with an error that says so, and nothing is taken on the way.
func TestOSFile_PreallocateSaysWhenTheDiskIsFull(t *testing.T) {
	f, err := OS().Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	err = f.Preallocate(1 << 50) // a pebibyte
	if err == nil || errors.Is(err, unix.EFBIG) {
		t.Skipf("the file system does not say how much it has: %v", err)
	}
	if size, _ := f.Size(); !Full(err) || size > 0 {
		t.Errorf("got %v, and the file has %d bytes", err, size)
	}
}
