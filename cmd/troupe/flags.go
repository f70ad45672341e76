package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"troupe/cmd/node"
)

// flagGroup is a part of the command line, as --help shows it.
type flagGroup struct {
	title   string
	declare func(*flag.FlagSet, *options)
}

// flagGroups are all flags of this version. Names, defaults and spellings (`-f`, `--f`, `--f=v`, `--f v`) are etcd's;
// what etcd has and this version has not is in flags_later.go.
var flagGroups = []flagGroup{
	{"Member", memberFlags},
	{"Cluster", clusterFlags},
	{"Storage", storageFlags},
	{"Requests and clients", limitFlags},
	{"Plain HTTP", httpFlags},
	{"Monitoring", monitoringFlags},
	{"Logging", loggingFlags},
	{"Features", featureFlags},
	{"Among several members (checked; without effect while there is one)", aloneFlags},
	{"For authentication, TLS and tracing (checked and kept; without effect in this version)", declareWaiting},
	{"Unsafe: these can cost data", unsafeFlags},
	{"Process", processFlags},
}

// newFlagSet declares the flags of this version.
func newFlagSet(o *options) *flag.FlagSet {
	fs := flag.NewFlagSet("troupe", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, g := range flagGroups {
		g.declare(fs, o)
	}
	return fs
}

func memberFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.StringVar(&c.Name, "name", c.Name, "Human-readable name of this member.")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "Path to the data directory; empty means ${name}.etcd.")
	fs.StringVar(&c.WALDir, "wal-dir", c.WALDir, "Path to a directory of its own for the write-ahead log.")
	fs.Var(urlsValue{&c.ListenPeerURLs}, "listen-peer-urls", "URLs to listen on for peer traffic.")
	fs.Var(urlsValue{&c.ListenClientURLs}, "listen-client-urls", "URLs to listen on for client traffic.")
	fs.Var(urlsValue{&c.ListenClientHTTPURLs}, "listen-client-http-urls",
		"URLs that take everything but gRPC from the client URLs.")
	fs.Var(urlsValue{&c.ListenMetricsURLs}, "listen-metrics-urls", "Further URLs that serve metrics and health only.")
	fs.Var(urlsValue{&c.ListenDebugURLs}, "debug-listen-urls",
		"URLs that take the debug pages, pprof and Introspect from the client URLs; they show keys: keep them private.")
	fs.BoolVar(&c.ReusePort, "socket-reuse-port", c.ReusePort, "Set SO_REUSEPORT, so that a port in use can be bound.")
	fs.BoolVar(&c.ReuseAddress, "socket-reuse-address", c.ReuseAddress,
		"Set SO_REUSEADDR, so that an address in TIME_WAIT can be bound.")
}

func clusterFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.Var(urlsValue{&c.AdvertisePeerURLs}, "initial-advertise-peer-urls", "This member's peer URLs, told to the others.")
	fs.Var(urlsValue{&c.AdvertiseClientURLs}, "advertise-client-urls", "This member's client URLs, told to the others.")
	fs.StringVar(&c.InitialCluster, "initial-cluster", c.InitialCluster, "Members of a new cluster: name=url,name=url.")
	fs.Var(choiceValue{&c.InitialClusterState, []string{"new", "existing"}}, "initial-cluster-state",
		"\"new\" or \"existing\".")
	fs.StringVar(&c.InitialClusterToken, "initial-cluster-token", c.InitialClusterToken, "Token of a new cluster.")
	fs.Var(millisValue{&c.Heartbeat}, "heartbeat-interval", "Time of a heartbeat interval, in milliseconds.")
	fs.Var(millisValue{&c.Election}, "election-timeout", "Time for an election to time out, in milliseconds.")
	fs.BoolVar(&c.ElectionTickAdvance, "initial-election-tick-advance", c.ElectionTickAdvance,
		"Stand for election at once after a start, instead of after an election timeout.")
	fs.BoolVar(&c.PreVote, "pre-vote", c.PreVote, "Ask before an election whether it could be won.")
	fs.BoolVar(&c.StrictReconfigCheck, "strict-reconfig-check", c.StrictReconfigCheck,
		"Refuse changes of the members that could cost the quorum.")
	fs.DurationVar(&c.DowngradeCheckTime, "downgrade-check-time", c.DowngradeCheckTime,
		"How often the leader looks whether a downgrade is over, because all members run its target version.")
	fs.IntVar(&c.MaxLearners, "max-learners", c.MaxLearners, "Learners permitted in the cluster.")
}

func storageFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.Uint64Var(&c.SnapshotCount, "snapshot-count", c.SnapshotCount,
		"Applied entries between two snapshots on disk; 0 means the default.")
	fs.Uint64Var(&c.CatchUpEntries, "snapshot-catchup-entries", c.CatchUpEntries,
		"Entries kept in memory for a slow member after a snapshot.")
	fs.IntVar(&c.MaxWALs, "max-wals", c.MaxWALs, "Log segments to keep; 0 keeps all.")
	fs.IntVar(&c.MaxSnapshots, "max-snapshots", c.MaxSnapshots, "Snapshot files to keep; 0 keeps all (deprecated).")
	fs.Int64Var(&c.QuotaBytes, "quota-backend-bytes", c.QuotaBytes,
		"Bound of the database file; 0 means 2 GiB, negative means none.")
	fs.BoolVar(&c.QuotaAutoDisarm, "quota-auto-disarm", c.QuotaAutoDisarm,
		"End this member's NOSPACE alarm, if the quota raised it or it was there at the start, by itself when the database "+
			"is below 75 % of the quota again, and defragment the file if that is all it takes. Off, or raised by hand: an "+
			"operator disarms it, as with etcd.")
	fs.StringVar(&c.AutoCompactionMode, "auto-compaction-mode", c.AutoCompactionMode,
		"\"periodic\" or \"revision\": what auto-compaction-retention counts.")
	fs.StringVar(&c.AutoCompactionRetention, "auto-compaction-retention", c.AutoCompactionRetention,
		"History to keep: hours, or a duration such as 30m; in revision mode a number of revisions. 0 never compacts.")
	fs.UintVar(&c.BootstrapDefragMegabytes, "bootstrap-defrag-threshold-megabytes", c.BootstrapDefragMegabytes,
		"Defragment at start if that gives back at least so many MiB; 0 never does.")
	fs.DurationVar(&c.BatchInterval, "backend-batch-interval", 0, "How long the file may lag (0 means 500ms).")
	fs.IntVar(&c.BatchLimit, "backend-batch-limit", 0, "For how many writes the file may lag (0 means 10000).")
	fs.StringVar(&c.FreelistType, "backend-bbolt-freelist-type", c.FreelistType,
		"How free pages of the database file are kept in memory: map or array.")
	fs.BoolVar(&c.MemoryLock, "memory-mlock", c.MemoryLock, "Keep the database file's pages in RAM.")
	fs.IntVar(&c.CompactionBatchLimit, "compaction-batch-limit", 0,
		"Revisions deleted in one step of a compaction (0 means 1000).")
	fs.DurationVar(&c.CompactionSleep, "compaction-sleep-interval", 0, "Pause between two steps (0 means 10ms).")
}

func limitFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.IntVar(&c.MaxTxnOps, "max-txn-ops", c.MaxTxnOps, "Operations permitted in one transaction.")
	fs.IntVar(&c.MaxRequestBytes, "max-request-bytes", c.MaxRequestBytes, "Bytes permitted in one encoded request.")
	fs.Var(uint32Value{&c.MaxConcurrentStreams}, "max-concurrent-streams", "Streams permitted on one connection.")
	fs.DurationVar(&c.KeepaliveMinTime, "grpc-keepalive-min-time", c.KeepaliveMinTime,
		"Shortest interval at which a client may ping.")
	fs.DurationVar(&c.KeepaliveInterval, "grpc-keepalive-interval", c.KeepaliveInterval,
		"Interval of the server's own pings (0 means 2h).")
	fs.DurationVar(&c.KeepaliveTimeout, "grpc-keepalive-timeout", c.KeepaliveTimeout,
		"Time after which an unanswered ping closes the connection (0 means 20s).")
	fs.DurationVar(&c.WatchProgressInterval, "watch-progress-notify-interval", 0,
		"Period of watch progress notifications (0 means 10m).")
}

func monitoringFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.StringVar(&o.metrics, "metrics", o.metrics, "\"basic\", or \"extensive\" for latency histograms of every RPC.")
	fs.BoolVar(&c.EnablePprof, "enable-pprof", c.EnablePprof, "Serve /debug/pprof where the debug pages are.")
	fs.DurationVar(&c.WarningUnaryDuration, "warning-unary-request-duration", c.WarningUnaryDuration,
		"Age from which a unary request is explained in the log.")
	fs.DurationVar(&c.WarningApplyDuration, "warning-apply-duration", c.WarningApplyDuration,
		"Age from which a slow apply is logged.")
}

func loggingFlags(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.log.logger, "logger", o.log.logger, "Only \"zap\", the form of etcd's log lines.")
	fs.StringVar(&o.log.outputs, "log-outputs", o.log.outputs,
		"default (stderr) alone, or stderr, stdout, systemd/journal and file paths, comma-separated.")
	fs.StringVar(&o.log.level, "log-level", o.log.level, "debug, info, warn, error, panic or fatal.")
	fs.StringVar(&o.log.format, "log-format", o.log.format, "json or console.")
	fs.BoolVar(&o.log.rotate, "enable-log-rotation", o.log.rotate, "Rotate the one file among --log-outputs.")
	fs.StringVar(&o.log.rotation, "log-rotation-config-json", o.log.rotation,
		"How to rotate: maxsize in MB, maxage in days, maxbackups in files (0: no bound), localtime, compress.")
}

func featureFlags(fs *flag.FlagSet, o *options) {
	fs.Var(&o.gates, "feature-gates", o.gates.help())
}

func unsafeFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.BoolVar(&c.ForceNewCluster, "force-new-cluster", c.ForceNewCluster,
		"Make this member a cluster of its own, when the others are lost for good: they must never run again.")
	fs.BoolVar(&c.UnsafeNoFsync, "unsafe-no-fsync", c.UnsafeNoFsync,
		"Skip every fsync. A crash loses acknowledged writes: for tests only.")
}

func httpFlags(fs *flag.FlagSet, o *options) {
	c := &o.node
	fs.BoolVar(&c.EnableGRPCGateway, "enable-grpc-gateway", c.EnableGRPCGateway, "Serve the API as JSON over HTTP.")
	fs.Var(originsValue{&c.CORS}, "cors", "Origins whose pages browsers let read answers over HTTP; \"*\" is all.")
	fs.Var(wordsValue{&c.HostWhitelist}, "host-whitelist", "Host names that plain HTTP answers; \"*\" is all.")
}

func processFlags(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.configFile, "config-file", "", "YAML or JSON file; all other flags and ETCD_* are then ignored.")
	fs.BoolVar(&o.version, "version", false, "Print the version and exit.")
}

// urlsValue is a comma-separated list of URLs; the last one given counts.
type urlsValue struct{ urls *[]url.URL }

func (v urlsValue) Set(s string) error {
	urls, err := node.ParseURLs(s)
	if err != nil {
		return err
	}
	*v.urls = urls
	return nil
}

func (v urlsValue) String() string {
	if v.urls == nil {
		return ""
	}
	return strings.Join(node.URLStrings(*v.urls), ",")
}

// choiceValue is one of some words.
type choiceValue struct {
	word  *string
	words []string
}

func (v choiceValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("invalid value %q: it is one of %s", s, strings.Join(v.words, ", "))
	}
	*v.word = s
	return nil
}

func (v choiceValue) String() string {
	if v.word == nil {
		return ""
	}
	return *v.word
}

// millisValue is a whole number of milliseconds.
type millisValue struct{ d *time.Duration }

func (millisValue) kind() valueKind { return kindNumber }

func (v millisValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return errors.New("parse error: it takes a whole number of milliseconds")
	}
	*v.d = time.Duration(n) * time.Millisecond
	return nil
}

func (v millisValue) String() string {
	if v.d == nil {
		return ""
	}
	return strconv.FormatInt(v.d.Milliseconds(), 10)
}

// uint32Value is an unsigned number of 32 bits.
type uint32Value struct{ n *uint32 }

func (uint32Value) kind() valueKind { return kindNumber }

func (v uint32Value) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return fmt.Errorf("%w: it takes a number from 0 to 4294967295", err)
	}
	*v.n = uint32(n)
	return nil
}

func (v uint32Value) String() string {
	if v.n == nil {
		return ""
	}
	return strconv.FormatUint(uint64(*v.n), 10)
}

// oneOf refuses a word that is not in the list, and names the list.
func oneOf(flagName, word string, words []string) error {
	if slices.Contains(words, word) {
		return nil
	}
	return fmt.Errorf("--%s=%q: must be one of %s", flagName, word, strings.Join(words, ", "))
}
