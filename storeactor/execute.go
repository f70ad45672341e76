package storeactor

import (
	"bytes"
	"cmp"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// machine is the state machine: the store's own, changing state, and the pure core of the actor. It has no clock, no
// goroutine and no channel; the only thing it does outside its own memory is reading a value that is not in memory
// through the file handle.
//
// A turn is: execute any number of batches, then publish once. What execution has to say to others collects in `out`.
type machine struct {
	reader // tree, dead, recent, cache, file, revision, compacted: the live ones
	leases leaseTable
	alarms []Alarm
	// deadPublished is a copy of dead that readers have; nil when dead has changed since.
	deadPublished *keyTree
	// noSpace and corrupt follow alarms.
	noSpace, corrupt bool

	applied    proto.Index
	term       proto.Term
	membership *proto.Membership
	// clusterVersion is that of the entry being executed; the membership is that after the batch.
	clusterVersion string

	authEnabled  bool
	authRevision uint64
	sizes        FileSizes
	keys         int

	// leaseTTLMin is the least time to live granted, in seconds.
	leaseTTLMin int64
	// quota is the size of the file above which writes are answered with ErrNoSpace, although they are executed; 0 is
	// none. It is this member's own knowledge and changes nothing that is replicated.
	quota int64

	compactions []*compaction // in order; the first one is being worked on

	credit credit
	out    output

	// now is the shell's clock, with which each entry is timed; nil: none is. lapped is its time at the last lap.
	now    func() time.Time
	lapped time.Time
}

// lap gives the time since the lap before.
func (m *machine) lap() time.Duration {
	if m.now == nil {
		return 0
	}
	now := m.now()
	took := now.Sub(m.lapped)
	m.lapped = now
	return took
}

// output is what a turn has to tell others.
type output struct {
	events  []proto.Event
	leases  []proto.LeaseChange
	writes  []proto.BucketWrite
	answers []answer
	bytes   int // of writes, as they count for the credit
	payload int // of writes, keys and values alone

	confState []byte
	executed  bool // at least one entry
	overQuota bool // an executed write exceeded the quota
	compacted bool // the compact revision moved
	puts      int  // keys written, for the cache
	tally     tally
	applied   []applied

	versionKeys []byte // slab for the keys of versions
}

// answer is what one waiter gets after the state is published.
type answer struct {
	to     proto.Answer
	result *proto.Result
	err    error
}

// tally counts for the metrics what a turn did.
type tally struct {
	ranges, puts, deletes, txns int
	putBytes                    int
}

func (t *tally) operations() int { return t.ranges + t.puts + t.deletes }

// read counts that many ranges of one read: several count as a txn.
func (t *tally) read(ranges int) {
	t.ranges += ranges
	if ranges > 1 {
		t.txns++
	}
}

func (o *output) write(w proto.BucketWrite) {
	o.writes = append(o.writes, w)
	o.bytes += len(w.Key) + len(w.Value) + backendWriteOverhead
	o.payload += len(w.Key) + len(w.Value)
}

// put writes a record. An empty value is stored as such.
func (o *output) put(bucket proto.Bucket, key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	o.write(proto.BucketWrite{Bucket: bucket, Key: key, Value: value})
}

func (o *output) delete(bucket proto.Bucket, key []byte) {
	o.write(proto.BucketWrite{Bucket: bucket, Key: key, Delete: true})
}

// versionKeySlab is how many keys of versions share an allocation.
const versionKeySlab = 64

// versionKey gives the key of the key bucket for a version.
func (o *output) versionKey(v proto.Version, tombstone bool) []byte {
	if cap(o.versionKeys)-len(o.versionKeys) < tombstoneKeyBytes {
		o.versionKeys = make([]byte, 0, versionKeySlab*tombstoneKeyBytes)
	}
	from := len(o.versionKeys)
	o.versionKeys = appendVersionKey(o.versionKeys, v)
	if tombstone {
		o.versionKeys = append(o.versionKeys, tombstoneMark)
	}
	to := len(o.versionKeys)
	return o.versionKeys[from:to:to]
}

// execute runs the commands of a batch in order. Every command moves the applied index, whatever became of it.
func (m *machine) execute(b *proto.Batch) {
	if b.Membership != nil {
		m.membership = b.Membership
	}
	if b.ConfState != nil {
		m.out.confState = b.ConfState
	}
	if n := len(b.Commands); m.out.events == nil {
		m.out.events = make([]proto.Event, 0, n)
		m.out.writes = make([]proto.BucketWrite, 0, n)
	}
	for i := range b.Commands {
		c := &b.Commands[i]
		if c.Index != m.applied+1 && m.applied != 0 { // asked before, so that nothing is boxed for each entry
			actors.Must(false, "entry %d after entry %d", c.Index, m.applied)
		}
		for j := range c.Writes {
			w := &c.Writes[j]
			m.out.write(*w)
			if isClusterVersion(w) {
				m.clusterVersion = string(w.Value)
			}
		}
		result, err := m.command(c)
		m.out.applied = appendApplied(m.out.applied, applyKindOf(c), err, m.lap())
		m.applied, m.term = c.Index, c.Term
		if c.Answer != nil {
			m.out.answers = append(m.out.answers, answer{c.Answer, result, err})
		}
	}
	m.out.executed = m.out.executed || len(b.Commands) > 0
}

// command executes one command. Exactly one of result and err is set.
func (m *machine) command(c *proto.Command) (*proto.Result, error) {
	switch {
	case c.Refused != nil:
		return nil, c.Refused
	case c.Answered != nil:
		return c.Answered, nil
	case c.Request == nil:
		return newBytesResult(m.revision, nil), nil
	}
	overQuota := m.quota > 0 && m.overQuota(c.Request)
	result, err := m.request(c.Request, c.Answer != nil)
	if err == nil && overQuota {
		m.out.overQuota = true
		return nil, ErrNoSpace
	}
	return result, err
}

// isClusterVersion reports whether a write sets the cluster's version.
func isClusterVersion(w *proto.BucketWrite) bool {
	return w.Bucket == proto.BucketCluster && !w.Delete && bytes.Equal(w.Key, clusterVersionKey)
}

// request executes a decoded entry. Without a waiter, what changes nothing is not executed. The order of the tests is
// etcd's; an entry sets exactly one field.
func (m *machine) request(r *pb.InternalRaftRequest, waited bool) (*proto.Result, error) {
	if r.ClusterVersionSet != nil || r.ClusterMemberAttrSet != nil || r.DowngradeInfoSet != nil ||
		r.DowngradeVersionTest != nil {
		return newBytesResult(m.revision, nil), nil // apply's own cores have dealt with it
	}
	if err := m.gate(r); err != nil {
		return nil, err
	}
	switch {
	case r.Range != nil:
		if !waited {
			return nil, nil
		}
		return m.rangeAlone(r.Range)
	case r.Put != nil:
		return m.put(r.Put)
	case r.DeleteRange != nil:
		return m.deleteRange(r.DeleteRange)
	case r.Txn != nil:
		return m.txn(r.Txn, waited)
	case r.Compaction != nil:
		return m.compact(proto.Revision(r.Compaction.Revision))
	case r.LeaseGrant != nil:
		return m.leaseGrant(r.LeaseGrant)
	case r.LeaseRevoke != nil:
		return m.leaseRevoke(r.LeaseRevoke)
	case r.LeaseCheckpoint != nil:
		return m.leaseCheckpoint(r.LeaseCheckpoint)
	case r.Alarm != nil:
		return m.alarm(r.Alarm, proto.RequestID(cmp.Or(r.GetHeader().GetID(), r.GetID())))
	default:
		return m.authRequest(r)
	}
}

// authRequest answers the requests about authentication, of which only its status is known here. To disable what is
// disabled changes nothing and succeeds. Questions are refused. The other requests change users, roles or whether there
// is authentication at all, and nobody here proposes one: it comes from a log that etcd wrote. To pass over it would
// lose it for good, and in the worst case serve everybody what was protected a moment ago; so the member stops, with
// the log untouched.
func (m *machine) authRequest(r *pb.InternalRaftRequest) (*proto.Result, error) {
	switch {
	case r.AuthStatus != nil:
		var body []byte
		if m.authEnabled {
			body = appendVarintField(body, tagAuthOn, 1)
		}
		return newBytesResult(m.revision, appendVarintField(body, tagAuthNumber, m.authRevision)), nil
	case r.AuthDisable != nil && !m.authEnabled:
		return newBytesResult(m.revision, nil), nil
	case r.Authenticate != nil:
		return nil, ErrAuthNotEnabled
	case r.AuthUserGet != nil, r.AuthUserList != nil, r.AuthRoleList != nil, r.AuthRoleGet != nil:
		return nil, ErrAuthUnsupported
	case r.AuthEnable != nil, r.AuthDisable != nil, r.AuthUserAdd != nil, r.AuthUserDelete != nil,
		r.AuthUserChangePassword != nil, r.AuthUserGrantRole != nil, r.AuthUserRevokeRole != nil, r.AuthRoleAdd != nil,
		r.AuthRoleDelete != nil, r.AuthRoleGrantPermission != nil, r.AuthRoleRevokePermission != nil:
		actors.Must(false, "entry %d changes users, roles or authentication, which this version cannot do; "+
			"start the program that wrote it on this data directory", m.applied+1)
	}
	// Going on would leave out a change that other members make. A member that does not know an entry must not pass it.
	actors.Must(false, "entry %d holds a request of no known kind", m.applied+1)
	return nil, nil
}

// rangeAlone executes a range that came through the log.
func (m *machine) rangeAlone(q *pb.RangeRequest) (*proto.Result, error) {
	m.out.tally.ranges++
	return m.answerRange(q)
}

// state makes the value to publish.
func (m *machine) state() *State {
	return &State{
		Applied: m.applied, Term: m.term, Revision: m.revision, Compacted: m.compacted,
		Membership: m.membership, Alarms: m.alarms, AuthEnabled: m.authEnabled, AuthRevision: m.authRevision,
		Sizes: m.sizes, Unwritten: m.credit.payload, Keys: m.keys,
		tree: m.tree.Copy(), dead: m.publishDead(), recent: m.recent, leases: m.leases.publish(), cache: m.cache,
		file: m.file,
	}
}

// takeOutput gives what was collected and starts anew. What goes to others is not used again; the lists of answers and
// times are given back by recycle.
func (m *machine) takeOutput() output {
	o := m.out
	m.out = output{versionKeys: o.versionKeys}
	return o
}

// recycle takes the lists back when all answers have been sent and all times are counted.
func (m *machine) recycle(o *output) {
	clear(o.answers)
	if m.out.answers == nil {
		m.out.answers, m.out.applied = o.answers[:0], o.applied[:0]
	}
}
