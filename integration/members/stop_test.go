package members

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// manyChanges is more than the number of changes that may wait for their turn.
const manyChanges = 100

// changeAtOnce asks for many changes at a time, and gives their errors.
func changeAtOnce(ctx context.Context, s *harness.Server, cluster pb.ClusterClient, begun func()) []error {
	errs := make([]error, manyChanges)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() {
			switch i % 3 {
			case 0:
				add := &pb.MemberAddRequest{PeerURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", 1000+i)}, IsLearner: true}
				_, errs[i] = cluster.MemberAdd(ctx, add)
			case 1:
				_, errs[i] = cluster.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: uint64(i)})
			case 2:
				update := &pb.MemberUpdateRequest{ID: uint64(i), PeerURLs: []string{s.PeerURL}}
				_, errs[i] = cluster.MemberUpdate(ctx, update)
			}
		})
	}
	begun()
	wait.Wait()
	return errs
}

// Changes that come at a time wait for each other; each gets its own answer, and none is lost to raft's rule that one
// of them may be under way.
func TestMembers_ChangesAtATimeAreAllAnswered(t *testing.T) {
	harness.TroupeOnly(t, "etcd lets all but one wait for ever")
	s := harness.Start(t, harness.Options{Args: []string{"--max-learners=200"}})
	conn := s.Conn(t)
	added, refused := 0, map[string]int{}
	for _, err := range changeAtOnce(harness.Context(t, limit), s, pb.NewClusterClient(conn), func() {}) {
		if err == nil {
			added++
			continue
		}
		refused[status.Convert(err).Message()]++
	}
	for text := range refused {
		if text != "etcdserver: member not found" && text != "etcdserver: too many requests" {
			t.Errorf("%d were answered %q", refused[text], text)
		}
	}
	r, err := pb.NewClusterClient(conn).MemberList(harness.Context(t, limit), &pb.MemberListRequest{Linearizable: true})
	if err != nil || len(r.Members) != added+1 || added < manyChanges/10 {
		t.Errorf("%d learners were added, and there are %d members, %v", added, len(r.GetMembers()), err)
	}
	// None of them has taken the quorum along.
	if _, err := pb.NewKVClient(conn).Put(harness.Context(t, limit), &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}

// A member that stops answers the changes that wait, also when it has no quorum and none of them could ever be decided.
func TestMembers_WhoeverWaitsIsAnsweredWhenTheMemberStops(t *testing.T) {
	harness.TroupeOnly(t, "etcd cuts them off")
	s := harness.Start(t, harness.Options{Args: []string{"--max-learners=200"}})
	conn := s.Conn(t)
	cluster := pb.NewClusterClient(conn)
	voter := &pb.MemberAddRequest{PeerURLs: []string{voterURL}}
	if _, err := cluster.MemberAdd(harness.Context(t, limit), voter); err != nil {
		t.Fatal(err)
	}
	// A leader refuses at once what it can see to be wrong; nobody is one any more.
	harness.Eventually(t, limit, "the member leads no more", func() error {
		if page := get(t, s, "/metrics"); !strings.Contains(page, "\netcd_server_has_leader 0\n") {
			return fmt.Errorf("it has a leader")
		}
		return nil
	})
	begin := time.Now()
	errs := changeAtOnce(harness.Context(t, limit), s, cluster, func() {
		harness.Eventually(t, limit, "changes wait", func() error {
			if n := openOperators(t, s); n == 0 {
				return fmt.Errorf("none waits")
			}
			return nil
		})
		s.Terminate(t)
	})
	if took := time.Since(begin); took > limit/2 {
		t.Errorf("the stop took %v", took)
	}
	for i, err := range errs {
		if status.Code(err) == codes.OK {
			t.Errorf("change %d was made, without a quorum", i)
		}
	}
}

// openOperators is how many calls of operators are in the member's hands.
func openOperators(t *testing.T, s *harness.Server) (n int) {
	t.Helper()
	for line := range strings.Lines(get(t, s, "/metrics")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), `troupe_gateway_open{kind="operator_request"} `); ok {
			if _, err := fmt.Sscan(text, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}
