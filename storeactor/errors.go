package storeactor

import "errors"

// Errors the store answers with. All of them but the last group are what etcd's apply or its request checks say; the
// gateway owns the table that turns them into gRPC codes and texts.
var (
	// ErrCompacted says that the wanted revision is below the compact revision, or that it has been compacted already.
	ErrCompacted = errors.New("storeactor: required revision has been compacted")
	// ErrFutureRevision says that the wanted revision has not been reached.
	ErrFutureRevision = errors.New("storeactor: required revision is a future revision")
	// ErrKeyNotFound says that ignore_value or ignore_lease met a missing key, or that a txn holds an empty operation.
	ErrKeyNotFound = errors.New("storeactor: key not found")
	// ErrLeaseNotFound says that no lease has that id.
	ErrLeaseNotFound = errors.New("storeactor: requested lease not found")
	// ErrLeaseExists says that the id of a lease to grant is taken.
	ErrLeaseExists = errors.New("storeactor: lease already exists")
	// ErrLeaseTTLTooLarge says that the wanted time to live is above leaseTTLMax.
	ErrLeaseTTLTooLarge = errors.New("storeactor: too large lease TTL")
	// ErrNoSpace says that a NOSPACE alarm is raised, or that the file's quota is used up.
	ErrNoSpace = errors.New("storeactor: database space exceeded")
	// ErrCorrupt says that a CORRUPT alarm is raised.
	ErrCorrupt = errors.New("storeactor: corrupt cluster")
	// ErrAuthNotEnabled answers a login while authentication is off.
	ErrAuthNotEnabled = errors.New("storeactor: authentication is not enabled")
	// ErrAuthUnsupported answers questions about users and roles, which this store does not keep.
	ErrAuthUnsupported = errors.New("storeactor: authentication is not supported")

	// ErrKeyEmpty says that a request or a compare has no key.
	ErrKeyEmpty = errors.New("storeactor: key is not provided")
	// ErrSortOption says that a range names an unknown sort order or target.
	ErrSortOption = errors.New("storeactor: invalid sort option")
	// ErrValueProvided says that a put has ignore_value and a value.
	ErrValueProvided = errors.New("storeactor: value is provided")
	// ErrLeaseProvided says that a put has ignore_lease and a lease.
	ErrLeaseProvided = errors.New("storeactor: lease is provided")
	// ErrTooManyOps says that a txn exceeds the limit of operations, counted over its nesting.
	ErrTooManyOps = errors.New("storeactor: too many operations in txn request")
	// ErrDuplicateKey says that a txn changes one key twice.
	ErrDuplicateKey = errors.New("storeactor: duplicate key given in txn request")
	// ErrUnknownEnum says that an enum of a request has a number that no version of the protocol defines. Such a request
	// must never reach the log: etcd's scan of its log for a downgrade panics on it.
	ErrUnknownEnum = errors.New("storeactor: unknown enum value in request")

	// ErrChunkOrder and ErrChunkFilters say that a range cannot be read in chunks: it is sorted, or filtered by revisions.
	ErrChunkOrder   = errors.New("storeactor: a range in chunks cannot be sorted")
	ErrChunkFilters = errors.New("storeactor: a range in chunks cannot be filtered")

	// ErrStopped says that the store has been stopped.
	ErrStopped = errors.New("storeactor: stopped")
)
