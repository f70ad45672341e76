package flags

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

const limit = 30 * time.Second

// What troupe says about a flag of etcd.
const (
	implemented = "implemented"
	later       = "later"
	notProvided = "not provided"
)

// help is a help text: for each flag its default and, in troupe's, the part in which it is.
type help map[string]struct{ value, status string }

var helpLine = regexp.MustCompile(`^  --([a-z0-9-]+)(?: (.*))?$`)

func helpOf(t *testing.T, kind harness.Kind) help {
	t.Helper()
	out := harness.Program(t, kind, nil, "--help")
	if out.Code != 0 {
		t.Fatalf("%s --help: code %d", kind, out.Code)
	}
	flags, status := help{}, implemented
	for line := range strings.SplitSeq(out.Stdout+out.Stderr, "\n") {
		switch {
		case strings.HasPrefix(line, "Not in this version yet"):
			status = later
		case strings.HasPrefix(line, "Not provided"):
			status = notProvided
		case strings.HasPrefix(line, "Taken and ignored"):
			return flags
		}
		if m := helpLine.FindStringSubmatch(line); m != nil {
			flags[m[1]] = struct{ value, status string }{strings.Trim(m[2], "'"), status}
		}
	}
	return flags
}

// sameDefault compares two defaults as they mean the same: 2h is 2h0m0s.
func sameDefault(a, b string) bool {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	return a == b || errX == nil && errY == nil && x == y
}

// defaultsSpeltOtherwise are defaults that the two help texts put in other words, with the reason.
var defaultsSpeltOtherwise = map[string]string{
	"data-dir":                       "${name}.etcd is what an empty value means",
	"max-concurrent-streams":         "math.MaxUint32 is 4294967295",
	"compaction-batch-limit":         "etcd shows 1000 and has 0, which means 1000",
	"watch-progress-notify-interval": "etcd shows 10m and has 0, which means 10m",
}

// Every flag in etcd's help is implemented, or refused with anything but its default, or not provided with a reason. A
// flag that a new etcd has and nobody has thought about fails here.
func TestFlags_EveryFlagOfEtcdIsAccountedFor(t *testing.T) {
	harness.TroupeOnly(t, "the test compares two help texts")
	etcd, troupe := helpOf(t, harness.Etcd), helpOf(t, harness.Troupe)
	if len(etcd) < 100 {
		t.Fatalf("only %d flags are in etcd's help", len(etcd))
	}
	var names []string
	for name := range etcd {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		ours, known := troupe[name]
		if !known {
			t.Errorf("--%s of etcd is not accounted for", name)
			continue
		}
		t.Logf("%-14s --%s %s", ours.status, name, ours.value)
		theirs := etcd[name].value
		comparable := ours.status != notProvided && theirs != "" && defaultsSpeltOtherwise[name] == ""
		if comparable && !sameDefault(ours.value, theirs) {
			t.Errorf("--%s: the default is %q, etcd's %q", name, ours.value, theirs)
		}
	}
	for name := range defaultsSpeltOtherwise {
		if etcd[name].value == "" || sameDefault(troupe[name].value, etcd[name].value) {
			t.Errorf("--%s is excepted in vain", name)
		}
	}
}

// A flag whose feature is not there must not be taken in silence. (Each flag is tried in cmd/troupe.)
func TestFlags_WhatIsNotThereIsRefusedWithTheReason(t *testing.T) {
	harness.TroupeOnly(t, "etcd has it")
	for want, args := range map[string][][]string{
		"leave it out":     {{"--cert-file=x"}, {"--auto-tls"}, {"--discovery-token", "x"}},
		"is not provided:": {{"--discovery=x"}, {"--enable-v2"}, {"gateway", "start"}, {"grpc-proxy", "start"}},
	} {
		for _, a := range args {
			if out := harness.Program(t, harness.Troupe, nil, a...); out.Code != 2 || !strings.Contains(out.Stderr, want) {
				t.Errorf("%q: code %d: %s", a, out.Code, out.Stderr)
			}
		}
	}
}
