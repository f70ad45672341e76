package storeactor

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"troupe/proto"
)

// The keys are few and related: prefixes of each other, neighbours, a zero byte, the highest byte.
var modelKeys = []string{"a", "a\x00", "aa", "ab", "b", "c\xff", "d"}

var modelEnds = []string{"", "", "\x00", "a", "a\x00", "ab", "b", "c", "e"}

func drawKey(t *rapid.T) []byte { return []byte(rapid.SampledFrom(modelKeys).Draw(t, "key")) }
func drawEnd(t *rapid.T) []byte { return []byte(rapid.SampledFrom(modelEnds).Draw(t, "end")) }

func drawRevision(t *rapid.T, n *naive) int64 {
	if rapid.IntRange(0, 2).Draw(t, "now") > 0 {
		return 0
	}
	return rapid.Int64Range(max(n.compacted-1, -1), n.revision+1).Draw(t, "rev")
}

func drawPut(t *rapid.T) *pb.PutRequest {
	p := &pb.PutRequest{Key: drawKey(t), PrevKv: rapid.Bool().Draw(t, "prev")}
	if rapid.IntRange(0, 5).Draw(t, "ignore value") == 0 {
		p.IgnoreValue = true
	} else {
		p.Value = rapid.SampledFrom([][]byte{nil, []byte("x"), []byte("y"), bytes.Repeat([]byte("z"), 6000)}).Draw(t, "value")
	}
	switch rapid.IntRange(0, 5).Draw(t, "lease") {
	case 0:
		p.IgnoreLease = true
	case 1, 2:
		p.Lease = rapid.Int64Range(1, 3).Draw(t, "lease id")
	}
	return p
}

func drawDelete(t *rapid.T) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: drawKey(t), RangeEnd: drawEnd(t), PrevKv: rapid.Bool().Draw(t, "prev")}
}

func drawRange(t *rapid.T, n *naive) *pb.RangeRequest {
	q := &pb.RangeRequest{
		Key: drawKey(t), RangeEnd: drawEnd(t), Revision: drawRevision(t, n),
		Limit:     rapid.SampledFrom([]int64{0, 0, 1, 2, 5}).Draw(t, "limit"),
		KeysOnly:  rapid.Bool().Draw(t, "keys only"),
		CountOnly: rapid.IntRange(0, 5).Draw(t, "count") == 0,
	}
	if rapid.Bool().Draw(t, "sorted") {
		q.SortOrder = pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(t, "order"))
		q.SortTarget = pb.RangeRequest_SortTarget(rapid.IntRange(0, 4).Draw(t, "target"))
	}
	if rapid.IntRange(0, 3).Draw(t, "filtered") == 0 {
		bound := func(name string) int64 { return rapid.Int64Range(0, n.revision).Draw(t, name) }
		q.MinModRevision, q.MaxModRevision = bound("min mod"), bound("max mod")
		q.MinCreateRevision, q.MaxCreateRevision = bound("min create"), bound("max create")
	}
	return q
}

func drawCompare(t *rapid.T, n *naive) *pb.Compare {
	c := &pb.Compare{
		Key: drawKey(t), RangeEnd: drawEnd(t),
		Result: pb.Compare_CompareResult(rapid.IntRange(0, 3).Draw(t, "result")),
		Target: pb.Compare_CompareTarget(rapid.IntRange(0, 4).Draw(t, "target")),
	}
	number := rapid.Int64Range(0, n.revision).Draw(t, "number")
	switch rapid.IntRange(0, 5).Draw(t, "union") {
	case 0:
		c.TargetUnion = &pb.Compare_Version{Version: rapid.Int64Range(0, 3).Draw(t, "version")}
	case 1:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: number}
	case 2:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: number}
	case 3:
		c.TargetUnion = &pb.Compare_Value{Value: []byte("x")}
	case 4:
		c.TargetUnion = &pb.Compare_Lease{Lease: rapid.Int64Range(0, 3).Draw(t, "lease")}
	}
	return c
}

func drawOps(t *rapid.T, n *naive, depth int) []*pb.RequestOp {
	var ops []*pb.RequestOp
	for range rapid.IntRange(0, 3).Draw(t, "operations") {
		op := &pb.RequestOp{}
		switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
		case kind < 2:
			op.Request = &pb.RequestOp_RequestRange{RequestRange: drawRange(t, n)}
		case kind < 4:
			op.Request = &pb.RequestOp_RequestPut{RequestPut: drawPut(t)}
		case kind < 5 || depth == 0:
			op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: drawDelete(t)}
		default:
			op.Request = &pb.RequestOp_RequestTxn{RequestTxn: drawTxn(t, n, depth-1)}
		}
		ops = append(ops, op)
	}
	return ops
}

func drawTxn(t *rapid.T, n *naive, depth int) *pb.TxnRequest {
	x := &pb.TxnRequest{}
	for range rapid.IntRange(0, 2).Draw(t, "compares") {
		x.Compare = append(x.Compare, drawCompare(t, n))
	}
	x.Success, x.Failure = drawOps(t, n, depth), drawOps(t, n, depth)
	return x
}

func drawRequest(t *rapid.T, n *naive) *pb.InternalRaftRequest {
	switch kind := rapid.IntRange(0, 19).Draw(t, "request"); {
	case kind < 5:
		return &pb.InternalRaftRequest{Put: drawPut(t)}
	case kind < 7:
		return &pb.InternalRaftRequest{DeleteRange: drawDelete(t)}
	case kind < 12:
		return &pb.InternalRaftRequest{Txn: drawTxn(t, n, 2)}
	case kind < 16:
		return &pb.InternalRaftRequest{Range: drawRange(t, n)}
	case kind < 17:
		rev := rapid.Int64Range(max(n.compacted, 1), n.revision+1).Draw(t, "compact")
		return &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}}
	case kind < 19:
		return &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{
			ID: rapid.Int64Range(1, 3).Draw(t, "grant"), TTL: rapid.Int64Range(-1, 5).Draw(t, "ttl"),
		}}
	default:
		return &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: rapid.Int64Range(1, 3).Draw(t, "revoke")}}
	}
}

// TestMachine_IsTheNaiveStore executes random requests on the store and on the list of all changes, while
// checkpoints, compaction steps and restarts happen at random, and compares every answer, every event and what is in
// the file. The txns are not checked for double changes first: apply must agree about those that a check would have
// refused, too.
func TestMachine_IsTheNaiveStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		if rapid.Bool().Draw(rt, "tiny cache") {
			r.m.cache.max = 40
		}
		n := newNaive()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "between") {
			case 0:
				r.checkpoint()
			case 1:
				r.compactAll()
				checkFile(rt, r, n)
			case 2:
				r.restart()
			case 3:
				if r.m.compactionDue() && len(r.m.compactions) == 1 {
					r.stepOnly()
				}
			case 4:
				r.m.cache.sweep(r.m.tree, 5)
			}
			step(rt, r, n)
			checkState(rt, r, n)
		}
		r.compactAll()
		checkFile(rt, r, n)
		checkEvents(rt, r, n)
		if leaked := r.file.OpenViews(); leaked > 2 {
			rt.Fatalf("%d handles are open", leaked)
		}
	})
}

// stepOnly does one step of a compaction unless it would be the last.
func (r *rig) stepOnly() {
	if r.m.tree.Len() > 3 && r.m.compactions[0].cursor == nil {
		if request := r.m.compactStep(2); request != nil {
			r.tb.Fatal("a step of two keys finished a compaction of more")
		}
	}
}

func step(rt *rapid.T, r *rig, n *naive) {
	request := drawRequest(rt, n)
	before := len(n.log)
	r.events = nil
	waited := rapid.IntRange(0, 4).Draw(rt, "waited") > 0
	got, err := r.run(request, waited)
	want, wantErr := n.apply(request)
	if r.m.revision != proto.Revision(n.revision) {
		rt.Fatalf("%v\nrevision %d, want %d", request, r.m.revision, n.revision)
	}
	if waited {
		compareAnswers(rt, r, request, got, err, want, wantErr)
		if wantErr == nil && got.Revision != proto.Revision(n.revision) {
			rt.Fatalf("%v\nheader revision %d, want %d", request, got.Revision, n.revision)
		}
	}
	changes := n.log[before:]
	if len(changes) != len(r.events) {
		rt.Fatalf("%v\n%d events, want %d", request, len(r.events), len(changes))
	}
	for i := range changes {
		compareEvent(rt, n, &r.events[i], changes[i])
	}
}

func compareAnswers(rt *rapid.T, r *rig, request *pb.InternalRaftRequest, got *proto.Result, err error,
	want gproto.Message, wantErr error,
) {
	if !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
		rt.Fatalf("%v\nerror %v, want %v", request, err, wantErr)
	}
	if err != nil {
		return
	}
	into := want.ProtoReflect().New().Interface()
	decode(r.tb, got, into)
	if !gproto.Equal(into, want) {
		rt.Fatalf("%v\ngot  %v\nwant %v", request, into, want)
	}
}

func compareEvent(rt *rapid.T, n *naive, e *proto.Event, c naiveChange) {
	want := gproto.Clone(c.kv).(*mvccpb.KeyValue)
	want.ModRevision = c.main
	kv := &mvccpb.KeyValue{}
	if err := gproto.Unmarshal(e.KeyValue, kv); err != nil || !gproto.Equal(kv, want) {
		rt.Fatalf("event %v %v, want %v", err, kv, want)
	}
	if e.Version != (proto.Version{Main: proto.Revision(c.main), Sub: proto.SubRevision(c.sub)}) ||
		(e.Kind == proto.EventDelete) != c.deleted || !bytes.Equal(e.Key, c.kv.Key) ||
		e.Created != (!c.deleted && kv.CreateRevision == c.main) {
		rt.Fatalf("event %+v, want %+v", e, c)
	}
	previous := n.one(c.main-1, string(c.kv.Key))
	if e.Created {
		previous = nil // a created key has none, also when the same revision deleted it before
	}
	if c.main-1 < n.compacted {
		return
	}
	if previous == nil != (e.Previous == proto.Version{}) {
		rt.Fatalf("event %+v, previous is %v", e, previous)
	}
	if previous == nil {
		return
	}
	if e.PreviousKeyValue != nil {
		got := &mvccpb.KeyValue{}
		if err := gproto.Unmarshal(e.PreviousKeyValue, got); err != nil || !gproto.Equal(got, previous) {
			rt.Fatalf("previous %v, want %v", got, previous)
		}
	}
	if int64(e.Previous.Main) != previous.ModRevision {
		rt.Fatalf("previous %v, want %v", e.Previous, previous)
	}
}

// checkState compares what a reader of the published state sees, at a random revision and of all leases.
func checkState(rt *rapid.T, r *rig, n *naive) {
	s := r.m.state()
	v := newView(s)
	q := drawRange(rt, n)
	want, wantErr := n.ranged(q, n.revision)
	if wantErr == nil {
		want.Header = nil
	}
	got, err := v.Range(q)
	compareAnswers(rt, r, &pb.InternalRaftRequest{Range: q}, got, err, want, wantErr)
	checkCache(rt, r)
	if s.Keys != len(n.at(n.revision, "\x00", "\x00")) || s.LeaseCount() != len(n.leases) {
		rt.Fatalf("%d keys and %d leases", s.Keys, s.LeaseCount())
	}
	for id := range n.leases {
		var keys []string
		for _, k := range s.LeaseKeys(proto.LeaseID(id)) {
			keys = append(keys, string(k))
		}
		if !slices.Equal(keys, n.attached(id)) {
			rt.Fatalf("keys of lease %d: %q, want %q", id, keys, n.attached(id))
		}
	}
}

// checkCache compares what the cache believes to hold with what hangs at the living keys.
func checkCache(rt *rapid.T, r *rig) {
	held := int64(0)
	r.m.tree.Scan(func(e *keyEntry) bool {
		if e.head != nil && e.head.data.Load() != nil {
			held += int64(e.head.bytes)
		}
		return true
	})
	if counted := r.m.cache.bytes.Load(); counted != held {
		rt.Fatalf("the cache counts %d bytes and holds %d", counted, held)
	}
}

// checkFile compares the key bucket with what must be left of it.
func checkFile(rt *rapid.T, r *rig, n *naive) {
	r.checkpoint()
	if got, want := r.stored(), n.kept(); !slices.Equal(got, want) {
		rt.Fatalf("compacted at %d\nfile has %v\nshould   %v", n.compacted, got, want)
	}
}

// checkPiece: without its last revision a piece must be below the bound.
func checkPiece(rt *rapid.T, piece []proto.Event, size int) {
	sum := 0
	for i := range piece {
		if piece[i].Version.Main != piece[len(piece)-1].Version.Main {
			sum += piece[i].Size()
		}
	}
	if sum > 0 && sum >= size {
		rt.Fatalf("a piece of %d bytes goes on past its bound of %d", sum, size)
	}
}

// checkEvents reads the whole surviving history through a view, in pieces of a random size, and compares it.
func checkEvents(rt *rapid.T, r *rig, n *naive) {
	v := r.view()
	key, end := drawKey(rt), drawEnd(rt)
	from := max(n.compacted+1, 1)
	size := rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "piece")
	scan := rapid.Bool().Draw(rt, "scan")
	var got []proto.Event
	for next := proto.Revision(from); next <= proto.Revision(n.revision); {
		var piece []proto.Event
		if scan {
			c := collector{view: v, keys: NewKeyRange(key, end), through: v.revision, bytes: size}
			c.scan(next)
			piece, next = c.events, max(c.next, 0)
			if next == 0 {
				next = v.revision + 1
			}
		} else {
			var err error
			if piece, next, err = v.Events(NewKeyRange(key, end), next, 1<<60, size); err != nil {
				rt.Fatal(err)
			}
		}
		checkPiece(rt, piece, size)
		got = append(got, piece...)
	}
	i := 0
	for _, c := range n.log {
		if c.main < from || !naiveIn(string(key), string(end), string(c.kv.Key)) {
			continue
		}
		if i == len(got) {
			rt.Fatalf("%d events, more expected", i)
		}
		compareEvent(rt, n, &got[i], c)
		i++
	}
	if i != len(got) {
		rt.Fatalf("%d events, want %d", len(got), i)
	}
}
