package concurrency

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"troupe/integration/harness"
	"troupe/proto"
)

// Holders through the client library and through the service exclude each other on one name, and get their turns in
// the order in which they have come.
func TestMixed_OneLockForLibraryAndService(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	service := servicesOf(t, s)
	const holders, turns = 6, 6
	var inside, total atomic.Int64
	var group sync.WaitGroup
	for i := range int64(holders) {
		lock, unlock := libraryLock(t, s)
		if i%2 == 0 {
			lock, unlock = serviceLock(ctx, service, 0x100+i)
		}
		group.Go(func() {
			for range turns {
				if err := lock(ctx); err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				total.Add(1)
				if _, err := service.client.Get(ctx, "mixed/"); err != nil { // time for another one to come in
					t.Errorf("get: %v", err)
				}
				inside.Add(-1)
				if err := unlock(ctx); err != nil {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	group.Wait()
	if total.Load() != holders*turns {
		t.Errorf("the lock was held %d times, want %d", total.Load(), holders*turns)
	}
}

type step = func(context.Context) error

func libraryLock(t *testing.T, s *harness.Server) (lock, unlock step) {
	t.Helper()
	mutex := concurrency.NewMutex(session(t, s, 60), "mixed")
	return mutex.Lock, mutex.Unlock
}

func serviceLock(ctx context.Context, s *services, lease int64) (lock, unlock step) {
	s.t.Helper()
	s.grant(ctx, lease, 600)
	var key []byte
	lock = func(ctx context.Context) error {
		r, err := s.lock(ctx, "mixed", lease)
		key = r.GetKey()
		return err
	}
	unlock = func(ctx context.Context) error {
		_, err := s.unlock(ctx, key)
		return err
	}
	return lock, unlock
}

func TestMixed_TurnsComeInOrder(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	service := servicesOf(t, s)
	const places = 8
	order := make(chan int, places)
	var unlocks [places]step
	var group sync.WaitGroup
	for i := range places {
		lock, unlock := libraryLock(t, s)
		if i%2 == 0 {
			lock, unlock = serviceLock(ctx, service, 0x100+int64(i))
		}
		unlocks[i] = unlock
		group.Go(func() {
			if err := lock(ctx); err != nil {
				t.Errorf("lock %d: %v", i, err)
			}
			order <- i
		})
		service.inLine(ctx, "mixed", int64(i)+1)
	}
	for want := range places {
		select {
		case got := <-order:
			if got != want {
				t.Fatalf("turn of %d, want %d", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("no turn for %d", want)
		}
		if err := unlocks[want](ctx); err != nil {
			t.Fatalf("unlock %d: %v", want, err)
		}
	}
	group.Wait()
}

// Leaders through the library and through the service follow each other, and each side observes the other's.
func TestMixed_OneElectionForLibraryAndService(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	service := servicesOf(t, s)
	owner := session(t, s, 60)
	library := concurrency.NewElection(owner, "mixed")
	seenByService, _ := service.observe(ctx, "mixed")
	seenByLibrary := concurrency.NewElection(session(t, s, 60), "mixed").Observe(ctx)
	expect := func(want string) {
		t.Helper()
		select {
		case r := <-seenByService:
			if got := string(r.Kv.GetValue()); got != want {
				t.Fatalf("the service observed %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("the service never observed %q", want)
		}
		select {
		case r := <-seenByLibrary:
			if len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want {
				t.Fatalf("the library observed %v, want %q", r.Kvs, want)
			}
		case <-ctx.Done():
			t.Fatalf("the library never observed %q", want)
		}
	}
	if err := library.Campaign(ctx, "library"); err != nil {
		t.Fatalf("campaign of the library: %v", err)
	}
	expect("library")
	service.grant(ctx, 0x77, 600)
	won := waiting(func() (*proto.CampaignResponse, error) { return service.campaign(ctx, "mixed", 0x77, "service") })
	service.inLine(ctx, "mixed", 2)
	if r, err := service.leader(ctx, "mixed"); err != nil || string(r.Kv.GetKey()) != library.Key() {
		t.Errorf("leader: %v, %v; want key %q", r, err, library.Key())
	}
	// The service proclaims and resigns for the library, by its leader key.
	key := &proto.LeaderKey{Key: []byte(library.Key()), Rev: library.Rev(), Lease: int64(owner.Lease())}
	if _, err := service.proclaim(ctx, key, "for the library"); err != nil {
		t.Fatalf("proclamation: %v", err)
	}
	expect("for the library")
	if _, err := service.resign(ctx, key); err != nil {
		t.Fatalf("resignation: %v", err)
	}
	elected, err := await(t, won)
	if err != nil {
		t.Fatalf("campaign of the service: %v", err)
	}
	expect("service")
	if err := library.Proclaim(ctx, "late"); !errors.Is(err, concurrency.ErrElectionNotLeader) {
		t.Errorf("proclamation of the former leader: %v", err)
	}
	// The library proclaims and resigns for the service.
	resumed := concurrency.ResumeElection(owner, "mixed", string(elected.Leader.Key), elected.Leader.Rev)
	if err := resumed.Proclaim(ctx, "for the service"); err != nil {
		t.Fatalf("proclamation of the library for the service: %v", err)
	}
	expect("for the service")
	if err := resumed.Resign(ctx); err != nil {
		t.Fatalf("resignation of the library for the service: %v", err)
	}
	if err := library.Campaign(ctx, "library again"); err != nil {
		t.Fatalf("campaign of the library: %v", err)
	}
	expect("library again")
}
