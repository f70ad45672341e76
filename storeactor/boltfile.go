package storeactor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"troupe/actors"
	"troupe/proto"
)

// BoltOptions says how OpenBoltFile opens a file. The zero value is right for a member with the default quota.
type BoltOptions struct {
	// QuotaBytes is the configured quota; 0 is the default one, negative is none. The address space reserved for the file
	// follows from it.
	QuotaBytes int64
	// LockWait is how long to wait for another process's lock; 0 is fileLockWait.
	LockWait time.Duration
	// NoSync leaves out every fsync. For mutation tests only: a crash of the machine then loses commits.
	NoSync bool
	// ArrayFreelist makes bbolt keep its free pages in an array instead of a map.
	ArrayFreelist bool
	// Locked keeps the file's pages in RAM (mlock).
	Locked bool
	// AddressBytes replaces the reserved address space. For tests of a file that outgrows it.
	AddressBytes int64
	// AtCopyStep, if not nil, is called at each moment at which a copy takes the place of the file. An error makes the
	// copy fail there. For tests of crashes and of full disks.
	AtCopyStep func(CopyStep) error
	// OpenFile replaces os.OpenFile. For tests of disks that fail.
	OpenFile func(path string, flags int, mode os.FileMode) (*os.File, error)
}

// boltFile is File over one bbolt database in etcd's schema.
//
// A read transaction of bbolt may be used by many goroutines at once: everything it reads (its copy of the meta page,
// the mapped pages, the bucket headers that point into them) stays unchanged while it is open, a read-only bucket
// caches nothing, and its statistics are atomic. What is not safe is to use one while it is being rolled back; boltView
// counts who is inside and rolls back when the last one has left.
type boltFile struct {
	*openViews
	// generation is the database under the path. A defragmentation replaces it, under the lock and while nothing is
	// being written; so View reads it under the lock and the owner without.
	generation *boltGeneration
	options    BoltOptions
	path       string
	address    int64 // bytes of address space reserved at open; grows only by a commit that maps again
	sizes      atomic.Pointer[FileSizes]
	closing    sync.WaitGroup // databases that were replaced and whose handles are not all given back
}

// OpenBoltFile opens the file at path, makes it with all its buckets when it does not exist, and takes its lock. It
// answers ErrFileLocked within a second when another process holds the lock, and ErrFileDamaged when the file is not a
// bbolt database or is shorter than its own header says.
func OpenBoltFile(path string, options BoltOptions) (File, error) {
	if err := checkBoltFile(path); err != nil {
		return nil, err
	}
	return openBoltFile(path, options)
}

// openBoltFile opens a file that is new or looks sound.
func openBoltFile(path string, options BoltOptions) (*boltFile, error) {
	wait := options.LockWait
	if wait <= 0 {
		wait = fileLockWait
	}
	address := mappedBytes(addressBytes(path, options))
	freelist := bbolt.FreelistMapType
	if options.ArrayFreelist {
		freelist = bbolt.FreelistArrayType
	}
	db, err := openBolt(path, &bbolt.Options{
		Timeout:         wait,
		NoFreelistSync:  true,
		FreelistType:    freelist,
		Mlock:           options.Locked,
		InitialMmapSize: int(address),
		MmapFlags:       boltMmapFlags,
		NoSync:          options.NoSync,
		OpenFile:        options.OpenFile,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%w: %s (is another member running on this data directory?)", ErrFileLocked, path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, errBoltScan):
		return nil, fmt.Errorf("%w: %s: %w", ErrFileDamaged, path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := &boltFile{
		openViews: newOpenViews(), generation: &boltGeneration{db: db}, options: options, path: path, address: address,
	}
	if err := f.createBuckets(); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("create the buckets of %s: %w", path, err)
	}
	return f, nil
}

// errBoltScan is what openBolt makes of a panic inside bbolt: it panics when it finds an unreachable or doubled page
// while it rebuilds the list of free pages.
var errBoltScan = errors.New("the pages of the file do not form a tree")

func openBolt(path string, options *bbolt.Options) (db *bbolt.DB, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			db, err = nil, fmt.Errorf("%w: %v", errBoltScan, reason)
		}
	}()
	return bbolt.Open(path, fileMode, options)
}

// addressBytes is how much address space to reserve. Growing beyond it makes a commit wait for all readers, so it is
// generous: address space costs nothing until it is touched.
func addressBytes(path string, options BoltOptions) int64 {
	if options.AddressBytes > 0 {
		return options.AddressBytes
	}
	address := fileAddressMin
	if options.QuotaBytes < 0 {
		address = fileAddressUnlimited
	}
	if quota := options.QuotaBytes + options.QuotaBytes/4; quota > address {
		address = quota
	}
	if info, err := os.Stat(path); err == nil && 2*info.Size() > address {
		address = 2 * info.Size()
	}
	return address
}

// mappedBytes is how much bbolt maps when asked for so much: powers of two up to 1 GiB, then whole GiB.
func mappedBytes(size int64) int64 {
	for mapped := int64(32 << 10); mapped <= 1<<30; mapped *= 2 {
		if size <= mapped {
			return mapped
		}
	}
	return (size + 1<<30 - 1) >> 30 << 30
}

// createBuckets makes what is missing, in one commit that is skipped when nothing is. A new file's name is made durable
// with its directory.
func (f *boltFile) createBuckets() error {
	missing := false
	err := f.generation.db.View(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			missing = missing || tx.Bucket([]byte(name)) == nil
		}
		f.storeSizes(tx.Size())
		return nil
	})
	if err != nil || !missing {
		return err
	}
	err = f.generation.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := syncDirectory(filepath.Dir(f.path)); err != nil {
		return err
	}
	return f.measure()
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// measure takes the sizes of the last commit.
func (f *boltFile) measure() error {
	return f.generation.db.View(func(tx *bbolt.Tx) error {
		f.storeSizes(tx.Size())
		return nil
	})
}

func (f *boltFile) storeSizes(total int64) {
	db := f.generation.db
	stats, page := db.Stats(), int64(db.Info().PageSize)
	f.sizes.Store(&FileSizes{
		Total: total, InUse: total - int64(stats.FreePageN)*page, Pending: int64(stats.PendingPageN) * page,
	})
}

// Sizes implements File.
func (f *boltFile) Sizes() FileSizes { return *f.sizes.Load() }

// NeedsRemap implements File. Every put may copy its path from the root and split pages at a fill of one half, so the
// bytes are counted three times, and a chunk for the paths is added.
func (f *boltFile) NeedsRemap(bytes int64) bool {
	return f.Sizes().Total+3*bytes+fileCommitSlack > f.address
}

// Close implements File.
func (f *boltFile) Close() error {
	f.mu.Lock()
	actors.Must(!f.writing, "file %s closed inside a write transaction", f.path)
	wasClosed, last := f.closed, f.generation
	f.closed = true
	f.mu.Unlock()
	if wasClosed {
		return nil
	}
	f.CutOff()
	f.closing.Wait()
	return last.db.Close()
}

// Begin implements File.
func (f *boltFile) Begin() (FileWrite, error) {
	if err := f.beginWrite(); err != nil {
		return nil, err
	}
	tx, err := f.generation.db.Begin(true)
	if err != nil {
		f.endWrite()
		return nil, fmt.Errorf("begin a write transaction on %s: %w", f.path, err)
	}
	return &boltWrite{file: f, tx: tx}, nil
}

// boltWrite is FileWrite over bbolt.
type boltWrite struct {
	file *boltFile
	tx   *bbolt.Tx
}

func (w *boltWrite) bucket(name proto.Bucket) *bbolt.Bucket {
	b := w.tx.Bucket([]byte(name))
	if b == nil {
		actors.Must(false, "file %s has no bucket %s", w.file.path, name)
	}
	return b
}

// Put implements FileWrite.
func (w *boltWrite) Put(bucket proto.Bucket, key, value []byte) error {
	b := w.bucket(bucket)
	if bucket == proto.BucketKey {
		// Revisions only grow: pages at the right edge are never split again, so they may be filled.
		b.FillPercent = revisionFillPercent
	}
	if err := b.Put(key, value); err != nil {
		return fmt.Errorf("put %x into bucket %s: %w", key, bucket, err)
	}
	return nil
}

// Delete implements FileWrite.
func (w *boltWrite) Delete(bucket proto.Bucket, key []byte) error {
	if err := w.bucket(bucket).Delete(key); err != nil {
		return fmt.Errorf("delete %x from bucket %s: %w", key, bucket, err)
	}
	return nil
}

// Commit implements FileWrite.
func (w *boltWrite) Commit() (CommitStats, error) {
	start := time.Now()
	db := w.file.generation.db
	before := db.Stats().TxStats
	err := w.tx.Commit()
	w.file.endWrite()
	if err != nil {
		return CommitStats{}, fmt.Errorf("commit to %s: %w", w.file.path, describeWriteError(err))
	}
	after := db.Stats().TxStats
	stats := CommitStats{
		Total:     time.Since(start),
		Rebalance: after.GetRebalanceTime() - before.GetRebalanceTime(),
		Spill:     after.GetSpillTime() - before.GetSpillTime(),
		Write:     after.GetWriteTime() - before.GetWriteTime(),
	}
	if err := w.file.measure(); err != nil {
		return CommitStats{}, fmt.Errorf("measure %s: %w", w.file.path, err)
	}
	// A commit that had to map the file again did so in steps of bbolt's choice; the bound moves with it.
	if total := w.file.Sizes().Total; total >= w.file.address {
		w.file.address = mappedBytes(total + 1)
	}
	return stats, nil
}

// Rollback implements FileWrite.
func (w *boltWrite) Rollback() {
	_ = w.tx.Rollback()
	w.file.endWrite()
}
