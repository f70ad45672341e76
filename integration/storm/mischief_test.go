package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// mischief is one kind of client. act does it once or for a while and cleans up on the client's side; it is called
// again until the storm ends. Errors that it returns are judged by the tally.
type mischief struct {
	name    string
	clients int
	act     func(ctx context.Context, s *harness.Server, c *tally, seed uint64) error
}

var allMischief = []mischief{
	{"writer", 4, write},
	{"reader", 2, read},
	{"range stream", 2, streamRange},
	{"fast watcher", 3, watchFast},
	{"slow watcher", 3, watchSlow},
	{"restless watcher", 2, watchRestless},
	{"crowded stream", 1, watchCrowd},
	{"lease holder", 3, holdLeases},
	{"contender", 6, contend},
	{"housekeeper", 1, keepHouse},
	{"snapshot reader", 2, readSnapshot},
	{"vanishing client", 3, vanish},
	{"rude connection", 3, beRude},
}

// mustHappen are the successes without which a storm proves little.
var mustHappen = []string{
	"put", "large put", "txn", "delete", "range", "range stream", "abandoned range stream", "watch events",
	"slow watch events", "watch cancelled", "crowded watches", "grant", "renewal", "revoke", "compaction", "hash",
	"hash of keys", "defragmentation", "status", "snapshot", "abandoned snapshot", "vanished",
	"half-open", "reset", "garbage", "lock", "campaign", "observation", "place lost",
}

const (
	stormKeys       = 500
	stormPrefix     = "storm/"
	stormEnd        = "storm0"
	largeValueBytes = 128 << 10
	// turns is how often a client acts on one connection before it takes a new one.
	turns = 40
	// stormTTL is short, so that many leases expire in the storm and the last ones soon after it.
	stormTTL = 2
)

func stormKey(r *rand.Rand) []byte { return fmt.Appendf(nil, "%s%03d", stormPrefix, r.IntN(stormKeys)) }

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, rand.Uint64())) }

// write puts, deletes and runs transactions.
func write(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	kv, r := pb.NewKVClient(conn), source(seed)
	for range turns {
		switch n := r.IntN(20); {
		case n < 12:
			_, err := kv.Put(ctx, &pb.PutRequest{Key: stormKey(r), Value: make([]byte, r.IntN(2048))})
			c.ok("put", err)
		case n < 13:
			_, err := kv.Put(ctx, &pb.PutRequest{Key: stormKey(r), Value: make([]byte, largeValueBytes)})
			c.ok("large put", err)
		case n < 15:
			_, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: stormKey(r), PrevKv: true})
			c.ok("delete", err)
		default:
			_, err := kv.Txn(ctx, wideTxn(r))
			c.ok("txn", err)
		}
	}
	return nil
}

// wideTxn makes many puts of one revision: what a watch with fragments is cut into.
func wideTxn(r *rand.Rand) *pb.TxnRequest {
	txn := &pb.TxnRequest{}
	first := r.IntN(stormKeys)
	for i := range 1 + r.IntN(40) {
		key := fmt.Appendf(nil, "%s%03d", stormPrefix, (first+i)%stormKeys)
		put := &pb.PutRequest{Key: key, Value: make([]byte, r.IntN(8<<10))}
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
	}
	return txn
}

// read reads keys and everything, now and in the past.
func read(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	kv, r := pb.NewKVClient(conn), source(seed)
	for range turns {
		request := &pb.RangeRequest{Key: stormKey(r), Serializable: r.IntN(2) == 0}
		if r.IntN(4) == 0 {
			request.Key, request.RangeEnd = []byte(stormPrefix), []byte(stormEnd)
			request.SortTarget, request.SortOrder = pb.RangeRequest_MOD, pb.RangeRequest_DESCEND
		}
		answer, err := kv.Range(ctx, request)
		if c.ok("range", err) && r.IntN(4) == 0 {
			request.Revision = max(answer.Header.Revision-int64(r.IntN(200)), 1)
			_, err = kv.Range(ctx, request)
			c.ok("past range", err)
		}
	}
	return nil
}

// streamRange reads everything as a stream, to its end or not.
func streamRange(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := source(seed)
	for range turns {
		inner, cancel := context.WithCancel(ctx)
		stream, err := pb.NewKVClient(conn).RangeStream(inner, &pb.RangeRequest{
			Key: []byte(stormPrefix), RangeEnd: []byte(stormEnd),
		})
		if r.IntN(2) == 0 {
			if err == nil {
				_, err = stream.Recv()
			}
			cancel()
			c.ok("abandoned range stream", err)
			continue
		}
		for err == nil {
			_, err = stream.Recv()
		}
		cancel()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		c.ok("range stream", err)
	}
	return nil
}

// holdLeases grants leases with keys, renews some, revokes some, and lets the others expire.
func holdLeases(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	lease, r := pb.NewLeaseClient(conn), source(seed)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := lease.LeaseKeepAlive(inner)
	if err != nil {
		return err
	}
	for range turns {
		grant, err := lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: stormTTL})
		if !c.ok("grant", err) {
			continue
		}
		for range r.IntN(5) {
			_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: stormKey(r), Lease: grant.ID})
			c.ok("leased put", err)
		}
		switch r.IntN(4) {
		case 0:
			_, err = lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: grant.ID})
			c.ok("revoke", err)
		case 1:
			if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: grant.ID}); err == nil || errors.Is(err, io.EOF) {
				_, err = stream.Recv() // which also says why the stream had ended
			}
			if !c.ok("renewal", err) {
				return nil
			}
		case 2:
			_, err = lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: grant.ID, Keys: true})
			c.ok("time to live", err)
		}
	}
	return nil
}

// keepHouse compacts, defragments, hashes, and asks for everything an operator asks for.
func keepHouse(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	kv, maintenance := pb.NewKVClient(conn), pb.NewMaintenanceClient(conn)
	r := source(seed)
	for range 5 {
		answer, err := maintenance.Status(ctx, &pb.StatusRequest{})
		if !c.ok("status", err) {
			return nil
		}
		if to := answer.Header.Revision - 200; to > 0 {
			_, err = kv.Compact(ctx, &pb.CompactionRequest{Revision: to, Physical: r.IntN(2) == 0})
			c.ok("compaction", err)
		}
		_, err = maintenance.Hash(ctx, &pb.HashRequest{})
		c.ok("hash", err)
		_, err = maintenance.HashKV(ctx, &pb.HashKVRequest{})
		c.ok("hash of keys", err)
		_, err = maintenance.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
		c.ok("alarms", err)
		_, err = pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
		c.ok("members", err)
		_, err = maintenance.Defragment(ctx, &pb.DefragmentRequest{})
		c.ok("defragmentation", err)
		if !pause(ctx, 200*time.Millisecond) {
			return nil
		}
	}
	return nil
}

// readSnapshot downloads the database, all of it or the beginning.
func readSnapshot(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewMaintenanceClient(conn).Snapshot(inner, &pb.SnapshotRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if source(seed).IntN(2) == 0 {
		// The stream stays open and unread for a moment, then goes.
		c.ok("abandoned snapshot", err)
		pause(ctx, 300*time.Millisecond)
		return nil
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.ok("snapshot", err)
	pause(ctx, 300*time.Millisecond)
	return nil
}

// pause lets a client do nothing for a while, and reports whether the storm goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
