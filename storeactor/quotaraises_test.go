package storeactor

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// alarmWorld is a caretaker over a real state machine whose NOSPACE alarm the quota and operators raise and end. There
// is always space, so the caretaker ends whatever alarm it may.
type alarmWorld struct {
	*rig
	seed   uint64
	random *rand.Rand
	steps  *actorstest.Stepper
	clock  *actorstest.ManualClock
	client *Client
	// byHand says who raised what is raised now; ended counts the alarms that the caretaker has ended.
	byHand bool
	ended  int
	ids    uint64
	late   []proto.RequestID // requests of the quota of which it does not know yet that they were made
}

const alarmedMember = 7

func newAlarmWorld(t *testing.T, seed uint64) *alarmWorld {
	w := &alarmWorld{rig: newRig(t), seed: seed, random: rand.New(rand.NewPCG(seed, 9)),
		steps: actorstest.NewStepper(seed), clock: actorstest.NewManualClock(), client: &Client{out: &published{}}}
	w.publish()
	_, err := w.client.SpawnCaretaker(actors.NewSystem(actors.Config{Name: "alarms", Clock: w.clock, Dispatcher: w.steps}),
		CareConfig{AutoDisarm: true, Member: alarmedMember, Proposer: w, LeaderTerm: func() proto.Term { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *alarmWorld) publish() { w.client.out.state.Store(w.m.state()) }

// apply executes a request about the alarm, as one that somebody proposed.
func (w *alarmWorld) apply(action pb.AlarmRequest_AlarmAction, member uint64) proto.RequestID {
	w.ids++
	w.must(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: w.ids},
		Alarm: &pb.AlarmRequest{Action: action, MemberID: member, Alarm: pb.AlarmType_NOSPACE}})
	w.publish()
	return proto.RequestID(w.ids)
}

func (w *alarmWorld) raised() bool {
	for _, a := range w.m.alarms {
		if a.is(alarmedMember, pb.AlarmType_NOSPACE) {
			return true
		}
	}
	return false
}

// step does one thing that may happen.
func (w *alarmWorld) step() {
	const raise, clear = pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE
	switch n := w.random.IntN(10); {
	case n < 2:
		if !w.raised() { // the quota looks first
			w.late, w.byHand = append(w.late, w.apply(raise, alarmedMember)), false
			if w.random.IntN(2) == 0 {
				w.learn()
			}
		}
	case n < 4:
		w.apply(raise, alarmedMember)
		w.byHand = true
	case n < 6:
		w.apply(clear, alarmedMember)
	case n < 7:
		w.apply(raise, 8)
	case n < 8:
		w.learn()
	case n < 9:
		w.look(1)
	default: // the pauses between attempts become long
		w.clock.Advance(2 * quotaHealPauseMax)
		w.look(1)
	}
}

// learn tells the quota what it did.
func (w *alarmWorld) learn() {
	for _, id := range w.late {
		w.client.NoteQuotaRaise(id)
	}
	w.late = nil
}

func (w *alarmWorld) look(times int) {
	for range times {
		w.clock.Advance(careInterval)
		w.steps.Run(100)
	}
}

// ProposeInTerm is part of Proposer.
func (w *alarmWorld) ProposeInTerm(proto.Term, *pb.InternalRaftRequest, actors.Reply[*proto.Result]) error {
	panic("nothing is compacted")
}

// ProposeTo is part of Proposer: the caretaker ends an alarm.
func (w *alarmWorld) ProposeTo(r *pb.InternalRaftRequest, answer actors.Reply[*proto.Result]) error {
	if !w.raised() || w.byHand || r.Alarm.MemberID != alarmedMember {
		w.tb.Errorf("seed %d: the caretaker proposes %v; raised is %v, by hand: %v", w.seed, r.Alarm, w.m.alarms, w.byHand)
	}
	w.apply(r.Alarm.Action, r.Alarm.MemberID)
	w.ended++
	answer.Send(&proto.Result{})
	return nil
}

// TestQuotaRaises_OnlyTheQuotasAlarmsAreEnded raises and ends alarms in random order, by the quota, which learns late
// what it did, and by hand, between two looks of the caretaker or over several.
func TestQuotaRaises_OnlyTheQuotasAlarmsAreEnded(t *testing.T) {
	ended := 0
	for seed := uint64(1); seed <= 40; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newAlarmWorld(t, seed)
			for range 300 {
				w.step()
			}
			ended += w.ended
			// However it went on, an alarm of the quota ends once there is space, and the other member's stays.
			w.apply(pb.AlarmRequest_DEACTIVATE, alarmedMember)
			w.byHand = false
			w.apply(pb.AlarmRequest_ACTIVATE, 8)
			w.client.NoteQuotaRaise(w.apply(pb.AlarmRequest_ACTIVATE, alarmedMember))
			w.look(int(2 * quotaHealPauseMax / careInterval))
			if w.raised() || len(w.m.alarms) != 1 {
				t.Errorf("seed %d: in the end %v are raised", seed, w.m.alarms)
			}
		})
	}
	if ended < 100 {
		t.Errorf("%d alarms were ended under way, which shows nothing", ended)
	}
}

// TestQuotaRaises_WhatIsThereAtTheStartIsTheQuotas: in the file, which does not say who raised it, or in the log behind
// it, if the member adopts it before it serves clients.
func TestQuotaRaises_WhatIsThereAtTheStartIsTheQuotas(t *testing.T) {
	for name, restart := range map[string]func(w *alarmWorld){
		"in the file": func(w *alarmWorld) { w.restart(); w.publish() },
		"in the log":  func(w *alarmWorld) { w.client.AdoptAlarm(alarmedMember) },
	} {
		w := newAlarmWorld(t, 1)
		w.apply(pb.AlarmRequest_ACTIVATE, alarmedMember)
		w.byHand = true
		w.look(5)
		if !w.raised() {
			t.Fatalf("%s: the alarm was ended before the start", name)
		}
		restart(w)
		w.byHand = false // that is what is forgotten
		w.look(2)
		if w.raised() {
			t.Errorf("%s: %v is raised after the start", name, w.m.alarms)
		}
	}
}

// TestQuotaRaises_AreBounded: the last ones are known.
func TestQuotaRaises_AreBounded(t *testing.T) {
	var q quotaRaises
	for id := range proto.RequestID(quotaRaisesMax + 2) {
		q.note(id) // 0 is none
	}
	if len(q.last) != quotaRaisesMax || q.raised(Alarm{By: 1}) || !q.raised(Alarm{By: 2}) ||
		!q.raised(Alarm{By: quotaRaisesMax + 1}) {
		t.Errorf("%d are known: %v", len(q.last), q.last)
	}
}
