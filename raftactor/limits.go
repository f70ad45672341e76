package raftactor

import "time"

// Limits of the raft and apply actors. Those of the files are in limits_log.go.
const (
	// messageBytesMax is raft's MaxSizePerMsg: the entries in one append message. etcd's number.
	messageBytesMax = 1 << 20
	// messagesInFlightMax is raft's MaxInflightMsgs: append messages to one follower without an answer. etcd's number.
	messagesInFlightMax = 512
	// committedBytesMax is raft's MaxCommittedSizePerReady: the entries handed to apply and not yet published. It
	// bounds what apply and the store's mailbox can hold. Four append messages keep the store busy while one is filled.
	committedBytesMax = 4 << 20
	// uncommittedBytesMax is raft's MaxUncommittedEntriesSize: the data of a leader's entries that are not applied.
	// Beyond it raft refuses whatever comes, so it is above all that a member takes itself: what clients may have
	// pending, what is committed and not applied, what the member proposes of its own accord, and something to spare.
	uncommittedBytesMax = proposalsPendingBytesMax + proposalsOwnBytesMax + 2*committedBytesMax
	// applyGapMax is the number of committed entries that may wait for apply before proposals are refused. etcd's
	// number.
	applyGapMax = 5000
	// applyGapPriorityMax is the same for requests of higher priority, when the gate is on: ends of leases make the work
	// less. etcd's number.
	applyGapPriorityMax = 2 * applyGapMax
	// batchesOutstandingMax is the number of batches between apply and the store's publication. What is committed
	// meanwhile waits in raft and becomes one batch; more would only make the batches smaller.
	batchesOutstandingMax = 4
	// proposalsPendingMax is the number of proposals without an answer: far above what applyGapMax lets through, so it
	// is reached only without a leader or with a slow disk.
	proposalsPendingMax = 32_768
	// proposalsPendingBytesMax bounds the same in bytes, as encoded. It holds over 40 requests of the default greatest
	// size.
	proposalsPendingBytesMax = 64 << 20
	// proposalsOwnMax is how many proposals that are bound to a term may be pending on top of those of clients: the ends
	// of leases, checkpoints of them, alarms. Clients must not be able to keep a lease alive by writing a lot. leaseactor
	// has at most a few hundred at a time.
	proposalsOwnMax = 1024
	// proposalsOwnBytesMax bounds the same in bytes; they are small.
	proposalsOwnBytesMax = 4 << 20
	// confChangesWaitingMax is the number of changes of the membership that wait for their turn. Each takes a commit, and
	// people make them.
	confChangesWaitingMax = 64
	// transfersWaitingMax is the number of requests to hand leadership over that wait for the end of the transfer.
	transfersWaitingMax = 64
	// readsWaitingMax is the number of reads that wait for a round.
	readsWaitingMax = 65_536

	// inboxControlMessagesMax bounds the control lane. Completions must always find room: there is one per turn of wal,
	// batchesOutstandingMax of the store, one per conf change in those, and one checkpoint per 100 ms, and none of them
	// goes on while raft does not take its turn.
	inboxControlMessagesMax = 65_536
	// inboxPeerControlMax is the part of it that messages of members may fill; beyond it they are dropped.
	inboxPeerControlMax = 4096
	// inboxOwnControlMax is the part of it that proposals bound to a term may fill.
	inboxOwnControlMax = 2 * proposalsOwnMax
	// inboxControlBytesMax bounds the control lane in bytes.
	inboxControlBytesMax = 64 << 20
	// proposalsCrowd is from how many unanswered proposals on waiting for more before a turn is worth while.
	proposalsCrowd = 4
	// inboxMessagesMax bounds the normal lane: proposals, reads and append messages of members.
	inboxMessagesMax = 16_384
	// inboxBytesMax bounds the normal lane in bytes.
	inboxBytesMax = 64 << 20
	// turnMessagesMax bounds a turn, so that ticks and completions are not kept waiting by a flood.
	turnMessagesMax = 2048
	// turnBytesMax bounds a turn in bytes, and so one proposal to raft and one append to the log.
	turnBytesMax = 8 << 20

	// applyInboxMessagesMax bounds apply's mailbox. It is never reached: raft hands over at most
	// batchesOutstandingMax batches.
	applyInboxMessagesMax = 4 * batchesOutstandingMax
	// applyInboxBytesMax is far above committedBytesMax plus the one entry that may pass it.
	applyInboxBytesMax = 1 << 30

	// logEntriesSlack is how many entries beyond those kept for slow followers the memory log gathers before it is
	// cut, so that the copy is paid once per so many entries.
	logEntriesSlack = 1024
	// logBytesMax bounds the applied entries kept in memory for slow followers, whatever their number. One that is
	// further behind gets a snapshot.
	logBytesMax = 64 << 20
	// logBytesAlone is the same for a member that is alone: a member that joins later gets a snapshot in any case.
	logBytesAlone = 8 << 20

	// readRetryPart is the part of the request timeout after which a round without an answer is asked again. etcd asks
	// again after 500 ms of 7 s.
	readRetryPart = 14
	// snapshotsAskedMax is how many may wait for a snapshot that is taken before its time. backend asks for one at a time.
	snapshotsAskedMax = 1
	// versionsInterval is how often the leader looks at the versions. etcd does every 4 s; a look costs nothing here, and
	// an operator waits for it.
	versionsInterval = time.Second
	// versionsRetryPause is the same while the start of this member waits for the versions.
	versionsRetryPause = 50 * time.Millisecond
	// downgradeEndIntervalDefault is etcd's --downgrade-check-time.
	downgradeEndIntervalDefault = 5 * time.Second
	// versionsWaitingMax is how many may wait for settled versions: the start of the member does, once.
	versionsWaitingMax = 8
	// versionsMessagesMax bounds the mailbox: two timers, an answer, and twice those who wait.
	versionsMessagesMax = 3 + 2*versionsWaitingMax
	// versionsBytesMax bounds the same in bytes: none of them holds anything.
	versionsBytesMax = versionsMessagesMax * messageOverheadBytes
	// messageOverheadBytes is what a message counts for beyond its data: the struct, the reply, the decoded request.
	messageOverheadBytes = 256

	// snapshotCountDefault is etcd's --snapshot-count.
	snapshotCountDefault = 10_000
	// catchUpEntriesDefault is etcd's --snapshot-catchup-entries.
	catchUpEntriesDefault = 5000
	// maxRequestBytesDefault is etcd's --max-request-bytes.
	maxRequestBytesDefault = 1.5 * 1024 * 1024
	// healthyTime is for how long a member must have been reached before it counts as running. etcd's number.
	healthyTime = 5 * time.Second
	// maxLearnersDefault is etcd's --max-learners.
	maxLearnersDefault = 1
)
