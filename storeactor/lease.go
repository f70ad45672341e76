package storeactor

import (
	"encoding/binary"
	"math"

	"github.com/tidwall/btree"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// attachment is one key attached to one lease.
type attachment struct {
	lease proto.LeaseID
	key   []byte
}

// leaseTable is the store's own lease table: which leases exist and which keys are attached to them. A key is
// attached to at most one, the lease of its newest value; so the index knows from which lease to detach. Both trees
// copy on write.
//
// It has no clock: when a lease runs out is the lease actor's affair, and it ends here by a revocation through the
// log.
type leaseTable struct {
	leaseView
	published leaseView
	dirty     bool
}

func newLeaseTable() leaseTable {
	options := btree.Options{NoLocks: true}
	return leaseTable{dirty: true, leaseView: leaseView{
		table: btree.NewBTreeGOptions(func(a, b proto.Lease) bool { return a.ID < b.ID }, options),
		keys: btree.NewBTreeGOptions(func(a, b attachment) bool {
			return a.lease < b.lease || a.lease == b.lease && string(a.key) < string(b.key)
		}, options),
	}}
}

// publish gives what the next state shows, the same as before when nothing changed.
func (t *leaseTable) publish() leaseView {
	if t.dirty {
		t.published = leaseView{table: t.table.Copy(), keys: t.keys.Copy()}
		t.dirty = false
	}
	return t.published
}

// move attaches a key to a lease and detaches it from the one before; 0 is none. An unknown lease is not attached to:
// that can only come from a file whose leases were lost.
func (t *leaseTable) move(key []byte, from, to proto.LeaseID) {
	if from == to {
		return
	}
	if from != 0 {
		t.keys.Delete(attachment{from, key})
		t.dirty = true
	}
	if to != 0 {
		if _, ok := t.lease(to); ok {
			t.keys.Set(attachment{to, key})
			t.dirty = true
		}
	}
}

// LeaseKeyCount counts the keys attached to the lease, up to `most`.
func (s *State) LeaseKeyCount(id proto.LeaseID, most int) int {
	n := 0
	s.leases.keys.Ascend(attachment{lease: id}, func(a attachment) bool {
		if a.lease != id || n == most {
			return false
		}
		n++
		return true
	})
	return n
}

func leaseKey(id proto.LeaseID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// leaseGrant executes a grant. A TTL below the minimum is raised to it; the minimum depends on this member's timing
// flags, as in etcd, so all members must have the same.
func (m *machine) leaseGrant(r *pb.LeaseGrantRequest) (*proto.Result, error) {
	id := proto.LeaseID(r.ID)
	if id == 0 {
		return nil, ErrLeaseNotFound
	}
	if r.TTL > LeaseTTLMax {
		return nil, ErrLeaseTTLTooLarge
	}
	if _, ok := m.leases.lease(id); ok {
		return nil, ErrLeaseExists
	}
	l := proto.Lease{ID: id, TTL: max(r.TTL, m.leaseTTLMin)}
	m.setLease(l, proto.LeaseGranted)
	m.out.put(proto.BucketLease, leaseKey(id), encodeLease(l))
	body := appendVarintField(nil, tagLeaseID, uint64(id))
	return newBytesResult(m.revision, appendVarintField(body, tagLeaseTTL, uint64(l.TTL))), nil
}

// detachAll takes all keys from a lease at once. They are neighbours, so whole subtrees go.
func (t *leaseTable) detachAll(id proto.LeaseID) {
	from, to := attachment{lease: id}, attachment{lease: id + 1}
	if id == math.MaxInt64 {
		for _, key := range t.keysOf(id) { // nothing is behind them that could be named
			t.keys.Delete(attachment{id, key})
		}
	} else {
		t.keys.DeleteRange(from, to, &btree.DeleteRangeOptions{NoReturn: true})
	}
	t.dirty = true
}

// leaseRevoke executes a revocation: the attached keys are deleted in order in one revision, and the lease with them.
func (m *machine) leaseRevoke(r *pb.LeaseRevokeRequest) (*proto.Result, error) {
	id := proto.LeaseID(r.ID)
	l, ok := m.leases.lease(id)
	if !ok {
		return nil, ErrLeaseNotFound
	}
	if doomed := m.entriesOf(id); len(doomed) > 0 {
		w := m.begin()
		w.deleteAll(doomed, id)
		m.out.tally.deletes += len(doomed)
		w.end()
		m.leases.detachAll(id)
	}
	m.leases.table.Delete(l)
	m.leases.dirty = true
	m.out.leases = append(m.out.leases, proto.LeaseChange{Kind: proto.LeaseRevoked, Lease: l})
	m.out.delete(proto.BucketLease, leaseKey(id))
	return newBytesResult(m.revision, nil), nil
}

// entriesOf gives the index entries of the keys attached to a lease, in order. All of them are alive, as a deletion
// detaches. Keys of one lease tend to be neighbours in the index too, so it is searched for the first, and then walked
// through as long as it does not show too many keys that are others'.
func (m *machine) entriesOf(id proto.LeaseID) []*keyEntry {
	var entries []*keyEntry
	keys := m.leases.keys.Iter()
	defer keys.Release()
	more := keys.Seek(attachment{lease: id}) && keys.Item().lease == id
	for more {
		key := keys.Item().key
		found, others := len(entries), 0
		m.pivot.key = key
		m.tree.Ascend(&m.pivot, func(e *keyEntry) bool {
			if string(e.key) != string(key) {
				others++
				return others <= leaseNeighboursMax
			}
			entries, others = append(entries, e), 0
			if more = keys.Next() && keys.Item().lease == id; more {
				key = keys.Item().key
			}
			return more
		})
		if len(entries) == found || !entries[found].alive() {
			actors.Must(false, "lease %d has the key %q, which does not exist", id, key)
		}
	}
	return entries
}

// leaseCheckpoint sets what remains of leases; unknown ones are ignored. It is stored from cluster version 3.6 on.
func (m *machine) leaseCheckpoint(r *pb.LeaseCheckpointRequest) (*proto.Result, error) {
	stored := versionAtLeast(m.clusterVersion, 3, 6)
	for _, c := range r.Checkpoints {
		l, ok := m.leases.lease(proto.LeaseID(c.ID))
		if !ok {
			continue
		}
		l.Remaining = c.Remaining_TTL
		m.setLease(l, proto.LeaseCheckpointed)
		if stored {
			m.out.put(proto.BucketLease, leaseKey(l.ID), encodeLease(l))
		}
	}
	return newBytesResult(m.revision, nil), nil
}

func (m *machine) setLease(l proto.Lease, kind proto.LeaseChangeKind) {
	m.leases.table.Set(l)
	m.leases.dirty = true
	m.out.leases = append(m.out.leases, proto.LeaseChange{Kind: kind, Lease: l})
}

// versionAtLeast reports whether a version "major.minor.patch" is at least major.minor; an empty one is not.
func versionAtLeast(version string, major, minor int) bool {
	var have [2]int
	part := 0
	for i := 0; i < len(version) && part < 2; i++ {
		switch c := version[i]; {
		case c >= '0' && c <= '9':
			have[part] = have[part]*10 + int(c-'0')
		case c == '.':
			part++
		default:
			return false
		}
	}
	return have[0] > major || have[0] == major && have[1] >= minor
}
