package entries

import (
	"fmt"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// generator makes requests from a seed. It keeps only what it needs to aim well: a guess of the current revision, so
// that reads and compactions hit past, present and future, and the leases it has granted.
type generator struct {
	random   *rand.Rand
	revision int64 // as last answered by the servers
	compact  int64
	leases   []int64
	granted  int64
}

func newGenerator(seed uint64) *generator {
	return &generator{random: rand.New(rand.NewPCG(seed, 7)), revision: 1, compact: -1}
}

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.random.IntN(n) == 0 }

// next makes one request: a pointer to one of the request messages.
func (g *generator) next() any {
	switch n := g.random.IntN(100); {
	case n < 26:
		return g.put()
	case n < 38:
		return g.deleteRange()
	case n < 56:
		return g.txn(0)
	case n < 78:
		return g.rangeRequest()
	case n < 84:
		return g.grant()
	case n < 88:
		return &pb.LeaseRevokeRequest{ID: g.lease()}
	case n < 92:
		return &pb.LeaseTimeToLiveRequest{ID: g.lease(), Keys: g.chance(2)}
	case n < 93:
		return &pb.LeaseLeasesRequest{}
	case n < 95:
		return g.compaction()
	case n < 98:
		return &pb.HashKVRequest{Revision: g.hashRevision()}
	case n < 99:
		return &pb.AlarmRequest{Action: pb.AlarmRequest_GET}
	default:
		return &pb.MemberListRequest{Linearizable: g.chance(2)}
	}
}

// key draws from a small space with awkward members: prefixes of each other, zero bytes, 0xff, the empty key.
func (g *generator) key() []byte {
	if g.chance(60) {
		return nil
	}
	if g.chance(12) {
		odd := [][]byte{{0}, {0xff}, {0xff, 0xff}, []byte("a\x00"), []byte("a/"), []byte("a0"), {0, 0}}
		return odd[g.random.IntN(len(odd))]
	}
	letter := "abc"[g.random.IntN(3)]
	if g.chance(4) {
		return []byte{letter}
	}
	return fmt.Appendf(nil, "%c/%d", letter, g.random.IntN(6))
}

// rangeEnd draws an end for a range that starts at key.
func (g *generator) rangeEnd(key []byte) []byte {
	switch g.random.IntN(6) {
	case 0, 1:
		return nil
	case 2:
		return []byte{0}
	case 3: // the prefix of key
		return []byte(clientv3.GetPrefixRangeEnd(string(key)))
	default: // often behind the key, sometimes before it
		return g.key()
	}
}

func (g *generator) value() []byte {
	if g.chance(10) {
		return nil
	}
	return fmt.Appendf(nil, "v%d", g.random.IntN(8))
}

// lease draws a granted lease, or one that does not exist.
func (g *generator) lease() int64 {
	if len(g.leases) == 0 || g.chance(8) {
		return 999_000_000 + g.random.Int64N(3)
	}
	return g.leases[g.random.IntN(len(g.leases))]
}

// pastRevision draws a revision around everything that matters: now, the compacted one, the future.
func (g *generator) pastRevision() int64 {
	switch g.random.IntN(8) {
	case 0:
		return g.compact + g.random.Int64N(3) - 1
	case 1:
		return g.revision + g.random.Int64N(3) - 1
	case 2:
		return -g.random.Int64N(3)
	default:
		return g.compact + g.random.Int64N(max(g.revision-g.compact, 1)+1)
	}
}

// hashRevision avoids the compacted revision, where etcd's answer depends on how far its compaction has come.
func (g *generator) hashRevision() int64 {
	rev := g.pastRevision()
	if rev == g.compact || rev == 0 && g.revision == g.compact {
		return g.compact + 1
	}
	return rev
}

func (g *generator) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: g.key(), Value: g.value(), PrevKv: g.chance(3)}
	if g.chance(4) {
		r.Lease = g.lease()
	}
	if g.chance(12) {
		r.IgnoreValue = true
		if !g.chance(6) {
			r.Value = nil
		}
	}
	if g.chance(12) {
		r.IgnoreLease = true
		if !g.chance(6) {
			r.Lease = 0
		}
	}
	return r
}

func (g *generator) deleteRange() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: g.key(), PrevKv: g.chance(2)}
	r.RangeEnd = g.rangeEnd(r.Key)
	if len(r.RangeEnd) > 0 && !g.chance(4) { // large deletions are rarer, or the store would stay empty
		r.RangeEnd = nil
	}
	return r
}

func (g *generator) rangeRequest() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: g.key(), Serializable: g.chance(3)}
	r.RangeEnd = g.rangeEnd(r.Key)
	if g.chance(3) {
		r.Revision = g.pastRevision()
	}
	if g.chance(4) {
		r.Limit = g.random.Int64N(6) - 1
	}
	if g.chance(3) {
		r.SortOrder = pb.RangeRequest_SortOrder(g.random.IntN(3))
		r.SortTarget = pb.RangeRequest_SortTarget(g.random.IntN(5))
	}
	if g.chance(50) {
		r.SortOrder = 7
	}
	if g.chance(50) {
		r.SortTarget = 9
	}
	r.KeysOnly, r.CountOnly = g.chance(8), g.chance(10)
	for _, filter := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
		if g.chance(12) {
			*filter = g.pastRevision()
		}
	}
	return r
}

func (g *generator) grant() *pb.LeaseGrantRequest {
	g.granted++
	r := &pb.LeaseGrantRequest{ID: 1000 + g.granted, TTL: 100_000 + 1000*g.granted}
	switch g.random.IntN(10) {
	case 0:
		r.ID = g.lease() // often taken already
	case 1:
		r.TTL = 9_000_000_001
	case 2:
		r.ID = -r.ID
	}
	return r
}

func (g *generator) compaction() *pb.CompactionRequest {
	r := &pb.CompactionRequest{Physical: g.chance(2)}
	switch g.random.IntN(6) {
	case 0:
		r.Revision = g.revision
	case 1:
		r.Revision = g.revision + 1
	case 2:
		r.Revision = g.pastRevision()
	default:
		r.Revision = g.compact + g.random.Int64N(max((g.revision-g.compact)/3, 1)+1)
	}
	return r
}

// observe tells the generator what an answer showed.
func (g *generator) observe(request any, a answer) {
	g.revision = max(g.revision, a.revision)
	if a.err != "" {
		return
	}
	switch r := request.(type) {
	case *pb.LeaseGrantRequest:
		g.leases = append(g.leases, r.ID)
	case *pb.CompactionRequest:
		g.compact = r.Revision
	}
}
