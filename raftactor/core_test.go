package raftactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// TestCore_Transcripts replays testdata/core: messages in, effects out. See coreScript for the commands.
func TestCore_Transcripts(t *testing.T) {
	datadriven.Walk(t, "testdata/core", func(t *testing.T, path string) {
		s := &coreScript{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

// coreScript drives a core. An election begins by itself after 10 to 19 ticks; scripts wait for 19, which is one
// election whatever the draw. Commands of one directive make one turn:
//
//	start voters=(1,2) term= commit= applied= last= snapshot= request-ticks=   a core whose log has entries 1..last
//	turn          one message per line of input, then the effects of the turn
//	stop
//	tally         what was counted since the last time
//
// Lines of a turn: propose NAME [size=N] [in-term=T] | conf ID | change add|learner|remove|update|promote ID |
// members N[l][n]... | reached N=TICKS | transfer TO NAME | read NAME | tick N | persisted N | published N |
// changed INDEX [node=N] [learner] | checkpointed INDEX | saved INDEX | pass INDEX | confirm INDEX |
// recv TYPE from=N term=N [index=] [commit=] [reject] [change=N]
//
// A member is written as its id, with an l behind it for a learner and an n for one that has told its name: 1n 2l.
// Before members are given, all voters of start have names.
type coreScript struct {
	core  *core
	names map[uint64]string
	// reached are the ticks for which other members have been reached.
	reached map[proto.MemberID]int
	next    uint64
	out     strings.Builder
}

func (s *coreScript) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.out.Reset()
	switch d.Cmd {
	case "start":
		s.start(t, d)
		s.print(s.core.advance())
	case "turn":
		for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			s.message(t, line)
		}
		s.print(s.core.advance())
	case "stop":
		s.print(s.core.stop())
	case "tally":
		defer func() { s.core.tally = tally{} }()
		return fmt.Sprintf("%+v\n", s.core.tally)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

func (s *coreScript) start(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	var term, commit, applied, last, snapshot uint64
	requestTicks, lax := 70, false
	voters := []uint64{1}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "voters":
			voters = nil
			for _, v := range a.Vals {
				voters = append(voters, number(t, v))
			}
		case "term":
			a.Scan(t, 0, &term)
		case "commit":
			a.Scan(t, 0, &commit)
		case "applied":
			a.Scan(t, 0, &applied)
		case "last":
			a.Scan(t, 0, &last)
		case "snapshot":
			a.Scan(t, 0, &snapshot)
		case "request-ticks":
			a.Scan(t, 0, &requestTicks)
		case "lax":
			lax = true
		}
	}
	s.begin(t, voters, term, commit, applied, last, snapshot, requestTicks, lax)
}

// newCoreScript is a script of a lone member whose log has one entry, which is applied.
func newCoreScript(t *testing.T) *coreScript {
	t.Helper()
	s := &coreScript{}
	s.begin(t, []uint64{1}, 1, 1, 1, 1, 0, 70, false)
	s.core.advance()
	return s
}

// turn hands the core messages and lets it execute them.
func (s *coreScript) turn(t *testing.T, lines ...string) {
	t.Helper()
	s.out.Reset()
	for _, line := range lines {
		s.message(t, line)
	}
	s.print(s.core.advance())
}

func (s *coreScript) begin(t *testing.T, voters []uint64, term, commit, applied, last, snapshot uint64,
	requestTicks int, lax bool) {
	t.Helper()
	var entries []*raftpb.Entry
	for i := snapshot + 1; i <= last; i++ {
		entries = append(entries, testEntry(i, term, fmt.Sprintf("old%d", i)))
	}
	hard := &raftpb.HardState{Term: &term, Vote: new(uint64(1)), Commit: &commit}
	s.names, s.next, s.reached = map[uint64]string{}, 1000, map[proto.MemberID]int{}
	members := &proto.Membership{}
	for _, v := range voters {
		members.Members = append(members.Members, proto.Member{ID: proto.MemberID(v), Name: "m"})
	}
	core, err := newCore(coreConfig{
		member: 1, electionTicks: 10, heartbeatTicks: 1, requestTicks: requestTicks,
		appliedAtStart: proto.Index(applied), snapshotCount: 10, catchUpEntries: 5,
		snapshotAtStart: proto.Index(snapshot),
		log: newMemLog(proto.Index(snapshot), proto.Term(term), hard,
			&raftpb.ConfState{Voters: voters}, entries),
		logger:  quietLogger{},
		members: members, strict: !lax, healthTicks: 50, learnersMax: 1,
		reached: func(id proto.MemberID) (int, bool) { ticks, now := s.reached[id]; return ticks, now },
		nextID:  func() uint64 { s.next++; return s.next },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.core = core
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	var n uint64
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q is no number", text)
	}
	return n
}

// testEntry is an entry with a request whose header id is not one that is waited for.
func testEntry(index, term uint64, key string) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Data: encodedPut(0xf000+index, key, 0)}
}

func encodedPut(id uint64, key string, size int) []byte {
	data, err := pb.Marshal(&etcdserverpb.InternalRaftRequest{
		Header: &etcdserverpb.RequestHeader{ID: id},
		Put:    &etcdserverpb.PutRequest{Key: []byte(key), Value: make([]byte, size)},
	})
	if err != nil {
		panic(err)
	}
	return data
}

// message hands the core one message.
func (s *coreScript) message(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	args := map[string]string{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		args[key] = value
	}
	arg := func(key string) uint64 {
		if args[key] == "" {
			return 0
		}
		return number(t, args[key])
	}
	switch words[0] {
	case "propose":
		s.propose(words[1], int(arg("size")), proto.Term(arg("in-term")), args["revoke"] != "")
	case "conf":
		s.change("add", number(t, words[1]), fmt.Sprintf("conf%s", words[1]))
	case "change":
		s.change(words[1], number(t, words[2]), words[1]+words[2])
	case "members":
		s.core.handle(&membersChanged{scriptMembers(t, words[1:])})
	case "reached":
		for id, ticks := range args {
			s.reached[proto.MemberID(number(t, id))] = int(number(t, ticks))
		}
	case "transfer":
		s.core.handle(&transfer{to: proto.MemberID(number(t, words[1])), answer: namedTransfer{s, words[2]}})
	case "read":
		s.core.handle(&read{answer: namedRead{s, words[1]}})
	case "tick":
		s.core.handle(&tick{int(number(t, words[1]))})
	case "persisted":
		s.core.handle(&persisted{number(t, words[1]), roomOf(args, arg)})
	case "published":
		s.core.handle(&published{proto.Index(number(t, words[1]))})
	case "changed":
		_, learner := args["learner"]
		s.changed(number(t, words[1]), arg("node"), learner)
	case "checkpointed":
		s.core.handle(&checkpointed{index: proto.Index(number(t, words[1])), term: 1, membership: testMembership(1)})
	case "saved":
		s.core.handle(&snapshotSaved{proto.Index(number(t, words[1]))})
	case "no-room-for-snapshot":
		s.core.handle(&snapshotFailed{proto.Index(number(t, words[1]))})
	case "pass":
		s.pass(number(t, words[1]))
	case "confirm":
		s.core.handle(&confirmCommit{index: proto.Index(number(t, words[1])), done: func(error) {}})
	case "recv":
		_, reject := args["reject"]
		kind := raftpb.MessageType(raftpb.MessageType_value[words[1]])
		m := &raftpb.Message{Type: &kind, From: new(arg("from")), To: new(uint64(1)), Term: new(arg("term")),
			Index: new(arg("index")), LogTerm: new(arg("log-term")), Commit: new(arg("commit")), Reject: &reject}
		if args["context"] == "beat" { // the reader's position in the leader's queue, as the heartbeat carried it
			m.Context = []byte{byte(arg("position")), 0, 0, 0, 0, 0, 0, 0}
		}
		for i := arg("entries-from"); i != 0 && i <= arg("entries-to"); i++ {
			m.Entries = append(m.Entries, testEntry(i, arg("entries-term"), "e"))
		}
		if node := arg("change"); node != 0 {
			m.Entries = append(m.Entries, s.changeEntry("learner", node))
		}
		s.core.handle(&receive{m})
	default:
		t.Fatalf("unknown message %q", line)
	}
}

// pass asks for a snapshot past an index.
func (s *coreScript) pass(index uint64) {
	s.core.handle(&passSnapshot{index: proto.Index(index), done: func(err error) {
		fmt.Fprintf(&s.out, "passed %d: %v\n", index, err)
	}})
}

// propose proposes a put, or with revoke something of the same size that counts as the end of a lease.
func (s *coreScript) propose(name string, size int, term proto.Term, revoke bool) {
	s.next++
	s.names[s.next] = name
	request := &etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{}}
	if revoke {
		request = &etcdserverpb.InternalRaftRequest{LeaseRevoke: &etcdserverpb.LeaseRevokeRequest{}}
	}
	s.core.handle(&propose{id: s.next, request: request, entry: &raftpb.Entry{Data: encodedPut(s.next, name, size)},
		answer: namedAnswer{s, name}, term: term})
}

// roomOf is the room that a completion tells of: room=N reserve=N segment=N release=N full=yes. Without room there is
// no limit.
func roomOf(args map[string]string, arg func(string) uint64) logRoom {
	_, limited := args["room"]
	return logRoom{limited: limited, bytes: int64(arg("room")), reserve: int64(arg("reserve")),
		segment: int64(arg("segment")), release: proto.Index(arg("release")), full: args["full"] != ""}
}

// change asks for a change of the membership.
func (s *coreScript) change(verb string, node uint64, name string) {
	entry := s.changeEntry(verb, node)
	s.names[s.next] = name
	s.core.handle(&propose{id: s.next, entry: entry, answer: namedAnswer{s, name},
		change: &memberChange{kind: changeKinds[verb], id: proto.MemberID(node), promotes: verb == "promote",
			entry: confChangeIn(entry)}})
}

// confChangeIn decodes an entry.
func confChangeIn(e *raftpb.Entry) *raftpb.ConfChange {
	var cc raftpb.ConfChange
	if err := pb.Unmarshal(e.Data, &cc); err != nil {
		panic(err)
	}
	return &cc
}

var changeKinds = map[string]raftpb.ConfChangeType{
	"add": raftpb.ConfChangeAddNode, "learner": raftpb.ConfChangeAddLearnerNode, "remove": raftpb.ConfChangeRemoveNode,
	"update": raftpb.ConfChangeUpdateNode, "promote": raftpb.ConfChangeAddNode,
}

func (s *coreScript) changeEntry(verb string, node uint64) *raftpb.Entry {
	s.next++
	id := s.next
	member := encodeMember(&proto.Member{ID: proto.MemberID(node), IsLearner: verb == "learner"})
	if verb == "promote" {
		member = encodePromotion(proto.MemberID(node))
	}
	data, err := pb.Marshal(&raftpb.ConfChange{Id: &id, Type: changeKinds[verb].Enum(), NodeId: &node, Context: member})
	if err != nil {
		panic(err)
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Data: data}
}

// scriptMembers reads members.
func scriptMembers(t *testing.T, words []string) *proto.Membership {
	t.Helper()
	m := &proto.Membership{}
	for _, w := range words {
		id := strings.TrimRight(w, "ln")
		member := proto.Member{ID: proto.MemberID(number(t, id)), IsLearner: strings.Contains(w, "l")}
		if strings.Contains(w, "n") {
			member.Name = "m"
		}
		m.Members = append(m.Members, member)
	}
	return m
}

func (s *coreScript) changed(index, node uint64, learner bool) {
	m := &confChanged{index: proto.Index(index), result: &proto.Result{}}
	m.change = &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &node}
	if learner {
		m.change.Type = raftpb.ConfChangeAddLearnerNode.Enum()
	}
	if node == 0 {
		m.err, m.result = ErrMemberExists, nil
	}
	s.core.handle(m)
}

// namedAnswer and namedRead print what they are answered.
type namedAnswer struct {
	s    *coreScript
	name string
}

func (a namedAnswer) Send(*proto.Result) { fmt.Fprintf(&a.s.out, "answer %s: ok\n", a.name) }
func (a namedAnswer) Fail(err error)     { fmt.Fprintf(&a.s.out, "answer %s: %v\n", a.name, err) }

type namedRead struct {
	s    *coreScript
	name string
}

func (a namedRead) Send(i proto.Index) { fmt.Fprintf(&a.s.out, "read %s: index %d\n", a.name, i) }
func (a namedRead) Fail(err error)     { fmt.Fprintf(&a.s.out, "read %s: %v\n", a.name, err) }

// namedTransfer prints what it is answered.
type namedTransfer struct {
	s    *coreScript
	name string
}

func (a namedTransfer) Send(struct{})  { fmt.Fprintf(&a.s.out, "transfer %s: done\n", a.name) }
func (a namedTransfer) Fail(err error) { fmt.Fprintf(&a.s.out, "transfer %s: %v\n", a.name, err) }

// print writes the effects in their order.
func (s *coreScript) print(effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case publishStatus:
			v := e.view.status
			fmt.Fprintf(&s.out, "publish term=%d leader=%d commit=%d applied=%d", v.Term, v.Leader, v.Commit, v.Applied)
			for _, f := range []struct {
				on   bool
				text string
			}{
				{v.LeaderTerm != 0, fmt.Sprintf(" leader-term=%d", v.LeaderTerm)}, {v.Ready, " ready"},
				{e.view.readable, " readable"}, {v.Learner, " learner"},
				{v.DiskStalledTicks != 0, fmt.Sprintf(" stalled=%d", v.DiskStalledTicks)}, {v.LogFull, " log-full"},
			} {
				if f.on {
					s.out.WriteString(f.text)
				}
			}
			s.out.WriteString("\n")
		case persistLog:
			fmt.Fprintf(&s.out, "persist %d%s%s sync=%v\n", e.append.seq, hardText(e.append.hardState),
				s.entries(e.append.entries), e.append.mustSync)
		case confirmLog:
			fmt.Fprintf(&s.out, "confirm commit >= %d\n", e.confirm.index)
		case saveSnapshot:
			fmt.Fprintf(&s.out, "save snapshot %d term %d\n", e.snapshot.record.Index, e.snapshot.record.Term)
		case handOver:
			s.handOver(e.work)
		case sendPeers:
			for _, m := range e.messages {
				fmt.Fprintf(&s.out, "send %v to %d term=%d index=%d commit=%d%s\n", m.GetType(), m.GetTo(), m.GetTerm(),
					m.GetIndex(), m.GetCommit(), s.entries(m.GetEntries()))
			}
		case refuse:
			e.answer.Fail(e.err)
		case accept:
			e.answer.Send(e.result)
		case answerReads:
			answerAll(e)
		case answerTransfer:
			if e.err != nil {
				e.answer.Fail(e.err)
			} else {
				e.answer.Send(struct{}{})
			}
		case answerPass:
			e.done(e.err)
		case noteLeader:
			fmt.Fprintf(&s.out, "note term %d leader %v\n", e.term, e.leader)
		case noteStall:
			fmt.Fprintf(&s.out, "note stall %d\n", e.ticks)
		case noteSpace:
			fmt.Fprintf(&s.out, "note space refused=%v room=%d\n", e.refused, e.bytes)
		case noteSnapshot:
			fmt.Fprintf(&s.out, "note snapshot %d\n", e.index)
		default:
			fmt.Fprintf(&s.out, "unknown effect %T\n", e)
		}
	}
}

func hardText(h *raftpb.HardState) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf(" hard{term=%d vote=%d commit=%d}", h.GetTerm(), h.GetVote(), h.GetCommit())
}

func (s *coreScript) entries(entries []*raftpb.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, " %d/%d:%s", e.GetTerm(), e.GetIndex(), s.entryName(e))
	}
	return b.String()
}

func (s *coreScript) entryName(e *raftpb.Entry) string {
	if len(e.Data) == 0 {
		return "empty"
	}
	if e.GetType() == raftpb.EntryConfChange {
		return "conf"
	}
	if name := s.names[requestIDOf(e.Data)]; name != "" {
		return name
	}
	return "other"
}

func (s *coreScript) handOver(w *applyWork) {
	fmt.Fprintf(&s.out, "apply%s", s.entries(w.entries))
	waiters := 0
	for _, m := range w.waiters {
		if m != nil {
			waiters++
		}
	}
	fmt.Fprintf(&s.out, " waiters=%d\n", waiters)
}

type quietLogger struct{}

func (quietLogger) Debug(...any)                   {}
func (quietLogger) Debugf(string, ...any)          {}
func (quietLogger) Info(...any)                    {}
func (quietLogger) Infof(string, ...any)           {}
func (quietLogger) Warning(...any)                 {}
func (quietLogger) Warningf(string, ...any)        {}
func (quietLogger) Error(...any)                   {}
func (quietLogger) Errorf(string, ...any)          {}
func (quietLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (quietLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (quietLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (quietLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }

// testMembership has one voter per id.
func testMembership(ids ...proto.MemberID) *proto.Membership {
	m := &proto.Membership{ClusterID: 7}
	for _, id := range ids {
		m.Members = append(m.Members, proto.Member{ID: id, Name: fmt.Sprintf("m%d", id),
			PeerURLs: []string{fmt.Sprintf("http://10.0.0.%d:2380", id)}})
	}
	return m
}
