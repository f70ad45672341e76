package durability

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

var roundsFlag = flag.Int("durability.rounds", 0, "kill -9 rounds; 0: TROUPE_DURABILITY_ROUNDS, or the short form")

const (
	roundsShort = 12
	killSoonest = 50 * time.Millisecond
	killLatest  = 1200 * time.Millisecond
)

func isCompacted(err error) bool {
	return status.Code(err) == codes.OutOfRange
}

func rounds() int {
	if *roundsFlag > 0 {
		return *roundsFlag
	}
	if n, err := strconv.Atoi(os.Getenv("TROUPE_DURABILITY_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return roundsShort
}

func TestDurability_KillNineLosesNothingThatWasAcknowledged(t *testing.T) {
	// Small settings make the rare things frequent: snapshots of the log, compaction in several steps.
	s := harness.Start(t, harness.Options{Args: []string{
		"--snapshot-count=500", "--compaction-batch-limit=50", "--heartbeat-interval=20", "--election-timeout=200",
	}})
	book := newLedger()
	// The lazy watch resumes only now and then, so that compactions overtake it.
	watch, lazy := newWatcher(s, book), newWatcher(s, book)
	for round := range rounds() {
		hash := runRound(t, s, book, watch, round)
		s.Start(t)
		head := verify(t, s, book, hash)
		resume(t, s, book, watch, head)
		if round%3 == 2 {
			resume(t, s, book, lazy, head)
		}
		if t.Failed() {
			t.Fatalf("round %d of the kills", round)
		}
	}
	if c := book.counts; c.puts < 100 || c.deletes < 20 || c.compactions == 0 || c.unanswered == 0 {
		t.Errorf("the load was too small to prove anything: %+v", c)
	}
	t.Logf("%+v, revision %d, compacted %d, %d gaps", book.counts, book.revision, book.compact, len(lazy.gaps))
}

// runRound runs the load and a watch, kills the server at a random moment, and gives the last hash seen before.
func runRound(t *testing.T, s *harness.Server, book *ledger, watch *watcher, round int) *pb.HashKVResponse {
	t.Helper()
	ctx := harness.Context(t, time.Minute)
	l := &load{ledger: book, server: s, round: round}
	watched, hashed := make(chan struct{}), make(chan *pb.HashKVResponse, 1)
	go func() { defer close(watched); watch.follow(ctx, 0) }()
	go func() { hashed <- hashUntilDead(ctx, s) }()
	delay := killSoonest + rand.N(killLatest-killSoonest)
	time.AfterFunc(delay, func() { s.Signal(9) })
	l.run(ctx)
	s.ExitCode(t)
	<-watched
	for _, err := range l.errors {
		t.Errorf("round %d: %v", round, err)
	}
	return <-hashed
}

// hashUntilDead asks for the hash of the newest revision until the server is gone, and gives the last answer.
func hashUntilDead(ctx context.Context, s *harness.Server) (last *pb.HashKVResponse) {
	conn, err := s.Dial()
	if err != nil {
		return nil
	}
	defer conn.Close()
	for {
		r, err := pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{})
		if err != nil {
			return last
		}
		if r.HashRevision > r.CompactRevision {
			last = r
		}
	}
}

// verify compares the restarted server with the ledger and gives the server's revision.
func verify(t *testing.T, s *harness.Server, book *ledger, hash *pb.HashKVResponse) int64 {
	t.Helper()
	ctx := harness.Context(t, time.Minute)
	conn := s.Conn(t)
	all, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatalf("range after restart: %v", err)
	}
	if all.Header.Revision < book.revision {
		t.Errorf("revision went back from %d to %d", book.revision, all.Header.Revision)
	}
	verifyKeys(t, book, all)
	verifyCompaction(ctx, t, conn, book)
	verifyLeases(ctx, t, conn, book)
	verifyHash(ctx, t, conn, hash)
	book.saw(all.Header.Revision)
	return all.Header.Revision
}

// resume lets a watch go on where it was, up to the server's revision, and checks what it has seen.
func resume(t *testing.T, s *harness.Server, book *ledger, watch *watcher, head int64) {
	t.Helper()
	ctx := harness.Context(t, time.Minute)
	watch.follow(ctx, head)
	if watch.broken != nil {
		t.Errorf("watch: %v", watch.broken)
		return
	}
	if watch.last < head {
		t.Errorf("watch resumed to revision %d, the server is at %d", watch.last, head)
	}
	verifyHistory(ctx, t, s, book, watch)
}

func verifyKeys(t *testing.T, book *ledger, all *pb.RangeResponse) {
	t.Helper()
	values := map[string]string{}
	for _, kv := range all.Kvs {
		values[string(kv.Key)] = string(kv.Value)
	}
	keys := map[string]bool{}
	for key := range values {
		keys[key] = true
	}
	for key := range book.last {
		keys[key] = true
	}
	for key := range book.open {
		keys[key] = true
	}
	for key := range keys {
		value, exists := values[key]
		if err := book.settle(key, value, exists); err != nil {
			t.Errorf("after restart: %v", err)
		}
	}
}

// verifyCompaction checks that an acknowledged compaction is still in force.
func verifyCompaction(ctx context.Context, t *testing.T, conn *grpc.ClientConn, book *ledger) {
	t.Helper()
	if book.compact < 2 {
		return
	}
	request := &pb.RangeRequest{Key: []byte{0}, Revision: book.compact - 1, Limit: 1}
	if _, err := pb.NewKVClient(conn).Range(ctx, request); !isCompacted(err) {
		t.Errorf("revision %d can be read although %d was compacted: %v", request.Revision, book.compact, err)
	}
}

func verifyLeases(ctx context.Context, t *testing.T, conn *grpc.ClientConn, book *ledger) {
	t.Helper()
	for id, key := range book.leases {
		r, err := pb.NewLeaseClient(conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		if err != nil {
			t.Errorf("lease %d: %v", id, err)
			continue
		}
		if r.TTL <= 0 || r.GrantedTTL != 100_000 {
			t.Errorf("acknowledged lease %d is missing: %v", id, r)
		}
		if key != "" && (len(r.Keys) != 1 || string(r.Keys[0]) != key) {
			t.Errorf("lease %d has keys %q, not %q", id, r.Keys, key)
		}
	}
}

// verifyHash compares the hash of a revision before and after the kill. A compaction between the two hides it.
func verifyHash(ctx context.Context, t *testing.T, conn *grpc.ClientConn, before *pb.HashKVResponse) {
	t.Helper()
	if before == nil {
		return
	}
	request := &pb.HashKVRequest{Revision: before.HashRevision}
	after, err := pb.NewMaintenanceClient(conn).HashKV(ctx, request)
	if isCompacted(err) {
		return
	}
	if err != nil {
		t.Errorf("HashKV at revision %d: %v", before.HashRevision, err)
	} else if after.CompactRevision == before.CompactRevision && after.Hash != before.Hash {
		t.Errorf("HashKV at revision %d was %d before the kill and is %d after it",
			before.HashRevision, before.Hash, after.Hash)
	}
}

// verifyHistory compares three accounts of the same writes: what was acknowledged, what the resumed watch was shown,
// and what a fresh watch is shown now.
func verifyHistory(ctx context.Context, t *testing.T, s *harness.Server, book *ledger, watch *watcher) {
	t.Helper()
	fresh := newWatcher(s, book)
	fresh.follow(ctx, watch.last)
	if fresh.broken != nil {
		t.Errorf("fresh watch: %v", fresh.broken)
	}
	for revision, w := range book.acked {
		if seen, ok := watch.events[revision]; !ok && !watch.missed(revision) {
			t.Errorf("the resumed watch never showed: %v", w)
		} else if ok && seen != w {
			t.Errorf("the resumed watch showed %v for %v", seen, w)
		}
		if seen, ok := fresh.events[revision]; !ok && !fresh.missed(revision) {
			t.Errorf("the history has lost: %v", w)
		} else if ok && seen != w {
			t.Errorf("the history shows %v for %v", seen, w)
		}
	}
	for revision, w := range watch.events {
		if seen, ok := fresh.events[revision]; ok && seen != w || !ok && !fresh.missed(revision) {
			t.Errorf("a watch was shown %v, the history now has %v", w, seen)
		}
	}
	for revision := range fresh.events {
		if _, ok := watch.events[revision]; !ok && !watch.missed(revision) {
			t.Errorf("the resumed watch has no event at revision %d", revision)
		}
	}
}
