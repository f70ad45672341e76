package actors_test

import (
	"context"
	"fmt"
	"testing"

	"troupe/actors"
)

// benchSpawn starts an actor with a large mailbox on real goroutines.
func benchSpawn(b *testing.B, policy actors.Policy[*note], pinned bool, handle func(batch []*note)) actors.Ref[*note] {
	b.Helper()
	sys := actors.NewSystem(actors.Config{Name: "bench"})
	ref := mustSpawn(b, sys, actors.Spec[*note]{
		Policy: policy, Pinned: pinned,
		Behavior: func() actors.Behavior[*note] {
			return &script{handle: func(_ actors.Self[*note], batch []*note) { handle(batch) }}
		},
	})
	b.Cleanup(func() {
		if err := ref.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return ref
}

func nothing([]*note) {}

// BenchmarkTell is one sender and a busy actor: admission, a turn per message or per batch.
func BenchmarkTell(b *testing.B) {
	room := bound(1 << 20)
	for name, policy := range map[string]actors.Policy[*note]{
		"single": actors.Block[*note](room),
		"batch":  actors.Batch[*note](room, bound(1024)),
		"lanes":  actors.Lanes(actors.Block[*note](room), actors.Batch[*note](room, bound(1024))),
	} {
		b.Run(name, func(b *testing.B) {
			ref := benchSpawn(b, policy, false, nothing)
			n := &note{size: 10}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := ref.Offer(ctx, actors.Normal, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTell_Parallel is many senders to one batching actor.
func BenchmarkTell_Parallel(b *testing.B) {
	ref := benchSpawn(b, actors.Batch[*note](bound(1<<16), bound(1024)), false, nothing)
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		n := &note{size: 10}
		for pb.Next() {
			if err := ref.Offer(ctx, actors.Normal, n); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkBatchTake is the receiving side alone: a mailbox that is filled and then drained, per message.
func BenchmarkBatchTake(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newStage(b, 1)
			ref := s.spawn(actors.Spec[*note]{
				Policy: actors.Batch[*note](bound(1024), bound(1024)),
				Behavior: func() actors.Behavior[*note] {
					return &script{handle: func(actors.Self[*note], []*note) {}}
				},
			})
			n := &note{size: 10}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_ = ref.Tell(actors.Normal, n)
				if i%size == 0 {
					s.run()
				}
			}
		})
	}
}

// BenchmarkRequest is a wake-up of the actor and one of the waiting goroutine, by either dispatcher.
func BenchmarkRequest(b *testing.B) {
	for _, pinned := range []bool{false, true} {
		b.Run(fmt.Sprintf("pinned=%v", pinned), func(b *testing.B) {
			ref := benchSpawn(b, actors.Reject[*note](bound(1024)), pinned, func(batch []*note) {
				for _, n := range batch {
					n.reply.Send(n.id)
				}
			})
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				n := &note{size: 10, reply: actors.NewReply[int]()}
				if err := ref.Tell(actors.Normal, n); err != nil {
					b.Fatal(err)
				}
				if _, err := n.reply.Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWakeUp is a wake-up of a sleeping actor, which answers over a channel made once.
func BenchmarkWakeUp(b *testing.B) {
	for _, pinned := range []bool{false, true} {
		b.Run(fmt.Sprintf("pinned=%v", pinned), func(b *testing.B) {
			handled := make(chan struct{}, 1)
			ref := benchSpawn(b, actors.Reject[*note](bound(4)), pinned, func([]*note) { handled <- struct{}{} })
			n := &note{size: 10}
			b.ReportAllocs()
			for b.Loop() {
				if err := ref.Tell(actors.Normal, n); err != nil {
					b.Fatal(err)
				}
				<-handled
			}
		})
	}
}

// BenchmarkSpawn is the life of an actor that does nothing.
func BenchmarkSpawn(b *testing.B) {
	sys := actors.NewSystem(actors.Config{Name: "bench"})
	policy := actors.Reject[*note](bound(4))
	behavior := func() actors.Behavior[*note] { return &script{} }
	b.ReportAllocs()
	for b.Loop() {
		ref := mustSpawn(b, sys, actors.Spec[*note]{Name: "a", Policy: policy, Behavior: behavior})
		if err := ref.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
