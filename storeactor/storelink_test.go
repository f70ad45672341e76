package storeactor

import (
	"testing"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// TestStoreLink_ReportsBeforeTheStoreIsThereArriveInOrder: a backend that resumes a compaction reports as soon as it
// starts, and the store is spawned after it.
func TestStoreLink_ReportsBeforeTheStoreIsThereArriveInOrder(t *testing.T) {
	sys := actors.NewSystem(actors.Config{Name: t.Name(), Log: zerolog.Nop()})
	probe := actorstest.NewProbe[storeMessage](t, sys, "store")
	link := &storeLink{}
	for revision := proto.Revision(1); revision <= 3; revision++ {
		link.compactedPhysically(&compactedPhysically{revision: revision})
	}
	link.bind(probe.Ref())
	link.compactedPhysically(&compactedPhysically{revision: 4})
	for i, m := range probe.Wait(4) {
		if got := m.(*compactedPhysically).revision; got != proto.Revision(i+1) {
			t.Errorf("report %d is about revision %d", i, got)
		}
	}
}
