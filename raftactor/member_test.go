package raftactor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"troupe/actors"
	"troupe/proto"
)

// testMachine is a state machine that remembers the keys that were put, publishes at once and answers.
type testMachine struct {
	client atomic.Pointer[Client]
	mu     sync.Mutex
	keys   []string
	last   proto.Index
	// state is what the last batch carried.
	state *proto.Membership
	conf  []byte
	// gate, if set, holds batches until it is closed.
	gate chan struct{}
}

func (m *testMachine) Apply(b *proto.Batch) error {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	m.mu.Lock()
	for i := range b.Commands {
		c := &b.Commands[i]
		if c.Index != m.last+1 {
			panic(fmt.Sprintf("command %d after %d", c.Index, m.last))
		}
		m.last = c.Index
		if put := c.Request.GetPut(); put != nil {
			m.keys = append(m.keys, string(put.Key))
		}
	}
	m.state = b.Membership
	if b.ConfState != nil {
		m.conf = b.ConfState
	}
	last := m.last
	m.mu.Unlock()
	m.client.Load().Applied(last)
	for i := range b.Commands {
		c := &b.Commands[i]
		switch {
		case c.Answer == nil:
		case c.Refused != nil:
			c.Answer.Fail(c.Refused)
		case c.Answered != nil:
			c.Answer.Send(c.Answered)
		default:
			c.Answer.Send(&proto.Result{Revision: proto.Revision(c.Index)})
		}
	}
	return nil
}

func (m *testMachine) snapshot() (keys []string, last proto.Index, state *proto.Membership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.keys), m.last, m.state
}

// testNode is one life of a member on a directory.
type testNode struct {
	client  *Client
	machine *testMachine
	system  *actors.System
	metrics *prometheus.Registry
}

// startNode starts a member on dir, as cmd/node would. edit may change the configuration.
func startNode(t *testing.T, dir string, edit func(*Config, *testMachine)) *testNode {
	t.Helper()
	id := NewMemberID([]string{"http://127.0.0.1:2380"}, "t")
	members := []proto.Member{{ID: id, Name: "one", PeerURLs: []string{"http://127.0.0.1:2380"}}}
	n := &testNode{machine: &testMachine{}, metrics: prometheus.NewRegistry()}
	cfg := Config{
		Meta: LogMeta{Member: id, Cluster: NewClusterID(members)}, Disk: OSDisk(), SnapDir: filepath.Join(dir, "snap"),
		Bootstrap: members, TickInterval: 100 * time.Millisecond, RequestTimeout: 30 * time.Second,
		Machine: n.machine, Bind: n.machine.client.Store, Logger: zerolog.Nop(), Metrics: n.metrics,
	}
	openTestLog(t, dir, &cfg)
	if edit != nil {
		edit(&cfg, n.machine)
	}
	n.system = actors.NewSystem(actors.Config{Name: t.Name(), Log: zerolog.Nop()})
	client, err := Spawn(n.system, cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.client = client
	return n
}

func openTestLog(t *testing.T, dir string, cfg *Config) {
	t.Helper()
	wal := filepath.Join(dir, "wal")
	if err := os.MkdirAll(cfg.SnapDir, 0o700); err != nil {
		t.Fatal(err)
	}
	exists, err := LogExists(cfg.Disk, wal)
	if err != nil {
		t.Fatal(err)
	}
	if exists {
		cfg.Log, cfg.Recovered, err = OpenLog(cfg.Disk, wal)
	} else {
		cfg.Log, err = CreateLog(cfg.Disk, wal, cfg.Meta)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.client.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) put(t *testing.T, key string) *proto.Result {
	t.Helper()
	r, err := n.client.Propose(testContext(t), putRequest(key))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func putRequest(key string) *etcdserverpb.InternalRaftRequest {
	return &etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte("v")}}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition that nothing signals.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestMember_ProposesReadsAndStartsAgain(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	n := startNode(t, dir, nil)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("k%d", i))
		n.put(t, want[i])
	}
	index, err := n.client.ReadIndex(testContext(t))
	keys, last, state := n.machine.snapshot()
	if err != nil || index > last || index < 3 {
		t.Fatalf("read index %d, published %d, %v", index, last, err)
	}
	if !slices.Equal(keys, want) || len(state.Members) != 1 || state.Members[0].Name != "one" {
		t.Fatalf("got %v, %+v", keys, state)
	}
	if conf := string(n.machine.conf); !strings.Contains(conf, `"auto_leave":false`) {
		t.Fatalf("conf state %q", conf)
	}
	if s := n.client.Status(); !s.IsLeader() || !s.Ready || s.LeaderTerm != s.Term || s.Term != 2 {
		t.Fatalf("status %+v", s)
	}
	n.stop(t)

	// The file was lost altogether: everything comes out of the log again, the same on the same indexes.
	n = startNode(t, dir, nil)
	n.put(t, "after")
	keys, _, _ = n.machine.snapshot()
	if !slices.Equal(keys, append(want, "after")) {
		t.Fatalf("after the restart: %v", keys)
	}
	n.stop(t)

	// The file holds everything: nothing is applied again.
	n = startNode(t, dir, func(cfg *Config, m *testMachine) {
		cfg.AppliedAtStart, m.last = last, last
		cfg.Membership = state
	})
	n.put(t, "third")
	if keys, _, _ = n.machine.snapshot(); !slices.Equal(keys, []string{"after", "third"}) {
		t.Fatalf("with a file at %d: %v", last, keys)
	}
	n.stop(t)
}

func TestMember_StopUnderLoadAnswersEachOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	n := startNode(t, dir, nil)
	n.put(t, "first")
	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := []string{"first"}
	unexpected := make(chan error, 100)
	for w := range 50 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("w%d-%d", w, i)
				_, err := n.client.Propose(context.Background(), putRequest(key)) // no deadline: an answer must come
				if err != nil {
					if !errors.Is(err, ErrStopped) {
						unexpected <- err
					}
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, key)
				mu.Unlock()
				if _, err := n.client.ReadIndex(context.Background()); err != nil {
					return
				}
			}
		})
	}
	eventually(t, "some load", func() bool { _, last, _ := n.machine.snapshot(); return last > 500 })
	n.stop(t)
	wg.Wait()
	close(unexpected)
	for err := range unexpected {
		t.Errorf("answered %v", err)
	}
	n = startNode(t, dir, nil)
	n.put(t, "again")
	keys, _, _ := n.machine.snapshot()
	found := map[string]int{}
	for _, k := range keys {
		found[k]++
	}
	for _, k := range acknowledged {
		if found[k] != 1 {
			t.Fatalf("acknowledged %s is there %d times", k, found[k])
		}
	}
	n.stop(t)
}

func TestMember_SnapshotMovesTheStart(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	small := func(cfg *Config, _ *testMachine) { cfg.SnapshotCount, cfg.CatchUpEntries = 10, 1 }
	n := startNode(t, dir, small)
	for i := range 15 {
		n.put(t, fmt.Sprint(i))
	}
	_, last, state := n.machine.snapshot()
	confirmed := make(chan error, 1)
	n.client.ConfirmCommit(last, func(err error) { confirmed <- err })
	if err := <-confirmed; err != nil {
		t.Fatal(err)
	}
	n.client.Checkpointed(last, 2, n.machine.conf, state)
	eventually(t, "a .snap file", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "snap", "*.snap"))
		return len(found) == 1
	})
	n.put(t, "behind")
	n.stop(t)

	var r *Recovered
	n = startNode(t, dir, func(cfg *Config, m *testMachine) {
		r = cfg.Recovered
		cfg.AppliedAtStart, m.last, cfg.Membership = last, last, state
	})
	if r.Start.Index != last || r.Start.Term != 2 || len(r.Start.ConfState.GetVoters()) != 1 {
		t.Fatalf("the start is %+v, want index %d", r.Start, last)
	}
	n.put(t, "new")
	if keys, _, _ := n.machine.snapshot(); !slices.Equal(keys, []string{"behind", "new"}) {
		t.Fatalf("got %v", keys)
	}
	n.stop(t)

	// A file that holds less than the snapshot record says cannot be used.
	cfg := Config{Meta: r.Meta, Disk: OSDisk(), SnapDir: filepath.Join(dir, "snap"), Machine: &testMachine{},
		AppliedAtStart: last - 1, Membership: state}
	openTestLog(t, dir, &cfg)
	if _, err := Spawn(n.system, cfg); !errors.Is(err, ErrFileBehindLog) {
		t.Fatalf("got %v", err)
	}
	if err := cfg.Log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMember_ConfirmsCommitsDuringAndAfterStop(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := startNode(t, t.TempDir(), nil)
	n.put(t, "a")
	_, last, _ := n.machine.snapshot()
	ask := func(index proto.Index) error {
		done := make(chan error, 1)
		n.client.ConfirmCommit(index, func(err error) { done <- err })
		return <-done
	}
	if err := ask(last); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	if err := ask(last); err != nil {
		t.Fatalf("what was committed before the stop: %v", err)
	}
	if err := ask(last + 1); !errors.Is(err, ErrStopped) {
		t.Fatalf("what was never committed: %v", err)
	}
	if _, err := n.client.Propose(testContext(t), putRequest("late")); !errors.Is(err, ErrStopped) {
		t.Fatalf("a proposal after the stop: %v", err)
	}
	if _, err := n.client.ReadIndex(testContext(t)); err != nil && !errors.Is(err, ErrStopped) {
		t.Fatalf("a read after the stop: %v", err)
	}
}

func TestMember_TermBoundProposals(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := startNode(t, t.TempDir(), nil)
	n.put(t, "a")
	propose := func(term proto.Term) error {
		reply := actors.NewReply[*proto.Result]()
		if err := n.client.ProposeInTerm(term, putRequest("x"), reply); err != nil {
			return err
		}
		_, err := reply.Wait(testContext(t))
		return err
	}
	// The answer to a put comes from the store; that the first entry of the term is applied reaches raft a turn later.
	eventually(t, "leadership", func() bool { return n.client.Status().LeaderTerm != 0 })
	term := n.client.Status().LeaderTerm
	if err := propose(term); err != nil {
		t.Fatal(err)
	}
	for _, other := range []proto.Term{0, term - 1, term + 1} {
		if err := propose(other); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("in term %d: %v", other, err)
		}
	}
	n.stop(t)
}

func TestMember_RefusesWhatMustNotEnterTheLog(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := startNode(t, t.TempDir(), func(cfg *Config, _ *testMachine) { cfg.MaxRequestBytes = 100 })
	n.put(t, "a")
	for _, c := range []struct {
		r    *etcdserverpb.InternalRaftRequest
		want error
	}{
		{putRequest(strings.Repeat("x", 100)), ErrRequestTooLarge},
		{&etcdserverpb.InternalRaftRequest{}, ErrInvalidRequest},
		{&etcdserverpb.InternalRaftRequest{AuthUserDelete: &etcdserverpb.AuthUserDeleteRequest{Name: "\xff"}},
			ErrInvalidRequest},
	} {
		if _, err := n.client.Propose(testContext(t), c.r); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
	if _, last, _ := n.machine.snapshot(); last != 3 {
		t.Fatalf("something was proposed: index %d", last)
	}
	n.stop(t)
}

func TestMember_AttributesAndVersionReachTheBatch(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := startNode(t, t.TempDir(), nil)
	id := uint64(n.client.Status().Member)
	for _, r := range []*etcdserverpb.InternalRaftRequest{
		{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{Member_ID: id,
			MemberAttributes: &membershippb.Attributes{Name: "renamed", ClientUrls: []string{"http://c:1"}}}},
		{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.7.0"}},
	} {
		if _, err := n.client.Propose(testContext(t), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, m := n.machine.snapshot(); m.Members[0].Name != "renamed" || m.ClusterVersion != "3.7.0" {
		t.Fatalf("got %+v", m)
	}
	n.stop(t)
}

func TestMember_OverloadIsRefused(t *testing.T) {
	defer goleak.VerifyNone(t)
	gate := make(chan struct{})
	n := startNode(t, t.TempDir(), func(cfg *Config, _ *testMachine) { cfg.PriorityRequest = true })
	n.put(t, "a")
	n.machine.mu.Lock()
	n.machine.gate = gate
	n.machine.mu.Unlock()
	var wg sync.WaitGroup
	for i := range applyGapMax + 100 {
		wg.Go(func() {
			_, err := n.client.Propose(context.Background(), putRequest(fmt.Sprint(i)))
			if err != nil && !errors.Is(err, ErrTooManyRequests) { // the last ones may find the gap already
				t.Errorf("taken and then %v", err)
			}
		})
	}
	eventually(t, "a gap", func() bool { s := n.client.Status(); return s.Commit > s.Applied+applyGapMax })
	if _, err := n.client.Propose(testContext(t), putRequest("one more")); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("got %v", err)
	}
	revoked := make(chan error, 1)
	go func() { // it has priority, and waits for apply like what was taken before
		_, err := n.client.Propose(context.Background(), revokeRequest(1))
		revoked <- err
	}()
	full := n.client.Status().Commit
	eventually(t, "a revocation in the log", func() bool { return n.client.Status().Commit > full || len(revoked) > 0 })
	close(gate)
	wg.Wait()
	if err := <-revoked; err != nil {
		t.Errorf("the revocation: %v", err)
	}
	eventually(t, "room", func() bool { _, err := n.client.Propose(testContext(t), putRequest("y")); return err == nil })
	n.stop(t)
}

// The gate PriorityRequest lets ends of leases pass where others are refused, up to a bound of their own.
func TestMember_EndsOfLeasesPassWhenTheyHavePriority(t *testing.T) {
	revoke := revokeRequest(1)
	for _, c := range []struct {
		request  *etcdserverpb.InternalRaftRequest
		priority bool
		want     uint64
	}{
		{revoke, true, applyGapPriorityMax}, {revoke, false, applyGapMax},
		{putRequest("k"), true, applyGapMax}, {nil, true, applyGapMax},
	} {
		if got := gapMax(c.request, c.priority); got != c.want {
			t.Errorf("%v with priority %t: %d", c.request, c.priority, got)
		}
	}
	for _, priority := range []bool{false, true} {
		for name, gap := range map[string]uint64{"below both": applyGapMax, "between": applyGapMax + 1,
			"above both": applyGapPriorityMax + 1} {
			s := &coreScript{names: map[uint64]string{}}
			core, err := newCore(coreConfig{member: 1, electionTicks: 10, heartbeatTicks: 1, requestTicks: 70,
				snapshotCount: 10, priority: priority, logger: quietLogger{},
				log: newMemLog(0, 0, &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(0))},
					&raftpb.ConfState{Voters: []uint64{1}}, nil)})
			if err != nil {
				t.Fatal(err)
			}
			core.hard = &raftpb.HardState{Commit: &gap}
			s.core = core
			s.propose("revoke", 1, 0, true)
			s.propose("put", 1, 0, false)
			for _, e := range core.out {
				if r, ok := e.(refuse); ok {
					r.answer.Fail(r.err)
				}
			}
			revokeRefused := strings.Contains(s.out.String(), "answer revoke: etcdserver: too many requests")
			putRefused := strings.Contains(s.out.String(), "answer put: etcdserver: too many requests")
			if putRefused != (gap > applyGapMax) || revokeRefused != (gap > gapMax(revoke, priority)) {
				t.Errorf("%s, priority %t: %s", name, priority, s.out.String())
			}
		}
	}
}

func TestMember_MetricsHaveEtcdsNames(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := startNode(t, t.TempDir(), nil)
	n.put(t, "a")
	want := fmt.Sprintf(`
# HELP etcd_server_has_leader Whether a leader is known.
# TYPE etcd_server_has_leader gauge
etcd_server_has_leader 1
# HELP etcd_server_id The id of this member, in hex.
# TYPE etcd_server_id gauge
etcd_server_id{server_id="%v"} 1
# HELP etcd_server_is_leader Whether this member leads.
# TYPE etcd_server_is_leader gauge
etcd_server_is_leader 1
# HELP etcd_server_leader_changes_seen_total Changes of the leader that this member has seen.
# TYPE etcd_server_leader_changes_seen_total counter
etcd_server_leader_changes_seen_total 1
`, n.client.Status().Member)
	if err := testutil.GatherAndCompare(n.metrics, strings.NewReader(want), "etcd_server_has_leader", "etcd_server_id",
		"etcd_server_is_leader", "etcd_server_leader_changes_seen_total"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"etcd_server_is_learner", "etcd_server_proposals_committed_total",
		"etcd_server_proposals_applied_total", "etcd_server_proposals_pending", "etcd_server_proposals_failed_total",
		"etcd_server_slow_read_indexes_total", "etcd_server_read_indexes_failed_total",
		"etcd_server_heartbeat_send_failures_total", "etcd_server_snapshot_apply_in_progress_total",
		"etcd_disk_wal_fsync_duration_seconds", "etcd_disk_wal_write_duration_seconds", "etcd_disk_wal_write_bytes_total",
		"etcd_snap_fsync_duration_seconds", "etcd_debugging_snap_save_marshalling_duration_seconds",
		"etcd_debugging_snap_save_total_duration_seconds", "troupe_raft_log_full"} {
		if found, err := testutil.GatherAndCount(n.metrics, name); err != nil || found != 1 {
			t.Errorf("%s: %d, %v", name, found, err)
		}
	}
	n.stop(t)
}

// A member that cannot start leaves nothing behind: no goroutine, and the log for whoever opened it.
func TestMember_FailedSpawnLeavesNothingRunning(t *testing.T) {
	defer goleak.VerifyNone(t)
	id := NewMemberID([]string{"http://127.0.0.1:2380"}, "t")
	members := []proto.Member{{ID: id, Name: "one", PeerURLs: []string{"http://127.0.0.1:2380"}}}
	dir := t.TempDir()
	machine := &testMachine{}
	cfg := Config{
		Meta: LogMeta{Member: id, Cluster: NewClusterID(members)}, Disk: OSDisk(), SnapDir: filepath.Join(dir, "snap"),
		Bootstrap: members, Machine: machine, Bind: machine.client.Store, Logger: zerolog.Nop(),
	}
	openTestLog(t, dir, &cfg)
	sys := actors.NewSystem(actors.Config{Name: t.Name(), Log: zerolog.Nop()})
	taken, err := spawnApply(sys, applyCore{}, &Config{Machine: machine}, func(message) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Spawn(sys, cfg); !errors.Is(err, actors.ErrNameTaken) {
		t.Fatalf("spawned beside an actor of the same name: %v", err)
	}
	if err := taken.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Log.Close(); err != nil {
		t.Errorf("the log cannot be closed: %v", err)
	}
	n := startNode(t, dir, nil) // the log has been given up: another member may have it
	n.put(t, "k")
	n.stop(t)
}
