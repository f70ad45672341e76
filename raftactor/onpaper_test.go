package raftactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"troupe/proto"
)

// withLearner is a leader with a learner that never answers, whose log in memory is empty.
func withLearner(t *testing.T, peerless bool) *coreScript {
	t.Helper()
	s := newCoreScript(t)
	s.core.cfg.peerless = peerless
	for _, turn := range [][]string{{"persisted 1"}, {"persisted 2", "published 2"}, {"change learner 2"},
		{"persisted 3"}, {"changed 3 node=2 learner", "members 1n 2l", "published 3"}} {
		s.turn(t, turn...)
	}
	return s
}

// A learner that was added and never comes has none of the log, and the log is cut all the same: by entries, and by
// bytes as much as without it while there are no links.
func TestCore_AMemberOnPaperDoesNotKeepTheLog(t *testing.T) {
	for _, c := range []struct {
		peerless bool
		bytesMax uint64
	}{{true, logBytesAlone}, {false, logBytesMax}} {
		s := withLearner(t, c.peerless)
		const size = 1 << 20
		for i := range uint64(200) {
			s.turn(t, fmt.Sprintf("propose p%d size=%d", i, size), "tick 1")
			s.turn(t, fmt.Sprint("persisted ", s.core.appends.last))
			s.turn(t, fmt.Sprint("published ", s.core.hard.GetCommit()))
			if bytes := s.core.log.bytes; bytes > c.bytesMax+2*size {
				t.Fatalf("after %d MiB the log in memory has %d bytes, more than %d", i, bytes, c.bytesMax)
			}
		}
		for i := range uint64(3 * logEntriesSlack) {
			s.turn(t, fmt.Sprintf("propose s%d", i))
			s.turn(t, fmt.Sprint("persisted ", s.core.appends.last))
			s.turn(t, fmt.Sprint("published ", s.core.hard.GetCommit()))
		}
		if n := uint64(len(s.core.log.entries)); n > s.core.cfg.catchUpEntries+2*logEntriesSlack {
			t.Errorf("the log in memory has %d entries", n)
		}
		if len(s.core.appends.waiting) > 0 || len(s.core.applies.outstanding) > 0 {
			t.Errorf("%d appends and %d applies are outstanding", len(s.core.appends.waiting), len(s.core.applies.outstanding))
		}
		// It comes after all, and lacks what was cut: raft wants a snapshot, of which there is none yet, and goes on.
		first, _ := s.core.log.FirstIndex()
		s.turn(t, fmt.Sprintf("recv MsgAppResp from=2 term=%d index=3 reject", s.core.term))
		s.turn(t, fmt.Sprintf("recv MsgHeartbeatResp from=2 term=%d", s.core.term))
		if again, _ := s.core.log.FirstIndex(); again != first || !s.core.leads() {
			t.Errorf("the log began at %d and begins at %d, leads: %v", first, again, s.core.leads())
		}
		s.turn(t, "propose last")
		s.turn(t, fmt.Sprint("persisted ", s.core.appends.last))
		if s.core.hard.GetCommit() != s.core.log.last() {
			t.Error("writes stopped when the learner asked for a snapshot")
		}
	}
}

// Without a leader changes come and time out for as long as it lasts: no more are kept than may wait.
func TestCore_ChangesThatTimedOutAreForgotten(t *testing.T) {
	s := &coreScript{}
	s.begin(t, []uint64{1, 2, 3}, 4, 3, 3, 3, 0, 70, true)
	s.core.advance()
	for i := range 50 {
		for j := range 2 * confChangesWaitingMax {
			s.turn(t, fmt.Sprintf("change update %d", j))
			if full := j >= confChangesWaitingMax; full != strings.Contains(s.out.String(), "too many requests") {
				t.Fatalf("change %d of round %d: %q", j, i, s.out.String())
			}
		}
		s.turn(t, "tick 70")
		if n := strings.Count(s.out.String(), "nothing was proposed"); n != confChangesWaitingMax {
			t.Fatalf("%d of %d have timed out in round %d", n, confChangesWaitingMax, i)
		}
	}
	if n := len(s.core.changes.waiting) + len(s.core.proposals.pending); n > 0 {
		t.Errorf("%d are still kept", n)
	}
}

// Changes and transfers that wait when the member stops are answered, each once, and so are more than may wait.
func TestMember_StopAnswersChangesOfTheMembers(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := startNode(t, t.TempDir(), func(cfg *Config, _ *testMachine) { cfg.MaxLearners = 1000 })
	n.put(t, "a")
	gate := make(chan struct{})
	n.machine.mu.Lock()
	n.machine.gate = gate
	n.machine.mu.Unlock()
	var wg sync.WaitGroup
	answers := make(chan error, 4*confChangesWaitingMax)
	for i := range 2 * confChangesWaitingMax {
		wg.Go(func() {
			learner := proto.Member{ID: proto.MemberID(i + 1), PeerURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", i+1)},
				IsLearner: true}
			_, err := n.client.ChangeMembers(context.Background(), AddMember, learner)
			answers <- err
		})
	}
	eventually(t, "some are refused", func() bool { return len(answers) >= confChangesWaitingMax-2 })
	time.AfterFunc(10*time.Millisecond, func() { close(gate) }) // the stop waits for what is applied
	n.stop(t)
	wg.Wait()
	close(answers)
	counts := map[error]int{}
	for err := range answers {
		switch {
		case err == nil, errors.Is(err, ErrStopped), errors.Is(err, ErrTooManyRequests):
			counts[err]++
		default:
			t.Errorf("answered %v", err)
		}
	}
	if counts[ErrStopped] == 0 || counts[ErrTooManyRequests] == 0 {
		t.Errorf("the answers are %v", counts)
	}
	if err := n.client.MoveLeader(testContext(t), n.client.Status().Member); !errors.Is(err, ErrStopped) {
		t.Errorf("a transfer after the stop: %v", err)
	}
	if _, err := n.client.ChangeMembers(testContext(t), RemoveMember, proto.Member{ID: 1}); !errors.Is(err, ErrStopped) {
		t.Errorf("a change after the stop: %v", err)
	}
}
