package fieldreports

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

const (
	firstURL  = "http://127.0.0.1:1"
	secondURL = "http://127.0.0.1:2"
)

func (a *api) cluster() pb.ClusterClient { return pb.NewClusterClient(a.conn) }

// learner gives the one member that is a learner.
func (a *api) learner() *pb.Member {
	a.t.Helper()
	r, err := a.cluster().MemberList(a.ctx, &pb.MemberListRequest{Linearizable: true})
	if err != nil || len(r.Members) != 2 {
		a.t.Fatalf("member list: %v, %v", r, err)
	}
	for _, m := range r.Members {
		if m.IsLearner {
			return m
		}
	}
	a.t.Fatalf("none of the members is a learner: %v", r.Members)
	return nil
}

func (a *api) addLearner(url string) error {
	a.t.Helper()
	_, err := a.cluster().MemberAdd(a.ctx, &pb.MemberAddRequest{PeerURLs: []string{url}, IsLearner: true})
	return err
}

// T31 (etcd-io/etcd#21694): an update of a learner leaves it one, in memory and in the file: it is listed as one, no
// second one may come, and it is still asked to catch up before it votes.
func TestMembers_AnUpdatedLearnerIsStillALearner(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	if err := a.addLearner(firstURL); err != nil {
		t.Fatal(err)
	}
	update := &pb.MemberUpdateRequest{ID: a.learner().ID, PeerURLs: []string{secondURL}}
	if _, err := a.cluster().MemberUpdate(a.ctx, update); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []func(testing.TB){nil, s.Kill, func(t testing.TB) { s.Terminate(t) }} {
		if restart != nil {
			restart(t)
			s.Start(t)
			a = newAPI(t, s)
		}
		if m := a.learner(); len(m.PeerURLs) != 1 || m.PeerURLs[0] != secondURL {
			t.Errorf("the learner is %v", m)
		}
		err := a.addLearner("http://127.0.0.1:3")
		if status.Convert(err).Message() != "etcdserver: too many learner members in cluster" {
			t.Errorf("a second learner: %v", err)
		}
		_, err = a.cluster().MemberPromote(a.ctx, &pb.MemberPromoteRequest{ID: a.learner().ID})
		if status.Code(err) != codes.FailedPrecondition ||
			status.Convert(err).Message() != "etcdserver: can only promote a learner member which is in sync with leader" {
			t.Errorf("its promotion: %v", err)
		}
	}
	if _, err := a.cluster().MemberRemove(a.ctx, &pb.MemberRemoveRequest{ID: a.learner().ID}); err != nil {
		t.Error(err)
	}
	if err := a.addLearner(firstURL); err != nil {
		t.Errorf("added again after its removal: %v", err)
	}
}

// T32 (etcd-io/etcd#21640, #16798): the checks before a change refuse only what would lose the quorum. A lone member
// takes a learner as soon as it serves, and while that one is not there it goes on as before.
func TestMembers_ALearnerIsTakenAtOnceAndHoldsNothingUp(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	if err := a.addLearner(firstURL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a.put("k", "v")
		if r, err := a.kv.Range(a.ctx, &pb.RangeRequest{Key: []byte("k")}); err != nil || r.Count != 1 {
			t.Errorf("a linearizable read: %v, %v", r, err)
		}
		if _, err := a.kv.Compact(a.ctx, &pb.CompactionRequest{Revision: a.put("k", "w"), Physical: true}); err != nil {
			t.Error(err)
		}
		s.Kill(t)
		s.Start(t)
		a = newAPI(t, s)
	}
}
