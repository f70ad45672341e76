package raftactor

import "errors"

// Errors that proposals and reads are answered with. The texts are etcd's, without the parts that only a status code
// carries; the gateway's table turns them into codes.
var (
	// ErrTooManyRequests says that the member has as much unfinished work as it may have: proposals in the mailbox,
	// committed entries that are not applied, or bytes that are not committed. Nothing was proposed.
	ErrTooManyRequests = errors.New("etcdserver: too many requests")
	// ErrRequestTooLarge says that the encoded request is longer than MaxRequestBytes. Nothing was proposed.
	ErrRequestTooLarge = errors.New("etcdserver: request is too large")
	// ErrTimeout says that the request was not finished within the request timeout. It may still be applied.
	ErrTimeout = errors.New("etcdserver: request timed out")
	// ErrTimeoutLeaderFail is ErrTimeout for a request during which the leader changed. It may still be applied.
	ErrTimeoutLeaderFail = errors.New("etcdserver: request timed out, possibly due to previous leader failure")
	// ErrNoLeader says that the member knows no leader.
	ErrNoLeader = errors.New("etcdserver: no leader")
	// ErrNotLeader says that the member does not lead, or not in the term asked for. Nothing was proposed.
	ErrNotLeader = errors.New("etcdserver: not leader")
	// ErrNeverProposed says that the request timeout has passed without a leader that could take the request. Nothing was
	// proposed.
	ErrNeverProposed = errors.New("raftactor: no leader took the request in time, nothing was proposed")
	// ErrTransferTimeout says that the member to which leadership was handed over has not come to lead in time.
	ErrTransferTimeout = errors.New("etcdserver: request timed out, leader transfer took too long")
	// ErrBadTransferee says that leadership was to go to nobody, or to a learner.
	ErrBadTransferee = errors.New("etcdserver: bad leader transferee")
	// ErrStopped says that the member is stopping. A proposal may still be applied after a restart.
	ErrStopped = errors.New("etcdserver: server stopped")
	// ErrDiskStalled says that this member's disk has not finished a write of the log for longer than an election
	// timeout, so that it takes no new work. Nothing was proposed.
	ErrDiskStalled = errors.New("etcdserver: the disk of this member is stalled, request refused")
	// ErrNoSpace says that the disk of the log is full and the room that is left is kept for what must go on without
	// space: leases, elections, and what frees space. Nothing was proposed. Also wrapped by a start that cannot write.
	ErrNoSpace = errors.New("etcdserver: no space left on the disk of the log, request refused")
	// ErrInvalidRequest is wrapped by the reason why a request must not enter the log: a member could fail to decode
	// it, and an entry that cannot be decoded stops every member at every start.
	ErrInvalidRequest = errors.New("etcdserver: invalid request")
)

// Errors of changes of the membership, found before anything is proposed.
var (
	// ErrNotEnoughStarted says that so few members would be left, or have started, that the quorum could be lost; or that
	// nobody would be left.
	ErrNotEnoughStarted = errors.New("etcdserver: re-configuration failed due to not enough started members")
	// ErrUnhealthy says that so few members are reached now that the change could cost the quorum.
	ErrUnhealthy = errors.New("etcdserver: unhealthy cluster")
	// ErrLearnerNotReady says that a learner has not caught up far enough to get a vote.
	ErrLearnerNotReady = errors.New("etcdserver: can only promote a learner member which is in sync with leader")
)

// Errors of changes of the membership, found at apply against the members in the file. The change is in the log, has
// advanced the index and has changed nothing.
var (
	// ErrMemberRemoved says that the id was removed before and may never come back.
	ErrMemberRemoved = errors.New("membership: ID removed")
	// ErrMemberExists says that a member with the id exists.
	ErrMemberExists = errors.New("membership: ID exists")
	// ErrMemberNotFound says that there is no member with the id.
	ErrMemberNotFound = errors.New("membership: ID not found")
	// ErrPeerURLExists says that another member has one of the peer URLs.
	ErrPeerURLExists = errors.New("membership: peerURL exists")
	// ErrMemberNotLearner says that a voter was to be promoted.
	ErrMemberNotLearner = errors.New("membership: can only promote a learner member")
	// ErrTooManyLearners says that the learner would be one more than --max-learners.
	ErrTooManyLearners = errors.New("membership: too many learner members in cluster")
)

// Errors that stop a start.
var (
	// ErrConfig is wrapped by what is wrong with a Config.
	ErrConfig = errors.New("raftactor: invalid configuration")
	// ErrFileBehindLog says that the database file holds less than the last snapshot record of the log says.
	ErrFileBehindLog = errors.New("raftactor: database file does not match with snapshot")
	// ErrFileAheadOfLog says that the database file holds an index that the log does not reach: the end of the log is
	// missing, and with it entries that may have been acknowledged.
	ErrFileAheadOfLog = errors.New("raftactor: database file is ahead of the log")
)
