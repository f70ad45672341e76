package raftactor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/versionpb"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

func TestDecideVersions(t *testing.T) {
	for name, c := range map[string]struct {
		facts   versionFacts
		step    versionStep
		version string
	}{
		"a new cluster":                      {versionFacts{"", "", "3.7.0", "3.7.0"}, versionSet, "3.7.0"},
		"a new cluster with a lower member":  {versionFacts{"", "", "3.6.0", "3.7.0"}, versionSet, "3.6.0"},
		"a new cluster, a member is unknown": {versionFacts{"", "", "", ""}, versionSet, "3.0.0"},
		"settled":                            {versionFacts{"3.7.0", "", "3.7.0", "3.7.0"}, versionsSettled, ""},
		"all upgraded":                       {versionFacts{"3.6.0", "", "3.7.0", "3.7.0"}, versionSet, "3.7.0"},
		"all upgraded by several":            {versionFacts{"3.0.0", "", "3.7.0", "3.7.0"}, versionSet, "3.7.0"},
		"not all upgraded":                   {versionFacts{"3.6.0", "", "3.6.0", "3.7.0"}, versionsSettled, ""},
		"upgraded, a member is unknown":      {versionFacts{"3.6.0", "", "", ""}, versionsSettled, ""},
		"a member below the cluster":         {versionFacts{"3.7.0", "", "3.6.0", "3.7.0"}, versionsSettled, ""},
		"downgrade enabled":                  {versionFacts{"3.7.0", "3.6.0", "3.7.0", "3.7.0"}, versionSet, "3.6.0"},
		"enabled, a member is unknown":       {versionFacts{"3.7.0", "3.6.0", "", ""}, versionsSettled, ""},
		"members to be replaced":             {versionFacts{"3.6.0", "3.6.0", "3.7.0", "3.7.0"}, versionsSettled, ""},
		"one replaced":                       {versionFacts{"3.6.0", "3.6.0", "3.6.0", "3.7.0"}, versionsSettled, ""},
		"one replaced too early":             {versionFacts{"3.7.0", "3.6.0", "3.6.0", "3.7.0"}, versionSet, "3.6.0"},
		"all replaced":                       {versionFacts{"3.6.0", "3.6.0", "3.6.0", "3.6.0"}, downgradeEnd, "3.6.0"},
		"two minor versions in one go":       {versionFacts{"3.6.0", "3.5.0", "3.7.0", "3.7.0"}, downgradeStuck, "3.5.0"},
		"not right below the cluster":        {versionFacts{"3.7.0", "3.5.0", "3.6.0", "3.6.0"}, downgradeStuck, "3.5.0"},
	} {
		if step, version := decideVersions(c.facts); step != c.step || version != c.version && step != versionsSettled {
			t.Errorf("%s: step %d to %q", name, step, version)
		}
	}
}

// What a member of the version below cannot decode must not get into the log of a cluster that may be downgraded, and
// nothing that this member proposes is newer than 3.6. A new version of the API that changes this needs a check before
// Propose, by the cluster version.
func TestRequests_AreAllReadableByEtcd36(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	newer := func(what protoreflect.FullName, options protoreflect.ProtoMessage, kind protoreflect.ExtensionType) {
		if version, _ := pb.GetExtension(options, kind).(string); versionLess("3.6.0", version+".0") {
			t.Errorf("%s came with %s", what, version)
		}
	}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		newer(m.FullName(), m.Options(), versionpb.E_EtcdVersionMsg)
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			newer(f.FullName(), f.Options(), versionpb.E_EtcdVersionField)
			if e := f.Enum(); e != nil {
				newer(e.FullName(), e.Options(), versionpb.E_EtcdVersionEnum)
				for j := range e.Values().Len() {
					newer(e.Values().Get(j).FullName(), e.Values().Get(j).Options(), versionpb.E_EtcdVersionEnumValue)
				}
			}
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	walk((&etcdserverpb.InternalRaftRequest{}).ProtoReflect().Descriptor())
	if len(seen) < 30 {
		t.Errorf("only %d messages were looked at", len(seen))
	}
}

// versionsWorld is a versions actor between a membership and a raft that are made up.
type versionsWorld struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	steps   *actorstest.Stepper
	clock   *actorstest.ManualClock
	members *proto.Membership
	server  string
	// term is the one in which this member leads, 0: it does not.
	term, highest proto.Term
	answer        actors.Reply[*proto.Result]
	request       *etcdserverpb.InternalRaftRequest
	settled       []actors.Reply[struct{}]
	sets          int
	versions      *Versions
}

func newVersionsWorld(t *testing.T, seed uint64) *versionsWorld {
	w := &versionsWorld{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 7)), steps: actorstest.NewStepper(seed),
		clock: actorstest.NewManualClock(), members: testMembership(1), server: "3.7.3"}
	var err error
	w.versions, err = spawnVersions(
		actors.NewSystem(actors.Config{Name: "versions", Clock: w.clock, Dispatcher: w.steps}), VersionsConfig{
			Membership: func() *proto.Membership { return w.members }, Member: 99, Raft: w,
			ServerVersion: func(*proto.Member) string { return w.server },
		})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Status implements VersionProposer.
func (w *versionsWorld) Status() *proto.RaftStatus { return &proto.RaftStatus{LeaderTerm: w.term} }

// ProposeInTerm implements VersionProposer, as raft does: only in the term in which this member leads.
func (w *versionsWorld) ProposeInTerm(term proto.Term, r *etcdserverpb.InternalRaftRequest,
	answer actors.Reply[*proto.Result]) error {
	switch {
	case term == 0:
		w.t.Fatalf("seed %d: proposed without a term: %v", w.seed, r)
	case w.request != nil:
		w.t.Fatalf("seed %d: proposed while another proposal is out: %v", w.seed, r)
	case term != w.term || w.random.IntN(4) == 0:
		return ErrNotLeader
	}
	w.request, w.answer = r, answer
	return nil
}

// settle ends the proposal that is out.
func (w *versionsWorld) settle(always bool) {
	r := w.request
	if r == nil {
		return
	}
	w.request = nil
	if !always && w.random.IntN(3) == 0 {
		w.answer.Fail(errors.New("lost"))
		return
	}
	next := clone(w.members)
	if v := r.ClusterVersionSet.GetVer(); v != "" {
		next.ClusterVersion = v
		w.sets++
	} else {
		next.DowngradeTarget = ""
	}
	w.members = next
	w.answer.Send(&proto.Result{})
}

func (w *versionsWorld) step() {
	switch n := w.random.IntN(12); {
	case n == 0:
		w.term = 0
	case n < 3:
		w.highest++
		w.term = w.highest
	case n < 6:
		w.settle(false)
	case n == 6:
		w.server = fmt.Sprintf("3.%d.%d", 6+w.random.IntN(2), w.random.IntN(9))
	case n == 7:
		next := clone(w.members)
		next.DowngradeTarget = []string{"", "3.6.0"}[w.random.IntN(2)]
		w.members = next
	case n == 8 && len(w.settled) < versionsWaitingMax:
		m := &settleVersions{reply: actors.NewReply[struct{}]()}
		if w.versions.ref.Tell(actors.Normal, m) == nil {
			w.settled = append(w.settled, m.reply)
		}
	}
	w.clock.Advance(time.Duration(w.random.IntN(int(versionsInterval))))
	w.steps.Run(1000)
}

// TestVersions_AreProposedOnlyInTheTermOfTheDecision runs elections, refusals, lost answers, upgrades, downgrades and
// cancellations. Nothing is proposed without leading, one proposal is out at a time, and when this member leads at last
// the versions are what they should be and everybody who waited has an answer.
func TestVersions_AreProposedOnlyInTheTermOfTheDecision(t *testing.T) {
	sets := 0
	for seed := uint64(1); seed <= 100; seed++ {
		w := newVersionsWorld(t, seed)
		for range 100 {
			w.step()
		}
		w.highest++
		w.term = w.highest
		for range 100 {
			w.clock.Advance(versionsInterval)
			w.steps.Run(1000)
			w.settle(true)
		}
		facts := versionFactsOf(w.members, func(*proto.Member) string { return w.server })
		if step, version := decideVersions(facts); step == versionSet {
			t.Errorf("seed %d: the version is %q, target %q, and should be %s", seed, w.members.ClusterVersion,
				w.members.DowngradeTarget, version)
		}
		for _, reply := range w.settled {
			if _, _, done := reply.Poll(); !done {
				t.Errorf("seed %d: somebody still waits for settled versions", seed)
			}
		}
		sets += w.sets
	}
	if sets < 100 {
		t.Errorf("only %d versions were set", sets)
	}
}

// refusingRaft leads and refuses every proposal at once, in its own turn, as raft does while its disk is stalled.
type refusingRaft struct{ asked int }

func (r *refusingRaft) Status() *proto.RaftStatus { return &proto.RaftStatus{LeaderTerm: 1} }

func (r *refusingRaft) ProposeInTerm(_ proto.Term, _ *etcdserverpb.InternalRaftRequest,
	answer actors.Reply[*proto.Result]) error {
	r.asked++
	answer.Fail(ErrDiskStalled)
	return nil
}

// TestVersions_RefusedProposalsArePaced: what is refused at once must not be proposed again in the turn that learns of
// it, without an end. There is a pause, and who waits for settled versions waits on.
func TestVersions_RefusedProposalsArePaced(t *testing.T) {
	raft, members := &refusingRaft{}, testMembership(1)
	members.ClusterVersion = "3.6.0"
	steps, clock := actorstest.NewStepper(1), actorstest.NewManualClock()
	versions, err := spawnVersions(
		actors.NewSystem(actors.Config{Name: "versions", Clock: clock, Dispatcher: steps}), VersionsConfig{
			Membership: func() *proto.Membership { return members }, Member: 99, Raft: raft,
			ServerVersion: func(*proto.Member) string { return "3.7.3" },
		})
	if err != nil {
		t.Fatal(err)
	}
	settled := actors.NewReply[struct{}]()
	if err := versions.ref.Tell(actors.Normal, &settleVersions{reply: settled}); err != nil {
		t.Fatal(err)
	}
	most := 1
	for range 100 {
		steps.Run(1000)
		if raft.asked < most/2 || raft.asked > most {
			t.Fatalf("%d proposals in %v", raft.asked, time.Duration(most-1)*versionsRetryPause)
		}
		if _, _, done := settled.Poll(); done {
			t.Fatal("the versions were called settled, the cluster's is still too low")
		}
		clock.Advance(versionsRetryPause)
		most++
	}
}
