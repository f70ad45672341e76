package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"troupe/integration/harness"
)

const limit = 30 * time.Second

func TestDaemon_VersionPrintsTheLineThatToolsParse(t *testing.T) {
	out := harness.Program(t, harness.Troupe, nil, "--version")
	if out.Code != 0 || !strings.Contains("\n"+out.Stdout, "\netcd Version: 3.7.") {
		t.Errorf("--version: code %d, output:\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}

func TestDaemon_HelpExitsWithZero(t *testing.T) {
	for _, flag := range []string{"-h", "--help"} {
		if out := harness.Program(t, harness.Troupe, nil, flag); out.Code != 0 || len(out.Stdout+out.Stderr) < 200 {
			t.Errorf("%s: code %d, output:\n%s%s", flag, out.Code, out.Stdout, out.Stderr)
		}
	}
}

func TestDaemon_UnknownFlagNamesTheNearestKnownOne(t *testing.T) {
	harness.TroupeOnly(t, "etcd prints its usage")
	for wrong, right := range map[string]string{
		"--listen-client-url=http://127.0.0.1:1": "listen-client-urls", "--datadir=x": "data-dir",
		"--snapshot-counts": "snapshot-count", "--initial-cluser=a": "initial-cluster",
	} {
		out := harness.Program(t, harness.Troupe, nil, wrong)
		if out.Code != 2 || !strings.Contains(out.Stdout+out.Stderr, right) {
			t.Errorf("%s: code %d, want 2 and the name %s in:\n%s%s", wrong, out.Code, right, out.Stdout, out.Stderr)
		}
	}
}

func TestDaemon_WrongCommandLinesAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"word"}, {"--listen-client-urls", "http://127.0.0.1:1"}, {"--listen-peer-urls", "nonsense"},
		{"--heartbeat-interval", "100", "--election-timeout", "300"}, {"--heartbeat-interval", "0"},
		{"--election-timeout", "60000"}, {"--initial-cluster-state", "odd"}, {"--snapshot-count", "x"},
		{"--listen-client-urls", "http://not-an-address.example:1", "--advertise-client-urls", "http://127.0.0.1:1"},
		{"--name", "other", "--initial-cluster", "default=http://localhost:1"},
	} {
		args = append(args, "--data-dir", filepath.Join(t.TempDir(), "data"))
		if out := harness.Program(t, harness.Troupe, nil, args...); out.Code == 0 || out.Stdout+out.Stderr == "" {
			t.Errorf("%q: code %d, output %q", args, out.Code, out.Stdout+out.Stderr)
		}
	}
}

func TestDaemon_FlagSpellings(t *testing.T) {
	for name, flags := range map[string][]string{
		"one dash":       {"-snapshot-count", "5000"},
		"equals sign":    {"--snapshot-count=5000"},
		"given twice":    {"--initial-cluster-token=one", "--initial-cluster-token", "two", "--snapshot-count=1"},
		"bare boolean":   {"--pre-vote", "--strict-reconfig-check=true"},
		"small settings": {"--quota-backend-bytes=53248", "--max-wals=0", "--max-snapshots=1"},
	} {
		t.Run(name, func(t *testing.T) { harness.Serves(t, harness.Start(t, harness.Options{Args: flags})) })
	}
}

// environment spells a server's usual flags as variables with the prefix.
func environment(s *harness.Server, prefix string) (env []string) {
	flags := s.Flags()
	for i := 0; i < len(flags); i += 2 {
		name := strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(flags[i], "--"), "-", "_"))
		env = append(env, prefix+name+"="+flags[i+1])
	}
	return env
}

func TestDaemon_EnvironmentSetsFlags(t *testing.T) {
	for _, prefix := range []string{"ETCD_", "TROUPE_"} {
		t.Run(prefix, func(t *testing.T) {
			if prefix == "TROUPE_" {
				harness.TroupeOnly(t, "the variables have its name")
			}
			s := harness.New(t, harness.Options{NoFlags: true})
			s.SetEnv(append(environment(s, prefix), "ETCD_NO_SUCH_THING=1", "ETCD_VERSION=3.0")...)
			s.Start(t)
			harness.Serves(t, s)
			if !s.Log().Contains("ETCD_NO_SUCH_THING") {
				t.Errorf("nothing warns of the unknown variable")
			}
		})
	}
}

func TestDaemon_VariableShadowedByFlagIsRefused(t *testing.T) {
	out := harness.Program(t, harness.Troupe, []string{"ETCD_NAME=a"}, "--name", "b", "--data-dir", t.TempDir())
	if out.Code == 0 || !strings.Contains(out.Stdout+out.Stderr, "shadowed by corresponding command-line flag") {
		t.Errorf("code %d, output %s%s", out.Code, out.Stdout, out.Stderr)
	}
}

func TestDaemon_ConfigFileReplacesFlags(t *testing.T) {
	s := harness.New(t, harness.Options{NoFlags: true})
	flags, text := s.Flags(), "name: default\nsnapshot-count: 5000\n"
	for i := 0; i < len(flags); i += 2 {
		text += fmt.Sprintf("%s: %s\n", strings.TrimPrefix(flags[i], "--"), flags[i+1])
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.SetArgs("--config-file", file, "--listen-client-urls", "http://127.0.0.1:1")
	s.Start(t)
	harness.Serves(t, s)
}

func TestDaemon_UnreadableConfigFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for _, text := range []string{"name: [", "heartbeat-interval: soon\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := harness.Program(t, harness.Troupe, nil, "--config-file", file); out.Code == 0 {
			t.Errorf("config file %q: code 0", text)
		}
	}
	if out := harness.Program(t, harness.Troupe, nil, "--config-file", file+".missing"); out.Code == 0 {
		t.Errorf("missing config file: code 0")
	}
}

// Another default would start an empty store beside the real one.
func TestDaemon_DefaultDirectoryIsEtcds(t *testing.T) {
	s := harness.New(t, harness.Options{Dir: filepath.Join(t.TempDir(), "default.etcd"), NoFlags: true})
	s.SetArgs(s.Flags()[2:]...)
	s.Start(t)
	harness.Serves(t, s)
	info, err := os.Stat(s.Dir)
	if err != nil {
		t.Fatalf("default directory: %v", err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("directory has mode %v, want 0700", info.Mode().Perm())
	}
	for _, name := range []string{"member/snap/db", "member/wal"} {
		if _, err := os.Stat(filepath.Join(s.Dir, name)); err != nil {
			t.Errorf("layout: %v", err)
		}
	}
}

func TestDaemon_RestartWithTheSameFlagsRecovers(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--initial-cluster-state=new"}})
	client := s.Client(t)
	if _, err := client.Put(harness.Context(t, limit), "kept", "yes"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Terminate(t)
		s.Start(t)
		var r *clientv3.GetResponse
		harness.Eventually(t, limit, "read after restart", func() (err error) {
			r, err = client.Get(harness.Context(t, limit), "kept")
			return err
		})
		if r.Count != 1 || r.Header.Revision != 2 {
			t.Errorf("after restart: %v", r)
		}
	}
}
