package leaseactor

import "errors"

// What the methods of Client return. The gateway maps them.
var (
	// ErrNotPrimary says that this member does not lead, or cannot confirm that it does. Ask the leader.
	ErrNotPrimary = errors.New("leaseactor: not a primary lessor")
	// ErrBusy says that too many renewals wait already.
	ErrBusy = errors.New("leaseactor: too many renewals wait")
	// ErrApplyLate says that what was committed was not applied in time; with WaitOnRenew only.
	ErrApplyLate = errors.New("leaseactor: waiting for the applied index took too long")
	// ErrStopped says that the room has stopped, or stopped before it could answer.
	ErrStopped = errors.New("leaseactor: stopped")
	// ErrConfigInvalid is returned by Spawn.
	ErrConfigInvalid = errors.New("leaseactor: invalid configuration")
)
