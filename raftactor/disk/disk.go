package disk

// Disk is the seam to the file system under the log and the snapshot files. OS is the real one; disktest has one
// that loses what was not synced.
//
// The contract is a real disk's, not a friendly one's: nothing is durable before File.Sync (bytes, and the size of the
// file) or SyncDir (names), and what is not durable may survive a crash in any subset, down to single sectors. Paths
// are separated by slashes. Errors for a missing file satisfy errors.Is(err, fs.ErrNotExist).
type Disk interface {
	// Open opens an existing file for reading and writing.
	Open(path string) (File, error)
	// Create makes an empty file, mode 0600, or empties an existing one, and opens it.
	Create(path string) (File, error)
	// Rename moves a file or a directory; an existing file at the new path is replaced, a directory is not.
	Rename(from, to string) error
	// Remove deletes a file or an empty directory.
	Remove(path string) error
	// RemoveAll deletes a file or a directory with all that is in it; nothing there is no error.
	RemoveAll(path string) error
	// List gives the names in a directory, sorted.
	List(dir string) ([]string, error)
	// MakeDir makes the directory and its missing parents, mode 0700; one that exists is no error. The new names are
	// durable when it returns.
	MakeDir(dir string) error
	// SyncDir makes the names in the directory durable.
	SyncDir(dir string, point Point) error
}

// File is an open file of a Disk. It is not safe for concurrent use.
type File interface {
	// ReadAt reads as io.ReaderAt does: io.EOF when fewer bytes than asked for are left.
	ReadAt(p []byte, offset int64) (int, error)
	// WriteAt writes all of p or gives an error; it extends the file when needed.
	WriteAt(p []byte, offset int64) (int, error)
	// Size is the length of the file in bytes.
	Size() (int64, error)
	// Truncate sets the length. Bytes that come back by a later growth read as zero.
	Truncate(size int64) error
	// Preallocate grows the file to size with zeros and reserves the space, so that a full disk shows here, as an error
	// for which Full holds, and not in the middle of an append. A file that is longer stays as it is. After an error the
	// length may be anything between the old one and size; the bytes are as they were.
	Preallocate(size int64) error
	// Sync makes the bytes and the length durable (fdatasync). After an error the file must not be used again: the
	// kernel may have dropped the pages and would report success for the next call.
	Sync(point Point) error
	// Lock takes the exclusive lock of the file, without waiting. It is released by Close. ErrLocked when another open
	// file has it.
	Lock() error
	// Close closes the file. It does not sync.
	Close() error
}
