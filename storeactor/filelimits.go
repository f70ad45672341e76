package storeactor

import (
	"os"
	"time"
)

// Limits of the file and its owner, with the reason for each.
const (
	// fileMode lets only the member's user read the data, as etcd does.
	fileMode = os.FileMode(0o600)
	// fileLockWait is how long a start waits for the lock of a process that is just ending; bbolt tries every 50 ms. A
	// member that waits longer looks as if it hung.
	fileLockWait = 500 * time.Millisecond
	// fileAddressMin is the address space reserved for the file: etcd's 10 GiB, far above the default quota of 2 GiB.
	fileAddressMin = int64(10) << 30
	// fileAddressUnlimited is reserved when no quota ends the growth.
	fileAddressUnlimited = int64(256) << 30
	// fileCommitSlack is what a commit may need besides its data: pages of the paths to what it changes.
	fileCommitSlack = int64(16) << 20
	// revisionFillPercent is how full a page of the key bucket gets before it is split; revisions are only appended.
	revisionFillPercent = 0.9

	// checkpointIntervalDefault is how long an applied write may stay out of the file: etcd's 100 ms.
	checkpointIntervalDefault = 100 * time.Millisecond
	// checkpointWritesDefault is how many writes may stay out of it: etcd's 10,000.
	checkpointWritesDefault = 10_000
	// checkpointBytesMax is how many bytes may stay out of it before a commit is due. It keeps commits short, for which
	// the log's fsync waits on the same disk: with 64 KiB values at 100 a second a commit every half second was what made
	// the p99 of a put. With half of it, large values left so many gaps that a file with four fifths of a small quota in
	// it grew past the quota, where etcd's does not. As much as wakes it may wait in the mailbox of a backend that does
	// not listen (1 MiB), and more gathers while a commit is written. It also keeps small what has gathered when one finds
	// the disk full: the rest up to diskFullBacklogMax is for deletions.
	checkpointBytesMax = 2 << 20

	// compactionBatchDefault is how many revisions one step of a compaction looks at: etcd's 1,000.
	compactionBatchDefault = 1_000
	// compactionBatchBytes ends a step earlier when its records are large: all of them are read, for the hash, in the turn
	// that checkpoints wait for.
	compactionBatchBytes = 4 << 20
	// compactionPauseDefault is the pause between two steps: etcd's 10 ms.
	compactionPauseDefault = 10 * time.Millisecond
	// compactionSettleMax bounds the empty commits that end a compaction which deleted something. What its last steps gave
	// up is free after two or three; until then the quota takes those pages for used and refuses puts that they have room
	// for. A reader with an old view may hold them for longer, and then the compaction ends without them. A pending rest
	// of compactionPendingMax is left alone: every checkpoint gives up the pages on its path.
	compactionSettleMax  = 4
	compactionPendingMax = 256 << 10
	// compactionsWaitingMax bounds the compactions that wait for their turn. Each holds a snapshot of the index; the API
	// allows no more than one per revision and the daemon's own compactor starts them minutes apart.
	compactionsWaitingMax = 1_024

	// hashesWaitingMax bounds the hash requests that wait for their turn; one runs at a time, because each reads the whole
	// file. More are refused.
	hashesWaitingMax = 64
	// hashBatchBytes is how much a hash reads between two rests: some milliseconds of one processor.
	hashBatchBytes = 4 << 20
	// hashesStoredMax is how many hashes of finished compactions are kept for HashKV: etcd's 10.
	hashesStoredMax = 10

	// copyPattern and scratchPattern are the names of files in the making; RemoveLeftovers knows their beginnings, which
	// are etcd's.
	copyPattern    = "db.tmp.*"
	scratchPattern = "tmp.snapshot.*"
	// copyBatchBytes and copyBatchRecords bound one write transaction of a defragmentation, and so its memory.
	copyBatchBytes   = 4 << 20
	copyBatchRecords = 10_000
	// copyRest is how long copying rests after each batch, as a share of the time that the batch took: on two cores and
	// one disk the requests of clients come first.
	copyRest = 0.5
	// copyRestMax bounds that rest: when the disk stalls, resting as well helps nobody.
	copyRestMax = 250 * time.Millisecond
	// copyRoundShort is a round after which the next one is the last: what it copies while no checkpoint is made is about
	// as much. Below the checkpoint interval nobody can tell.
	copyRoundShort = 50 * time.Millisecond
	// copyRoundsMax ends a chase that the writers win: then the last round is longer, and the store's credit bounds it.
	copyRoundsMax = 8
	// copyDeletionsMax bounds in bytes the keys of deleted records that are remembered until the next round of a
	// defragmentation; beyond it a compaction waits for that round.
	copyDeletionsMax = 8 << 20
	// defragmentationsWaitingMax bounds the callers that wait for a defragmentation. One run answers all of them.
	defragmentationsWaitingMax = 64

	// SnapshotsOpenMax bounds the snapshots that wait, are being made, or are being downloaded: each may take as much disk
	// as the database. One is made at a time.
	SnapshotsOpenMax = 4
	// snapshotBatchBytes is how much of a snapshot is copied between two rests.
	snapshotBatchBytes = 8 << 20

	// diskFullRetryMin and diskFullRetryMax bound the pause after which a commit that found the disk full is tried again;
	// it doubles. A failed commit makes bbolt read all its pages, so trying costs something.
	diskFullRetryMin = 250 * time.Millisecond
	diskFullRetryMax = 5 * time.Second
	// diskFullBacklogMax is how many bytes may wait for a full disk before writes that need no space are refused too; it
	// leaves room in the store's credit for what is under way, so that reads never wait for the disk.
	diskFullBacklogMax = backendBytesOutstandingMax / 2
	// diskFullBytesExtra is how much more than its credit the store executes while the disk is full: what may be proposed
	// and not applied when the first commit fails. Proposals are refused from then on.
	diskFullBytesExtra = backendBytesOutstandingMax

	// scanGateRecords is how many records a scan reads before it looks whether its handle was cut off.
	scanGateRecords = 256

	// viewAgeMax is how long a read handle may live after a newer commit replaced it. Every page freed since then stays in
	// the file while it is open, so a reader that stalls would let the file grow without end.
	viewAgeMax = 2 * time.Minute

	// backendMessagesMax and backendBytesMax bound the Normal lane. They are above what the store's credit allows, so that
	// reaching them is a broken invariant rather than load.
	backendMessagesMax = 1 << 20
	backendBytesMax    = 4 * backendBytesOutstandingMax
	// backendTurnMessagesMax and backendTurnBytesMax bound one turn, so that control messages are not kept waiting.
	backendTurnMessagesMax = 4_096
	backendTurnBytesMax    = 16 << 20
	// backendControlMax bounds the control lane: two answers of the log, five timers and one report of each worker.
	backendControlMax = 1_024
)
