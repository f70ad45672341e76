package storeactor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// Layout of a bbolt meta page (go.etcd.io/bbolt, internal/common: a 16-byte page header, then the meta record). Both
// numbers are in the machine's byte order, which is little endian wherever etcd runs.
const (
	boltMetaOffset   = 16
	boltMetaSize     = 64
	boltMagic        = 0xED0CDAED
	boltPageSizeMin  = 1 << 10
	boltPageSizeMax  = 1 << 24
	boltChecksumFrom = 56
)

// checkBoltFile refuses a file that is shorter than its own header says. Without it bbolt would map the missing part
// and the process would die of a bus error at the first page that is not there, without a word about the file.
func checkBoltFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil // bbolt makes a new file of an empty one
	}
	needed, found := boltLengthNeeded(f, info.Size())
	if !found {
		return fmt.Errorf("%w: %s: no valid header page in a file of %d bytes", ErrFileDamaged, path, info.Size())
	}
	if info.Size() < needed {
		return fmt.Errorf("%w: %s: %d bytes long, its header says %d", ErrFileDamaged, path, info.Size(), needed)
	}
	return nil
}

// boltLengthNeeded gives the length that the newest valid meta page asks for.
func boltLengthNeeded(f io.ReaderAt, size int64) (needed int64, found bool) {
	var newest uint64
	try := func(offset int64) {
		var meta [boltMetaSize]byte
		if _, err := f.ReadAt(meta[:], offset+boltMetaOffset); err != nil {
			return
		}
		pageSize := int64(binary.LittleEndian.Uint32(meta[8:]))
		if binary.LittleEndian.Uint32(meta[0:]) != boltMagic || pageSize < boltPageSizeMin || pageSize > boltPageSizeMax {
			return
		}
		sum := fnv.New64a()
		sum.Write(meta[:boltChecksumFrom])
		if sum.Sum64() != binary.LittleEndian.Uint64(meta[boltChecksumFrom:]) {
			return
		}
		transaction := binary.LittleEndian.Uint64(meta[48:])
		if !found || transaction > newest {
			newest, found = transaction, true
			needed = int64(binary.LittleEndian.Uint64(meta[40:])) * pageSize
		}
	}
	try(0)
	for pageSize := int64(boltPageSizeMin); pageSize <= boltPageSizeMax && pageSize < size; pageSize *= 2 {
		try(pageSize)
	}
	return needed, found
}
