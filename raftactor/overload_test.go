package raftactor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

func revokeRequest(lease int64) *etcdserverpb.InternalRaftRequest {
	return &etcdserverpb.InternalRaftRequest{LeaseRevoke: &etcdserverpb.LeaseRevokeRequest{ID: lease}}
}

// answerCount counts answers by error.
type answerCount struct{ ok, busy, other int }

func (a *answerCount) Send(*proto.Result) { a.ok++ }
func (a *answerCount) Fail(err error) {
	if errors.Is(err, ErrTooManyRequests) {
		a.busy++
	} else {
		a.other++
	}
}

// loneLeader is a lone leader whose log is durable as far as persisted says.
func loneLeader(t *testing.T) *core {
	t.Helper()
	c, err := newCore(coreConfig{member: 1, electionTicks: 10, heartbeatTicks: 1, requestTicks: 70, appliedAtStart: 1,
		snapshotCount: 1000, catchUpEntries: 10, logger: quietLogger{}, nextID: func() uint64 { return 1 },
		log: newMemLog(0, 0, logState(1, 1, 1), &raftpb.ConfState{Voters: []uint64{1}},
			bootstrapEntries(testMembership(1).Members))})
	if err != nil {
		t.Fatal(err)
	}
	c.advance()
	for range 3 {
		c.handle(&persisted{upTo: c.appends.last})
		c.handle(&published{proto.Index(c.log.last())})
		c.advance()
	}
	if !c.leads() {
		t.Fatal("it does not lead")
	}
	return c
}

// Clients fill their bounds, in number and in bytes, without an answer of the disk. The ends of leases are appended all
// the same, within a bound of their own, and everything is answered once when the disk goes on.
func TestCore_ClientsCannotTakeTheRoomOfLeases(t *testing.T) {
	for _, test := range []struct {
		name       string
		size, most int
	}{
		{"many small ones", 10, proposalsPendingMax},
		{"a few large ones", 1 << 20, proposalsPendingBytesMax / (1 << 20)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := loneLeader(t)
			id := uint64(1 << 20)
			propose := func(term proto.Term, size int, answer proto.Answer) {
				id++
				c.handle(&propose{id: id, term: term, request: revokeRequest(1), answer: answer,
					entry: &raftpb.Entry{Data: encodedPut(id, "k", size)}})
			}
			var clients, own answerCount
			for i := 0; clients.busy == 0; i++ {
				propose(0, test.size, &clients)
				if i > proposalsPendingMax+500 {
					t.Fatal("there is no bound")
				}
				if i%100 == 0 {
					execute(t, c.advance(), nil)
				}
			}
			taken := len(c.proposals.pending)
			if taken > test.most || taken < test.most*9/10 {
				t.Errorf("%d were taken, the bound is about %d", taken, test.most)
			}
			execute(t, c.advance(), nil)
			for range proposalsOwnMax + 1 {
				propose(c.term, 10, &own)
			}
			appended := 0
			execute(t, c.advance(), func(a *walAppend) { appended += len(a.entries) })
			if own.busy != 1 || appended != proposalsOwnMax {
				t.Errorf("of %d ends of leases %d were appended, %d refused", proposalsOwnMax+1, appended, own.busy)
			}
			for i := 0; len(c.proposals.pending) > 0 && i < 1000; i++ {
				c.handle(&persisted{upTo: c.appends.last})
				execute(t, c.advance(), nil)
				if n := len(c.applies.handed); n > 0 {
					c.handle(&published{proto.Index(c.applies.handed[n-1])})
				}
			}
			if clients.other+own.other > 0 || len(c.proposals.pending) > 0 {
				t.Errorf("clients %+v, own %+v, %d pending", clients, own, len(c.proposals.pending))
			}
		})
	}
}

// execute does what a test of the core needs of effects.
func execute(t *testing.T, effects []effect, appended func(*walAppend)) {
	t.Helper()
	for _, e := range effects {
		switch e := e.(type) {
		case refuse:
			e.answer.Fail(e.err)
		case persistLog:
			if appended != nil {
				appended(e.append)
			}
		}
	}
}

// A mailbox full of clients' requests refuses the next of those, and takes the ends of leases, which are answered with
// the first turn that there is.
func TestClient_AFloodDoesNotKeepLeasesAlive(t *testing.T) {
	s := newSim(t, 3)
	s.start()
	if t.Failed() {
		return
	}
	term := s.client.Status().Term
	flooded := false
	for i := range inboxMessagesMax + 1 {
		p, err := s.client.prepare(putRequest(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		p.message.answer = &answerCount{}
		if flooded = errors.Is(s.client.ref.Tell(actors.Normal, &p.message), actors.ErrFull); flooded {
			break
		}
	}
	if !flooded {
		t.Fatal("the mailbox is never full")
	}
	const leases = 256
	var replies []actors.Reply[*proto.Result]
	for i := range int64(leases) {
		reply := actors.NewReply[*proto.Result]()
		if err := s.client.ProposeInTerm(term, revokeRequest(i+1), reply); err != nil {
			t.Fatalf("the end of lease %d: %v", i, err)
		}
		replies = append(replies, reply)
	}
	turns := s.client.ref.Depth(actors.Normal)/turnMessagesMax + 1
	answered := 0
	for step := 0; answered < leases && step < 100*turns; step++ {
		s.step()
		answered = 0
		for _, r := range replies {
			if _, err, ok := r.Poll(); ok {
				answered++
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if left := s.client.ref.Depth(actors.Normal); answered < leases || left < inboxMessagesMax/2 {
		t.Errorf("%d of %d leases ended, %d requests of clients still waited", answered, leases, left)
	}
}

// However much waits, own proposals have an end too.
func TestClient_OwnProposalsHaveABound(t *testing.T) {
	stepper := actorstest.NewStepper(1)
	system := actors.NewSystem(actors.Config{Log: zerolog.Nop(), Dispatcher: stepper, Clock: actorstest.NewManualClock()})
	m := testMembership(1)
	wal := &testWAL{auto: true, room: -1}
	client, err := Spawn(system, Config{Meta: LogMeta{Member: 1, Cluster: 7}, AppliedAtStart: 1, Membership: m,
		Machine: &testMachine{last: 1}, Logger: zerolog.Nop(),
		Recovered: &Recovered{Meta: LogMeta{Member: 1, Cluster: 7}, Entries: bootstrapEntries(m.Members),
			HardState: logState(1, 1, 1)},
		startWAL: func(owner walOwner) (walLink, error) { wal.owner = owner; return wal, nil }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range inboxOwnControlMax + 2 {
		err := client.ProposeInTerm(2, revokeRequest(1), actors.Reply[*proto.Result]{})
		if errors.Is(err, ErrTooManyRequests) {
			return
		}
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	t.Error("there is no bound")
}

// What clients may have pending, and what the member proposes itself, never makes raft refuse: it would refuse both.
func TestLimits_RaftTakesWhatIsAdmitted(t *testing.T) {
	if uncommittedBytesMax < proposalsPendingBytesMax+proposalsOwnBytesMax+committedBytesMax+maxRequestBytesDefault {
		t.Error("clients can fill raft's own bound")
	}
	if inboxOwnControlMax+inboxPeerControlMax > inboxControlMessagesMax/2 {
		t.Error("completions may find no room")
	}
	if n := pb.Size(revokeRequest(1<<63-1)) + messageOverheadBytes; n*proposalsOwnMax > proposalsOwnBytesMax {
		t.Errorf("the ends of leases take %d bytes each", n)
	}
}
