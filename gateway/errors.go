package gateway

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The gateway's own errors: what its checks and limits refuse. The texts are for logs; clients get the wire status of
// the table below.
var (
	// ErrUnknownAlarm refuses an alarm kind or action that does not exist.
	ErrUnknownAlarm = errors.New("gateway: unknown alarm kind or action")
	// ErrInvalidClientVersion refuses metadata client-api-version that is not valid text.
	ErrInvalidClientVersion = errors.New("gateway: invalid client api version")
	// ErrNoSpace refuses a write that would exceed the quota.
	ErrNoSpace = errors.New("gateway: database space exceeded")
	// ErrNoLeader refuses a request that asked for a leader when there is none, and ends streams that did.
	ErrNoLeader = errors.New("gateway: no leader")
	// ErrNotForLearner refuses what a learner does not serve.
	ErrNotForLearner = errors.New("gateway: rpc not supported for learner")
	// ErrTooManyAnswers refuses a read while too many large answers wait for memory.
	ErrTooManyAnswers = errors.New("gateway: too many large answers in flight")
	// ErrTooManyCalls refuses a call while as many of its kind, or on its connection, are in flight as there may be.
	ErrTooManyCalls = errors.New("gateway: too many calls in flight")
	// ErrNotReady refuses a request while too many wait for the member to become ready.
	ErrNotReady = errors.New("gateway: member is not ready")
	// ErrDraining ends requests and streams because the member stops.
	ErrDraining = errors.New("gateway: server stopped")
	// ErrWatchCanceled ends a watch stream that its client left.
	ErrWatchCanceled = errors.New("gateway: watch canceled")
	// ErrLockExpired ends the wait for a lock whose key is gone: its lease has ended, or somebody has deleted it.
	ErrLockExpired = errors.New("gateway: lock: session is expired")
	// ErrCandidateExpired is the same for an election.
	ErrCandidateExpired = errors.New("gateway: election: session is expired")
	// ErrElectionNotLeader refuses a proclamation of somebody who does not lead any more.
	ErrElectionNotLeader = errors.New("gateway: election: not leader")
	// ErrElectionNoLeader answers who asks for the leader of an election that has none.
	ErrElectionNoLeader = errors.New("gateway: election: no leader")
	// ErrLeaderMissing refuses a request without the key by which somebody leads.
	ErrLeaderMissing = errors.New("gateway: leader is not provided")
	// ErrMemberURLs refuses a new member whose peer URLs cannot be reached by members.
	ErrMemberURLs = errors.New("gateway: given member URLs are invalid")
	// ErrUnknownMethod refuses an action of a downgrade that does not exist.
	ErrUnknownMethod = errors.New("gateway: unknown method")
	// ErrDowngradeFormat refuses a downgrade to what is no version.
	ErrDowngradeFormat = errors.New("gateway: wrong downgrade target version format")
	// ErrDowngradeTarget refuses a downgrade to another version than the one right below the cluster's.
	ErrDowngradeTarget = errors.New("gateway: invalid downgrade target version")
	// ErrDowngradeRunning refuses a second downgrade.
	ErrDowngradeRunning = errors.New("gateway: cluster has a downgrade job in progress")
	// ErrClusterVersionUnknown refuses a downgrade before the cluster has a version.
	ErrClusterVersionUnknown = errors.New("gateway: cluster version not found during downgrade")
	// ErrNotImplemented answers what this version does not serve yet.
	ErrNotImplemented = errors.New("gateway: not implemented")
	// ErrAuthEnabled refuses every request of a cluster that asks for authentication, which this version cannot check: to
	// serve it openly would give its data away.
	ErrAuthEnabled = errors.New("gateway: authentication is enabled and not supported")
	// ErrTooManyReports refuses a report on the keys while too many wait for theirs.
	ErrTooManyReports = errors.New("gateway: too many reports on the keys are waited for")
	// ErrBadConfig is returned by New for a configuration that misses a part.
	ErrBadConfig = errors.New("gateway: configuration is incomplete")
)

// Statuses that etcd's rpctypes does not have as they appear on the wire.
var (
	// etcd maps these two to its client-side error type, which carries no status, so that they arrive as Unknown. Clients
	// and alerts are written against that.
	statusTooManyRequests  = status.Error(codes.Unknown, rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests))
	statusNotEnoughStarted = status.Error(codes.Unknown, rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberNotEnoughStarted))
	statusNotPrimary       = status.Error(codes.Unknown, "not a primary lessor")
	statusUnknownMethod    = status.Error(codes.Unknown, "etcdserver: unknown method")
	statusCanceled         = status.Error(codes.Canceled, context.Canceled.Error())
	statusDeadline         = status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	statusLockExpired      = status.Error(codes.Unknown, "mutex: session is expired")
	statusNotElected       = status.Error(codes.Unknown, "election: not leader")
	statusNobodyElected    = status.Error(codes.Unknown, "election: no leader")
	statusLeaderMissing    = status.Error(codes.Unknown, `"leader" field must be provided`)
)

// Statuses of our own, for what etcd does not refuse or does not have.
var (
	// etcd announces a victory to a candidate whose key is gone.
	statusCandidateExpired = status.Error(codes.Unknown, "election: session is expired")

	statusUnknownAlarm   = status.Error(codes.InvalidArgument, "etcdserver: unknown alarm type or action")
	statusInvalidRequest = status.Error(codes.InvalidArgument, "etcdserver: invalid request")
	statusChunkOrder     = status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	statusChunkFilters   = status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	statusUnknownEnum    = status.Error(codes.InvalidArgument, "etcdserver: unknown enum value in request")
	statusAuthEnabled    = status.Error(codes.Unimplemented,
		"etcdserver: authentication is enabled and not supported by this version of troupe")
	// Unavailable means that the client may try again elsewhere; a watch is resumed where it was. The first is ours: etcd
	// lets whoever asked it to hand leadership over wait as long as the client does.
	statusTransferTimeout = status.Error(codes.Unavailable, "etcdserver: request timed out, leader transfer took too long")
	statusDiskStalled     = status.Error(codes.Unavailable, "etcdserver: the disk of this member is stalled")
	statusReadInterrupted = status.Error(codes.Unavailable, "etcdserver: read interrupted")
	statusWatchRestarted  = status.Error(codes.Unavailable, "etcdserver: watch restarted")
	statusNotReady        = status.Error(codes.Unavailable, "etcdserver: server is starting")
	statusTooManyReports  = status.Error(codes.ResourceExhausted,
		"etcdserver: too many reports on the keys are waited for")
	statusPanicked       = status.Error(codes.Internal, "etcdserver: internal error")
	statusNotImplemented = status.Error(codes.Unimplemented, "etcdserver: not implemented by this version of troupe")
)

// mapping is one line of the table of errors.
type mapping struct {
	// name is package.variable, compared with the sources by a test, so that no error is forgotten.
	name string
	err  error
	wire error
}

// wireError turns a domain error into the error that the client gets. Errors that carry a status already pass; what is
// not in the table arrives as Unknown with its text, as with etcd.
func wireError(err error) error {
	for i := range errorLines { // a map would panic on an error of a type that cannot be compared
		if m := &errorLines[i]; m.wire != nil && err == m.err { //nolint:errorlint // what wraps comes after what has a status
			return m.wire
		}
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for i := range errorLines {
		if m := &errorLines[i]; m.wire != nil && errors.Is(err, m.err) {
			return m.wire
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return statusCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return statusDeadline
	}
	return status.Error(codes.Unknown, err.Error())
}

// ofServersClient makes an error of a request that was made for a request to the Lock or Election service arrive as
// etcd's do: there these services are clients of the server, whose errors carry no code. The end of the call and of the
// member are told as everywhere.
func ofServersClient(err error) error {
	if err == nil || errors.Is(err, ErrDraining) {
		return err
	}
	wire := wireError(err)
	switch status.Code(wire) {
	case codes.Canceled, codes.DeadlineExceeded:
		return wire
	}
	return status.Error(codes.Unknown, status.Convert(wire).Message())
}
