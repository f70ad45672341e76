package proto

import "strconv"

// Revision is a main revision of the key space: one per applied write. An empty store is at revision 1.
type Revision int64

// Index is a position in the raft log, counted from 1; 0 means "before the first entry".
type Index uint64

// Term is a raft term; 0 means "no term yet".
type Term uint64

// LeaseID names a lease; 0 means "no lease". Ids chosen by the server are positive.
type LeaseID int64

// MemberID names a member of a cluster; 0 means "none". It is a hash, so any 64-bit value may occur.
type MemberID uint64

// String gives the member id as etcd prints it: lower case hex, no prefix, no padding.
func (m MemberID) String() string { return strconv.FormatUint(uint64(m), 16) }

// ClusterID names a cluster.
type ClusterID uint64

// String gives the cluster id as etcd prints it: lower case hex, no prefix, no padding.
func (c ClusterID) String() string { return strconv.FormatUint(uint64(c), 16) }

// RequestID names one proposal across the whole cluster. It is the id in the header of an InternalRaftRequest.
type RequestID uint64

// SubRevision orders the changes of one main revision, counted from 0.
type SubRevision int64

// Version names one stored change: a main revision and its sub-revision. It is the key of the `key` bucket.
type Version struct {
	Main Revision
	Sub  SubRevision
}

// Less orders versions as the store and the file do.
func (v Version) Less(w Version) bool {
	return v.Main < w.Main || v.Main == w.Main && v.Sub < w.Sub
}
