package durability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/integration/harness"
)

const (
	clientCount   = 8
	keysPerClient = 6
)

// load runs the eight clients against the server until it dies under them.
type load struct {
	ledger *ledger
	server *harness.Server
	round  int

	mu     sync.Mutex
	errors []error // what must never happen; requests that fail with the server are not part of it
}

// run returns when every client has lost the server.
func (l *load) run(ctx context.Context) {
	var group sync.WaitGroup
	for client := range clientCount {
		group.Go(func() {
			conn, err := l.server.Dial()
			if err != nil {
				l.fail(err)
				return
			}
			defer conn.Close()
			random := rand.New(rand.NewPCG(uint64(l.round), uint64(client)))
			for number := 0; l.request(ctx, conn, random, client, number); number++ {
			}
		})
	}
	group.Wait()
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
}

// request sends one request and reports whether the server still answers.
func (l *load) request(ctx context.Context, conn *grpc.ClientConn, random *rand.Rand, client, number int) bool {
	key := fmt.Sprintf("client %d/key %d", client, random.IntN(keysPerClient))
	switch n := random.IntN(1000); {
	case n < 680:
		value := fmt.Sprintf("round %d number %d", l.round, number)
		return l.write(ctx, conn, write{key: key, value: value}, 0)
	case n < 880:
		return l.write(ctx, conn, write{key: key, deleted: true}, 0)
	case n < 910:
		id := int64(l.round)*1_000_000 + int64(client)*100_000 + int64(number) + 1
		return l.grant(ctx, conn, id, fmt.Sprintf("client %d/leased %d/%d", client, l.round, number))
	case n < 914:
		return l.compact(ctx, conn, random)
	default:
		r, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(key)})
		if err == nil {
			l.check(key, r)
		}
		return err == nil
	}
}

// check compares a linearizable read with the last write of the same client: nobody else writes the key.
func (l *load) check(key string, r *pb.RangeResponse) {
	l.ledger.saw(r.Header.Revision)
	l.ledger.mu.Lock()
	last, known := l.ledger.last[key]
	l.ledger.mu.Unlock()
	exists := len(r.Kvs) == 1
	if known && (exists == last.deleted || exists && string(r.Kvs[0].Value) != last.value) {
		l.fail(fmt.Errorf("a linearizable read does not show the client's own last write, %v: %v", last, r.Kvs))
	}
}

func (l *load) write(ctx context.Context, conn *grpc.ClientConn, w write, lease int64) bool {
	l.ledger.begin(w)
	kv := pb.NewKVClient(conn)
	hit := true
	if w.deleted {
		r, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(w.key)})
		if err != nil {
			return false
		}
		w.revision, hit = r.Header.Revision, r.Deleted == 1
	} else {
		r, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(w.key), Value: []byte(w.value), Lease: lease})
		if err != nil {
			return false
		}
		w.revision = r.Header.Revision
	}
	if err := l.ledger.acknowledge(w, hit); err != nil {
		l.fail(err)
	}
	return true
}

// grant makes a lease that outlives the test and attaches a key to it.
func (l *load) grant(ctx context.Context, conn *grpc.ClientConn, id int64, key string) bool {
	r, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: 100_000})
	if err != nil {
		return false
	}
	l.ledger.granted(r.ID, "")
	if !l.write(ctx, conn, write{key: key, value: "leased"}, id) {
		return false
	}
	l.ledger.granted(r.ID, key)
	return true
}

// compact compacts at the head or a little behind it; that another client was faster is no failure.
func (l *load) compact(ctx context.Context, conn *grpc.ClientConn, random *rand.Rand) bool {
	revision := l.ledger.head()
	if random.IntN(2) == 0 {
		revision -= random.Int64N(40)
	}
	l.ledger.compacting(revision)
	request := &pb.CompactionRequest{Revision: revision, Physical: random.IntN(2) == 0}
	_, err := pb.NewKVClient(conn).Compact(ctx, request)
	if err == nil {
		l.ledger.compacted(revision)
	}
	return err == nil || isCompacted(err)
}
