package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"troupe/integration/harness"
	"troupe/proto"
)

// traffic drives one server. Every request is awaited, so that both servers count the same.
type traffic struct {
	*testing.T
	ctx    context.Context
	server *harness.Server
	conn   *grpc.ClientConn
	kv     pb.KVClient
	lease  pb.LeaseClient
	tend   pb.MaintenanceClient
	watch  pb.Watch_WatchClient
}

// drive makes the traffic. Afterwards one watch stream with two watches is open, until the test ends.
func drive(t *testing.T, s *harness.Server) *traffic {
	conn := s.Conn(t)
	d := &traffic{T: t, ctx: harness.Context(t, 4*limit), server: s, conn: conn, kv: pb.NewKVClient(conn),
		lease: pb.NewLeaseClient(conn), tend: pb.NewMaintenanceClient(conn)}
	d.openWatches()
	d.writes()
	d.reads()
	d.refused()
	d.leases()
	d.housekeeping()
	d.others()
	d.asJSON()
	d.probes()
	return d
}

// must ends the test on an error, and fails it when a request that should be refused is not.
func (d *traffic) must(what string, err error) {
	d.Helper()
	if err != nil {
		d.Fatalf("%s: %s: %v", d.server.Kind, what, err)
	}
}

func (d *traffic) mustFail(what string, err error) {
	d.Helper()
	if err == nil {
		d.Fatalf("%s: %s: not refused", d.server.Kind, what)
	}
}

const watchedPuts = 20

// openWatches opens a stream with a watch that gets events, one that never does, and one that has ended.
func (d *traffic) openWatches() {
	var err error
	d.watch, err = pb.NewWatchClient(d.conn).Watch(d.ctx)
	d.must("watch", err)
	for _, create := range []*pb.WatchCreateRequest{
		{Key: []byte("k"), RangeEnd: []byte("l")}, {Key: []byte("silent")}, {Key: []byte("ended")},
	} {
		d.must("create", d.watch.Send(&pb.WatchRequest{
			RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}))
		d.receive(1)
	}
	d.must("cancel", d.watch.Send(&pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 2}}}))
	d.receive(1)
}

// receive reads that many watch responses.
func (d *traffic) receive(count int) {
	d.Helper()
	for range count {
		_, err := d.watch.Recv()
		d.must("watch response", err)
	}
}

func (d *traffic) writes() {
	for i := range watchedPuts {
		_, err := d.kv.Put(d.ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "k%02d", i), Value: []byte("some value"),
			PrevKv: i%2 == 0})
		d.must("put", err)
		d.receive(1)
	}
	_, err := d.kv.DeleteRange(d.ctx, &pb.DeleteRangeRequest{Key: []byte("k00"), PrevKv: true})
	d.must("delete", err)
	d.receive(1)
	_, err = d.kv.DeleteRange(d.ctx, &pb.DeleteRangeRequest{Key: []byte("k01"), RangeEnd: []byte("k04")})
	d.must("delete a range", err)
	d.receive(1)
	_, err = d.kv.DeleteRange(d.ctx, &pb.DeleteRangeRequest{Key: []byte("absent")})
	d.must("delete nothing", err)
	for _, txn := range []*pb.TxnRequest{
		{Success: []*pb.RequestOp{putOp("t1"), putOp("t2"), rangeOp("t1", false), deleteOp("k04")}},
		{Success: []*pb.RequestOp{putOp("t3")}},
		{Compare: []*pb.Compare{exists("t1")}, Success: []*pb.RequestOp{rangeOp("t1", false)},
			Failure: []*pb.RequestOp{putOp("t4")}},
		{Compare: []*pb.Compare{exists("absent")}, Success: []*pb.RequestOp{putOp("t4")}},
		{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
			Success: []*pb.RequestOp{putOp("t5"), rangeOp("t5", false)}}}}}},
		{},
	} {
		_, err := d.kv.Txn(d.ctx, txn)
		d.must("txn", err)
	}
	d.receive(1) // the deletion in the first txn
}

func putOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte("of a txn")}}}
}

func deleteOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func rangeOp(key string, serializable bool) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: []byte(key), Serializable: serializable}}}
}

func exists(key string) *pb.Compare {
	return &pb.Compare{Result: pb.Compare_GREATER, Target: pb.Compare_VERSION, Key: []byte(key),
		TargetUnion: &pb.Compare_Version{Version: 0}}
}

func (d *traffic) reads() {
	all := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
	for _, r := range []*pb.RangeRequest{
		{Key: []byte("k05")}, {Key: []byte("k05"), Serializable: true}, {Key: []byte("absent")}, all,
		{Key: []byte{0}, RangeEnd: []byte{0}, Limit: 3}, {Key: []byte("k"), RangeEnd: []byte("l"), CountOnly: true},
		{Key: []byte("k"), RangeEnd: []byte("l"), SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_MOD},
		{Key: []byte("k05"), Revision: 8},
	} {
		_, err := d.kv.Range(d.ctx, r)
		d.must("range", err)
	}
	for _, serializable := range []bool{false, true} {
		_, err := d.kv.Txn(d.ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
			rangeOp("k05", serializable), rangeOp("k06", serializable)}})
		d.must("readonly txn", err)
	}
	stream, err := d.kv.RangeStream(d.ctx, all)
	d.must("range stream", err)
	d.drain("range stream", func() error { _, err := stream.Recv(); return err })
}

// drain reads a stream to its end.
func (d *traffic) drain(what string, receive func() error) {
	d.Helper()
	for {
		err := receive()
		if errors.Is(err, io.EOF) {
			return
		}
		d.must(what, err)
	}
}

// refused makes requests that fail, before the proposal, in apply and in a read.
func (d *traffic) refused() {
	_, err := d.kv.Put(d.ctx, &pb.PutRequest{})
	d.mustFail("put without a key", err)
	_, err = d.kv.Put(d.ctx, &pb.PutRequest{Key: []byte("x"), Lease: 4711})
	d.mustFail("put with an unknown lease", err)
	_, err = d.kv.Range(d.ctx, &pb.RangeRequest{})
	d.mustFail("range without a key", err)
	_, err = d.kv.Range(d.ctx, &pb.RangeRequest{Key: []byte("x"), Revision: 1 << 40})
	d.mustFail("range in the future", err)
	_, err = d.kv.Range(d.ctx, &pb.RangeRequest{Key: []byte("x"), Revision: 1 << 40, Serializable: true})
	d.mustFail("serializable range in the future", err)
	_, err = d.kv.Txn(d.ctx, &pb.TxnRequest{Success: []*pb.RequestOp{putOp("x"), putOp("x")}})
	d.mustFail("txn with a duplicate key", err)
	_, err = d.kv.Compact(d.ctx, &pb.CompactionRequest{Revision: 1 << 40})
	d.mustFail("compaction in the future", err)
	_, err = d.lease.LeaseRevoke(d.ctx, &pb.LeaseRevokeRequest{ID: 4711})
	d.mustFail("revoke an unknown lease", err)
	_, err = d.tend.MoveLeader(d.ctx, &pb.MoveLeaderRequest{TargetID: 4711})
	d.mustFail("move the leader to nobody", err)
	cluster := pb.NewClusterClient(d.conn)
	list, err := cluster.MemberList(d.ctx, &pb.MemberListRequest{})
	d.must("member list", err)
	for _, id := range []uint64{list.Header.MemberId, 4711} {
		_, err = cluster.MemberPromote(d.ctx, &pb.MemberPromoteRequest{ID: id})
		d.mustFail("promote no learner", err)
		_, err = cluster.MemberRemove(d.ctx, &pb.MemberRemoveRequest{ID: id})
		d.mustFail("remove nobody, or all", err)
	}
	_, err = cluster.MemberAdd(d.ctx, &pb.MemberAddRequest{PeerURLs: list.Members[0].PeerURLs, IsLearner: true})
	d.mustFail("add a member twice", err)
	update := &pb.MemberUpdateRequest{ID: list.Header.MemberId, PeerURLs: list.Members[0].PeerURLs}
	_, err = cluster.MemberUpdate(d.ctx, update)
	d.must("update a member to what it is", err)
	_, err = d.tend.MoveLeader(d.ctx, &pb.MoveLeaderRequest{TargetID: list.Header.MemberId})
	d.must("move the leader to itself", err)
	d.mustFail("unknown method", d.conn.Invoke(d.ctx, "/etcdserverpb.KV/Nothing", &pb.RangeRequest{}, &pb.RangeResponse{}))
	d.mustFail("unknown service", d.conn.Invoke(d.ctx, "/nothing.Nothing/No", &pb.RangeRequest{}, &pb.RangeResponse{}))
}

func (d *traffic) leases() {
	for id, ttl := range map[int64]int64{1: 1000, 2: 60, 3: 2000} {
		_, err := d.lease.LeaseGrant(d.ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
		d.must("grant", err)
	}
	_, err := d.lease.LeaseGrant(d.ctx, &pb.LeaseGrantRequest{ID: 1, TTL: 1000})
	d.mustFail("grant an id again", err)
	for id, count := range map[int64]int{1: 3, 2: 1} {
		for i := range count {
			_, err := d.kv.Put(d.ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "leased-%d-%d", id, i), Lease: id})
			d.must("put with a lease", err)
		}
	}
	renewals, err := d.lease.LeaseKeepAlive(d.ctx)
	d.must("keep alive", err)
	for _, id := range []int64{1, 1, 2, 4711} {
		d.must("renew", renewals.Send(&pb.LeaseKeepAliveRequest{ID: id}))
		_, err := renewals.Recv()
		d.must("renewed", err)
	}
	d.must("close renewals", renewals.CloseSend())
	d.drain("renewals", func() error { _, err := renewals.Recv(); return err })
	for _, id := range []int64{1, 4711} {
		_, err = d.lease.LeaseTimeToLive(d.ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		d.must("time to live", err)
	}
	_, err = d.lease.LeaseLeases(d.ctx, &pb.LeaseLeasesRequest{})
	d.must("leases", err)
	_, err = d.lease.LeaseRevoke(d.ctx, &pb.LeaseRevokeRequest{ID: 1})
	d.must("revoke", err)
	_, err = d.lease.LeaseGrant(d.ctx, &pb.LeaseGrantRequest{ID: 5, TTL: 1})
	d.must("grant a short one", err)
	harness.Eventually(d, limit, "a lease ends", func() error {
		if n := scrape(d.T, d.server).values["etcd_debugging_server_lease_expired_total"]; n < 1 {
			return fmt.Errorf("%v have", n)
		}
		return nil
	})
}

func (d *traffic) housekeeping() {
	_, err := d.kv.Compact(d.ctx, &pb.CompactionRequest{Revision: 10, Physical: true})
	d.must("compact", err)
	_, err = d.kv.Compact(d.ctx, &pb.CompactionRequest{Revision: 5})
	d.mustFail("compact again", err)
	_, err = d.kv.Range(d.ctx, &pb.RangeRequest{Key: []byte("k05"), Revision: 5})
	d.mustFail("range of the compacted", err)
	_, err = d.tend.Defragment(d.ctx, &pb.DefragmentRequest{})
	d.must("defragment", err)
	_, err = d.tend.Hash(d.ctx, &pb.HashRequest{})
	d.must("hash", err)
	_, err = d.tend.HashKV(d.ctx, &pb.HashKVRequest{})
	d.must("hash of the keys", err)
	_, err = d.tend.HashKV(d.ctx, &pb.HashKVRequest{Revision: 1 << 40})
	d.mustFail("hash in the future", err)
	stream, err := d.tend.Snapshot(d.ctx, &pb.SnapshotRequest{})
	d.must("snapshot", err)
	d.drain("snapshot", func() error { _, err := stream.Recv(); return err })
	_, err = d.tend.Status(d.ctx, &pb.StatusRequest{})
	d.must("status", err)
	for _, action := range []pb.AlarmRequest_AlarmAction{
		pb.AlarmRequest_GET, pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_GET, pb.AlarmRequest_DEACTIVATE,
	} {
		_, err = d.tend.Alarm(d.ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
		d.must("alarm", err)
		scrape(d.T, d.server)
	}
	// A watch of the compacted ends at once.
	d.must("create", d.watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2}}}))
	d.receive(2)
}

// others makes requests of the rest: cluster, health, versions of clients.
func (d *traffic) others() {
	_, err := pb.NewClusterClient(d.conn).MemberList(d.ctx, &pb.MemberListRequest{Linearizable: true})
	d.must("member list", err)
	health := healthpb.NewHealthClient(d.conn)
	_, err = health.Check(d.ctx, &healthpb.HealthCheckRequest{})
	d.must("health", err)
	_, err = health.Check(d.ctx, &healthpb.HealthCheckRequest{Service: "nothing"})
	d.mustFail("health of nothing", err)
	for _, version := range []string{"3.6.0", "3.7.3", "3.7.3"} {
		ctx := metadata.AppendToOutgoingContext(d.ctx, "client-api-version", version)
		_, err := d.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k05")})
		d.must("range", err)
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(d.ctx, "client-api-version", "3.7.3"))
	stream, err := pb.NewWatchClient(d.conn).Watch(ctx)
	d.must("watch", err)
	d.must("create", stream.Send(&pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}))
	_, err = stream.Recv()
	d.must("created", err)
	cancel()
	_, err = stream.Recv()
	d.mustFail("a cancelled watch", err)
	harness.Eventually(d, limit, "the cancelled stream is counted", func() error {
		if n := scrape(d.T, d.server).sum("grpc_server_handled_total", "grpc_method=Watch"); n != 1 {
			return fmt.Errorf("%v ended", n)
		}
		return nil
	})
}

// locks uses the Lock and Election services, which work on the others from inside the member.
func (d *traffic) locks() {
	_, err := d.lease.LeaseGrant(d.ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 1000})
	d.must("grant", err)
	invoke := func(method string, in, out any) error { return d.conn.Invoke(d.ctx, method, in, out) }
	var held proto.LockResponse
	d.must("lock", invoke("/v3lockpb.Lock/Lock", &proto.LockRequest{Name: []byte("lock"), Lease: 7}, &held))
	d.must("unlock", invoke("/v3lockpb.Lock/Unlock", &proto.UnlockRequest{Key: held.Key}, &proto.UnlockResponse{}))
	var won proto.CampaignResponse
	d.must("campaign", invoke("/v3electionpb.Election/Campaign",
		&proto.CampaignRequest{Name: []byte("vote"), Lease: 7, Value: []byte("me")}, &won))
	leader := func() error {
		return invoke("/v3electionpb.Election/Leader", &proto.LeaderRequest{Name: []byte("vote")}, &proto.LeaderResponse{})
	}
	d.must("leader", leader())
	d.must("resign", invoke("/v3electionpb.Election/Resign", &proto.ResignRequest{Leader: won.Leader},
		&proto.ResignResponse{}))
	d.mustFail("leader of none", leader())
}

// asJSON makes requests through the JSON gateway, which count as calls; what is no request counts as nothing.
func (d *traffic) asJSON() {
	client := &http.Client{Timeout: limit}
	for _, call := range []struct {
		path, body string
		code       int
	}{
		{"/v3/kv/put", `{"key":"anNvbg==","value":"dg=="}`, http.StatusOK},
		{"/v3/kv/range", `{"key":"anNvbg=="}`, http.StatusOK},
		{"/v3/kv/range", `{"key":"anNvbg==","revision":"100000"}`, http.StatusBadRequest},
		{"/v3/kv/range", `{"key":`, http.StatusBadRequest},
		{"/v3/kv/nothing", `{}`, http.StatusNotFound},
		{"/v3/maintenance/status", `{}`, http.StatusOK},
	} {
		r, err := client.Post(d.server.URL+call.path, "application/json", strings.NewReader(call.body))
		d.must(call.path, err)
		_, err = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		d.must(call.path, err)
		if r.StatusCode != call.code {
			d.Fatalf("%s: %s with %s: %s", d.server.Kind, call.path, call.body, r.Status)
		}
	}
}

func (d *traffic) probes() {
	client := &http.Client{Timeout: limit}
	for _, path := range []string{
		"/health", "/health?serializable=true", "/health?exclude=NOSPACE", "/livez", "/readyz", "/readyz?verbose",
		"/livez/serializable_read", "/readyz/linearizable_read", "/version",
	} {
		r, err := client.Get(d.server.URL + path)
		d.must(path, err)
		_, err = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		d.must(path, err)
		if r.StatusCode != http.StatusOK {
			d.Fatalf("%s: %s: %s", d.server.Kind, path, r.Status)
		}
	}
}
