package proto

// Lease is one lease of the lease table, as the lease bucket has it. Times are whole seconds.
type Lease struct {
	ID LeaseID
	// TTL is the granted time to live, already raised to the minimum.
	TTL int64
	// Remaining is the checkpointed remainder, 0 when there is none.
	Remaining int64
}

// LeaseChangeKind says what happened to a lease.
type LeaseChangeKind uint8

// What can happen to a lease in the lease table.
const (
	LeaseGranted LeaseChangeKind = iota
	LeaseRevoked
	LeaseCheckpointed
)

// LeaseChange tells the lease actor what a batch did to the lease table.
type LeaseChange struct {
	Kind  LeaseChangeKind
	Lease Lease
}
