package metrics

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// rule is one alert or panel: the metrics that its expression reads, and the labels that it selects or groups by.
type rule struct {
	name string
	// reads are metrics; peers are those that exist only for a member with peers.
	reads, peers []string
	labels       []string
}

// rules are the alerts of etcd's mixin, and the panels of its dashboard and of that in the operations guide. Job and
// instance are labels of the scraper's.
var rules = []rule{
	{name: "etcdMembersDown", peers: []string{"etcd_network_peer_sent_failures_total"}},
	{name: "etcdNoLeader", reads: []string{"etcd_server_has_leader"}},
	{name: "etcdHighNumberOfLeaderChanges", reads: []string{"etcd_server_leader_changes_seen_total"}},
	{name: "etcdHighNumberOfFailedGRPCRequests", reads: []string{"grpc_server_handled_total"},
		labels: []string{"grpc_service", "grpc_method", "grpc_code"}},
	{name: "etcdGRPCRequestsSlow", reads: []string{"grpc_server_handling_seconds_bucket"},
		labels: []string{"grpc_service", "grpc_method", "grpc_type", "le"}},
	{name: "etcdMemberCommunicationSlow", peers: []string{"etcd_network_peer_round_trip_time_seconds_bucket"}},
	{name: "etcdHighNumberOfFailedProposals", reads: []string{"etcd_server_proposals_failed_total"}},
	{name: "etcdHighFsyncDurations", reads: []string{"etcd_disk_wal_fsync_duration_seconds_bucket"},
		labels: []string{"le"}},
	{name: "etcdHighCommitDurations", reads: []string{"etcd_disk_backend_commit_duration_seconds_bucket"},
		labels: []string{"le"}},
	{name: "etcdDatabaseQuotaLowSpace",
		reads: []string{"etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes"}},
	{name: "etcdExcessiveDatabaseGrowth",
		reads: []string{"etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes"}},
	{name: "etcdDatabaseHighFragmentationRatio",
		reads: []string{"etcd_mvcc_db_total_size_in_use_in_bytes", "etcd_mvcc_db_total_size_in_bytes"}},
	{name: "panel RPC rate", reads: []string{"grpc_server_started_total", "grpc_server_handled_total"},
		labels: []string{"grpc_type"}},
	{name: "panel active streams", reads: []string{"grpc_server_started_total", "grpc_server_handled_total"},
		labels: []string{"grpc_service", "grpc_type"}},
	{name: "panel memory", reads: []string{"process_resident_memory_bytes"}},
	{name: "panel client traffic", reads: []string{"etcd_network_client_grpc_received_bytes_total",
		"etcd_network_client_grpc_sent_bytes_total"}},
	{name: "panel peer traffic", peers: []string{"etcd_network_peer_received_bytes_total",
		"etcd_network_peer_sent_bytes_total"}},
	{name: "panel raft proposals", reads: []string{"etcd_server_proposals_failed_total", "etcd_server_proposals_pending",
		"etcd_server_proposals_committed_total", "etcd_server_proposals_applied_total"}},
	{name: "panel health", reads: []string{"etcd_server_health_success", "etcd_server_health_failures"}},
}

func TestMetrics_EveryRuleFindsWhatItReads(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind, Args: []string{"--metrics", "extensive"}})
		s.MustCtl(t, "put", "a", "b") // a series of durations is there from the first use on
		p := scrape(t, s)
		for _, r := range rules {
			for _, name := range r.reads {
				if !slices.ContainsFunc(sorted(p.values), func(series string) bool {
					metric, _, _ := strings.Cut(series, "{")
					have := labels(series)
					return metric == name && !slices.ContainsFunc(r.labels, func(l string) bool { return have[l] == "" })
				}) {
					t.Errorf("%s: %s reads %s%q, which is not there", kind, r.name, name, r.labels)
				}
			}
			for _, name := range r.peers {
				for series := range p.values {
					if strings.HasPrefix(series, name) {
						t.Errorf("%s: %s: a lone member shows %s", kind, r.name, series)
					}
				}
			}
		}
	}
}

// TestMetrics_WhatRulesReadMoves: each number goes where its rule expects it when what the rule is about happens.
func TestMetrics_WhatRulesReadMoves(t *testing.T) {
	const quota = 64 << 20
	s := harness.Start(t, harness.Options{Args: []string{"--metrics", "extensive", "--quota-backend-bytes",
		fmt.Sprint(quota)}})
	ctx := harness.Context(t, 4*limit)
	conn := s.Conn(t)
	kv := pb.NewKVClient(conn)
	before := scrape(t, s)
	expect := func(what string, want, got float64) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	expect("has_leader", 1, before.values["etcd_server_has_leader"])
	expect("is_leader", 1, before.values["etcd_server_is_leader"])
	expect("leader changes", 1, before.values["etcd_server_leader_changes_seen_total"])
	expect("the quota", quota, before.values["etcd_server_quota_backend_bytes"])
	const puts = 30
	for i := range puts {
		if _, err := kv.Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, i), Value: make([]byte, 100<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	after := scrape(t, s)
	moved := func(name string, labels ...string) float64 {
		return after.sum(name, labels...) - before.sum(name, labels...)
	}
	expect("committed proposals", puts, moved("etcd_server_proposals_committed_total"))
	expect("applied proposals", puts, moved("etcd_server_proposals_applied_total"))
	expect("pending proposals", 0, after.values["etcd_server_proposals_pending"])
	expect("puts started", puts, moved("grpc_server_started_total", "grpc_method=Put", "grpc_type=unary"))
	expect("puts handled", puts, moved("grpc_server_handled_total", "grpc_method=Put", "grpc_code=OK"))
	expect("puts timed", puts, moved("grpc_server_handling_seconds_bucket", "grpc_method=Put", "le=+Inf"))
	if n := moved("etcd_network_client_grpc_received_bytes_total"); n < puts*100<<10 || n > puts*101<<10 {
		t.Errorf("received %v bytes for %d puts of 100 KiB", n, puts)
	}
	if n := moved("etcd_disk_wal_write_bytes_total"); n < puts*100<<10 || n > puts*110<<10 {
		t.Errorf("wrote %v bytes to the log for %d puts of 100 KiB", n, puts)
	}
	if n := moved("etcd_disk_wal_fsync_duration_seconds_bucket", "le=+Inf"); n < puts {
		t.Errorf("%v syncs of the log for %d puts, one after the other", n, puts)
	}
	filesMove(t, s, before, puts*100<<10)
	if n := after.values["process_resident_memory_bytes"]; n < 10<<20 {
		t.Errorf("resident memory of %v bytes", n)
	}
	streamsMove(t, s)
	failuresMove(ctx, t, s, kv)
}

// filesMove waits until the file holds what was put, and looks that its size is the file's.
func filesMove(t *testing.T, s *harness.Server, before page, bytes float64) {
	t.Helper()
	harness.Eventually(t, limit, "the file has what was put", func() error {
		p := scrape(t, s)
		total, used := p.values["etcd_mvcc_db_total_size_in_bytes"], p.values["etcd_mvcc_db_total_size_in_use_in_bytes"]
		if used < bytes || total < used {
			return fmt.Errorf("%v bytes, of which %v are in use", total, used)
		}
		if n := p.sum("etcd_disk_backend_commit_duration_seconds_count"); n <=
			before.sum("etcd_disk_backend_commit_duration_seconds_count") {
			return fmt.Errorf("no commits, %v", n)
		}
		return nil
	})
}

// streamsMove: the panel of active streams is started minus handled, by service.
func streamsMove(t *testing.T, s *harness.Server) {
	t.Helper()
	active := func(service string) float64 {
		p := scrape(t, s)
		return p.sum("grpc_server_started_total", "grpc_service="+service, "grpc_type=bidi_stream") -
			p.sum("grpc_server_handled_total", "grpc_service="+service, "grpc_type=bidi_stream")
	}
	await := func(what string, count float64) {
		t.Helper()
		harness.Eventually(t, limit, what, func() error {
			for _, service := range []string{"etcdserverpb.Watch", "etcdserverpb.Lease"} {
				if n := active(service); n != count {
					return fmt.Errorf("%s has %v active streams, want %v", service, n, count)
				}
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(harness.Context(t, limit))
	defer cancel()
	conn := s.Conn(t)
	const streams = 5
	for range streams {
		if _, err := pb.NewWatchClient(conn).Watch(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	await("streams are open", streams)
	cancel()
	await("streams are closed", 0)
}

// failuresMove: failed requests by code, failed health checks, failed proposals.
func failuresMove(ctx context.Context, t *testing.T, s *harness.Server, kv pb.KVClient) {
	t.Helper()
	before := scrape(t, s)
	maintenance := pb.NewMaintenanceClient(s.Conn(t))
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		_, err := maintenance.Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
		if err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k")})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a put without space: %v", err)
	}
	r, err := http.Get(s.URL + "/health")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if p := scrape(t, s); p.sum("etcd_debugging_server_alarms", "alarm_type=NOSPACE") != 1 {
		t.Error("the alarm is not shown")
	}
	alarm(pb.AlarmRequest_DEACTIVATE)
	after := scrape(t, s)
	moved := func(name string, labels ...string) float64 {
		return after.sum(name, labels...) - before.sum(name, labels...)
	}
	if n := moved("grpc_server_handled_total", "grpc_method=Put", "grpc_code=ResourceExhausted"); n != 1 {
		t.Errorf("%v refused puts counted", n)
	}
	if n := moved("etcd_server_health_failures"); n != 1 {
		t.Errorf("%v failed health checks counted", n)
	}
	if after.sum("etcd_debugging_server_alarms") != 0 {
		t.Error("the alarm is still shown")
	}
	// A client leaves before its put is durable; how soon that is depends on the disk.
	patience := time.Duration(0)
	harness.Eventually(t, limit, "a proposal fails", func() error {
		patience = (patience + 20*time.Microsecond) % time.Millisecond
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, _ = kv.Put(short, &pb.PutRequest{Key: []byte("k")})
		const failed = "etcd_server_proposals_failed_total"
		if p := scrape(t, s); p.sum(failed) <= before.sum(failed) {
			return fmt.Errorf("none failed")
		}
		return nil
	})
}
