package differential

import (
	"fmt"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// leaseIDs are the leases of all scripts: few, so that they collide.
var leaseIDs = []int64{1, 2, 3, 4, 7587, -5, math.MaxInt64}

// dice draws a step. Everything is made of fair bits, so that weights are what they say and a smaller draw is a simpler
// step: zero bits are the most ordinary choice everywhere.
type dice struct {
	t *rapid.T
	w *world
}

// steps generates the next step for the state of a world.
func steps(w *world) *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		s := dice{t, w}.step()
		s.request = asReceived(s.request)
		return s
	})
}

// asReceived gives a message as the other end of a wire has it, where a nested message that is nil is an empty one.
func asReceived(m proto.Message) proto.Message {
	if m == nil {
		return nil
	}
	data, err := proto.Marshal(m)
	out := m.ProtoReflect().New().Interface()
	if err == nil {
		err = proto.Unmarshal(data, out)
	}
	if err != nil {
		panic(fmt.Sprintf("differential: %v: %v", m, err))
	}
	return out
}

var fair = rapid.Bool()

// bits draws a number of n fair bits.
func (d dice) bits(n int) (value int) {
	for range n {
		value <<= 1
		if fair.Draw(d.t, "bit") {
			value |= 1
		}
	}
	return value
}

// rare is true once in 2^n times.
func (d dice) rare(n int) bool {
	for range n {
		if !fair.Draw(d.t, "bit") {
			return false
		}
	}
	return true
}

// below draws a number from 0 to n-1, small n only, nearly evenly.
func (d dice) below(n int) int {
	size := 3
	for 1<<size < 4*n {
		size++
	}
	return d.bits(size) % n
}

func pick[T any](d dice, from ...T) T { return from[d.below(len(from))] }

// weighted is one kind of step and how often it comes, in 256.
type weighted struct {
	weight int
	draw   func(dice) step
}

// kinds are all kinds of steps; what the weights leave of 256 are puts.
var kinds = []weighted{
	{22, func(d dice) step { return call("DeleteRange", d.deleteRange()) }},
	{46, func(d dice) step { return call("Txn", d.txn(0)) }},
	{30, func(d dice) step { return call("Range", d.rangeRequest()) }},
	{10, func(d dice) step { return call(verbRangeStream, d.rangeStream()) }},
	{14, func(d dice) step { return call("LeaseGrant", d.grant()) }},
	{5, func(d dice) step { return call("LeaseRevoke", &pb.LeaseRevokeRequest{ID: d.lease()}) }},
	{5, func(d dice) step {
		return call("LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: d.lease(), Keys: d.rare(1)})
	}},
	{4, func(d dice) step { return call(verbKeepAlive, &pb.LeaseKeepAliveRequest{ID: d.lease()}) }},
	{1, func(d dice) step { return call("LeaseLeases", &pb.LeaseLeasesRequest{}) }},
	{1, func(d dice) step {
		return call(verbShortLease, &pb.LeaseGrantRequest{ID: d.granted(), TTL: pick[int64](d, 0, 1, 2, -1, math.MinInt64)})
	}},
	{6, func(d dice) step {
		return call("Compact", &pb.CompactionRequest{Revision: d.revision(), Physical: d.rare(1)})
	}},
	{4, func(d dice) step { return call("HashKV", &pb.HashKVRequest{Revision: d.hashRevision()}) }},
	{1, func(d dice) step { return call("Hash", &pb.HashRequest{}) }},
	{2, func(d dice) step { return call("Alarm", d.alarm()) }},
	{1, func(d dice) step { return call("Status", &pb.StatusRequest{}) }},
	{1, func(d dice) step { return call("MemberList", &pb.MemberListRequest{Linearizable: d.rare(1)}) }},
	{5, dice.membership},
	{1, func(d dice) step { return call("Downgrade", d.downgrade()) }},
	{1, func(d dice) step { return call("Defragment", &pb.DefragmentRequest{}) }},
	{28, func(d dice) step { return watchStep(d.below(streamsMax), create(d.watchCreate())) }},
	{8, dice.watchCancel},
	{6, func(d dice) step { return watchStep(d.below(streamsMax), progressRequest()) }},
	{1, func(d dice) step { return watchStep(d.below(streamsMax), &pb.WatchRequest{}) }},
	{1, dice.auth},
	{1, func(dice) step { return step{verb: verbSnapshot} }},
	{1, func(d dice) step { return step{verb: verbHalfClose, stream: d.below(streamsMax)} }},
	{1, func(d dice) step { return step{verb: verbClose, stream: d.below(streamsMax)} }},
}

func progressRequest() *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
}

func (d dice) step() step {
	if d.w.alarmed && d.rare(3) {
		return call("Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: d.alarmMember(),
			Alarm: pick(d, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT)})
	}
	if d.w.membersAdded() > 0 && d.rare(7) { // what becomes of members is seen after a start
		return step{verb: pick(d, verbKill, verbRestart)}
	}
	n := d.bits(8)
	for i := len(kinds) - 1; i >= 0; i-- {
		if n = n + kinds[i].weight; n >= 256 {
			return kinds[i].draw(d)
		}
	}
	switch {
	case d.rare(8):
		return step{verb: pick(d, verbKill, verbRestart)}
	case d.rare(9): // etcd takes its time
		return step{verb: verbDownAndUp}
	case d.rare(6):
		return step{verb: verbFill, count: 1 + d.bits(5), prefix: pick(d, "a/", "f/"), size: pick(d, 1, 700, 19000)}
	}
	return call("Put", d.put())
}

// key draws from a small space with awkward members: prefixes of each other, zero bytes, 0xff, the empty key.
func (d dice) key() []byte {
	switch {
	case d.rare(6):
		return nil
	case d.rare(4):
		return pick(d, []byte{0}, []byte{0xff}, []byte{0xff, 0xff}, []byte("a\x00"), []byte("a/"), []byte("a0"),
			[]byte{0, 0}, []byte("a/\xff"))
	}
	letter := pick(d, "a", "b", "c")
	if d.rare(2) {
		return []byte(letter)
	}
	return fmt.Appendf(nil, "%s/%d", letter, d.below(5))
}

// rangeEnd draws an end for a range that starts at key.
func (d dice) rangeEnd(key []byte) []byte {
	switch d.below(6) {
	case 0, 1:
		return nil
	case 2:
		return []byte{0}
	case 3, 4: // the prefix of key
		return []byte(clientv3.GetPrefixRangeEnd(string(key)))
	default: // often behind the key, sometimes before it
		return d.key()
	}
}

func (d dice) value() []byte {
	switch {
	case d.rare(3):
		return nil
	case d.rare(6):
		return fmt.Appendf(nil, "*%d", pick(d, 600, 5000, 19000, 20500, 530_000, 545_000))
	}
	return fmt.Appendf(nil, "v%d", d.below(6))
}

func (d dice) lease() int64 {
	switch {
	case d.rare(5):
		return pick[int64](d, 0, 99, math.MinInt64)
	case d.rare(3):
		return pick(d, leaseIDs...)
	}
	return leaseIDs[d.below(3)]
}

// revision draws a revision around everything that matters: now, the compacted one, the future, none.
func (d dice) revision() int64 {
	now, compact := d.w.now, max(d.w.compact, 0)
	switch d.below(8) {
	case 0, 1:
		return now - int64(d.below(3))
	case 2:
		return compact + int64(d.below(3)) - 1
	case 3:
		return now + int64(d.below(4))
	case 4:
		return pick[int64](d, 0, -1, -2, 1, 2, math.MaxInt64, math.MinInt64)
	default:
		return compact + int64(d.bits(10))*(now-compact)/1024
	}
}

// hashRevision avoids the compacted revision, where etcd's answer depends on how far its compaction has come.
func (d dice) hashRevision() int64 {
	r := d.revision()
	if r == d.w.compact || r == 0 && d.w.now == d.w.compact {
		return d.w.compact + 1
	}
	return r
}

func (d dice) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: d.key(), Value: d.value(), PrevKv: d.rare(2)}
	if d.rare(2) {
		r.Lease = d.lease()
	}
	if r.IgnoreValue = d.rare(4); r.IgnoreValue && !d.rare(3) {
		r.Value = nil
	}
	if r.IgnoreLease = d.rare(4); r.IgnoreLease && !d.rare(3) {
		r.Lease = 0
	}
	return r
}

func (d dice) deleteRange() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: d.key(), PrevKv: d.rare(1)}
	if d.rare(2) { // large deletions are rarer, or the store would stay empty
		r.RangeEnd = d.rangeEnd(r.Key)
	}
	return r
}

func (d dice) rangeRequest() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: d.key(), Serializable: d.rare(2)}
	r.RangeEnd = d.rangeEnd(r.Key)
	if d.rare(1) {
		r.Revision = d.revision()
	}
	if d.rare(2) {
		r.Limit = pick[int64](d, 1, 2, 3, 5, 12, -1, math.MinInt64, math.MaxInt64)
	}
	if d.rare(1) {
		r.SortOrder = pb.RangeRequest_SortOrder(d.below(3))
		r.SortTarget = pb.RangeRequest_SortTarget(d.below(5))
	}
	if d.rare(5) {
		r.SortOrder = pick[pb.RangeRequest_SortOrder](d, 7, -1)
	}
	if d.rare(5) {
		r.SortTarget = pick[pb.RangeRequest_SortTarget](d, 9, math.MinInt32)
	}
	r.KeysOnly, r.CountOnly = d.rare(3), d.rare(3)
	for _, filter := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
		if d.rare(3) {
			*filter = d.revision()
		}
	}
	return r
}

// rangeStream draws a range that is mostly one that can be streamed.
func (d dice) rangeStream() *pb.RangeRequest {
	r := d.rangeRequest()
	if !d.rare(3) {
		r.SortOrder, r.SortTarget = pb.RangeRequest_NONE, pb.RangeRequest_KEY
		r.MinModRevision, r.MaxModRevision, r.MinCreateRevision, r.MaxCreateRevision = 0, 0, 0, 0
	}
	return r
}

// granted draws a lease to grant. Never 0, for which each server chooses an id of its own.
func (d dice) granted() int64 {
	if id := d.lease(); id != 0 {
		return id
	}
	return 1
}

// grant draws a lease that outlives every script.
func (d dice) grant() *pb.LeaseGrantRequest {
	return &pb.LeaseGrantRequest{ID: d.granted(),
		TTL: pick[int64](d, 5000, 6000, 9_000_000_000, 9_000_000_001, math.MaxInt64)}
}

func (d dice) auth() step {
	return pick(d, call("AuthEnable", &pb.AuthEnableRequest{}), call("AuthStatus", &pb.AuthStatusRequest{}),
		call("Authenticate", &pb.AuthenticateRequest{Name: "root", Password: "x"}),
		call("UserAdd", &pb.AuthUserAddRequest{Name: "root", Password: "x"}),
		call("RoleAdd", &pb.AuthRoleAddRequest{Name: "root"}), call("UserList", &pb.AuthUserListRequest{}))
}

func (d dice) alarmMember() uint64 { return pick[uint64](d, 0, 12345, math.MaxUint64) }

func (d dice) alarm() *pb.AlarmRequest {
	r := &pb.AlarmRequest{MemberID: d.alarmMember(), Action: pb.AlarmRequest_AlarmAction(d.below(3)),
		Alarm: pb.AlarmType(d.below(3))}
	if d.rare(4) {
		r.Alarm = 99
	}
	if d.rare(4) {
		r.Action = 99
	}
	return r
}

func (d dice) watchCreate() *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: d.key(), PrevKv: d.rare(1), Fragment: d.rare(1), ProgressNotify: d.rare(3)}
	r.RangeEnd = d.rangeEnd(r.Key)
	if d.rare(1) {
		r.StartRevision = d.revision()
	}
	if d.rare(3) {
		r.Filters = append(r.Filters, pb.WatchCreateRequest_FilterType(d.below(2)))
	}
	if d.rare(4) {
		r.Filters = append(r.Filters, pick[pb.WatchCreateRequest_FilterType](d, 0, 1, 99))
	}
	if d.rare(2) {
		r.WatchId = d.watchID()
	}
	if r.WatchId == -1 { // its notifications would look like answers to progress requests
		r.ProgressNotify = false
	}
	return r
}

func (d dice) watchID() int64 { return pick[int64](d, 1, 2, 3, 77, 0, -1, -2, math.MaxInt64) }

// watchCancel cancels mostly a watch that exists.
func (d dice) watchCancel() step {
	stream, id := d.below(streamsMax), d.watchID()
	if n := len(d.w.models); n > 0 && !d.rare(2) {
		m := d.w.models[d.below(n)]
		stream, id = m.stream, m.id
	}
	cancel := &pb.WatchCancelRequest{WatchId: id}
	return watchStep(stream, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: cancel}})
}
