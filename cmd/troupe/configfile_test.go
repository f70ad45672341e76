package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fromFile parses a configuration file with the text.
func fromFile(t *testing.T, text string, args, environ []string) (*options, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd.conf.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return parse(append([]string{"--config-file", path}, args...), environ)
}

func TestConfigFile_WrongTypesNameKeyValueAndWhatIsWanted(t *testing.T) {
	for text, want := range map[string][]string{
		`heartbeat-interval: soon`:                    {"heartbeat-interval", `"soon"`, "whole number"},
		`heartbeat-interval: "100"`:                   {"heartbeat-interval", `"100"`, "whole number"},
		`heartbeat-interval: 100.5`:                   {"heartbeat-interval", "100.5", "whole number"},
		`heartbeat-interval: -5`:                      {"--heartbeat-interval must be >0"},
		`name: 5`:                                     {"name", "5", "a string"},
		`name: true`:                                  {"name", "true", "a string"},
		`pre-vote: "yes"`:                             {"pre-vote", `"yes"`, "true or false"},
		`pre-vote: 1`:                                 {"pre-vote", "1", "true or false"},
		`watch-progress-notify-interval: [5]`:         {"watch-progress-notify-interval", "nanoseconds"},
		`watch-progress-notify-interval: soon`:        {"watch-progress-notify-interval", `"soon"`},
		`listen-client-urls: nonsense`:                {"listen-client-urls", "URL scheme must be http, https, unix"},
		`listen-client-urls: [http://127.0.0.1:1]`:    {"listen-client-urls", "a string"},
		`log-level: 5`:                                {"log-level", "5", "a string"},
		`log-level: loud`:                             {`unrecognized level: "loud"`},
		`log-outputs: [1]`:                            {"log-outputs", "a list of strings"},
		`feature-gates: Foo=true`:                     {"feature-gates", "unrecognized feature gate: Foo"},
		`feature-gates: {LeaseCheckpoint: true}`:      {"feature-gates", "a string"},
		`auto-compaction-retention: 1`:                {"auto-compaction-retention", "a string"},
		`socket-options: true`:                        {"socket-options", "reuse-port"},
		`socket-options: {reuse-prt: true}`:           {"socket-options", "reuse-prt=true", "did you mean reuse-port?"},
		`socket-options: {reuse-port: 1}`:             {"socket-options.reuse-port", "1", "true or false"},
		`peer-transport-security: {cert-file: x}`:     {"peer-transport-security.cert-file", `"x"`, "--peer-cert-file"},
		`client-transport-security: {auto-tls: true}`: {"client-transport-security.auto-tls", "--auto-tls"},
		`discovery-config: {endpoints: [a]}`:          {"discovery-config.endpoints", "leave it out"},
		`[1, 2]`:                                      {"flag: value"},
		`name: [`:                                     {"--config-file"},
	} {
		_, err := fromFile(t, text, nil, nil)
		if err == nil {
			t.Errorf("%s: accepted", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not contain %q", text, err, w)
			}
		}
	}
}

func TestConfigFile_ReadsWhatEtcdReads(t *testing.T) {
	o, err := fromFile(t, `{"name": "m1", "quota-backend-bytes": 9007199254740993, "pre-vote": false,
		"watch-progress-notify-interval": 7000000000, "warning-apply-duration": "250ms",
		"socket-options": {"reuse-port": true}, "feature-gates": "LeaseCheckpoint=true", "log-outputs": ["stdout"],
		"max-concurrent-streams": 4294967295, "client-transport-security": {"client-cert-auth": false, "cert-file": ""},
		"discovery-config": {"endpoints": [], "token": "", "secure": {"insecure-transport": false}}}`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &o.node
	if c.Name != "m1" || c.QuotaBytes != 9007199254740993 || c.PreVote || c.WatchProgressInterval != 7*time.Second ||
		c.WarningApplyDuration != 250*time.Millisecond || !c.ReusePort || !c.LeaseCheckpoint || c.ReuseAddress ||
		o.log.outputs != "stdout" || c.InitialCluster != "m1=http://localhost:2380" {
		t.Errorf("read %+v, log %+v", c, o.log)
	}
}

// What a file leaves out keeps its default, booleans that are true by default among it, whatever flags and variables
// say; and each of these is named.
func TestConfigFile_ReplacesFlagsAndVariablesAndNamesEach(t *testing.T) {
	o, err := fromFile(t, "name: m1\n", []string{"--pre-vote=false", "--max-wals=7", "--name=m2"},
		[]string{"ETCD_STRICT_RECONFIG_CHECK=false", "TROUPE_SNAPSHOT_COUNT=many", "ETCD_NAME=m3"})
	if err != nil {
		t.Fatal(err)
	}
	if o.node.Name != "m1" || !o.node.PreVote || o.node.MaxWALs != 5 || !o.node.StrictReconfigCheck {
		t.Errorf("read %+v", o.node)
	}
	all := strings.Join(o.warnings, "\n")
	for _, name := range []string{"--pre-vote", "--max-wals", "--name", "ETCD_STRICT_RECONFIG_CHECK",
		"TROUPE_SNAPSHOT_COUNT", "ETCD_NAME"} {
		if !strings.Contains(all, name+" is ignored, because --config-file") {
			t.Errorf("no warning names %s:\n%s", name, all)
		}
	}
}

func TestConfigFile_IsFoundInTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("name: m1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range environmentPrefixes {
		o, err := parse([]string{"--name=m2"}, []string{prefix + "CONFIG_FILE=" + path})
		if err != nil || o.node.Name != "m1" || !strings.Contains(strings.Join(o.warnings, "\n"), "--name is ignored") {
			t.Errorf("%s: name %q, warnings %q, error %v", prefix, o.node.Name, o.warnings, err)
		}
	}
	if _, err := parse(nil, []string{"ETCD_CONFIG_FILE=" + path + ".missing"}); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestConfigFile_SuspectValuesAreWarnedAbout(t *testing.T) {
	for text, want := range map[string]string{
		"watch-progress-notify-interval: 5": `5 is 5ns, because a number is in nanoseconds here; write "5s"`,
		"name: a\nname: b\n":                "given twice, the last one counts",
		"proxy-failure-wait: 5":             "proxy-failure-wait is ignored",
	} {
		o, err := fromFile(t, text, nil, nil)
		if err != nil || !strings.Contains(fmt.Sprint(o.warnings), want) {
			t.Errorf("%s: warnings %q, error %v", text, o.warnings, err)
		}
		if strings.HasPrefix(text, "name") && o.node.Name != "b" {
			t.Errorf("%s: name %q", text, o.node.Name)
		}
	}
}

// A key that nobody knows is ignored, as by etcd, so that files of other versions work; a warning names it and the one
// that was perhaps meant.
func TestConfigFile_AnUnknownKeyIsWarnedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "troupe.yaml")
	if err := os.WriteFile(path, []byte("heartbeat-intervall: 100\nname: m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"--config-file", path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	warned := strings.Join(o.warnings, "\n")
	for _, want := range []string{path + ": the unknown key heartbeat-intervall=100", "did you mean heartbeat-interval?"} {
		if !strings.Contains(warned, want) {
			t.Errorf("%q is not in the warnings %q", want, warned)
		}
	}
	if o.node.Name != "m" {
		t.Errorf("the name is %q", o.node.Name)
	}
}

// etcd 3.7 starts with the file of an etcd 3.5, whose experimental keys it does not know, and so must troupe: a new
// version of the program under an old manifest is not a wrong manifest. A warning names the key and what it is today.
func TestConfigFile_ExperimentalKeysAreIgnoredAndSaidWhatTheyAreToday(t *testing.T) {
	o, err := fromFile(t, `
name: m1
experimental-watch-progress-notify-interval: 5s
experimental-initial-corrupt-check: true
experimental-peer-magic: {a: 1}
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	warned := strings.Join(o.warnings, "\n")
	for _, want := range []string{
		"experimental-watch-progress-notify-interval=5s is ignored, as by etcd: since etcd 3.6 it is " +
			"watch-progress-notify-interval: ...",
		"experimental-initial-corrupt-check=true is ignored, as by etcd: since etcd 3.6 it is " +
			"feature-gates: InitialCorruptCheck=true",
		"experimental-peer-magic=map[a:1] is ignored, as by etcd: etcd 3.7 has nothing experimental-*",
	} {
		if !strings.Contains(warned, want) {
			t.Errorf("%q is not in the warnings\n%s", want, warned)
		}
	}
	standard := defaultOptions()
	if o.node.Name != "m1" || o.node.WatchProgressInterval != standard.node.WatchProgressInterval {
		t.Errorf("read %+v", o.node)
	}
}

// In a section that protects, an unknown key is refused, an old one too: the wish for protection must not be lost.
func TestConfigFile_ExperimentalKeysInSectionsAreRefused(t *testing.T) {
	_, err := fromFile(t, "peer-transport-security: {experimental-cert-file: x}\n", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "unknown key experimental-cert-file=x") {
		t.Errorf("error %v", err)
	}
}
