package watchactor

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/actors/actorstest"
)

// TestHub_ForgetsAGroupThatFailed: a hub that kept its address would go on being woken for every write when nobody
// watches any more.
func TestHub_ForgetsAGroupThatFailed(t *testing.T) {
	c := newHubCore(1, 10, 0)
	c.step(join{stream: streamAddress{id: 1}, keys: Range{Key: "a", End: "b"}, from: 2, first: true})
	var ended, failed bool
	for _, e := range c.step(groupFailed{1}) {
		switch e := e.(type) {
		case endGroup:
			ended = ended || e.group == 1
		case failStream:
			failed = failed || e.stream == 1
		}
	}
	if !ended || !failed {
		t.Errorf("the group has ended: %v; its stream is ended: %v", ended, failed)
	}
}

// TestCatchUp_AsksAgainWhenHistoryIsBusy: a stream's turn does not wait for history, and the watch loses nothing.
func TestCatchUp_AsksAgainWhenHistoryIsBusy(t *testing.T) {
	m, step, clock := newModel(), actorstest.NewStepper(1), actorstest.NewManualClock()
	c, err := Spawn(actors.NewSystem(actors.Config{Name: "room", Clock: clock, Dispatcher: step}), Config{History: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	for range 3 {
		m.batch([]op{put("k", "v")})
	}
	m.busy = 2
	s := mustOpen(t, c)
	create := createRequest(&etcdserverpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	if err := s.Request(context.Background(), create); err != nil {
		t.Fatal(err)
	}
	if next := drain(t, step, s, 2); next != 2 || m.reads != 1 {
		t.Fatalf("%d reads gave events up to %d", m.reads, next-1)
	}
	for range 2 {
		clock.Advance(catchupRetryDelay)
		step.Run(1000)
	}
	if next := drain(t, step, s, 2); next != 5 || m.reads != 3 {
		t.Fatalf("%d reads gave events up to %d", m.reads, next-1)
	}
}
