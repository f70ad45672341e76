package quota

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
	own "troupe/proto"
)

const (
	raise = pb.AlarmRequest_ACTIVATE
	clear = pb.AlarmRequest_DEACTIVATE
	list  = pb.AlarmRequest_GET
	// foreign is the id of no member.
	foreign = 5
)

// call is one request, as both servers get it.
type call struct {
	name string
	send func(context.Context, *side) (proto.Message, error)
}

func kv[Q, A proto.Message](name string, request Q, send func(pb.KVClient, context.Context, Q) (A, error)) call {
	return call{name, func(ctx context.Context, s *side) (proto.Message, error) {
		return send(pb.NewKVClient(s.conn), ctx, proto.Clone(request).(Q))
	}}
}

func put(name string, r *pb.PutRequest) call {
	return kv(name, r, func(c pb.KVClient, ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
		return c.Put(ctx, r)
	})
}

func get(name string, r *pb.RangeRequest) call {
	return kv(name, r, func(c pb.KVClient, ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		return c.Range(ctx, r)
	})
}

func remove(name string, r *pb.DeleteRangeRequest) call {
	return kv(name, r,
		func(c pb.KVClient, ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
			return c.DeleteRange(ctx, r)
		})
}

func txn(name string, r *pb.TxnRequest) call {
	return kv(name, r, func(c pb.KVClient, ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
		return c.Txn(ctx, r)
	})
}

func compact(name string, r *pb.CompactionRequest) call {
	return kv(name, r, func(c pb.KVClient, ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
		return c.Compact(ctx, r)
	})
}

func lease(name string, send func(context.Context, pb.LeaseClient) (proto.Message, error)) call {
	return call{name, func(ctx context.Context, s *side) (proto.Message, error) {
		return send(ctx, pb.NewLeaseClient(s.conn))
	}}
}

func maintain(name string, send func(context.Context, pb.MaintenanceClient) (proto.Message, error)) call {
	return call{name, func(ctx context.Context, s *side) (proto.Message, error) {
		return send(ctx, pb.NewMaintenanceClient(s.conn))
	}}
}

func putOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
}

func getOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

func removeOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func txnOp(ops ...*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: ops}}}
}

func then(ops ...*pb.RequestOp) *pb.TxnRequest   { return &pb.TxnRequest{Success: ops} }
func orElse(ops ...*pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Failure: ops} }

// kvCalls are requests of every shape that the alarms tell apart, bad ones too.
func kvCalls() []call {
	a, b, none := []byte("a"), []byte("b"), []byte(nil)
	return []call{
		put("put", &pb.PutRequest{Key: a, Value: b}), put("put without a key", &pb.PutRequest{Key: none}),
		put("put with an unknown lease", &pb.PutRequest{Key: a, Lease: 99}),
		put("put with ignore_value and a value", &pb.PutRequest{Key: a, Value: b, IgnoreValue: true}),
		get("range", &pb.RangeRequest{Key: a}), get("serializable range", &pb.RangeRequest{Key: a, Serializable: true}),
		get("range of all", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true}),
		get("range without a key", &pb.RangeRequest{}), get("range in the future", &pb.RangeRequest{Key: a, Revision: 999}),
		remove("delete", &pb.DeleteRangeRequest{Key: []byte("gone")}),
		remove("delete of an existing key", &pb.DeleteRangeRequest{Key: b, PrevKv: true}),
		remove("delete without a key", &pb.DeleteRangeRequest{}),
		txn("empty txn", &pb.TxnRequest{}), txn("txn that reads", then(getOp("a"))), txn("txn that puts", then(putOp("a"))),
		txn("txn that deletes", then(removeOp("c"))), txn("txn that puts in the other branch", orElse(putOp("a"))),
		txn("txn that deletes in the other branch", orElse(removeOp("a"))),
		txn("txn with a nested read", then(txnOp(getOp("a")))), txn("txn with a nested put", then(txnOp(putOp("a")))),
		txn("txn with a nested delete", then(txnOp(removeOp("d")))),
		txn("txn that reads and puts", then(getOp("a"), putOp("a"))),
		txn("txn that puts twice", then(putOp("a"), putOp("a"))), txn("txn that deletes without a key", then(removeOp(""))),
		txn("txn that puts without a key", then(putOp(""))),
		compact("compact", &pb.CompactionRequest{Revision: 3}), compact("compact again", &pb.CompactionRequest{Revision: 3}),
		compact("compact physically", &pb.CompactionRequest{Revision: 4, Physical: true}),
		compact("compact in the future", &pb.CompactionRequest{Revision: 999}),
		get("range below the compaction", &pb.RangeRequest{Key: a, Revision: 2}),
		{"range stream", rangeStream},
	}
}

func rangeStream(ctx context.Context, s *side) (proto.Message, error) {
	stream, err := pb.NewKVClient(s.conn).RangeStream(ctx, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")})
	if err != nil {
		return nil, err
	}
	all := &pb.RangeResponse{}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		proto.Merge(all, r.GetRangeResponse())
	}
}

// otherCalls are the requests of the other services. The leases 1 to 3 exist.
func otherCalls() []call {
	grant := func(name string, id, ttl int64) call {
		return lease(name, func(ctx context.Context, c pb.LeaseClient) (proto.Message, error) {
			return c.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
		})
	}
	revoke := func(name string, id int64) call {
		return lease(name, func(ctx context.Context, c pb.LeaseClient) (proto.Message, error) {
			return c.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
		})
	}
	hash := func(ctx context.Context, c pb.MaintenanceClient) (proto.Message, error) {
		return c.HashKV(ctx, &pb.HashKVRequest{})
	}
	return []call{
		grant("grant", 77, 1000), grant("grant of a lease that exists", 1, 1000), grant("grant for too long", 78, 1<<60),
		revoke("revoke", 2), revoke("revoke of an unknown lease", 99), {"renew", renew},
		lease("time to live", func(ctx context.Context, c pb.LeaseClient) (proto.Message, error) {
			r, err := c.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
			if r != nil {
				r.TTL = 0
				slices.SortFunc(r.Keys, bytes.Compare) // etcd has no order
			}
			return r, err
		}),
		lease("leases", func(ctx context.Context, c pb.LeaseClient) (proto.Message, error) {
			r, err := c.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			return &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{Revision: int64(len(r.GetLeases()))}}, err
		}),
		maintain("status", func(ctx context.Context, c pb.MaintenanceClient) (proto.Message, error) {
			return c.Status(ctx, &pb.StatusRequest{})
		}),
		maintain("hash of the keys", hash),
		maintain("defragment", func(ctx context.Context, c pb.MaintenanceClient) (proto.Message, error) {
			return c.Defragment(ctx, &pb.DefragmentRequest{})
		}),
		{"members", func(ctx context.Context, s *side) (proto.Message, error) {
			_, err := pb.NewClusterClient(s.conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
			return &pb.MemberListResponse{}, err
		}},
		{"watch", watch},
	}
}

func renew(ctx context.Context, s *side) (proto.Message, error) {
	stream, err := pb.NewLeaseClient(s.conn).LeaseKeepAlive(ctx)
	if err == nil {
		err = stream.Send(&pb.LeaseKeepAliveRequest{ID: 1})
	}
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

func watch(ctx context.Context, s *side) (proto.Message, error) {
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err == nil {
		err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}})
	}
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// invoke is a call of the Lock or the Election service.
func invoke(name, method string, request, answer proto.Message) call {
	return call{name, func(ctx context.Context, s *side) (proto.Message, error) {
		out := proto.Clone(answer)
		return out, s.conn.Invoke(ctx, method, request, out)
	}}
}

// concurrencyCalls are the requests of the Lock and Election services. Who has the first lock leads the first election.
func concurrencyCalls() []call {
	const lock, election = "/v3lockpb.Lock/", "/v3electionpb.Election/"
	name := func(s string) []byte { return []byte(s) }
	leader := &own.LeaderKey{Name: name("election"), Key: name("election/3"), Lease: 3, Rev: 8}
	return []call{
		invoke("lock", lock+"Lock", &own.LockRequest{Name: name("lock"), Lease: 3}, &own.LockResponse{}),
		invoke("campaign", election+"Campaign", &own.CampaignRequest{Name: name("election"), Lease: 3},
			&own.CampaignResponse{}),
		invoke("another lock", lock+"Lock", &own.LockRequest{Name: name("other"), Lease: 3}, &own.LockResponse{}),
		invoke("another campaign", election+"Campaign", &own.CampaignRequest{Name: name("another"), Lease: 3},
			&own.CampaignResponse{}),
		invoke("leader", election+"Leader", &own.LeaderRequest{Name: name("election")}, &own.LeaderResponse{}),
		invoke("proclaim", election+"Proclaim", &own.ProclaimRequest{Leader: leader, Value: name("v")},
			&own.ProclaimResponse{}),
		invoke("resign", election+"Resign", &own.ResignRequest{Leader: leader}, &own.ResignResponse{}),
		invoke("unlock", lock+"Unlock", &own.UnlockRequest{Key: name("lock/3")}, &own.UnlockResponse{}),
	}
}

// fill gives both servers the same few keys and leases.
func fill(t *testing.T, s *side) {
	t.Helper()
	ctx := harness.Context(t, limit)
	for id := range int64(3) {
		if _, err := pb.NewLeaseClient(s.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id + 1, TTL: 1000}); err != nil {
			t.Fatalf("grant on %s: %v", s.server.Kind, err)
		}
	}
	for i, key := range []string{"a", "b", "c", "d", "e"} {
		r := &pb.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: int64(i % 3)}
		if _, err := pb.NewKVClient(s.conn).Put(ctx, r); err != nil {
			t.Fatalf("put on %s: %v", s.server.Kind, err)
		}
	}
	for _, c := range concurrencyCalls()[:2] {
		if _, err := c.send(ctx, s); err != nil {
			t.Fatalf("%s on %s: %v", c.name, s.server.Kind, err)
		}
	}
}

// The alarms stop exactly the requests that they stop on etcd, with the same codes and texts, whoever raised them.
func TestAlarms_StopExactlyWhatTheyStopOnEtcd(t *testing.T) {
	cases := map[string][]pb.AlarmType{
		"none": nil, "NOSPACE": {pb.AlarmType_NOSPACE}, "CORRUPT": {pb.AlarmType_CORRUPT},
		"both": {pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT},
	}
	for name, kinds := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.each(func(s *side) { fill(t, s) })
			ctx := harness.Context(t, 4*limit)
			for _, kind := range kinds {
				p.same(t, "raise", func(s *side) string { return s.alarm(ctx, raise, kind, 0) })
			}
			for _, c := range slices.Concat(kvCalls(), otherCalls(), concurrencyCalls()) {
				p.same(t, c.name, func(s *side) string { return s.text(c.send(ctx, s)) })
			}
			for _, path := range pages(kinds) {
				p.same(t, path, func(s *side) string { return s.page(t, path) })
			}
		})
	}
}

// pages are the health pages that both have in common while these alarms are raised. Of two alarms etcd tells either.
func pages(kinds []pb.AlarmType) []string {
	paths := []string{
		"/health?exclude=NOSPACE", "/health?exclude=CORRUPT", "/health?exclude=NOSPACE&exclude=CORRUPT", "/livez",
		"/livez?verbose", "/readyz", "/readyz?verbose", "/readyz/data_corruption", "/readyz?exclude=data_corruption",
	}
	if len(kinds) < 2 {
		paths = append(paths, "/health", "/health?serializable=true")
	}
	return paths
}

// T63: while NOSPACE is raised the member lives and serves reads, and says what is wrong to whoever asks.
func TestReadyz_NamesTheAlarmAndDoesNotFail(t *testing.T) {
	s := newSide(t, harness.Troupe)
	if status, body := s.fetch(t, "/readyz/space"); status != 200 {
		t.Errorf("without an alarm: %d %s", status, body)
	}
	s.alarm(harness.Context(t, limit), raise, pb.AlarmType_NOSPACE, foreign)
	for path, want := range map[string]string{
		"/livez": "ok\n", "/readyz": "ok\n", "/readyz?verbose": "[!]space warns: alarm activated: NOSPACE",
		"/readyz?verbose&exclude=space": "[+]disk ok\n",
		"/readyz/space":                 "[-]space failed: alarm activated: NOSPACE",
		"/health":                       `{"health":"false","reason":"ALARM NOSPACE"}`,
	} {
		status, body := s.fetch(t, path)
		if (status == 200) == (path == "/readyz/space" || path == "/health") || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
}
