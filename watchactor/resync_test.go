package watchactor

import (
	"reflect"
	"testing"

	"troupe/proto"
)

func deliveryOf(g groupID, revision proto.Revision) *delivered {
	return &delivered{group: g, position: revision, items: []item{{run: &run{first: revision, last: revision}}}}
}

// TestReplayStream_KeepsOrder: a full mailbox notes one loss per group, but a new one behind everything that may have
// admitted watches which the earlier loss does not speak of.
func TestReplayStream_KeepsOrder(t *testing.T) {
	r := new(replayStream)
	for _, m := range []streamMessage{
		deliveryOf(1, 10), deliveryOf(2, 10), deliveryOf(1, 11), admitted{group: 1, watch: 7}, deliveryOf(2, 12),
		deliveryOf(1, 12), deliveryOf(1, 13), probed{group: 2}, deliveryOf(2, 14), deliveryOf(1, 9), behind{group: 1},
		deliveryOf(1, 15), readOn{group: 1}, deliveryOf(1, 16),
	} {
		r.add(m)
	}
	want := []streamMessage{
		lostDeliveries{1, 10}, lostDeliveries{2, 10}, admitted{group: 1, watch: 7}, lostDeliveries{1, 9}, probed{group: 2},
		lostDeliveries{2, 14}, behind{group: 1}, lostDeliveries{1, 15}, readOn{group: 1}, lostDeliveries{1, 16},
	}
	if !reflect.DeepEqual(r.messages, want) {
		t.Fatalf("kept %+v", r.messages)
	}
}

// TestReplayHub_MergesBatches: batches become one loss, in its place among what is kept.
func TestReplayHub_MergesBatches(t *testing.T) {
	m := newModel()
	r := new(replayHub)
	r.add(published{m.batch([]op{put("a", "1")})})
	r.add(published{m.batch([]op{put("a", "2")}, []op{put("a", "3")})})
	r.add(streamGone{1})
	r.add(published{&proto.EventBatch{Revision: m.revision}}) // a compaction
	r.add(published{m.batch([]op{put("a", "4")})})
	r.add(lostBatches{through: 9})
	want := []hubMessage{lostBatches{2, 4}, streamGone{1}, lostBatches{0, 9}}
	if !reflect.DeepEqual(r.messages, want) {
		t.Fatalf("kept %+v", r.messages)
	}
}

// TestReplayGroup_MergesBatches is the same for groups, where picks say which events count.
func TestReplayGroup_MergesBatches(t *testing.T) {
	m := newModel()
	r := new(replayGroup)
	r.add(routed{batch: m.batch([]op{put("a", "1")}, []op{put("b", "1")}), picks: []int32{1}})
	r.add(routed{batch: m.batch([]op{put("a", "2")})})
	r.add(dropStream{1})
	r.add(lostBatches{7, 9})
	want := []groupMessage{lostBatches{3, 4}, dropStream{1}, lostBatches{7, 9}}
	if !reflect.DeepEqual(r.messages, want) {
		t.Fatalf("kept %+v", r.messages)
	}
}
