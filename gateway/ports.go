package gateway

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
)

// Raft is what the gateway needs of the raft room. raftactor.Client satisfies it.
type Raft interface {
	// Propose carries a request through the log and answers with what apply made of it. It fills the request's header.
	// Errors are raftactor's (refused, timed out, stopped) or the state machine's (key not found, ...). The request
	// belongs to raft after the call.
	Propose(ctx context.Context, r *pb.InternalRaftRequest) (*proto.Result, error)
	// ReadIndex gives an index that a linearizable read must wait for.
	ReadIndex(ctx context.Context) (proto.Index, error)
	// ChangeMembers carries a change of the membership through the log and gives the membership after it. Errors are
	// raftactor's.
	ChangeMembers(ctx context.Context, verb raftactor.MemberVerb, m proto.Member) (*proto.Membership, error)
	// MoveLeader hands leadership over to a voter and waits until it leads.
	MoveLeader(ctx context.Context, to proto.MemberID) error
	// Status is the last published status, never nil.
	Status() *proto.RaftStatus
	// NextRequestID gives an id that no other call on any member gets.
	NextRequestID() proto.RequestID
}

// Store is what the gateway needs of the store room; rooms.go adapts storeactor.Client. Methods without a context never
// wait.
type Store interface {
	// WaitApplied waits until the published state holds the index.
	WaitApplied(ctx context.Context, index proto.Index) error
	// State summarises the published state, for headers, alarms and status.
	State() State
	// Range answers a range from the published state, in the caller's goroutine; the body has no header. Errors:
	// compacted, future revision.
	Range(ctx context.Context, r *pb.RangeRequest) (*proto.Result, error)
	// RangeChunk reads the next piece of a range; CountFrom counts the keys of a range from one on.
	RangeChunk(ctx context.Context, r *pb.RangeRequest, from []byte, limit int64) (storeactor.RangeChunk, error)
	CountFrom(r *pb.RangeRequest, from []byte) (int64, error)
	// NoteRange counts a range that was read in pieces, for the metrics; NoteRead looks whether a read was slow.
	NoteRange()
	NoteRead(took time.Duration)
	// Txn answers a transaction that only reads; the body has no header.
	Txn(ctx context.Context, r *pb.TxnRequest) (*proto.Result, error)
	// LeaseKeys lists the keys attached to a lease, in order. They are shared and read-only.
	LeaseKeys(id proto.LeaseID) [][]byte
	// StorageVersion is the version of the file's schema, empty while it has none.
	StorageVersion() string
	// HashKV hashes the history up to a revision, 0 meaning the current one.
	HashKV(ctx context.Context, revision proto.Revision) (HashKV, error)
}

// State is a summary of one published state of the store. What it points to is immutable.
type State struct {
	// Applied is the last index that the state holds.
	Applied proto.Index
	// Revision and Compacted are the current and the compacted revision.
	Revision, Compacted proto.Revision
	// Membership is the membership at Applied; nil before the first configuration is known.
	Membership *proto.Membership
	// Alarms are the raised alarms, in the order in which they are listed.
	Alarms []*pb.AlarmMember
	// AuthEnabled says that the cluster asks for authentication.
	AuthEnabled bool
	// Sizes are the sizes of the file behind the store.
	Sizes Sizes
}

// HashKV is the hash of a history.
type HashKV struct {
	// Hash is the CRC-32C that etcd computes for the same history.
	Hash uint32
	// Revision is the revision hashed up to, Compacted the compact revision that was in force, and Current the store's
	// revision at that time.
	Revision, Compacted, Current proto.Revision
}

// Sizes are the sizes of the file behind the store, in bytes.
type Sizes struct {
	// Total is the file's size as bbolt counts it.
	Total int64
	// InUse is Total without free pages.
	InUse int64
	// Projected is the size that the quota is compared with: Total, or more when what has been applied and is not in the
	// file yet does not fit the free pages.
	Projected int64
}

// Leases is what the gateway needs of the lease room.
type Leases interface {
	// Renew extends a lease and gives its full time to live in seconds. A lease that does not exist is ttl 0 and no error
	// or ErrLeaseNotFound of any room; ErrNotPrimary when this member does not lead.
	Renew(ctx context.Context, id proto.LeaseID) (ttl int64, err error)
	// Remaining gives the remaining and the granted time in seconds; ok is false for an unknown lease.
	Remaining(ctx context.Context, id proto.LeaseID) (seconds, granted int64, ok bool, err error)
	// ByExpiry gives the ids of all leases, the one that ends first at the front.
	ByExpiry(ctx context.Context) ([]proto.LeaseID, error)
}

// Watch is what the gateway needs of the watch room.
type Watch interface {
	// Open starts a stream with no watches. What the streams of an owner hold is bounded together; nil is one of its own.
	Open(owner *WatchOwner) (WatchStream, error)
	// Full reports whether so much waits for clients of watches that those which do not read should be cut off.
	Full() bool
}

// WatchStream is one client's stream of watches. Request is called by one goroutine, Next by one other, Close by
// either.
type WatchStream interface {
	// Request hands over one request of the client, which belongs to the stream afterwards. Refusals arrive as frames. It
	// waits while too many answers are unread, and fails with the reason why the stream has ended.
	Request(ctx context.Context, r *pb.WatchRequest) error
	// Next waits for the next frame, or fails with the reason why the stream has ended.
	Next(ctx context.Context) (WatchFrame, error)
	// Lend says that the transport holds bytes of a frame, until GiveBack has said the same of them; from any goroutine,
	// also after Close.
	Lend(bytes int)
	GiveBack(bytes int)
	// Close ends the stream and all its watches.
	Close()
}

// WatchFrame is one answer of a watch stream: a WatchResponse without its header.
type WatchFrame struct {
	// WatchID is the watch, or -1 for the whole stream and for refusals.
	WatchID int64
	// Revision goes into the header.
	Revision proto.Revision
	// Created and Canceled are the response's flags.
	Created, Canceled bool
	// CompactRevision tells why a watch ended, or 0.
	CompactRevision proto.Revision
	// CancelReason is the text for the client, or empty.
	CancelReason string
	// Fragment says that the next frame continues this one.
	Fragment bool
	// Events holds the encoded events, each with its tag and length (field 11 of WatchResponse). Shared, read-only.
	Events [][]byte
}
