package flags

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// refusal is why a server did not start: for etcd the line before its usage text, or the error of its last line.
func refusal(out harness.Output) string {
	text := strings.TrimSpace(out.Stdout + out.Stderr)
	if !strings.HasPrefix(text, "{") {
		first, _, _ := strings.Cut(text, "\n")
		return first
	}
	reason := ""
	for line := range strings.SplitSeq(text, "\n") {
		var entry struct{ Error, Msg, Level string }
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		switch {
		case entry.Error != "":
			reason = entry.Error
		case entry.Level == "fatal":
			reason = strings.TrimSuffix(entry.Msg, ")") // etcd closes one parenthesis too many
		}
	}
	return reason
}

// Tools and people look for these texts, and supervisors at the code. troupe may say more, never something else.
func TestFlags_WrongOnesAreRefusedInEtcdsWords(t *testing.T) {
	harness.TroupeOnly(t, "the test compares two programs")
	for _, args := range [][]string{
		{"--heartbeat-interval=x"}, {"--heartbeat-interval=0"}, {"--election-timeout=0"}, {"--election-timeout=300"},
		{"--election-timeout=60000"}, {"--snapshot-count=x"}, {"--quota-backend-bytes=x"}, {"--max-concurrent-streams=x"},
		{"--initial-election-tick-advance=x"}, {"--enable-pprof=x"}, {"--raft-read-timeout=x"}, {"--unknown=1"},
		{"--discovery=x"}, {"--discovery-proxy=x"}, {"--enable-v2"}, {"--proxy=off"}, {"--experimental-max-learners=1"},
		{"word"}, {"--listen-client-urls=http://127.0.0.1:1"}, {"--listen-client-urls=nonsense"},
		{"--listen-peer-urls=ftp://127.0.0.1:1"}, {"--listen-metrics-urls=http://foo:1"},
		{"--listen-client-urls=http://127.0.0.1:1/path"}, {"--listen-client-urls=http://127.0.0.1"},
		{"--listen-client-urls=http://example.com:1", "--advertise-client-urls=http://127.0.0.1:1"},
		{"--feature-gates=Foo=true"}, {"--feature-gates=LeaseCheckpoint"}, {"--feature-gates=LeaseCheckpoint=bar"},
		{"--feature-gates=LeaseCheckpointPersist=true"}, {"--log-format=foo"}, {"--logger=foo"}, {"--logger=capnslog"},
		{"--log-outputs=default,stderr"}, {"--log-outputs=/nonexistent/x"}, {"--enable-log-rotation"},
		{"--enable-log-rotation", "--log-outputs=/tmp/a,/tmp/b"},
		{"--enable-log-rotation", "--log-outputs=/tmp/a", "--log-rotation-config-json={"},
		{"--compact-hash-check-time=0s"}, {"--bcrypt-cost=x"},
		{"--bcrypt-cost=-1"}, {"--auth-token-ttl=-1"}, {"--auth-token-ttl=99999999999999999999"},
		{"--self-signed-cert-validity=x"}, {"--distributed-tracing-sampling-rate=x"},
		{"--discovery-fallback=proxy"}, {"--config-file=/nonexistent"},
		{"--initial-cluster=default=foo"}, {"--initial-cluster=default=http://127.0.0.1:1"},
		{"--name=c", "--initial-cluster=a=http://localhost:2380,b=http://localhost:2381"},
		{"--name=a", "--initial-cluster=a=http://localhost:2380,b=http://localhost:2380"},
		{"--listen-client-http-urls=http://localhost:2379"}, {"--listen-client-http-urls=foo"},
	} {
		etcd := harness.Program(t, harness.Etcd, nil, append(args, "--data-dir", filepath.Join(t.TempDir(), "etcd"))...)
		troupe := harness.Program(t, harness.Troupe, nil, append(args, "--data-dir", filepath.Join(t.TempDir(), "troupe"))...)
		want, _, _ := strings.Cut(refusal(etcd), " (resolved urls")
		if want == "" || etcd.Code == 0 {
			t.Fatalf("%q: etcd gives no reason: code %d", args, etcd.Code)
		}
		if troupe.Code != etcd.Code {
			t.Errorf("%q: code %d, etcd's %d", args, troupe.Code, etcd.Code)
		}
		if got := troupe.Stdout + troupe.Stderr; !strings.Contains(plain(got), plain(want)) {
			t.Errorf("%q:\ntroupe: %s\netcd:   %s", args, got, want)
		}
	}
}

// plain takes out what differs by habit: how many dashes a flag has, and how text is quoted in a log line.
func plain(s string) string {
	return strings.NewReplacer("--", "-", `\"`, `"`).Replace(s)
}

func TestFlags_WrongVariablesAreRefusedInEtcdsWords(t *testing.T) {
	harness.TroupeOnly(t, "the test compares two programs")
	for _, c := range []struct {
		env  string
		args []string
	}{
		{"ETCD_NAME=a", []string{"--name=b"}},
		{"ETCD_MAX_WALS=x", nil},
		{"ETCD_LISTEN_CLIENT_URLS=foo", nil},
		{"ETCD_CONFIG_FILE=/nonexistent", nil},
		{"ETCD_INITIAL_CLUSTER_STATE=old", nil},
	} {
		args := append(c.args, "--data-dir", filepath.Join(t.TempDir(), "data"))
		etcd := harness.Program(t, harness.Etcd, []string{c.env}, args...)
		troupe := harness.Program(t, harness.Troupe, []string{c.env}, args...)
		want := refusal(etcd)
		got := troupe.Stdout + troupe.Stderr
		if troupe.Code != etcd.Code || want == "" || !strings.Contains(plain(got), plain(want)) {
			t.Errorf("%s %q:\ntroupe: %d %s\netcd:   %d %s", c.env, c.args, troupe.Code, got, etcd.Code, want)
		}
	}
}

// The file's mistakes are told in words of our own: etcd's name Go's types. Both refuse the same.
func TestFlags_WrongFilesAreRefusedAsByEtcd(t *testing.T) {
	harness.TroupeOnly(t, "the test compares two programs")
	path := filepath.Join(t.TempDir(), "etcd.conf.yml")
	for _, text := range []string{
		"heartbeat-interval: soon", `heartbeat-interval: "100"`, "heartbeat-interval: 100.5", "heartbeat-interval: -5",
		"name: 5", "name: true", "max-wals: x", "max-wals: -1", `pre-vote: "yes"`, "pre-vote: 1", "log-level: 5",
		"feature-gates: Foo=true", "feature-gates: {LeaseCheckpoint: true}", "initial-cluster-state: old",
		"listen-client-urls: foo", "listen-client-urls: [http://127.0.0.1:1]", "auto-compaction-retention: 1",
		"auto-compaction-mode: foo", "max-concurrent-streams: x", "log-rotation-config-json: {maxsize: 1}",
		"quota-backend-bytes: 1.5", `unsafe-no-fsync: "true"`, "cors: {a: b}", "[", "election-timeout: 300",
		"socket-options: {reuse-port: 1}",
	} {
		if err := os.WriteFile(path, []byte("data-dir: "+t.TempDir()+"\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		etcd := harness.Program(t, harness.Etcd, nil, "--config-file", path)
		troupe := harness.Program(t, harness.Troupe, nil, "--config-file", path)
		if etcd.Code != 1 || troupe.Code != etcd.Code {
			t.Errorf("%s: code %d, etcd's %d: %s", text, troupe.Code, etcd.Code, troupe.Stderr)
		}
		key, _, found := strings.Cut(text, ":")
		if found && !strings.Contains(troupe.Stderr, key) {
			t.Errorf("%s: the refusal does not name the key: %s", text, troupe.Stderr)
		}
	}
}
