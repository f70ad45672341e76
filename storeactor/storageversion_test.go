package storeactor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
)

// versionWorld is a member's disk through several lives in which the cluster version goes up and down: a model file,
// and a log of which a start reads what is behind its snapshot.
type versionWorld struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	clock  *actorstest.ManualClock
	steps  *actorstest.Stepper
	file   *ModelFile
	// log holds for each entry the cluster version it sets, "" for others. snapshot is where a start begins to read.
	log      []string
	snapshot proto.Index

	handle     backendHandle
	next       proto.Index // to send
	membership *proto.Membership
	told       proto.Index // checkpointed
	questions  []func() bool
	lowered    int
	settling   bool // the log takes every question
}

func (w *versionWorld) ConfirmCommit(_ proto.Index, done func(error)) { done(nil) }
func (w *versionWorld) diskFull()                                     {}
func (w *versionWorld) compactedPhysically(*compactedPhysically)      {}
func (w *versionWorld) checkpointed(c *checkpointed)                  { c.view.Release() }

// record reads one record of the file.
func (w *versionWorld) record(bucket proto.Bucket, key []byte) []byte {
	view, err := w.file.View()
	if err != nil {
		w.t.Fatal(err)
	}
	defer view.Release()
	value, _, err := view.Append(nil, bucket, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return value
}

func (w *versionWorld) index() proto.Index {
	if data := w.record(proto.BucketMeta, metaConsistentIndex); data != nil {
		return proto.Index(binary.BigEndian.Uint64(data))
	}
	return 0
}

// start begins a life on what the last one has left.
func (w *versionWorld) start() {
	index := w.index()
	w.clock, w.steps = actorstest.NewManualClock(), actorstest.NewStepper(w.seed)
	w.next, w.questions, w.told = index+1, nil, 0
	w.membership = &proto.Membership{ClusterVersion: string(w.record(proto.BucketCluster, clusterVersionKey))}
	sys := actors.NewSystem(actors.Config{Name: "test", Clock: w.clock, Dispatcher: w.steps})
	handle, err := spawnBackend(sys, backendConfig{
		File: w.file, Log: w, Store: w, Index: index, Term: 1, Revision: 1,
		Notify: Notify{
			Checkpointed: func(index proto.Index, _ proto.Term, _ []byte, _ *proto.Membership) { w.told = index },
			SnapshotPast: w.snapshotPast,
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.handle = handle
	w.steps.Run(1000)
}

// snapshotPast is raft's: it has a snapshot taken of the next checkpoint that is new enough, some time.
func (w *versionWorld) snapshotPast(index proto.Index, done func(error)) {
	if w.random.IntN(3) == 0 && !w.settling {
		done(errors.New("too much to do"))
		return
	}
	w.questions = append(w.questions, func() bool {
		if w.snapshot < index {
			if w.told < index {
				return false
			}
			w.snapshot = w.told
		}
		w.lowered++
		done(nil)
		return true
	})
}

// send gives the backend the next entry, which the log has.
func (w *versionWorld) send() {
	write := &backendWrite{index: w.next, term: 1, bytes: 1}
	if version := w.log[w.next-1]; version != "" {
		next := *w.membership
		next.ClusterVersion = version
		if storageAbove(w.membership.ClusterVersion, version) {
			next.Lowered = proto.Lowering{At: w.next, From: w.membership.ClusterVersion}
		}
		w.membership = &next
		write.batch = []proto.BucketWrite{{Bucket: proto.BucketCluster, Key: clusterVersionKey, Value: []byte(version)}}
	}
	write.membership = w.membership
	w.handle.write(write)
	w.next++
}

// inspect checks that whoever may start by the storage version in the file can read what a start reads.
func (w *versionWorld) inspect() {
	w.t.Helper()
	version, index := string(w.record(proto.BucketMeta, metaStorageVersion)), w.index()
	for at := w.snapshot + 1; at <= index; at++ {
		if storageAbove(w.log[at-1], version) {
			w.t.Fatalf("seed %d: the storage version is %q, and a start reads from %d the entry %d of version %s (file: %d)",
				w.seed, version, w.snapshot, at, w.log[at-1], index)
		}
	}
	if cluster := string(w.record(proto.BucketCluster, clusterVersionKey)); storageAbove(cluster, version) {
		w.t.Fatalf("seed %d: the storage version is %q, the cluster version %s", w.seed, version, cluster)
	}
}

func (w *versionWorld) step() {
	switch n := w.random.IntN(20); {
	case n < 4:
		w.log = append(w.log, "")
	case n < 7:
		w.log = append(w.log, []string{"3.6.0", "3.7.0"}[w.random.IntN(2)])
	case n < 13:
		if int(w.next) <= len(w.log) {
			w.send()
		}
	case n < 16:
		w.clock.Advance(time.Duration(w.random.IntN(int(2 * checkpointIntervalDefault))))
	case n < 18 && len(w.questions) > 0:
		if w.questions[0]() {
			w.questions = w.questions[1:]
		}
	case n == 18 && w.told > w.snapshot && w.random.IntN(4) == 0:
		w.snapshot = w.told
	case n == 19 && w.random.IntN(8) == 0:
		w.file = w.file.Kill()
		w.start()
	}
	for range w.random.IntN(20) {
		w.steps.Step()
	}
	w.inspect()
}

// settle lets everything happen that is under way.
func (w *versionWorld) settle() {
	w.settling = true
	w.log = append(w.log, "") // its commit asks again
	for range 20 {
		for int(w.next) <= len(w.log) {
			w.send()
		}
		w.clock.Advance(checkpointIntervalDefault)
		w.steps.Run(10_000)
		w.questions = slices.DeleteFunc(w.questions, func(answer func() bool) bool { return answer() })
		w.steps.Run(10_000)
		w.inspect()
	}
}

// TestStorageVersion_IsNeverBelowWhatAStartReads runs random changes of the cluster version, snapshots and kills. An
// older program that is let in by the storage version must be able to read the file and the log behind it, at any
// moment; and once nothing changes any more the storage version is the cluster's.
func TestStorageVersion_IsNeverBelowWhatAStartReads(t *testing.T) {
	lowered := 0
	for seed := uint64(1); seed <= 60; seed++ {
		w := &versionWorld{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 6)), file: NewModelFile(ModelOptions{})}
		w.start()
		for range 300 {
			w.step()
		}
		w.log = append(w.log, []string{"3.6.0", "3.7.0"}[seed%2])
		w.settle()
		want := fmt.Sprintf("3.%d.0", 6+seed%2)
		if got := string(w.record(proto.BucketMeta, metaStorageVersion)); got != want {
			t.Fatalf("seed %d: the storage version is %q in the end, the cluster version %s", seed, got, want)
		}
		if got := w.handle.status().StorageVersion; got != want {
			t.Fatalf("seed %d: the published storage version is %q, the file's %s", seed, got, want)
		}
		lowered += w.lowered
	}
	if lowered < 60 {
		t.Errorf("only %d lowerings were made", lowered)
	}
}

// Without somebody to ask for a snapshot the version stays: a file that claims too little would be read by who cannot.
func TestStorageVersion_StaysWhenTheLogCannotBeAsked(t *testing.T) {
	for cluster, want := range map[string]string{"3.5.0": "3.7.0", "3.0.0": "3.7.0", "3.7.0": "3.7.0", "": "3.7.0"} {
		m := &proto.Membership{ClusterVersion: cluster}
		if got := raiseStorageVersion("3.7.0", m, 0); got != want {
			t.Errorf("cluster version %q: storage version %q", cluster, got)
		}
	}
	w := &versionWorld{t: t, seed: 1, random: rand.New(rand.NewPCG(1, 6)), file: NewModelFile(ModelOptions{})}
	w.start()
	w.log = []string{"3.7.0", "3.6.0"}
	for range 10 {
		for int(w.next) <= len(w.log) {
			w.send()
		}
		w.clock.Advance(checkpointIntervalDefault)
		w.steps.Run(1000)
	}
	if got := string(w.record(proto.BucketMeta, metaStorageVersion)); got != "3.7.0" || len(w.questions) != 1 {
		t.Errorf("storage version %q with %d questions out", got, len(w.questions))
	}
}
