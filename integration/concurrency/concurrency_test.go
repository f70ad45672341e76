package concurrency

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"troupe/integration/harness"
)

const limit = time.Minute

// session makes a client and a session of its own, as a process of its own would.
func session(t *testing.T, s *harness.Server, ttl int) *concurrency.Session {
	t.Helper()
	made, err := concurrency.NewSession(s.Client(t), concurrency.WithTTL(ttl))
	if err != nil {
		t.Fatalf("session: %v", err)
	}
	return made
}

func TestConcurrency_LockHasOneHolderAtATime(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	const holders, turns = 6, 10
	var inside, total atomic.Int64
	var group sync.WaitGroup
	for range holders {
		owner := session(t, s, 30)
		mutex := concurrency.NewMutex(owner, "lock/")
		group.Go(func() {
			for range turns {
				if err := mutex.Lock(ctx); err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				total.Add(1)
				if _, err := owner.Client().Get(ctx, "lock/"); err != nil { // time for another one to come in
					t.Errorf("get: %v", err)
				}
				inside.Add(-1)
				if err := mutex.Unlock(ctx); err != nil {
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

func TestConcurrency_LockPassesOnWhenItsHolderDies(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	dying := session(t, s, 3)
	if err := concurrency.NewMutex(dying, "lock/").Lock(ctx); err != nil {
		t.Fatalf("lock: %v", err)
	}
	mutex := concurrency.NewMutex(session(t, s, 300), "lock/")
	if err := mutex.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
		t.Fatalf("try of a held lock: %v, want ErrLocked", err)
	}
	dying.Orphan()                          // no more renewals, as if the process were gone
	if err := mutex.Lock(ctx); err != nil { // ctx ends long before any other lease does
		t.Fatalf("lock after the holder's death: %v", err)
	}
}

func TestConcurrency_ElectionHandsOverAndObserversSeeIt(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	first := concurrency.NewElection(session(t, s, 30), "election/")
	second := concurrency.NewElection(session(t, s, 30), "election/")
	if err := first.Campaign(ctx, "one"); err != nil {
		t.Fatalf("campaign: %v", err)
	}
	observed := concurrency.NewElection(session(t, s, 30), "election/").Observe(ctx)
	expect := func(want string) {
		t.Helper()
		select {
		case r, ok := <-observed:
			if !ok || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want {
				t.Fatalf("observed %v, want %s", r.Kvs, want)
			}
		case <-ctx.Done():
			t.Fatalf("never observed %s", want)
		}
	}
	expect("one")
	won := make(chan error, 1)
	go func() { won <- second.Campaign(ctx, "two") }()
	if err := first.Proclaim(ctx, "one again"); err != nil {
		t.Fatalf("proclaim: %v", err)
	}
	expect("one again")
	harness.Eventually(t, limit, "the second candidate waits", func() error {
		r, err := s.Client(t).Get(ctx, "election/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && r.Count != 2 {
			err = fmt.Errorf("%d candidates", r.Count)
		}
		return err
	})
	if err := first.Resign(ctx); err != nil {
		t.Fatalf("resign: %v", err)
	}
	if err := <-won; err != nil {
		t.Fatalf("second campaign: %v", err)
	}
	expect("two")
	leader, err := first.Leader(ctx)
	if err != nil || string(leader.Kvs[0].Value) != "two" {
		t.Errorf("leader: %v, %v", leader, err)
	}
}

// Money moved by concurrent transactions is neither made nor lost: reads and the write of one are one revision.
func TestConcurrency_TransactionalMemoryKeepsTheSum(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	const accounts, workers, moves, each = 5, 6, 30, 1000
	name := func(i int) string { return fmt.Sprintf("account/%d", i) }
	client := s.Client(t)
	for i := range accounts {
		if _, err := client.Put(ctx, name(i), strconv.Itoa(each)); err != nil {
			t.Fatalf("put: %v", err)
		}
	}
	levels := []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable}
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for n := range moves {
				from, to := name((worker+n)%accounts), name((worker+2*n+1)%accounts)
				level := concurrency.WithIsolation(levels[n%2])
				if _, err := concurrency.NewSTM(client, move(from, to, n%7), level); err != nil {
					t.Errorf("transaction: %v", err)
				}
			}
		})
	}
	group.Wait()
	if sum := sumOf(ctx, t, client, "account/"); sum != accounts*each {
		t.Errorf("the accounts hold %d, want %d", sum, accounts*each)
	}
}

func move(from, to string, amount int) func(concurrency.STM) error {
	return func(m concurrency.STM) error {
		a, errA := strconv.Atoi(m.Get(from))
		m.Put(from, strconv.Itoa(a-amount))
		b, errB := strconv.Atoi(m.Get(to))
		m.Put(to, strconv.Itoa(b+amount))
		return errors.Join(errA, errB)
	}
}

func sumOf(ctx context.Context, t *testing.T, client *clientv3.Client, prefix string) (sum int) {
	t.Helper()
	r, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	for _, kv := range r.Kvs {
		n, err := strconv.Atoi(string(kv.Value))
		if err != nil {
			t.Fatalf("%s: %v", kv.Key, err)
		}
		sum += n
	}
	return sum
}
