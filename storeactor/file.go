package storeactor

import (
	"bytes"
	"io"
	"time"

	"troupe/proto"
)

// File is the small transactional store under backend: ten flat buckets, one writer, commits that are durable when they
// return, and read handles that go on seeing the commit they were opened on. Its two implementations are bbolt
// (OpenBoltFile) and an in-memory model that can crash (NewModelFile); one contract test runs both through the same
// histories.
//
// Begin, Close and CutOff are called by one goroutine at a time, the owner's. View, Sizes and OpenViews may be called
// by any.
type File interface {
	// View opens a handle on the last commit. The caller owns its one reference and must Release it.
	View() (FileView, error)
	// Begin opens the write transaction. There is at most one at a time; a second Begin before Commit or Rollback is a
	// broken invariant and panics.
	Begin() (FileWrite, error)
	// Sizes gives the sizes after the last commit.
	Sizes() FileSizes
	// OpenViews counts the handles that have not been given back completely.
	OpenViews() int
	// CutOff ends every open handle: calls in progress finish, later ones answer ErrViewCutOff, whoever holds them. It
	// returns when none is left.
	CutOff()
	// NeedsRemap reports whether a commit of so many more bytes might not fit the address space reserved for the file.
	// Such a commit waits for every open handle, the published one too, whose holder waits for the commit.
	NeedsRemap(bytes int64) bool
	// PrepareRemap cuts off every handle and keeps View waiting until the next write transaction has ended, so that its
	// commit finds none. It is called right before Begin.
	PrepareRemap()
	// Copy begins a new, empty file beside this one, for a defragmentation. At most one at a time.
	Copy() (FileCopy, error)
	// Scratch makes an empty file without a name beside this one, on the same disk; a crash leaves nothing of it.
	Scratch() (Scratch, error)
	// Close cuts off all handles and closes the file. It must not be called with a write transaction open, nor while a
	// copy takes its place.
	Close() error
}

// FileCopy is a file in the making that is to take the place of another. It belongs to one goroutine at a time. Until
// Become nothing of it survives a crash, and nothing needs to.
type FileCopy interface {
	// View opens a handle on what has been committed to the copy. It is to be released before Become.
	View() (FileView, error)
	// Begin opens a write transaction, as File.Begin. Its commit does not wait for the disk.
	Begin() (FileWrite, error)
	// Flush brings what was committed so far to the disk. Called often, it keeps a large copy from leaving all of that to
	// the end, where the log would have to wait for the same disk.
	Flush() error
	// Become makes the copy durable and puts it into the place of the file: new handles and writes go there. Handles that
	// are open go on seeing the old file, which lives on without a name until the last of them is released. Nothing may
	// be written meanwhile, and the copy must hold what the file holds. When renamed is false an error has changed
	// nothing, and the copy is still there to be discarded. An error with renamed true leaves unknown which of the two a
	// crash would leave: the caller panics.
	Become() (renamed bool, err error)
	// Discard closes and deletes the copy.
	Discard() error
}

// CopyStep names a moment at which a copy takes the place of its file.
type CopyStep uint8

// The moments, in order.
const (
	// CopyBeforeSync is before the copy is durable.
	CopyBeforeSync CopyStep = iota
	// CopyBeforeRename is after that, and before it has the name of the file.
	CopyBeforeRename
	// CopyAfterRename is after that, and before the directory is durable.
	CopyAfterRename
	// CopyAfterSync is after that, and before anybody uses the copy.
	CopyAfterSync
)

// Scratch is a file that is written once, from front to back, and then read by anybody until it is closed.
type Scratch interface {
	io.Writer
	io.ReaderAt
	io.Closer
	// Flush brings what was written so far to the disk; see FileCopy.Flush.
	Flush() error
}

// FileWrite is the one write transaction. It belongs to one goroutine. After Commit or Rollback it must not be used.
type FileWrite interface {
	// Put stores value under key. Both slices must stay unchanged until Commit or Rollback has returned. The key must
	// not be empty.
	Put(bucket proto.Bucket, key, value []byte) error
	// Delete removes key; a key that is not there is no error.
	Delete(bucket proto.Bucket, key []byte) error
	// Commit makes all of it durable at once. ErrDiskFull says that nothing was changed, and that a new transaction may
	// try the same again. After any other error the file is in an unknown state and must not be written again: the caller
	// panics.
	Commit() (CommitStats, error)
	// Rollback forgets the transaction.
	Rollback()
}

// FileSizes are sizes of the file in bytes; Total and InUse are what etcd reports.
type FileSizes struct {
	// Total is the high-water page times the page size. The file on disk grows in larger chunks and is longer.
	Total int64
	// InUse is Total without the free pages.
	InUse int64
	// Pending is the part of InUse that commits gave up and that is not free yet, because a view was open that may see it:
	// as the backend always has one, pages are free two commits after that which gave them up, or later.
	Pending int64
}

// CommitStats says how long the phases of one commit took.
type CommitStats struct {
	// Total is the whole commit.
	Total time.Duration
	// Rebalance, Spill and Write are bbolt's own phases; the model leaves them zero.
	Rebalance, Spill, Write time.Duration
}

// buckets lists the buckets of the file, all of which exist from the first commit on. The order is that of their names,
// which is the order in which bbolt walks them and so the order in which Hash counts them.
var buckets = []proto.Bucket{
	proto.BucketAlarm, proto.BucketAuth, proto.BucketAuthRoles, proto.BucketAuthUsers, proto.BucketCluster,
	proto.BucketKey, proto.BucketLease, proto.BucketMembers, proto.BucketMembersRemoved, proto.BucketMeta,
}

// Keys of the meta, auth and cluster buckets that backend and restore use themselves. The names and formats are etcd's.
var (
	metaConsistentIndex = []byte("consistent_index")    // 8 bytes big endian
	metaTerm            = []byte("term")                // 8 bytes big endian, never written when 0
	metaConfState       = []byte("confState")           // JSON of raftpb.ConfState
	metaScheduled       = []byte("scheduledCompactRev") // revision bytes {rev, 0}
	metaFinished        = []byte("finishedCompactRev")  // revision bytes {rev, 0}
	metaStorageVersion  = []byte("storageVersion")      // "3.7.0"
	authRevisionKey     = []byte("authRevision")        // 8 bytes big endian
	authEnabledKey      = []byte("authEnabled")         // one byte, 1 or 0
	clusterVersionKey   = []byte("clusterVersion")      // "3.7.0"
	clusterDowngradeKey = []byte("downgrade")           // JSON
)

// metaOutsideHash reports whether Hash leaves out that key of the meta bucket: these three differ between members that
// hold the same data.
func metaOutsideHash(key []byte) bool {
	return bytes.Equal(key, metaTerm) || bytes.Equal(key, metaConsistentIndex) || bytes.Equal(key, metaStorageVersion)
}
