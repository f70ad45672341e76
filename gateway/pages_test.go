package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestPages_Health(t *testing.T) {
	e := newReadyEdge(t, nil)
	want := func(path string, code int, body string) {
		t.Helper()
		if gotCode, got := get(t, e, path); gotCode != code || got != body {
			t.Errorf("%s: %d %q, want %d %q", path, gotCode, got, code, body)
		}
	}
	const well = `{"health":"true","reason":""}`
	want("/health", 200, well)
	want("/livez", 200, "ok\n")
	want("/livez?verbose", 200, "[+]serializable_read ok\nok\n")
	want("/livez/serializable_read", 200, "ok\n")
	want("/readyz?verbose", 200, "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n"+
		"[+]non_learner ok\n[+]disk ok\n[+]space ok\nok\n")
	want("/readyz/nope", 404, "404 page not found\n")
	post, err := http.Post("http://"+e.addr+"/health", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	post.Body.Close()
	if post.StatusCode != http.StatusMethodNotAllowed || post.Header.Get("Allow") != "GET" {
		t.Errorf("POST /health: %s %v", post.Status, post.Header)
	}

	e.room.set(func() { e.room.readErr = ErrNoLeader })
	const noLeader = "etcdserver: no leader"
	want("/health", 503, `{"health":"false","reason":"RANGE ERROR:`+noLeader+`"}`+"\n")
	want("/health?serializable=true", 200, well)
	want("/readyz/linearizable_read", 503,
		"[-]linearizable_read failed: "+noLeader+"\n\n")
	want("/readyz?exclude=linearizable_read", 200, "ok\n")
	want("/livez", 200, "ok\n")

	e.room.set(func() { e.room.readErr, e.room.status.Leader = nil, 0 })
	want("/health", 503, `{"health":"false","reason":"RAFT NO LEADER"}`+"\n")
	e.room.set(func() {
		e.room.status.Leader, e.room.status.Learner, e.room.status.DiskStalledTicks = 7, true, 12
		e.room.state.Alarms = []*pb.AlarmMember{{MemberID: 7, Alarm: pb.AlarmType_CORRUPT}}
	})
	want("/health", 503, `{"health":"false","reason":"ALARM CORRUPT"}`+"\n")
	want("/health?exclude=CORRUPT", 200, well)
	want("/readyz", 503, "[-]data_corruption failed: alarm activated: CORRUPT\n[+]serializable_read ok\n"+
		"[+]linearizable_read ok\n[-]non_learner failed: not ready: local node is learner\n"+
		"[-]disk failed: the disk of the log has not answered for 12 heartbeat intervals\n[+]space ok\n\n")
	want("/readyz/disk", 503, "[-]disk failed: the disk of the log has not answered for 12 heartbeat intervals\n\n")
	want("/readyz/disk?exclude=disk", 503,
		"[-]disk failed: the disk of the log has not answered for 12 heartbeat intervals\n\n")
	want("/livez", 200, "ok\n")
	if text := e.log.String(); !strings.Contains(text, "serving /readyz false") ||
		!strings.Contains(text, "linearizable_read failed: "+noLeader) {
		t.Errorf("the log does not say why:\n%s", text)
	}
}

// A member that has not joined yet, and after a restart without a quorum never does, lets a serializable read wait:
// readyz must not say that it is served. livez says that the member lives, since a restart would not help.
func TestPages_ReadyzSaysThatAStartingMemberServesNoRead(t *testing.T) {
	e := newEdge(t, nil)
	const starting = " failed: the member is starting, and serves no request until it has found a quorum\n"
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/readyz": {503, "[+]data_corruption ok\n[-]serializable_read" + starting + "[-]linearizable_read" + starting +
			"[+]non_learner ok\n[+]disk ok\n[+]space ok\n\n"},
		"/readyz/serializable_read": {503, "[-]serializable_read" + starting + "\n"},
		"/livez?verbose":            {200, "[+]serializable_read ok\nok\n"},
		"/readyz?exclude=linearizable_read&exclude=space": {503, "[+]data_corruption ok\n[-]serializable_read" + starting +
			"[+]non_learner ok\n[+]disk ok\n\n"},
	} {
		if code, body := get(t, e, path); code != want.code || body != want.body {
			t.Errorf("%s while it starts: %d %q, want %d %q", path, code, body, want.code, want.body)
		}
	}
	e.SetReady()
	if code, body := get(t, e, "/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("/readyz when it is ready: %d %q", code, body)
	}
}

// Without space a member reads on, so it stays ready; who asks for it by name, or for the list, is told.
func TestPages_AMemberWithoutSpaceIsReadyAndSaysSo(t *testing.T) {
	e := newReadyEdge(t, nil)
	const full = "the disk of the log is full: writes are refused until space is freed on it\n"
	e.room.set(func() { e.room.status.LogFull = true })
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/readyz":                       {200, "ok\n"},
		"/readyz?exclude=space":         {200, "ok\n"},
		"/readyz/space":                 {503, "[-]space failed: " + full + "\n"},
		"/livez":                        {200, "ok\n"},
		"/health":                       {503, `{"health":"false","reason":"DISK FULL"}` + "\n"},
		"/health?exclude=NOSPACE":       {200, `{"health":"true","reason":""}`},
		"/health?serializable=true":     {503, `{"health":"false","reason":"DISK FULL"}` + "\n"},
		"/readyz?verbose&exclude=space": {200, "[+]disk ok\nok\n"},
	} {
		if code, body := get(t, e, path); code != want.code || !strings.HasSuffix(body, want.body) {
			t.Errorf("%s: %d %q, want %d %q", path, code, body, want.code, want.body)
		}
	}
	code, body := get(t, e, "/readyz?verbose")
	if code != 200 || !strings.HasSuffix(body, "[!]space warns: "+full+"ok\n") {
		t.Errorf("/readyz?verbose: %d %q", code, body)
	}
}

func TestPages_Version(t *testing.T) {
	e := newReadyEdge(t, nil)
	_, body := get(t, e, "/version")
	if !strings.HasPrefix(body, `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"`) {
		t.Error(body)
	}
	e.room.set(func() { e.room.state.Membership = nil })
	if _, body = get(t, e, "/version"); !strings.Contains(body, `"etcdcluster":"not_decided"`) {
		t.Error(body)
	}
}

func TestPages_PeerPort(t *testing.T) {
	e := newReadyEdge(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = e.ServePeers(l) }()
	fetch := func(path string) (code int, cluster, body string) {
		r, err := pages.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, r.Header.Get("X-Etcd-Cluster-ID"), string(b)
	}
	code, cluster, body := fetch("/members")
	if code != http.StatusOK || cluster != "5" || body !=
		`[{"id":7,"peerURLs":["http://127.0.0.1:2380"],"name":"seven","clientURLs":["http://127.0.0.1:2379"]}]`+"\n" {
		t.Errorf("%d, cluster %s: %s", code, cluster, body)
	}
	if code, _, _ = fetch("/version"); code != http.StatusOK {
		t.Errorf("/version: %d", code)
	}
	for _, path := range []string{"/health", "/raft", "/raft/probing", "/nope"} {
		if code, _, _ = fetch(path); code != http.StatusNotFound { // never 403 or 410: an etcd member would terminate
			t.Errorf("%s: %d", path, code)
		}
	}
}

// Dashboards and alerts read these names; all methods are there from the start with 0.
func TestPages_MetricsHaveEtcdsNames(t *testing.T) {
	e := newReadyEdge(t, func(c *Config) { c.Actors = fakeActors{} })
	e.room.set(func() { e.room.state.Alarms = []*pb.AlarmMember{{MemberID: 30, Alarm: pb.AlarmType_NOSPACE}} })
	if _, err := newClient(t, e).Put(within(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	get(t, e, "/health")
	get(t, e, "/readyz")
	_, body := get(t, e, "/metrics")
	for _, line := range []string{
		`etcd_cluster_version{cluster_version="3.7"} 1`,
		`etcd_server_version{server_version="3.7.3"} 1`,
		`etcd_server_go_version{server_go_version="go`,
		`etcd_server_quota_backend_bytes 2.147483648e+09`,
		`etcd_server_client_requests_total{client_api_version="3.7",type="unary"} 1`,
		`etcd_server_request_duration_seconds_bucket{success="true",type="Put",le="8.192"} 1`,
		`etcd_server_range_duration_seconds_bucket{success="true",le="0.0001"}`,
		`etcd_server_health_success 0`,
		`etcd_server_health_failures 1`,
		`etcd_debugging_server_alarms{alarm_type="NOSPACE",server_id="1e"} 1`,
		`etcd_server_healthcheck{name="linearizable_read",type="readyz"} 1`,
		`etcd_network_client_grpc_received_bytes_total 6`,
		`etcd_network_client_grpc_sent_bytes_total 10`,
		`grpc_server_started_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_started_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 0`,
		`{grpc_method="LeaseKeepAlive",grpc_service="etcdserverpb.Lease",grpc_type="bidi_stream"} 0`,
		`{grpc_method="Snapshot",grpc_service="etcdserverpb.Maintenance",grpc_type="server_stream"} 0`,
		`{grpc_method="RangeStream",grpc_service="etcdserverpb.KV",grpc_type="server_stream"} 0`,
		`process_resident_memory_bytes `, `process_start_time_seconds `, `go_goroutines `, `os_fd_used `, `os_fd_limit `,
		`troupe_actor_test_total 0`,
		`promhttp_metric_handler_requests_total{code="200"}`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("missing %s", line)
		}
	}
	// etcd 3.7.3 has 45 methods with 17 codes from the start; those of Lock and Election appear there with the first call.
	if n := strings.Count(body, "\ngrpc_server_handled_total{"); n != (45+7)*17 {
		t.Errorf("%d pairs of method and code", n)
	}
}
