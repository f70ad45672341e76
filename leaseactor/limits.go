package leaseactor

import "time"

// Every bound of this room, with its reason. The relations between them are tested.
const (
	// tickDefault is the length of a tick: a lease may end this much late, besides what revoking takes. etcd looks every
	// 500 ms.
	tickDefault = 100 * time.Millisecond
	// tickMax keeps a second a whole number of ticks.
	tickMax = time.Second

	// heartbeatDefault and electionDefault are etcd's (api.md 0.3).
	heartbeatDefault = 100 * time.Millisecond
	electionDefault  = time.Second
	// freshHeartbeats is how many heartbeats may pass since the last turn of the clock for leadership to be taken for
	// granted: a deposed leader that runs has heard of it by then; one that was stopped has not.
	freshHeartbeats = 3

	// revokesInFlightMax bounds the revocations that raft has at a time. It is what a write can have to wait behind when
	// everything is fast: 256 take the pipeline about 10 ms, and more would make nothing faster.
	revokesInFlightMax = 256
	// revokesInFlightMin is kept however long raft takes, and if it refuses: without it a busy cluster would never
	// forget. It is etcd's parallelism, and what the window begins with.
	revokesInFlightMin = 16
	// revokedKeysMax bounds the keys that the revocations in flight delete, unless it is one alone: the store deletes
	// about two thousand in a millisecond.
	revokedKeysMax = 4096
	// revokeDelayMax is by how much revocations may lengthen what a write takes, on average over a window.
	revokeDelayMax = moment(5 * time.Millisecond)
	// revokeBaseInterval is how often is measured what raft takes without them: they go slowly for one round trip in so
	// much time.
	revokeBaseInterval = moment(2 * time.Second)
	// revokePause is how long nothing is proposed after a refusal.
	revokePause = moment(tickDefault / 2)
	// revokeRetryTicks is the pause before a refused revocation is tried again.
	revokeRetryTicks = 5

	// waitersMax bounds the renewals that wait for a revocation or for confirmation.
	waitersMax = 65536
	// waitersPerLeaseMax bounds the renewals of one lease that share a place in the mailbox.
	waitersPerLeaseMax = 1024

	// inboxMessages and inboxBytes bound what requests may be ahead of the actor: a million renewals per minute make 170
	// in a tick.
	inboxMessages = 16384
	inboxBytes    = 8 << 20
	// changesMessages and changesBytes bound what the store and raft may be ahead of it. Past them changes are dropped and
	// the lease table is read again.
	changesMessages = 4096
	changesBytes    = 16 << 20

	// appliedWait is how long a renewal waits for the entries committed when it came (api.md 0.3): that of an unknown
	// lease, or with WaitOnRenew every one.
	appliedWait = time.Second

	// checkpointIntervalDefault is etcd's time between checkpoints of a lease's remaining time.
	checkpointIntervalDefault = 5 * time.Minute
	// clearRetryTicks is how long a renewal waits for a stored remainder to be cleared before it asks again.
	clearRetryTicks = 10
	// checkpointsPerEntryMax bounds the leases in one checkpoint entry, as etcd does.
	checkpointsPerEntryMax = 1000
)
