package storeactor

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"troupe/actors"
	"troupe/proto"
)

// FileView is one counted read handle on the file behind the store. It sees exactly what the checkpoint it was opened
// after had committed, and goes on seeing that until its last holder releases it or the file's owner cuts it off.
type FileView interface {
	// Append appends a copy of the stored value to the slice and gives the longer slice. found is false, and the slice
	// unchanged, when the bucket does not hold the key. ErrViewCutOff says that the handle was cut off: the caller has
	// to begin again with a newer published state.
	Append(to []byte, bucket proto.Bucket, key []byte) (out []byte, found bool, err error)
	// ValueSize gives the length of the stored value without reading it. found is false when the bucket does not hold the
	// key. Errors as of Append.
	ValueSize(bucket proto.Bucket, key []byte) (size int, found bool, err error)
	// Scan calls f for every stored pair with from <= key < to, in order, until f gives false. A nil `to` means "to the
	// end". The slices belong to the file and are valid during the call of f only: f copies what it keeps.
	Scan(bucket proto.Bucket, from, to []byte, f func(key, value []byte) bool) error
	// Retain counts one holder more. It gives false when the last holder has released already: then nothing was counted.
	Retain() bool
	// Release counts one holder less. The last one closes the handle.
	Release()
}

// backendWrite is everything one applied batch changes in the file: it is committed as a whole and in order, together
// with the index of its last entry. Sent by store to backend after publishing; never dropped, never reordered; the
// store keeps the sum of `bytes` under backendBytesOutstandingMax. Immutable once sent.
type backendWrite struct {
	// batch holds the writes of all commands in their order, the scheduled compact revision included.
	batch []proto.BucketWrite
	// index and term are those of the last entry; every entry moves them, also one that wrote nothing.
	index proto.Index
	term  proto.Term
	// confState is the JSON for the meta bucket, nil when unchanged.
	confState []byte
	// membership is the membership after the batch.
	membership *proto.Membership
	// revision is the store's revision after the batch.
	revision proto.Revision
	// bytes is what the write counts for in the credit: keys, values and a fixed share per write.
	bytes int
}

// Size is what the write counts for in the backend's mailbox.
func (w *backendWrite) Size() int { return w.bytes }

// compactFile asks the backend to delete, in small steps, every record of the key bucket at or below revision that
// `keep` does not want, and then to store the finished revision. Sent by store to backend when the index has been
// compacted; several are done one after the other. The deletions start only after the transaction that stored the
// scheduled revision, which came in an earlier backendWrite. Nothing but compactedPhysically comes back.
type compactFile struct {
	revision proto.Revision
	// keep is pure, may be called from any goroutine and looks only at an immutable index. The record's key of the key
	// space is in its value (field 1 of mvccpb.KeyValue, empty for the record that etcdutl's --bump-revision leaves).
	keep func(key []byte, v proto.Version) bool
}

// hashRequest asks for the hash of all key records at or below revision (0: the state's revision), as HashKV defines
// it. Sent by store to backend behind all writes of the state, so the backend flushes first and then hashes in a
// worker. Answered once. `revision` has not been checked: ErrCompacted and ErrFutureRevision are the backend's to
// give, by state.Compacted and state.Revision; which records survive is state.hashKeep(revision).
type hashRequest struct {
	// whole asks for Hash instead: that of everything in the file. The revision is 0 then.
	whole    bool
	revision proto.Revision
	state    *State
	reply    actors.Reply[HashResult]
}

// Abort answers a hash request that nobody will serve.
func (h *hashRequest) Abort(err error) { h.reply.Fail(err) }

// HashResult is the answer to HashKV.
type HashResult struct {
	// Hash is the CRC32-C.
	Hash uint32
	// CompactRevision is the compact revision the hash was made at; -1 when the store was never compacted.
	CompactRevision proto.Revision
	// HashRevision is the revision up to which was hashed.
	HashRevision proto.Revision
	// Revision is the current revision, for the header.
	Revision proto.Revision
}

// checkpointed says that the file durably holds everything up to index. Sent by backend to store after each commit,
// on the Control lane, never dropped; a later one includes the earlier. The view is handed over with one reference.
type checkpointed struct {
	index    proto.Index
	revision proto.Revision
	view     FileView
	sizes    FileSizes
	// callers asked for what this is the end of. They are answered when the state with the new sizes is published: who has
	// defragmented a full database writes next.
	callers []*defragmentFile
}

// Abort answers for a report that the store did not live to see: what it says is true all the same.
func (c *checkpointed) Abort(error) {
	c.view.Release()
	for _, caller := range c.callers {
		caller.reply.Send(struct{}{})
	}
}

// compactedPhysically says that the deletions of a compaction are done, its finished revision is stored, and what they
// gave up is free, unless somebody still reads it. Sent by backend to store on the Control lane, once per compactFile,
// in their order.
type compactedPhysically struct {
	revision proto.Revision
}

// storeSink is the store as the backend sees it. None of the calls waits.
type storeSink interface {
	checkpointed(c *checkpointed)
	compactedPhysically(c *compactedPhysically)
	// diskFull says that the status has changed to that, so that a store without credit looks again.
	diskFull()
}

// backendClient is the backend as the store sees it. None of the calls waits; because the store keeps its credit, a
// full mailbox is a broken invariant for write and compact.
type backendClient interface {
	write(w *backendWrite)
	compact(c *compactFile)
	hash(r *hashRequest)
	snapshot(m *snapshotFile)
	defragment(m *defragmentFile)
	// status is what the backend has published about the file. Callable from any goroutine.
	status() FileStatus
}

// backendHandle is a running backend as Spawn and Client see it; spawnBackend makes it. stop commits what was admitted,
// then ends; it does not close the file.
type backendHandle interface {
	backendClient
	stop(ctx context.Context) error
}

// snapshotFile asks for a copy of the whole file as it is once it holds everything applied before. Sent by store to
// backend behind all writes. Answered once: with a Snapshot that the receiver closes, or an error.
type snapshotFile struct {
	reply actors.Reply[*Snapshot]
	// began is when it was admitted.
	began time.Time
	// claim is who has the right to the answer: claimOpen, claimAnswered or claimAbandoned.
	claim atomic.Int32
}

// Abort answers a snapshot request that nobody will serve.
func (m *snapshotFile) Abort(err error) { m.fail(err) }

// defragmentFile asks for a defragmentation that begins after it was sent. Sent by store to backend; answered once,
// when the file has been replaced, or with the reason why not.
type defragmentFile struct {
	reply actors.Reply[struct{}]
}

// Abort answers a request that nobody will serve.
func (m *defragmentFile) Abort(err error) { m.reply.Fail(err) }

// FileStatus is what the backend tells of the disk under the file. It is published whenever it changes.
type FileStatus struct {
	// FullSince is when a commit found the disk full; zero while there is space.
	FullSince time.Time
	// Backlog is how many bytes wait for that disk, as the credit counts them.
	Backlog int64
	// StorageVersion is what the file says of its schema, empty while it says nothing.
	StorageVersion string
	// lowered is the last lowering of the cluster version that it takes into account.
	lowered proto.Index
}

// Full reports whether the disk is full.
func (s FileStatus) Full() bool { return !s.FullSince.IsZero() }

// Crowded reports whether so much waits for a full disk that nothing more may be added, not even what frees space.
func (s FileStatus) Crowded() bool { return s.Full() && s.Backlog >= diskFullBacklogMax }

// Restored is everything a start reads from the file, and the read handle that belongs to it. Restore (restore.go)
// makes it; Spawn takes it over, with the handle's one reference.
//
// Order matters while it is read: leases first, then the records of the key bucket in order through an indexBuilder,
// because a key's lease is attached when the index is finished.
type Restored struct {
	// Index and Term are the consistent index and its term; both 0 in a fresh file.
	Index proto.Index
	Term  proto.Term
	// ConfState is the decoded confState record, nil when there is none.
	ConfState *raftpb.ConfState
	// Scheduled and Finished are the compaction records, -1 when there is none: a compaction at 0 is legal, once.
	Scheduled, Finished proto.Revision
	// Keys is what the index builder made of the key bucket.
	Keys *restoredKeys
	// Leases is the lease bucket.
	Leases []proto.Lease
	// Alarms is the alarm bucket.
	Alarms []Alarm
	// Membership holds members, removed ids, cluster version and downgrade; ClusterID is not in the file and stays 0.
	Membership *proto.Membership
	// AuthEnabled and AuthRevision are the auth bucket's.
	AuthEnabled  bool
	AuthRevision uint64
	// View is a read handle on what was read, Sizes its sizes.
	View  FileView
	Sizes FileSizes
}
