package storeactor

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

func compactAt(rev proto.Revision) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: int64(rev)}}
}

func txnOf(ops ...*pb.RequestOp) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: ops}}
}

// eventsOf lists the events of all keys from a revision on.
func eventsOf(t *testing.T, r *rig, from proto.Revision) []string {
	t.Helper()
	events, _, err := r.view().Events(NewKeyRange([]byte{0}, []byte{0}), from, 1<<60, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		all = append(all, versionText(e.Version, e.Kind == proto.EventDelete)+"="+string(e.Key))
	}
	return all
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// TestCompact_DeletionAtItsRevisionStaysWatchable (etcd#18089, etcd#19179): before the physical compaction, after it,
// and after a restart in the middle of it.
func TestCompact_DeletionAtItsRevisionStaysWatchable(t *testing.T) {
	r := newRig(t)
	for _, k := range []string{"a", "b", "c", "d"} {
		r.put(k, "v")
	}
	r.delete("a") // revision 6
	r.must(compactAt(6))
	wantList(t, "logically", eventsOf(t, r, 6), "6/0t=a")
	r.restart() // the scheduled revision is in the file, the deletions are not
	if !r.m.compactionDue() || r.m.compacted != 6 {
		t.Fatalf("the compaction does not go on: compacted %d", r.m.compacted)
	}
	wantList(t, "after the restart", eventsOf(t, r, 6), "6/0t=a")
	r.compactAll()
	wantList(t, "physically", eventsOf(t, r, 6), "6/0t=a")
	wantList(t, "file", r.stored(), "3/0=b", "4/0=c", "5/0=d", "6/0t=a")
	r.restart()
	wantList(t, "after another restart", eventsOf(t, r, 6), "6/0t=a")
	if _, _, err := r.view().Events(NewKeyRange([]byte("a"), nil), 5, 1<<60, 1); !errors.Is(err, ErrCompacted) {
		t.Fatalf("from below the compact revision: %v", err)
	}
}

// TestCompact_KeyCreatedAgainInItsRevisionSurvives (etcd#22376): apply gets such a txn from an etcd leader that did
// not refuse it, deletion and put side by side or nested.
func TestCompact_KeyCreatedAgainInItsRevisionSurvives(t *testing.T) {
	all := opOfDelete("\x00", "\x00")
	for name, second := range map[string]*pb.RequestOp{
		"side by side": opOfPut("cfg/a"), "nested": opOfTxn([]*pb.RequestOp{opOfPut("cfg/a")}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.put("cfg/a", "old")
			rev := r.must(txnOf(all, second)).Revision
			r.must(compactAt(rev))
			r.compactAll()
			for range 2 {
				if v, _ := r.get("cfg/a"); v != "v" {
					t.Fatalf("the value is %q", v)
				}
				wantList(t, "file", r.stored(), "3/0t=cfg/a", "3/1=cfg/a")
				wantList(t, "events", eventsOf(t, r, rev), "3/0t=cfg/a", "3/1=cfg/a")
				r.restart()
			}
			r.put("cfg/a", "next")
			r.must(compactAt(rev + 1))
			r.compactAll()
			wantList(t, "file after the next compaction", r.stored(), "4/0=cfg/a")
		})
	}
}

// TestTxn_RangeBelowTheCompactRevisionChangesNothing (etcd#18667, etcd#18679, etcd#13871): refused with and without a
// waiter, because the check looks at replicated state alone.
func TestTxn_RangeBelowTheCompactRevisionChangesNothing(t *testing.T) {
	for _, waited := range []bool{true, false} {
		r := newRig(t)
		for range 20 {
			r.put("k2", "old")
		}
		negative := txnOf(opOfRange("k1", -1), opOfPut("k3"))
		if _, err := r.run(negative, true); err != nil {
			t.Fatalf("a negative revision before any compaction: %v", err)
		}
		r.must(compactAt(21))
		for _, request := range []*pb.InternalRaftRequest{
			txnOf(opOfPut("k2"), opOfRange("k1", 10)), txnOf(opOfPut("k2"), opOfTxn([]*pb.RequestOp{opOfRange("k1", 10)}, nil)),
			txnOf(opOfRange("k1", -1), opOfPut("k2")),
		} {
			before := r.m.revision
			if _, err := r.run(request, waited); waited && !errors.Is(err, ErrCompacted) {
				t.Fatalf("got %v", err)
			}
			if v, _ := r.get("k2"); v != "old" || r.m.revision != before {
				t.Fatalf("k2=%q at revision %d", v, r.m.revision)
			}
		}
		if _, err := r.run(txnOf(opOfPut("k2"), opOfRange("k1", 99)), true); !errors.Is(err, ErrFutureRevision) {
			t.Fatalf("got %v", err)
		}
	}
}

// TestTxn_WithoutWaiterChangesTheSame (etcd#18667): a member that nobody waits on skips the ranges and ends up equal.
func TestTxn_WithoutWaiterChangesTheSame(t *testing.T) {
	request := txnOf(opOfRange("a", 0), opOfPut("a"), opOfRange("a", 0), opOfDelete("b", ""))
	a, b := newRig(t), newRig(t)
	for _, r := range []*rig{a, b} {
		r.put("b", "1")
		_, _ = r.run(request, r == a)
		r.checkpoint()
	}
	if a.m.revision != b.m.revision || !slices.Equal(a.stored(), b.stored()) {
		t.Fatalf("%v and %v", a.stored(), b.stored())
	}
}

// TestRestart_CompactedHeadDeletion (etcd#6633, etcd#5074, etcd#17780): reads at the compact revision work, the
// revision does not go down when all records below it are gone.
func TestRestart_CompactedHeadDeletion(t *testing.T) {
	r := newRig(t)
	r.put("foo", "1")
	r.delete("foo")
	r.must(compactAt(3))
	r.compactAll()
	for range 2 {
		if _, ok := r.get("foo"); ok || r.m.revision != 3 || r.m.compacted != 3 {
			t.Fatalf("found %v at revision %d, compacted %d", ok, r.m.revision, r.m.compacted)
		}
		r.restart()
	}
	r = newRig(t) // etcd before 3.5.16 leaves no record of a compacted head deletion, a crash no finished revision
	r.write([]proto.BucketWrite{{
		Bucket: proto.BucketMeta, Key: metaScheduled, Value: appendVersionKey(nil, proto.Version{Main: 9}),
	}})
	r.restart()
	if r.m.revision != 9 || r.m.compacted != 9 {
		t.Fatalf("revision %d, compacted %d", r.m.revision, r.m.compacted)
	}
	r.compactAll()
	r.restart()
	if got := r.put("abc", "1"); got != 10 {
		t.Fatalf("the next revision is %d", got)
	}
	r = newRig(t)
	r.put("abc", "1")
	r.must(compactAt(2))
	r.compactAll()
	r.restart()
	at := func(rev int64) error {
		_, err := r.view().Range(&pb.RangeRequest{Key: []byte("abc"), Revision: rev})
		return err
	}
	if err := errors.Join(at(0), at(2)); err != nil {
		t.Fatal(err)
	}
	if err := at(1); !errors.Is(err, ErrCompacted) {
		t.Fatalf("below: %v", err)
	}
	if err := at(99); !errors.Is(err, ErrFutureRevision) {
		t.Fatalf("above: %v", err)
	}
}

// TestRange_CountMoreAndKeysOnly (etcd#18267, etcd#6145, etcd#22209 as 3.7.3 has it).
func TestRange_CountMoreAndKeysOnly(t *testing.T) {
	r := newRig(t)
	r.must(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 5, TTL: 10}})
	for _, k := range []string{"a", "b", "c", "d"} {
		r.must(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(k), Value: []byte("v"), Lease: 5}})
	}
	ask := func(change func(q *pb.RangeRequest)) *pb.RangeResponse {
		q := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}
		change(q)
		answer := &pb.RangeResponse{}
		decode(t, r.must(&pb.InternalRaftRequest{Range: q}), answer)
		return answer
	}
	if a := ask(func(q *pb.RangeRequest) { q.Limit = 2 }); a.Count != 4 || !a.More || len(a.Kvs) != 2 {
		t.Errorf("limit 2 of 4: %v", a)
	}
	from := func(mod int64) *pb.RangeResponse {
		return ask(func(q *pb.RangeRequest) { q.MinModRevision, q.Limit = mod, 1 })
	}
	if a := from(4); a.Count != 4 || !a.More || len(a.Kvs) != 1 {
		t.Errorf("the count ignores the filter: %v", a)
	}
	if a := from(5); a.Count != 4 || a.More || len(a.Kvs) != 1 {
		t.Errorf("more is about what the filter left: %v", a)
	}
	a := ask(func(q *pb.RangeRequest) { q.KeysOnly = true })
	if a.Kvs[0].Lease != 0 || a.Kvs[0].Value != nil || a.Kvs[3].ModRevision != 5 {
		t.Errorf("keys_only: %v", a)
	}
	byValue := func(q *pb.RangeRequest) { q.KeysOnly, q.SortTarget = true, pb.RangeRequest_VALUE }
	if a := ask(byValue); a.Kvs[0].Lease != 5 || a.Kvs[0].Value != nil {
		t.Errorf("keys_only sorted by value: %v", a)
	}
}

// TestAlarms_GateWhatTheyMust: a raised alarm refuses exactly the listed requests, on every member alike.
func TestAlarms_GateWhatTheyMust(t *testing.T) {
	key := []byte("k")
	requests := map[string]*pb.InternalRaftRequest{
		"put":        {Put: &pb.PutRequest{Key: key}},
		"range":      {Range: &pb.RangeRequest{Key: key}},
		"delete":     {DeleteRange: &pb.DeleteRangeRequest{Key: key}},
		"reading":    txnOf(opOfRange("k", 0)),
		"deleting":   txnOf(opOfDelete("k", "")),
		"putting":    {Txn: &pb.TxnRequest{Failure: []*pb.RequestOp{opOfTxn(nil, []*pb.RequestOp{opOfPut("k")})}}},
		"compact":    compactAt(1),
		"grant":      {LeaseGrant: &pb.LeaseGrantRequest{ID: 9}},
		"revoke":     {LeaseRevoke: &pb.LeaseRevokeRequest{ID: 8}},
		"checkpoint": {LeaseCheckpoint: &pb.LeaseCheckpointRequest{}},
		"status":     {AuthStatus: &pb.AuthStatusRequest{}},
	}
	refused := map[pb.AlarmType][]string{
		pb.AlarmType_NOSPACE: {"grant", "put", "putting"},
		pb.AlarmType_CORRUPT: {"compact", "delete", "deleting", "grant", "put", "putting", "range", "reading", "revoke"},
	}
	for kind, want := range refused {
		sentinel := map[pb.AlarmType]error{pb.AlarmType_NOSPACE: ErrNoSpace, pb.AlarmType_CORRUPT: ErrCorrupt}[kind]
		var got []string
		for name, request := range requests {
			r := newRig(t)
			r.must(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 8, TTL: 9}})
			r.must(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: kind}})
			r.restart() // the alarm is in the file
			if _, err := r.run(request, true); errors.Is(err, sentinel) {
				got = append(got, name)
			} else if err != nil {
				t.Errorf("%v, %s: %v", kind, name, err)
			}
		}
		slices.Sort(got)
		wantList(t, kind.String(), got, want...)
	}
}

// TestLease_EdgesOfTheTable: raised minimum, id 0, too large, taken, unknown; checkpoints and their survival.
func TestLease_EdgesOfTheTable(t *testing.T) {
	r := newRig(t)
	grant := func(id, ttl int64) error {
		_, err := r.run(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: ttl}}, true)
		return err
	}
	for _, c := range []struct {
		id, ttl int64
		want    error
	}{
		{0, 10, ErrLeaseNotFound}, {1, LeaseTTLMax + 1, ErrLeaseTTLTooLarge}, {1, -5, nil}, {1, 10, ErrLeaseExists},
		{2, LeaseTTLMax, nil}, {-3, 10, nil},
	} {
		if err := grant(c.id, c.ttl); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("grant %d %d: %v", c.id, c.ttl, err)
		}
	}
	checkpoint := &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{
		Checkpoints: []*pb.LeaseCheckpoint{{ID: 2, Remaining_TTL: 33}, {ID: 77, Remaining_TTL: 1}},
	}}
	r.must(checkpoint)
	if l, _ := r.m.state().Lease(2); l.Remaining != 33 {
		t.Errorf("lease %+v", l)
	}
	r.restart()
	if l, _ := r.m.state().Lease(2); l.Remaining != 0 {
		t.Errorf("stored before cluster version 3.6: %+v", l)
	}
	// The gate is that of the entry: here the version is set behind the first checkpoint of a batch and before the second.
	set := proto.BucketWrite{Bucket: proto.BucketCluster, Key: clusterVersionKey, Value: []byte("3.6.0")}
	other := &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{
		Checkpoints: []*pb.LeaseCheckpoint{{ID: 1, Remaining_TTL: 1}},
	}}
	at := r.m.applied
	r.m.execute(&proto.Batch{Membership: &proto.Membership{ClusterVersion: "3.6.0"}, Commands: []proto.Command{
		{Index: at + 1, Term: 1, Request: other},
		{Index: at + 2, Term: 1, Answered: &proto.Result{}, Writes: []proto.BucketWrite{set}},
		{Index: at + 3, Term: 1, Request: checkpoint},
	}})
	r.unsent = append(r.unsent, r.m.takeOutput().writes...)
	r.restart()
	if r.m.clusterVersion != "3.6.0" {
		t.Errorf("after a restart the cluster version is %q", r.m.clusterVersion)
	}
	if l, _ := r.m.state().Lease(1); l.Remaining != 0 {
		t.Errorf("stored before the version was set: %+v", l)
	}
	if l, _ := r.m.state().Lease(2); l.Remaining != 33 || r.m.state().LeaseCount() != 3 {
		t.Errorf("lease %+v of %d", l, r.m.state().LeaseCount())
	}
	if l, _ := r.m.state().Lease(1); l.TTL != rigLeaseTTLMin {
		t.Errorf("lease %+v", l)
	}
}

// TestExecute_RefusedAndForeignEntriesMoveTheIndex: whatever becomes of an entry, the index moves, and apply's own
// writes go along in their place.
func TestExecute_RefusedAndForeignEntriesMoveTheIndex(t *testing.T) {
	r := newRig(t)
	mine := proto.BucketWrite{Bucket: proto.BucketMembers, Key: []byte("1"), Value: []byte("{}")}
	why := errors.New("refused")
	r.m.execute(&proto.Batch{Commands: []proto.Command{
		{Index: 1, Term: 1}, {Index: 2, Term: 1, Refused: why, Answer: discard{}},
		{Index: 3, Term: 2, Answered: &proto.Result{Revision: 7}, Answer: discard{}, Writes: []proto.BucketWrite{mine}},
	}})
	o := r.m.takeOutput()
	if r.m.applied != 3 || r.m.term != 2 || len(o.writes) != 1 || string(o.writes[0].Key) != "1" {
		t.Fatalf("applied %d, writes %v", r.m.applied, o.writes)
	}
	if len(o.answers) != 2 || !errors.Is(o.answers[0].err, why) || o.answers[1].result.Revision != 7 {
		t.Fatalf("answers %+v", o.answers)
	}
}

// TestQuota_ExecutesAndAnswersNoSpace: the quota is one member's knowledge and must not change what is executed.
func TestQuota_ExecutesAndAnswersNoSpace(t *testing.T) {
	r := newRig(t)
	r.m.quota = 1
	_, err := r.run(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}}, true)
	if !errors.Is(err, ErrNoSpace) || r.m.revision != 2 {
		t.Fatalf("%v at revision %d", err, r.m.revision)
	}
	if _, err := r.run(txnOf(opOfDelete("k", "")), true); err != nil || r.m.revision != 3 {
		t.Fatalf("a txn without cost: %v at revision %d", err, r.m.revision)
	}
}

// TestQuota_EveryMemberRaisesItsOwnAlarm: also one at which nobody waits for the answer.
func TestQuota_EveryMemberRaisesItsOwnAlarm(t *testing.T) {
	r := newRig(t)
	r.m.quota = 1
	r.m.execute(&proto.Batch{Commands: []proto.Command{{Index: 1, Term: 1, Request: putOf("k", 1)}}})
	if !r.m.takeOutput().overQuota {
		t.Error("a write of another member's client exceeded the quota, and nobody is told")
	}
}

// TestAuthDisable_OfWhatIsOffSucceeds: as in etcd, and changes nothing.
func TestAuthDisable_OfWhatIsOffSucceeds(t *testing.T) {
	r := newRig(t)
	disable := &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}}
	answer := &pb.AuthDisableResponse{}
	decode(t, r.must(disable), answer)
	if o := r.m.takeOutput(); len(o.writes) != 0 || r.m.authRevision != 1 {
		t.Errorf("it wrote %v", o.writes)
	}
}

// TestAuth_AnEntryThatCannotBeExecutedStopsTheMember: it comes from a log of etcd's, and to pass over it would lose
// users, or serve everybody what was protected.
func TestAuth_AnEntryThatCannotBeExecutedStopsTheMember(t *testing.T) {
	for name, request := range map[string]*pb.InternalRaftRequest{
		"enable":  {AuthEnable: &pb.AuthEnableRequest{}},
		"user":    {AuthUserAdd: &pb.AuthUserAddRequest{Name: "u"}},
		"role":    {AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "r"}},
		"disable": {AuthDisable: &pb.AuthDisableRequest{}},
	} {
		r := newRig(t)
		r.m.authEnabled = name == "disable"
		stopped := func() (stopped bool) {
			defer func() { stopped = recover() != nil }()
			_, _ = r.run(request, false)
			return false
		}()
		if !stopped || r.m.applied != 0 {
			t.Errorf("%s: the member goes on at index %d", name, r.m.applied)
		}
	}
	r := newRig(t)
	list := &pb.InternalRaftRequest{AuthUserList: &pb.AuthUserListRequest{}}
	if _, err := r.run(list, true); !errors.Is(err, ErrAuthUnsupported) || r.m.applied != 1 {
		t.Errorf("a question: %v, applied %d", err, r.m.applied)
	}
}

// TestCompaction_AtZeroSurvivesARestart: it deletes nothing, and may not be done twice.
func TestCompaction_AtZeroSurvivesARestart(t *testing.T) {
	r := newRig(t)
	compact := &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{}}
	r.must(compact)
	r.compactAll()
	r.restart()
	if _, err := r.run(compact, true); !errors.Is(err, ErrCompacted) || r.m.compacted != 0 {
		t.Errorf("%v, compacted %d", err, r.m.compacted)
	}
}

// TestQuota_CountsWhatTheFileWillGrowByNotWhatMemoryTakes: a fresh store with the smallest quota in use, 53,248 bytes,
// takes hundreds of small puts before the first of them is in the file.
func TestQuota_CountsWhatTheFileWillGrowByNotWhatMemoryTakes(t *testing.T) {
	r := newRig(t)
	r.m.quota = 53_248
	batch := &proto.Batch{}
	for i := range 250 {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "key%03d", i), Value: make([]byte, 60)}
		batch.Commands = append(batch.Commands, proto.Command{Index: proto.Index(i + 1), Term: 1, Answer: discard{},
			Request: &pb.InternalRaftRequest{Put: put}})
	}
	r.m.execute(batch)
	o := r.m.takeOutput()
	for i := range o.answers {
		if o.answers[i].err != nil {
			t.Fatalf("put %d: %v", i, o.answers[i].err)
		}
	}
	r.m.credit.take(250, o.bytes, o.payload)
	if w := r.m.state().Unwritten; w < 250*60 || w > 250*200 {
		t.Errorf("%d bytes are unwritten", w)
	}
	r.m.credit.settle(250)
	if w := r.m.state().Unwritten; w != 0 {
		t.Errorf("%d bytes are unwritten after a checkpoint", w)
	}
}

// TestQuota_FreePagesTakeWhatIsNotWrittenYet: after a compaction the file is as large as before and nearly empty. What
// is put then does not make it grow, so that the quota allows it as long as it fits the free pages.
func TestQuota_FreePagesTakeWhatIsNotWrittenYet(t *testing.T) {
	r := newRig(t)
	r.m.quota = 100 << 10
	r.m.sizes = FileSizes{Total: 90 << 10, InUse: 10 << 10}
	put := func(bytes int) error {
		_, err := r.run(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, bytes)}}, true)
		return err
	}
	for range 5 {
		if err := put(8 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(60 << 10); !errors.Is(err, ErrNoSpace) {
		t.Errorf("what does not fit the free pages: %v", err)
	}
	r.m.sizes = FileSizes{Total: 100 << 10, InUse: 10 << 10}
	if err := put(1); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a file that is as large as the quota: %v", err)
	}
}
