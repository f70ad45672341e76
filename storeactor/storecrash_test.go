package storeactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// storeWorld is a whole store, both actors on the model file, through several crashes: a log of requests that is
// replayed from where the file ends, as a member does. After every start the store must be what the naive store is at
// that index.
type storeWorld struct {
	tb      testing.TB
	random  *rand.Rand
	stage   *backendStage
	file    *ModelFile
	log     []*pb.InternalRaftRequest
	durable proto.Index // confirmed: no crash takes it back
	told    proto.Index // raft was told that the file holds it

	client    *Client
	questions []func()
	crashed   bool
	failure   error
}

// drawLog makes requests that stress compactions: many of them at the head, at a deletion, at a key that was deleted
// and created again in one revision, and with several in a row.
func drawLog(r *rand.Rand, n int) []*pb.InternalRaftRequest {
	model := newNaive()
	key := func() []byte { return []byte{byte('a' + r.IntN(4))} }
	put := func() *pb.PutRequest { return &pb.PutRequest{Key: key(), Value: fmt.Appendf(nil, "v%d", r.IntN(1000))} }
	var log []*pb.InternalRaftRequest
	for len(log) < n {
		request := &pb.InternalRaftRequest{}
		switch kind := r.IntN(12); {
		case kind < 4:
			request.Put = put()
			if r.IntN(4) == 0 {
				request.Put.Lease = 1 + r.Int64N(2)
			}
		case kind < 6:
			request.DeleteRange = &pb.DeleteRangeRequest{Key: key()}
		case kind < 8:
			request.Txn = &pb.TxnRequest{Success: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestDeleteRange{
					RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: key()},
				}},
				{Request: &pb.RequestOp_RequestPut{RequestPut: put()}},
			}}
		case kind < 10:
			request.Compaction = &pb.CompactionRequest{Revision: model.revision - r.Int64N(2)}
		case kind < 11:
			request.LeaseGrant = &pb.LeaseGrantRequest{ID: 1 + r.Int64N(2), TTL: 10}
		default:
			request.LeaseRevoke = &pb.LeaseRevokeRequest{ID: 1 + r.Int64N(2)}
		}
		_, _ = model.apply(request)
		log = append(log, request)
	}
	return log
}

func (w *storeWorld) naiveAt(index proto.Index) *naive {
	n := newNaive()
	for _, request := range w.log[:index] {
		_, _ = n.apply(request)
	}
	return n
}

// ConfirmCommit implements CommitLog.
func (w *storeWorld) ConfirmCommit(index proto.Index, done func(error)) {
	w.questions = append(w.questions, func() {
		w.durable = max(w.durable, index)
		done(nil)
	})
}

// start restores the file, compares, and starts the actors.
func (w *storeWorld) start(seed uint64) (proto.Index, error) {
	restored, err := Restore(w.file, 1<<20)
	if err != nil {
		return 0, err
	}
	index := restored.Index
	if index > w.durable || index < w.told {
		return index, fmt.Errorf("the file is at %d, confirmed %d, told %d", index, w.durable, w.told)
	}
	w.told = max(w.told, index) // Spawn's caller knows it from Restored
	w.stage.reset(seed)
	w.stage.died = func(reason any) {
		w.crashed = true
		if err, ok := reason.(error); !ok || !errors.Is(err, errCrash) {
			w.failure = fmt.Errorf("an actor died: %v", reason)
		}
	}
	w.questions, w.crashed = nil, false
	w.client, err = Spawn(w.stage.sys, Config{
		File: w.file, Restored: restored, Log: w, LeaseTTLMin: rigLeaseTTLMin, QuotaBytes: -1,
		Notify: Notify{Checkpointed: func(index proto.Index, _ proto.Term, _ []byte, _ *proto.Membership) {
			w.told = max(w.told, index)
		}},
		CompactionBatch: 1 + w.random.IntN(3), CheckpointWrites: 1 + w.random.IntN(20),
		Work: func(job func()) { job() },
	})
	if err != nil {
		return index, err
	}
	return index, w.compare(index)
}

// compare compares the published state with the naive store: every readable revision, every event that is left, the
// deletions at the compacted revision among them, and the leases.
func (w *storeWorld) compare(index proto.Index) error {
	n := w.naiveAt(index)
	s := w.client.State()
	if s.Applied != index || int64(s.Revision) != n.revision || int64(s.Compacted) != n.compacted {
		return fmt.Errorf("at index %d: applied %d, revision %d, compacted %d; want revision %d, compacted %d",
			index, s.Applied, s.Revision, s.Compacted, n.revision, n.compacted)
	}
	view := w.client.View()
	defer view.Release()
	every := []byte{0}
	for rev := max(n.compacted, 1); rev <= n.revision; rev++ {
		result, err := view.Range(&pb.RangeRequest{Key: every, RangeEnd: every, Revision: rev})
		if err != nil {
			return fmt.Errorf("range at %d: %w", rev, err)
		}
		got := &pb.RangeResponse{}
		decode(w.tb, result, got)
		want := n.at(rev, "\x00", "\x00")
		if !gproto.Equal(got, &pb.RangeResponse{Kvs: want, Count: int64(len(want))}) {
			return fmt.Errorf("at index %d, revision %d:\ngot  %v\nwant %v", index, rev, got, want)
		}
	}
	from := proto.Revision(max(n.compacted, 1))
	events, _, err := view.Events(NewKeyRange(every, every), from, s.Revision, 1<<30)
	if err != nil {
		return err
	}
	var got, want []string
	for _, e := range events {
		got = append(got, versionText(e.Version, e.Kind == proto.EventDelete)+"="+string(e.Key))
	}
	for _, change := range n.kept() {
		var main int64
		if _, _ = fmt.Sscan(change, &main); main >= int64(from) {
			want = append(want, change)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("at index %d, compacted %d: events %v, want %v", index, n.compacted, got, want)
	}
	if s.LeaseCount() != len(n.leases) {
		return fmt.Errorf("at index %d: %d leases, want %d", index, s.LeaseCount(), len(n.leases))
	}
	return nil
}

// live feeds the log from the index on and lets things happen, until the machine crashes or, in the last life, until
// everything is done.
func (w *storeWorld) live(index proto.Index, last bool) error {
	for turns := 0; !w.crashed; turns++ {
		actions := 40 + w.random.IntN(120)
		if !last && turns >= actions {
			return nil
		}
		switch kind := w.random.IntN(8); {
		case kind < 2 && int(index) < len(w.log):
			batch := &proto.Batch{Membership: &proto.Membership{}}
			for range min(1+w.random.IntN(3), len(w.log)-int(index)) {
				index++
				batch.Commands = append(batch.Commands, proto.Command{Index: index, Term: 1, Request: w.log[index-1]})
			}
			if err := w.client.Apply(batch); err != nil {
				return err
			}
		case kind < 3 && len(w.questions) > 0:
			w.questions[0]()
			w.questions = w.questions[1:]
		case kind < 4:
			w.stage.Advance(time.Duration(w.random.IntN(50)) * time.Millisecond)
		default:
			w.stage.Step()
		}
		if last && turns > 100_000 {
			return errors.New("the store does not come to rest")
		}
		if last && int(index) == len(w.log) && int(w.told) == len(w.log) && w.rested() {
			return w.compare(index)
		}
	}
	return w.failure
}

// rested says that the file has been compacted as far as the store.
func (w *storeWorld) rested() bool {
	view, err := w.file.View()
	if err != nil {
		return false
	}
	defer view.Release()
	c, err := readCompactions(view)
	return err == nil && c.finished == w.client.State().Compacted
}

// crash ends the process and the machine; what was not synced may be lost.
func (w *storeWorld) crash() error {
	if w.failure != nil {
		return w.failure
	}
	w.file = w.file.Crash(func(unsynced int) int { return w.random.IntN(unsynced + 1) })
	w.stage.died = func(any) {}
	return errors.Join(w.client.ref.Stop(context.Background()),
		w.client.backend.(*backendRef).ref.Stop(context.Background()))
}

func runStoreWorld(t *testing.T, stage *backendStage, seed uint64) error {
	w := &storeWorld{tb: t, random: rand.New(rand.NewPCG(seed, 5)), stage: stage}
	w.log = drawLog(w.random, 40)
	lives, life := 4, 0
	w.file = NewModelFile(ModelOptions{AtStep: func(ModelStep) error {
		if life < lives-1 && w.client != nil && w.random.IntN(40) == 0 {
			return errCrash
		}
		return nil
	}})
	for ; life < lives; life++ {
		w.client = nil
		index, err := w.start(seed + uint64(life))
		if err == nil {
			err = w.live(index, life == lives-1)
		}
		if err == nil && life == lives-1 {
			err = w.compareFile()
		}
		if err = errors.Join(err, w.crash()); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
	}
	return nil
}

// compareFile compares the compacted file with what must be left.
func (w *storeWorld) compareFile() error {
	view, err := w.file.View()
	if err != nil {
		return err
	}
	defer view.Release()
	r := &rig{m: &machine{reader: reader{file: view}}}
	if got, want := r.stored(), w.naiveAt(proto.Index(len(w.log))).kept(); !slices.Equal(got, want) {
		return fmt.Errorf("the file has %v\nshould have %v", got, want)
	}
	return nil
}

// TestStore_CrashesInTheMiddleOfEverything crashes whole stores at random moments, in the middle of checkpoints and of
// compactions among them. After every start the state is exactly that of the file's index: no acknowledged checkpoint
// is missing, the revision never went down, deletions at the compacted revision and keys created again in it are there,
// and in the end the file is compacted to the record.
func TestStore_CrashesInTheMiddleOfEverything(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 100
	}
	stage := newBackendStage()
	for seed := range seeds {
		if err := runStoreWorld(t, stage, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
