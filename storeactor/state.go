package storeactor

import (
	"github.com/tidwall/btree"

	"troupe/proto"
)

// State is everything a reader may need of the store at one applied index. The store publishes a new one after each
// turn by one atomic pointer; a State never changes. No reader may combine two of them: revision, keys, leases,
// alarms and membership of one State belong together.
type State struct {
	// Applied and Term are those of the last entry the state includes.
	Applied proto.Index
	Term    proto.Term
	// Revision is the current revision, at least 1.
	Revision proto.Revision
	// Compacted is the revision of the last compaction, -1 before the first. It is still readable, nothing below is.
	Compacted proto.Revision
	// Membership is the cluster's membership; nil only before the first batch of a fresh member.
	Membership *proto.Membership
	// Alarms are the raised alarms, by kind and member.
	Alarms []Alarm
	// AuthEnabled and AuthRevision are what the file says about authentication.
	AuthEnabled  bool
	AuthRevision uint64
	// Sizes are those of the file at the last checkpoint.
	Sizes FileSizes
	// Unwritten estimates in bytes what the file does not have yet; a quota is compared with Sizes.Projected(Unwritten).
	Unwritten int64
	// Keys is the number of keys that exist.
	Keys int

	tree   *keyTree
	dead   *keyTree
	recent recent
	leases leaseView
	cache  *valueCache
	file   FileView // counted by the store; whoever else uses it retains it first
}

// Lease gives one lease of the table.
func (s *State) Lease(id proto.LeaseID) (proto.Lease, bool) { return s.leases.lease(id) }

// Leases calls f for every lease, by id, until it gives false.
func (s *State) Leases(f func(proto.Lease) bool) { s.leases.table.Scan(f) }

// LeaseCount is the number of leases.
func (s *State) LeaseCount() int { return s.leases.table.Len() }

// LeaseKeys gives the keys attached to the lease, sorted. The slices are shared and must not be written to.
func (s *State) LeaseKeys(id proto.LeaseID) [][]byte { return s.leases.keysOf(id) }

// hashKeep gives the rule by which HashKV at rev counts records at or below the compact revision. If no key has a
// version to keep, all that the compaction leaves count, which is etcd's rule once it has deleted the others. The
// function is pure and may be called from any goroutine.
func (s *State) hashKeep(rev proto.Revision) func(key []byte, v proto.Version) bool {
	none := true
	s.tree.Scan(func(e *keyEntry) bool {
		none = !e.keepsForHash(rev)
		return none
	})
	tree, compacted := s.tree, s.Compacted
	if none {
		return func(key []byte, v proto.Version) bool {
			e, ok := tree.Get(&keyEntry{key: key})
			if ok {
				e = e.compacted(compacted)
			}
			return e != nil && e.has(v)
		}
	}
	return func(key []byte, v proto.Version) bool {
		e, ok := tree.Get(&keyEntry{key: key})
		return ok && e.keptForHash(rev, v)
	}
}

// leaseView is the lease table with the attached keys; leaseTable makes copies of itself for it.
type leaseView struct {
	table *btree.BTreeG[proto.Lease]
	keys  *btree.BTreeG[attachment]
}

func (v leaseView) lease(id proto.LeaseID) (proto.Lease, bool) {
	return v.table.Get(proto.Lease{ID: id})
}

func (v leaseView) keysOf(id proto.LeaseID) [][]byte {
	var keys [][]byte
	v.keys.Ascend(attachment{lease: id}, func(a attachment) bool {
		if a.lease != id {
			return false
		}
		keys = append(keys, a.key)
		return true
	})
	return keys
}
