package sim

import (
	"math/rand/v2"
	"slices"

	"troupe/proto"
	"troupe/raftactor/disktest"
	"troupe/storeactor"
)

// checkTwins starts the member twice on copies of what the last crash has left, with the actors interleaved
// differently, and compares the two: what they show is the model's, and every HashKV is the same.
func (w *world) checkTwins() {
	var hashes [2]map[hashedAt]uint32
	for i := range hashes {
		c, err := copyDisk(w.disk, walDir, snapDir)
		if err != nil {
			w.fail("copy the disk: %w", err)
			return
		}
		c.SetSegmentBytes(w.disk.SegmentBytes())
		t := w.twin(uint64(i), c, w.file.Crash(func(unsynced int) int { return unsynced }))
		if t.live(0); !t.over() {
			t.rest()
		}
		for revision := max(t.history.head.compacted, 1); revision <= t.history.head.revision; revision += 3 {
			t.hash(proto.Revision(revision))
		}
		t.hash(0)
		if t.failure != nil {
			w.fail("twin: %w", t.failure)
			return
		}
		t.events.die()
		hashes[i] = t.hashes
	}
	w.file = w.file.Kill() // a model that was copied is closed
	// A compaction that runs in one life leaves a hash at the one before it, so not all places are the same.
	for at, sum := range hashes[0] {
		if other, ok := hashes[1][at]; ok && other != sum {
			w.fail("HashKV at %+v is %x and %x on twins", at, sum, other)
		}
	}
}

// twin makes a world with a copy of everything, and starts its member.
func (w *world) twin(number uint64, d *disktest.Disk, file *storeactor.ModelFile) *world {
	t := *w
	t.random = rand.New(rand.NewPCG(w.seed, number))
	t.disk, t.file = d, file
	t.hashes = map[hashedAt]uint32{}
	t.history = newHistory()
	t.history.entries = slices.Clone(w.history.entries)
	t.history.head = t.history.replay(w.history.last())
	t.clients = &clients{world: &t, acknowledged: w.clients.acknowledged}
	t.clients.forget()
	t.watchers, t.quiet = nil, true
	t.begin(moment{})
	return &t
}
