package raftactor

import "time"

// Limits and fixed numbers of the files and of the wal actor.
const (
	// segmentBytes is where a segment is cut, and what is preallocated for it: etcd's size, decimal.
	segmentBytes = 64_000_000
	// segmentHeadBytesMax bounds the records that every segment begins with: checksum, metadata, hard state.
	segmentHeadBytesMax = 256
	// spareAtPart is the part of a segment after which the next one is prepared: a member that writes little does not
	// take the space of two, and three quarters of a segment are time enough for any disk.
	spareAtPart = 4
	// logReservePart is the part of a segment that is kept when the disk is full, 4 MB: half of it for what frees space,
	// and the last quarter, 1 MB, for raft: over 5,000 starts or elections, and any number of reads.
	logReservePart = 16
	// creditSegmentBytesMin is the size from which on a segment's room limits what may be under way although the disk is
	// not full. Smaller segments exist in simulations, where one batch is larger than they are.
	creditSegmentBytesMin = 1 << 20
	// spareRetryMin and spareRetryMax are how long wal waits before it tries again to reserve a segment on a full disk;
	// the time doubles from one to the other. A try costs a system call while there is no space.
	spareRetryMin = 500 * time.Millisecond
	spareRetryMax = 5 * time.Second
	// snapshotRetryTicksMin and snapshotRetryTicksMax are the same for a snapshot whose file found no room, in ticks.
	snapshotRetryTicksMin = 10
	snapshotRetryTicksMax = 300
	// sectorBytes is what a disk writes as a whole; a torn record has at least one such piece missing. etcd's number.
	sectorBytes = 512
	// recordBytesMax bounds one record: far above the largest request (etcd's own bound for a message is 512 MiB),
	// far below what a flipped high bit in a length word makes of it.
	recordBytesMax = 512 << 20
	// writeBufferBytesKept is the size up to which the log keeps its write buffer for the next batch; one huge batch
	// must not hold its memory for ever.
	writeBufferBytesKept = 8 << 20
	// readWindowBytes is how much of a segment is read at once; a record that is longer gets a longer window.
	readWindowBytes = 1 << 20
	// segmentsKept is how many segments are kept after a snapshot, the live ones included: etcd's --max-wals default.
	segmentsKept = 5
	// snapFilesKept is how many .snap files are kept: etcd's --max-snapshots default.
	snapFilesKept = 5
	// walInboxMessagesMax bounds what waits for the disk. raft keeps what does not fit, so this is not a limit on
	// what can be outstanding, only on what is batched.
	walInboxMessagesMax = 16_384
	// walInboxBytesMax bounds the same in bytes, above raft's bound for uncommitted entries.
	walInboxBytesMax = 256 << 20
	// walTurnBytesMax bounds one write, so that one fsync does not take so long that followers give the leader up.
	walTurnBytesMax = 16 << 20
	// spareInboxMessagesMax bounds the mailbox of wal's helper: one order is out at a time.
	spareInboxMessagesMax = 4
	// spareInboxBytesMax is the same in bytes.
	spareInboxBytesMax = 1 << 20
	// walMessageOverheadBytes is what a message counts for beyond its entries.
	walMessageOverheadBytes = 128
	// entryOverheadBytes is what an entry counts for beyond its data: the struct, its pointers, the frame.
	entryOverheadBytes = 96
)
