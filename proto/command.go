package proto

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Answer is the right to answer one request once. actors.Reply implements it.
type Answer interface {
	// Send answers with a result.
	Send(*Result)
	// Fail answers with a domain error.
	Fail(error)
}

// Result is what the state machine made of one request.
type Result struct {
	// Revision goes into the header of the answer.
	Revision Revision
	// Body is the encoded answer (PutResponse, TxnResponse, ...) without its header field; the gateway writes the
	// header and splices this behind it. The receiver owns it after Send.
	Body Body
	// Done, if not nil, is closed when the work behind the answer has finished too: the deletions of a compaction.
	Done <-chan struct{}
	// Membership is, for a change of the members, the membership right after it.
	Membership *Membership
}

// Body is an encoded message in pieces, so that stored bytes need not be copied together. The pieces are read-only.
type Body struct {
	Pieces [][]byte
	// Release gives pooled pieces back; nil when there are none. Its owner calls it once, after the last read.
	Release func()
}

// Len is the encoded length in bytes.
func (b *Body) Len() int {
	n := 0
	for _, p := range b.Pieces {
		n += len(p)
	}
	return n
}

// Command is one committed entry on its way from apply to the store. Every entry becomes one, so that every entry moves
// the consistent index: leader's no-ops, configuration changes and refused requests too.
type Command struct {
	Index Index
	Term  Term
	// Request is the decoded entry; nil for an entry that does not concern the store.
	Request *etcdserverpb.InternalRaftRequest
	// Refused is the reason why apply has refused the entry already; the store only answers with it.
	Refused error
	// Answered is a result that apply has computed itself (membership, versions); the store sends it after publishing.
	Answered *Result
	// Answer is the local waiter's, or nil: then reads need not be executed.
	Answer Answer
	// Writes are the bucket writes of apply's own cores (members, cluster), to go into the batch at this place.
	Writes []BucketWrite
}

// Batch is a run of committed entries, in order and without gaps, with what apply knows after the last of them.
type Batch struct {
	Commands []Command
	// Membership is the membership after the last command; the store publishes it with the rest.
	Membership *Membership
	// ConfState is the JSON of raftpb.ConfState after the last command, nil when the batch did not change it.
	ConfState []byte
	// Bytes is the size of the entries, for bounds.
	Bytes int
}

// Last gives index and term of the last command. The batch must not be empty.
func (b *Batch) Last() (Index, Term) {
	c := &b.Commands[len(b.Commands)-1]
	return c.Index, c.Term
}

// BucketWrite is one change of the file behind the store.
type BucketWrite struct {
	Bucket Bucket
	Key    []byte
	// Value is what is stored; nil with Delete.
	Value []byte
	// Delete removes the key.
	Delete bool
}

// Bucket names a bucket of the file. The names are etcd's.
type Bucket string

// The buckets of the file, all of which exist from the first start.
const (
	BucketKey            Bucket = "key"
	BucketMeta           Bucket = "meta"
	BucketLease          Bucket = "lease"
	BucketAlarm          Bucket = "alarm"
	BucketCluster        Bucket = "cluster"
	BucketMembers        Bucket = "members"
	BucketMembersRemoved Bucket = "members_removed"
	BucketAuth           Bucket = "auth"
	BucketAuthUsers      Bucket = "authUsers"
	BucketAuthRoles      Bucket = "authRoles"
)
