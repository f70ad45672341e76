package flags

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"troupe/integration/harness"
)

// get fetches a page over HTTP/1.1.
func get(t *testing.T, url string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// freeURL gives the URL of a port that nobody else takes while the test runs.
func freeURL(t *testing.T) string { return harness.New(t, harness.Options{}).URL }

// With --listen-client-http-urls the client URLs speak gRPC only and the others everything but gRPC, as with etcd.
func TestFlags_HTTPMayHavePortsOfItsOwn(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		t.Run(kind.String(), func(t *testing.T) {
			pages := freeURL(t)
			s := harness.New(t, harness.Options{Kind: kind, Args: []string{"--listen-client-http-urls", pages}})
			if err := s.Launch(); err != nil {
				t.Fatal(err)
			}
			if !s.Log().Wait(harness.Context(t, limit), harness.ReadyMessage) {
				t.Fatalf("it does not serve:\n%s", s.Log().Ending())
			}
			harness.Serves(t, s)
			for _, path := range []string{"/health", "/metrics", "/version", "/readyz"} {
				harness.Eventually(t, limit, "the page "+path, func() error { // etcd opens its ports one after the other
					if status, body, err := get(t, pages+path); err != nil || status != http.StatusOK {
						return errors.New(body)
					}
					return nil
				})
				if status, body, err := get(t, s.URL+path); err == nil {
					t.Errorf("the client port answers %s: %d %.80s", path, status, body)
				}
			}
			if preface(t, pages) {
				t.Errorf("the port for HTTP speaks gRPC")
			}
		})
	}
}

// preface reports whether a port answers the beginning of an HTTP/2 connection, which is that of gRPC.
func preface(t *testing.T, url string) bool {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	const settings = 4 // the type of the first frame of either side (RFC 9113, section 6.5)
	frame := []byte{0, 0, 0, settings, 0, 0, 0, 0, 0}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+string(frame)); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, frame)
	return err == nil && frame[3] == settings
}

func TestFlags_TwoMembersMayShareAPortThatBothReuse(t *testing.T) {
	first := harness.Start(t, harness.Options{Args: []string{"--socket-reuse-port", "--socket-reuse-address"}})
	second := harness.New(t, harness.Options{
		Args: []string{"--socket-reuse-port", "--listen-metrics-urls", first.PeerURL}})
	second.Start(t)
	harness.Serves(t, second)
	third := harness.New(t, harness.Options{Args: []string{"--listen-metrics-urls", first.PeerURL}})
	if err := third.Launch(); err != nil {
		t.Fatal(err)
	}
	if code := third.ExitCode(t); code == 0 || !third.Log().Contains("address already in use") {
		t.Errorf("without the flag: code %d\n%s", code, third.Log().Tail(5))
	}
}

// All at once: what is about other members, what changes how the file is kept, the gates.
func TestFlags_ServesWithEverythingSet(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{
		"--backend-bbolt-freelist-type=array", "--initial-election-tick-advance=false", "--pre-vote=false",
		"--heartbeat-interval=20", "--election-timeout=200", "--max-learners=0", "--strict-reconfig-check=false",
		"--raft-read-timeout=1s", "--corrupt-check-time=1h", "--compact-hash-check-time=30s", "--downgrade-check-time=1s",
		"--v2-deprecation=gone", "--feature-gates=LeaseCheckpoint=true,StopGRPCServiceOnDefrag=true",
		"--snapshot-catchup-entries=1", "--compaction-batch-limit=1", "--compaction-sleep-interval=1ms",
		"--backend-batch-limit=1", "--backend-batch-interval=1ms", "--grpc-keepalive-interval=0",
		"--max-concurrent-streams=64", "--bcrypt-cost=99", "--auth-token-ttl=7", "--self-signed-cert-validity=0",
		"--distributed-tracing-sampling-rate=7", "--distributed-tracing-address=localhost:1",
	}})
	harness.Serves(t, s)
	_, metrics, err := get(t, s.URL+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`etcd_server_feature_enabled{name="LeaseCheckpoint",stage="ALPHA"} 1`,
		`etcd_server_feature_enabled{name="CompactHashCheck",stage="ALPHA"} 0`,
		`etcd_server_feature_enabled{name="FastLeaseKeepAlive",stage="BETA"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if !s.Log().Contains("--v2-deprecation is ignored") {
		t.Errorf("nothing says that --v2-deprecation is ignored")
	}
	// StopGRPCServiceOnDefrag: the health service says so while the file is copied, and takes it back.
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	watch, err := grpc_health_v1.NewHealthClient(s.Conn(t)).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("health is %v, %v; want %v", r, err, want)
		}
	}
	next(grpc_health_v1.HealthCheckResponse_SERVING)
	if _, err := s.Client(t).Defragment(ctx, s.Endpoint()); err != nil {
		t.Fatal(err)
	}
	// The watch tells the newest state only, so that a short copy may pass unseen; the end is SERVING in any case.
	r, err := watch.Recv()
	if err == nil && r.Status == grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		next(grpc_health_v1.HealthCheckResponse_SERVING)
	} else if err != nil {
		t.Fatal(err)
	}
	s.Kill(t)
	s.Start(t)
	harness.Serves(t, s)
}

// Locking needs a permission that not every machine gives; the refusal must then say what to do.
func TestFlags_MemoryIsLockedOrTheRefusalSaysWhatToDo(t *testing.T) {
	s := harness.New(t, harness.Options{Args: []string{"--memory-mlock"}})
	if err := s.Run(); err != nil {
		if !s.Log().Contains("--memory-mlock") {
			t.Errorf("the refusal does not name the flag:\n%s", s.Log().Tail(5))
		}
		return
	}
	harness.Serves(t, s)
	if _, err := s.Client(t).Defragment(harness.Context(t, limit), s.Endpoint()); err != nil {
		t.Errorf("defragmentation of a locked file: %v", err)
	}
	harness.Serves(t, s)
}

func TestFlags_ConfigFileFromTheEnvironmentReplacesEverything(t *testing.T) {
	s := harness.New(t, harness.Options{NoFlags: true})
	flags, text := s.Flags(), "name: default\nlog-level: debug\nauto-compaction-retention: '0'\n"
	for i := 0; i < len(flags); i += 2 {
		text += strings.TrimPrefix(flags[i], "--") + ": " + flags[i+1] + "\n"
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.SetEnv("ETCD_CONFIG_FILE="+file, "ETCD_MAX_WALS=x", "ETCD_NAME=other")
	s.SetArgs("--pre-vote=false")
	s.Start(t)
	harness.Serves(t, s)
	for _, want := range []string{"loaded server configuration", file} {
		if !s.Log().Contains(want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	for _, ignored := range []string{"ETCD_MAX_WALS", "ETCD_NAME", "--pre-vote"} {
		if !harness.EtcdStandsIn() && !s.Log().Contains(ignored+" is ignored, because --config-file") {
			t.Errorf("the log does not say that %s is ignored", ignored)
		}
	}
}

func TestFlags_LogGoesToEveryOutput(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "first.log"), filepath.Join(t.TempDir(), "second.log")
	s := harness.Start(t, harness.Options{Env: []string{"ETCD_LOG_FORMAT=console"},
		Args: []string{"--log-outputs", "stderr," + first + "," + second}})
	s.Terminate(t)
	for _, path := range []string{first, second} {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "\t"+harness.ReadyMessage) {
			t.Errorf("%s: %v in\n%s", filepath.Base(path), err, text)
		}
	}
	if !s.Log().Contains("recognized and used environment variable") || !s.Log().Contains("ETCD_LOG_FORMAT") {
		t.Errorf("nothing says where the format came from:\n%s", s.Log().Tail(30))
	}
}
