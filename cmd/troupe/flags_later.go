package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// laterFlags are etcd's flags whose feature is not in this version, with the value that asks for nothing. Given with
// that value they are accepted, so that manifests which spell out defaults work; with another value the process refuses
// to start, because silently ignoring, say, a certificate would be worse than not starting.
var laterFlags = map[string]string{
	"discovery-endpoints":                "",
	"discovery-token":                    "",
	"discovery-srv":                      "",
	"discovery-srv-name":                 "",
	"discovery-dial-timeout":             "2s",
	"discovery-request-timeout":          "5s",
	"discovery-keepalive-time":           "2s",
	"discovery-keepalive-timeout":        "6s",
	"discovery-insecure-transport":       "true",
	"discovery-insecure-skip-tls-verify": "false",
	"discovery-cert":                     "",
	"discovery-key":                      "",
	"discovery-cacert":                   "",
	"discovery-user":                     "",
	"discovery-password":                 "",
	"cert-file":                          "",
	"key-file":                           "",
	"trusted-ca-file":                    "",
	"client-cert-auth":                   "false",
	"client-cert-file":                   "",
	"client-key-file":                    "",
	"client-crl-file":                    "",
	"client-cert-allowed-hostname":       "",
	"auto-tls":                           "false",
	"peer-cert-file":                     "",
	"peer-key-file":                      "",
	"peer-trusted-ca-file":               "",
	"peer-client-cert-auth":              "false",
	"peer-client-cert-file":              "",
	"peer-client-key-file":               "",
	"peer-cert-allowed-cn":               "",
	"peer-cert-allowed-hostname":         "",
	"peer-auto-tls":                      "false",
	"peer-crl-file":                      "",
	"peer-skip-client-san-verification":  "false",
	"cipher-suites":                      "",
	"tls-min-version":                    "TLS1.2",
	"tls-max-version":                    "",
	"auth-token":                         "simple",
	"enable-distributed-tracing":         "false",
}

// notProvided are flags of etcd that this program does not take and will not, with the reason.
var notProvided = map[string]string{
	"discovery":       "v2 discovery is gone from etcd 3.7 too; name the members with --initial-cluster",
	"discovery-proxy": "v2 discovery is gone from etcd 3.7 too; name the members with --initial-cluster",
	"enable-v2":       "the v2 API is gone since etcd 3.6; leave it out",
	"proxy":           "the v2 proxy is gone since etcd 3.6; leave it out",
}

// ignoredFlags are those that etcd still reads, for old command lines, and does nothing with.
var ignoredFlags = []string{
	"cluster-active-size", "cluster-remove-delay", "cluster-sync-interval", "config", "force", "max-result-buffer",
	"max-retry-attempts", "peer-heartbeat-interval", "peer-election-timeout", "retry-interval", "snapshot", "v", "vv",
	"test.coverprofile", "test.outputdir",
}

// ignoredKeys are further keys of old configuration files, which etcd skips like every key it does not know.
var ignoredKeys = []string{
	"discovery", "discovery-proxy", "proxy", "proxy-failure-wait", "proxy-refresh-interval", "proxy-dial-timeout",
	"proxy-write-timeout", "proxy-read-timeout", "enable-v2", "debug", "log-package-levels",
}

// ignoredValue is a flag of ignoredFlags. Its value is optional.
type ignoredValue struct{}

func (ignoredValue) String() string   { return "" }
func (ignoredValue) Set(string) error { return nil }
func (ignoredValue) IsBoolFlag() bool { return true }

// acceptOthers declares the flags of etcd that this version knows by name only.
func acceptOthers(fs *flag.FlagSet) {
	for name, neutral := range laterFlags {
		fs.Var(laterValue{name, neutral}, name, "")
	}
	for _, name := range ignoredFlags {
		fs.Var(ignoredValue{}, name, "")
	}
}

// kind tells what sort of value a configuration file has for the flag.
func (v laterValue) kind() valueKind {
	switch {
	case laterBoolean(v.name):
		return kindBool
	case strings.Trim(v.neutral, "0123456789") == "" && v.neutral != "":
		return kindNumber
	case isDurationText(v.neutral):
		return kindDuration
	}
	return kindString
}

func isDurationText(s string) bool {
	_, err := time.ParseDuration(s)
	return err == nil
}

func sameDuration(a, b string) bool {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	return errX == nil && errY == nil && x == y
}

// laterBoolean reports whether a flag among laterFlags may stand without a value.
func laterBoolean(name string) bool {
	v := laterFlags[name]
	return v == "true" || v == "false"
}

// laterValue is a flag that is accepted with its neutral value only.
type laterValue struct {
	name    string
	neutral string
}

func (v laterValue) String() string   { return v.neutral }
func (v laterValue) IsBoolFlag() bool { return laterBoolean(v.name) }

func (v laterValue) Set(s string) error {
	if s == v.neutral || sameDuration(s, v.neutral) || s == "" && v.kind() == kindString {
		return nil // an empty word asks for etcd's default
	}
	return fmt.Errorf("etcd knows --%s, but this version of troupe does not have what it asks for yet; "+
		"leave it out or give %q", v.name, v.neutral)
}
