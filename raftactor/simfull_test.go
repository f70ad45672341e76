package raftactor

import (
	"path"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// smallDisk is what the simulation knows of a disk that fills up.
type smallDisk struct {
	// refused are keys that were refused for want of space.
	refused map[string]bool
	// starts counts starts on a full disk, recoveries how often writes went on by themselves.
	starts, recoveries, acknowledged int
}

// TestSim_AFullDiskLosesNothing is TestSim on a disk that is full now and then, also at a start. What must hold
// besides: the member never ends for want of space, what it refused for that never comes back, and it takes writes
// again by itself, soon after there is space.
func TestSim_AFullDiskLosesNothing(t *testing.T) {
	var all smallDisk
	refused := 0
	for seed := range min(*simRuns, 15) {
		s := newSim(t, seed+1)
		s.small = &smallDisk{refused: map[string]bool{}}
		s.disk.SetSegmentBytes(1 << 20)
		s.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed+1)
		}
		all.starts += s.small.starts
		all.recoveries += s.small.recoveries
		all.acknowledged += len(s.acknowledged)
		refused += len(s.small.refused)
	}
	t.Logf("%d acknowledged, %d refused, %d starts on a full disk, %d recoveries", all.acknowledged, refused, all.starts,
		all.recoveries)
	if min(all.starts, 2*all.recoveries, refused) < 10 && *simRuns >= 15 {
		t.Error("the disk was not full often enough to show anything")
	}
}

// request is a put, on a small disk a large one.
func (s *sim) request(key string) *etcdserverpb.InternalRaftRequest {
	r := putRequest(key)
	if s.small != nil {
		r.Put.Value = make([]byte, s.random.IntN(100<<10))
	}
	return r
}

func (s *sim) fillBeforeStart() {
	if s.small == nil {
		return
	}
	s.disk.SetSpace(-1)
	segments, err := listSegments(s.disk, "/member/wal")
	if err != nil || len(segments) == 0 || s.random.IntN(2) == 0 {
		return
	}
	// A crash in the middle of a cut leaves a last segment without the space that a start needs.
	tail, err := s.disk.ReadFile(path.Join("/member/wal", segments[len(segments)-1].name()))
	if err != nil || int64(len(tail)) < s.disk.SegmentBytes() {
		return
	}
	s.small.starts++
	s.disk.SetSpace(int64(s.random.IntN(100)))
}

func (s *sim) fillOrFree() {
	if s.small == nil {
		return
	}
	switch s.random.IntN(60) {
	case 0:
		s.disk.SetSpace(int64(s.random.IntN(100)))
	case 1:
		s.disk.SetSpace(int64(s.random.IntN(3 << 20)))
	case 2:
		s.disk.SetSpace(-1)
	}
}

// recoverFromFull gives the space back and waits until the put that was refused would be taken, for as long as a
// back-off may be. Nothing that was refused may be there.
func (s *sim) recoverFromFull() {
	if s.small == nil || s.dead {
		return
	}
	full := s.client.Status().LogFull
	s.disk.SetSpace(-1)
	s.collect()
	for waited := time.Duration(0); ; waited += 50 * time.Millisecond {
		before := len(s.acknowledged)
		s.put()
		for range 300 {
			s.step()
			s.collect()
		}
		if s.dead || s.disk.Stopped() {
			return // the crash of this life fell into it
		}
		if len(s.acknowledged) > before {
			break
		}
		if waited > spareRetryMax+time.Second {
			s.t.Errorf("seed %d: there is space, and writes are refused", s.seed)
			return
		}
		s.clock.Advance(50 * time.Millisecond)
	}
	if full {
		s.small.recoveries++
	}
	for key := range s.small.refused {
		if s.machine.keys[key] != 0 {
			s.t.Errorf("seed %d: %s was refused and is there", s.seed, key)
		}
	}
}
