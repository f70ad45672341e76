package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParse_SpellingsOfAFlag(t *testing.T) {
	for _, args := range [][]string{
		{"--name=m1"}, {"--name", "m1"}, {"-name=m1"}, {"-name", "m1"}, {"--name=m0", "--name=m1"},
	} {
		o, err := parse(args, nil)
		if err != nil || o.node.Name != "m1" {
			t.Errorf("parse(%q): name %q, error %v", args, o.node.Name, err)
		}
		if want := "m1=http://localhost:2380"; o.node.InitialCluster != want {
			t.Errorf("parse(%q): initial cluster %q, want %q", args, o.node.InitialCluster, want)
		}
	}
}

func TestParse_WrongInputNamesTheFlagAndTheRemedy(t *testing.T) {
	cases := []struct {
		name    string
		args    []string
		environ []string
		want    []string
	}{
		{"misspelt flag", []string{"--data-dirr=x"}, nil, []string{"--data-dirr", "did you mean --data-dir?"}},
		{"renamed flag", []string{"--experimental-watch-progress-notify-interval=5s"}, nil,
			[]string{"since etcd 3.6 it is --watch-progress-notify-interval"}},
		{"removed flag", []string{"--experimental-initial-corrupt-check=true"}, nil,
			[]string{"--feature-gates=InitialCorruptCheck=true"}},
		{"forgotten flag", []string{"--experimental-peer-magic=true"}, nil, []string{"feature gates"}},
		{"flag of long ago", []string{"--enable-v2"}, nil, []string{"not provided", "v2 API"}},
		{"stray word", []string{"start"}, nil, []string{`"start" is not a valid flag`}},
		{"feature of a later version", []string{"--cert-file=x.pem"}, nil, []string{"--cert-file", "leave it out"}},
		{"environment and flag", []string{"--name=a"}, []string{"ETCD_NAME=b"}, []string{"ETCD_NAME", "shadowed"}},
		{"bad environment value", nil, []string{"ETCD_MAX_WALS=many"}, []string{"ETCD_MAX_WALS", "many"}},
		{"ratio", []string{"--election-timeout=300"}, nil, []string{"at least as 5 times"}},
		{"election too long", []string{"--election-timeout=60000"}, nil, []string{"50000ms"}},
		{"cluster state", []string{"--initial-cluster-state=old"}, nil, []string{`invalid value "old"`, "new, existing"}},
		{"DNS name", []string{"--listen-client-urls=http://example:1", "--advertise-client-urls=http://example:1"}, nil,
			[]string{"expected IP in URL for binding"}},
		{"listen without advertise", []string{"--listen-client-urls=http://127.0.0.1:1"}, nil,
			[]string{"--advertise-client-urls is required when --listen-client-urls is set explicitly"}},
		{"debug port", []string{"--debug-listen-urls=http://example:1"}, nil, []string{"expected IP in URL for binding"}},
		{"debug port as URL", []string{"--debug-listen-urls=127.0.0.1:1"}, nil, []string{"URL", "127.0.0.1:1"}},
		{"https", []string{"--listen-peer-urls=https://127.0.0.1:1"}, nil, []string{"TLS"}},
		{"metrics word", []string{"--metrics=all"}, nil, []string{"basic, extensive"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.args, c.environ)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not contain %q", err, w)
				}
			}
		})
	}
}

func TestParse_LaterFlagsAreAcceptedWithTheirNeutralValue(t *testing.T) {
	for name, neutral := range laterFlags {
		if _, err := parse([]string{"--" + name + "=" + neutral}, nil); err != nil {
			t.Errorf("--%s=%s: %v", name, neutral, err)
		}
		wrong := map[string]string{"true": "false", "false": "true"}[neutral]
		if wrong == "" {
			wrong = "wrong"
		}
		_, err := parse([]string{"--" + name + "=" + wrong}, nil)
		if err == nil || !strings.Contains(err.Error(), "--"+name+",") || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("--%s=%s: %v", name, wrong, err)
		}
	}
}

// What shapes a feature that is not there, and does not turn it on, is no reason not to start.
func TestParse_WhatWaitsForAFeatureIsKeptAndNamed(t *testing.T) {
	for arg, want := range map[string]string{
		"--bcrypt-cost=12": "authentication", "--bcrypt-cost=99": "authentication", "--auth-token-ttl=7": "authentication",
		"--self-signed-cert-validity=0": "TLS", "--distributed-tracing-sampling-rate=-1": "tracing",
		"--distributed-tracing-sampling-rate=1000000": "tracing", "--distributed-tracing-address=x:1": "tracing",
		"--distributed-tracing-service-name=troupe": "tracing", "--distributed-tracing-instance-id=a": "tracing",
	} {
		o, err := parse([]string{arg}, nil)
		if err != nil || len(o.warnings) != 1 || !strings.Contains(o.warnings[0], arg+" is kept and has no effect yet") ||
			!strings.Contains(o.warnings[0], "has no "+want) {
			t.Errorf("%s: warnings %q, error %v", arg, o.warnings, err)
		}
	}
	for _, arg := range []string{"--bcrypt-cost=10", "--auth-token-ttl=300", "--distributed-tracing-service-name=etcd"} {
		if o, err := parse([]string{arg}, nil); err != nil || len(o.warnings) != 0 {
			t.Errorf("%s asks for the default: warnings %q, error %v", arg, o.warnings, err)
		}
	}
	o, err := parse([]string{"--bcrypt-cost=12", "--auth-token-ttl=7", "--distributed-tracing-sampling-rate=3"}, nil)
	if w := o.node.Waiting; err != nil || w.BcryptCost != 12 || w.AuthTokenTTL != 7 || w.TracingSamplingRate != 3 {
		t.Errorf("kept: %+v, %v", w, err)
	}
	for _, arg := range []string{"--bcrypt-cost=x", "--bcrypt-cost=-1", "--auth-token-ttl=-1",
		"--self-signed-cert-validity=1.5", "--distributed-tracing-sampling-rate=x"} {
		if _, err := parse([]string{arg}, nil); err == nil || !strings.Contains(err.Error(), "parse error") {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// An empty word is not a choice, with etcd neither: a template that leaves a value out must not stop the member.
func TestParse_EmptyWordsAskForTheDefault(t *testing.T) {
	for _, arg := range []string{"--metrics=", "--tls-min-version=", "--auth-token=", "--distributed-tracing-address="} {
		o, err := parse([]string{arg}, nil)
		if err != nil || o.node.ExtensiveMetrics {
			t.Errorf("%s: extensive metrics %v, error %v", arg, o.node.ExtensiveMetrics, err)
		}
	}
}

func TestParse_Environment(t *testing.T) {
	environ := []string{"PATH=/bin", "ETCD_NAME=a", "TROUPE_NAME=b", "ETCD_HEARTBEAT_INTERVAL=20", "ETCD_NONSENSE=1"}
	o, err := parse(nil, environ)
	if err != nil {
		t.Fatal(err)
	}
	if o.node.Name != "b" || o.node.Heartbeat != 20*time.Millisecond {
		t.Errorf("name %q, heartbeat %v", o.node.Name, o.node.Heartbeat)
	}
	text := strings.Join(o.warnings, "\n")
	for _, w := range []string{"ETCD_NONSENSE", "ETCD_NAME is ignored"} {
		if !strings.Contains(text, w) {
			t.Errorf("warnings %q do not mention %q", text, w)
		}
	}
}

func TestParse_FileOverridesAndNamesWhatItIgnores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "troupe.yaml")
	text := `
name: fromfile
heartbeat-interval: 50
election-timeout: 500
watch-progress-notify-interval: 5000000000
quota-backend-bytes: 8589934592
initial-cluster: fromfile=http://127.0.0.1:2380
client-transport-security:
  client-cert-auth: false
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--config-file", path, "--name=x"}, []string{"ETCD_MAX_WALS=7"})
	if err != nil {
		t.Fatal(err)
	}
	c := o.node
	if c.Name != "fromfile" || c.WatchProgressInterval != 5*time.Second || c.QuotaBytes != 8<<30 || c.MaxWALs != 5 {
		t.Errorf("read %+v", c)
	}
	all := strings.Join(o.warnings, "\n")
	for _, w := range []string{"--name", "ETCD_MAX_WALS"} {
		if !strings.Contains(all, w) {
			t.Errorf("no warning names %s: %q", w, all)
		}
	}
	if err := os.WriteFile(path, []byte("client-transport-security: {cert-file: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := parse([]string{"--config-file", path}, nil); err == nil {
		t.Error("a certificate in the file was silently ignored")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"data-dir", "name", "listen-client-urls"}
	for word, want := range map[string]string{"datadir": "data-dir", "nam": "name", "listen-client-url": names[2],
		"LISTEN-client-urls": names[2], "LISTEN-CLient-urls": "", "nonsense": "", "x": "", "": ""} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// The file of an etcd that has run for years holds lists, empty keys, whole nanoseconds and keys that nobody reads any
// more.
func TestParse_FileAsEtcdsUsersHaveIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.conf.yml")
	text := `
name: 'm1'
initial-cluster:
initial-cluster-token: 'etcd-cluster'
listen-client-urls: http://127.0.0.1:2379
advertise-client-urls: http://127.0.0.1:2379
discovery:
discovery-proxy: 'x'
proxy: 'off'
proxy-failure-wait: 5000
log-outputs: [stderr, stdout]
auto-compaction-retention: "0"
compact-hash-check-time: 60000000000
discovery-dial-timeout: 2000000000
max-snapshots: 5
cors:
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--config-file", path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.log.outputs != "stderr,stdout" || o.node.InitialCluster != "m1=http://localhost:2380" {
		t.Errorf("outputs %q, initial cluster %q", o.log.outputs, o.node.InitialCluster)
	}
	if all := strings.Join(o.warnings, "\n"); !strings.Contains(all, "proxy-failure-wait") {
		t.Errorf("no warning names an ignored key: %q", all)
	}
	for _, wrong := range []string{"compact-hash-check-time: -5", "auto-compaction-retention: 6e10"} {
		if err := os.WriteFile(path, []byte(wrong+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := parse([]string{"--config-file", path}, nil); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
}

func TestParse_FlagsThatEtcdIgnoresAreAccepted(t *testing.T) {
	o, err := parse([]string{"--snapshot=3", "-v", "--peer-heartbeat-interval=7", "--name=m1"}, nil)
	if err != nil || o.node.Name != "m1" {
		t.Fatalf("name %q, error %v", o.node.Name, err)
	}
}

func TestParse_HostsAndOriginsOfPlainHTTP(t *testing.T) {
	o, err := parse([]string{"--host-whitelist=b,a,b", "--cors=http://a:1,https://b:2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.node.HostWhitelist, " "); got != "a b" {
		t.Errorf("hosts %q", got)
	}
	if got := strings.Join(o.node.CORS, " "); got != "http://a:1 https://b:2" {
		t.Errorf("origins %q", got)
	}
	for _, wrong := range []string{"--cors=", "--cors=a", "--cors=http://a", "--cors=*,http://a:1"} {
		if _, err := parse([]string{wrong}, nil); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// A guess that has nothing to do with the word sends the reader the wrong way: no place that guesses makes one, and
// those with a short list show it.
func TestNearest_NothingIsGuessedForAWordThatNoNameIsNear(t *testing.T) {
	rotated := []string{"--enable-log-rotation", "--log-outputs=" + filepath.Join(t.TempDir(), "log"),
		`--log-rotation-config-json={"nonsense": 1}`}
	file := func(text string) (*options, error) { return fromFile(t, text, nil, nil) }
	flags := func(args ...string) (*options, error) { return parse(args, nil) }
	for want, parsed := range map[string]func() (*options, error){
		"known are AllAlpha, AllBeta, Comp":   func() (*options, error) { return flags("--feature-gates=Foo=true") },
		"known are reuse-address, reuse-port": func() (*options, error) { return file("socket-options: {nonsense: 1}") },
		"known are compress, localtime":       func() (*options, error) { return flags(rotated...) },
		"--nonsense-key is unknown (troupe":   func() (*options, error) { return flags("--nonsense-key=1") },
		"unknown key nonsense-key=1 is ignor": func() (*options, error) { return file("nonsense-key: 1") },
	} {
		o, err := parsed()
		said := fmt.Sprint(err, o.warnings)
		if !strings.Contains(said, want) || strings.Contains(said, "did you mean") {
			t.Errorf("want %q and no guess, got %s", want, said)
		}
	}
}
