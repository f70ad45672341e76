package storeactor

import "time"

// Limits of the store. Those that shape what clients see are etcd's.
const (
	// LeaseTTLMax is the longest time to live that a lease may be granted, in seconds. etcd's number.
	LeaseTTLMax = 9_000_000_000

	// QuotaBytesDefault is the size of the file above which writes are refused when the operator names none. etcd's.
	QuotaBytesDefault = 2 << 30

	// quotaPutOverhead is what a stored key is estimated to cost beyond its bytes, and LeaseCost what a lease is. etcd's
	// numbers: a cost of zero is also what tells a txn that writes nothing.
	quotaPutOverhead = 256
	LeaseCost        = 64

	// storeMessagesMax and storeBytesMax bound what apply may have handed over. Apply keeps its own, lower bounds, so
	// that reaching these is a broken invariant rather than load.
	storeMessagesMax = 1 << 14
	storeBytesMax    = 256 << 20
	// applyCommandBytes is what a command counts for beyond the bytes of its entry.
	applyCommandBytes = 128
	// storeTurnMessages and storeTurnBytes bound one turn, so that one publish does not wait for a long queue.
	storeTurnMessages = 256
	storeTurnBytes    = 8 << 20
	// storeControlMessages and storeControlBytes bound the control lane: what the backend reports. It has at most one
	// report per write and per compaction outstanding, and those are bounded by the credit.
	storeControlMessages = 1 << 16
	storeControlBytes    = 64 << 20

	// backendBytesOutstandingMax is the credit: how many bytes of writes may be on their way to the file before the
	// store stops executing. At 100 ms per checkpoint it carries 640 MB/s; it is also the bound of `recent`.
	backendBytesOutstandingMax = 64 << 20
	// backendWriteOverhead is what one write counts for beyond its key and value, so that a flood of empty writes is
	// bounded too. It covers the structs in the batch, in recent and in the event.
	backendWriteOverhead = 256

	// cacheBytesDefault bounds the encoded current values held in memory.
	cacheBytesDefault = 128 << 20
	// cacheSweepKeys is how many keys one turn examines, beside four for each put, while the cache is over its bound.
	cacheSweepKeys = 256
	// cacheValueShare is the share of the cache one value may take; a larger one is read from the file.
	cacheValueShare = 16

	// recentChunkItems is how many stored changes one chunk of `recent` holds: small enough to be given back soon after
	// a checkpoint, large enough that finding the chunk is cheap.
	recentChunkItems = 512
	// recentChunkBytes ends a chunk earlier when the changes are large: a chunk is given back whole, so one of 512 values
	// of a megabyte would hold half a gigabyte until the last of them is in the file.
	recentChunkBytes = 1 << 20

	// bulkDeletionMin is from how many keys on a deletion shares memory among its tombstones. bulkChunkKeys is how many
	// share a piece, and so how many a single one can keep from being freed; bulkChunkBytes is the same for their
	// encodings. bulkVersionsMax is the number of versions of a key up to which its list is copied into such a piece.
	bulkDeletionMin = 16
	bulkChunkKeys   = 64
	bulkChunkBytes  = 4 << 10
	bulkVersionsMax = 8

	// leaseNeighboursMax is how many keys of others are walked over to the next key of a lease before it is searched for:
	// about what a search compares.
	leaseNeighboursMax = 16

	// compactionStepKeys is how many keys of the index one turn examines for a compaction, about a tenth of a
	// millisecond, and compactionStepPause is the pause to the next: nobody waits for a compaction, and every write waits
	// for the turn it meets. A million keys take ten seconds.
	compactionStepKeys  = 128
	compactionStepPause = time.Millisecond

	// countWalkMax is how many entries are walked over for a count before it is taken from their positions: about what two
	// positions in each tree cost.
	countWalkMax = 512

	// answerChunkBytes is the size of a pooled piece of an answer, answerSmallBytes the size up to which an answer is
	// one allocation of its own, and answerReferenceBytes the size from which a value is referenced instead of copied.
	answerChunkBytes     = 64 << 10
	answerSmallBytes     = 4 << 10
	answerReferenceBytes = 2 << 10

	// compactionsQueuedMax bounds the compactions that are not done: the one being worked on and the one that takes over
	// what came meanwhile.
	compactionsQueuedMax = 2

	// eventKeysByIndex is how many keys a range may have for its history to be read key by key through the index; above
	// it the log of changes is scanned, whose cost does not depend on the number of keys.
	eventKeysByIndex = 1024
	// eventChangesMax is how many changes one call then looks at, or those of one revision if they are more.
	eventChangesMax = 4096
	// eventScanMax is how many changes one call looks at when it scans the log, so that a watcher far behind on a quiet
	// range holds its file handle for some tens of milliseconds at a time.
	eventScanMax = 1 << 16

	// slowApplyDefault is the time above which an entry or a read counts as a slow apply. etcd's default.
	slowApplyDefault = 100 * time.Millisecond

	// cutOffRetry is how long a reader whose handle was cut off waits for the next published state. The checkpoint that
	// cut it off publishes one when it is done.
	cutOffRetry = time.Millisecond
)

func init() {
	if storeTurnBytes > backendBytesOutstandingMax || answerSmallBytes > answerChunkBytes {
		panic("storeactor: limits contradict each other")
	}
}
