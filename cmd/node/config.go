package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Config is everything a member is started with. The zero value is not usable: begin with Default. Field names follow
// etcd's flags; `cmd/troupe` fills them from flags, environment and file.
type Config struct {
	// Name is the member's human name; it must have an entry in InitialCluster.
	Name string
	// DataDir holds member/snap and member/wal; empty means "<name>.etcd" in the working directory, as etcd has it.
	DataDir string
	// WALDir moves the log; empty means <data-dir>/member/wal.
	WALDir string

	// ListenClientURLs and ListenPeerURLs are where the member listens: http or unix, with an IP or localhost.
	ListenClientURLs []url.URL
	ListenPeerURLs   []url.URL
	// ListenClientHTTPURLs take everything but gRPC from ListenClientURLs; when there are none, those serve both.
	ListenClientHTTPURLs []url.URL
	// ListenMetricsURLs are further listeners that serve /metrics and the health paths only.
	ListenMetricsURLs []url.URL
	// ListenDebugURLs are listeners that take the debug pages, pprof and the Introspect service; when there are none,
	// the client URLs serve them. Debug pages show keys, so these URLs should be private.
	ListenDebugURLs []url.URL
	// ReusePort and ReuseAddress set SO_REUSEPORT and SO_REUSEADDR on every listener.
	ReusePort, ReuseAddress bool
	// AdvertiseClientURLs and AdvertisePeerURLs are what the member tells others.
	AdvertiseClientURLs []url.URL
	AdvertisePeerURLs   []url.URL

	// InitialCluster is "name=url,name=url"; used on the first start only.
	InitialCluster string
	// InitialClusterState is "new" or "existing".
	InitialClusterState string
	// InitialClusterToken is part of the cluster id.
	InitialClusterToken string

	// ForceNewCluster makes this member the only one of its cluster, whatever the others think.
	ForceNewCluster bool

	// Heartbeat is the tick of raft; Election is the election timeout, at least five heartbeats and below 50 s.
	Heartbeat time.Duration
	Election  time.Duration
	// ElectionTickAdvance makes the only voter a candidate at once after a start; without it an election timeout passes.
	ElectionTickAdvance bool
	// PreVote asks before an election whether it could be won.
	PreVote bool
	// MaxLearners is how many learners the cluster may have; read at apply, so equal on all members.
	MaxLearners int
	// StrictReconfigCheck refuses changes of the members that could cost the quorum.
	StrictReconfigCheck bool
	// SnapshotCount is how many applied entries lie between two snapshots on disk; CatchUpEntries is how many entries are
	// kept in memory behind the applied index for slow members.
	SnapshotCount  uint64
	CatchUpEntries uint64
	// MaxWALs and MaxSnapshots bound the files kept; 0 keeps all.
	MaxWALs      int
	MaxSnapshots int

	// DowngradeCheckTime is how often the end of a downgrade is looked for.
	DowngradeCheckTime time.Duration

	// QuotaBytes bounds the database file: 0 means the default of 2 GiB, negative means no bound.
	QuotaBytes int64
	// QuotaAutoDisarm ends this member's NOSPACE alarm when there is space again, unless it was raised by hand.
	QuotaAutoDisarm bool
	// AutoCompactionMode is "periodic" or "revision"; AutoCompactionRetention is what to keep, as the flag spells it.
	AutoCompactionMode      string
	AutoCompactionRetention string
	// BootstrapDefragMegabytes is how many MiB a defragmentation must give back for one to be made at start; 0: none is.
	BootstrapDefragMegabytes uint
	// BatchInterval and BatchLimit say how long, and for how many writes, the file may lag behind the log.
	BatchInterval time.Duration
	BatchLimit    int
	// FreelistType is how bbolt keeps the free pages in memory: "map" or "array".
	FreelistType string
	// MemoryLock keeps the pages of the database file in RAM.
	MemoryLock bool
	// CompactionBatchLimit is how many revisions one step of a compaction deletes; CompactionSleep is the pause between.
	CompactionBatchLimit int
	CompactionSleep      time.Duration
	// UnsafeNoFsync skips every fsync. Only for tests: a crash loses acknowledged writes.
	UnsafeNoFsync bool

	// MaxTxnOps bounds the operations of one transaction; MaxRequestBytes bounds one encoded request.
	MaxTxnOps       int
	MaxRequestBytes int
	// MaxConcurrentStreams bounds the streams of one client connection.
	MaxConcurrentStreams uint32
	// KeepaliveMinTime is the shortest interval at which a client may ping; the other two are the server's own pings.
	KeepaliveMinTime  time.Duration
	KeepaliveInterval time.Duration
	KeepaliveTimeout  time.Duration
	// WatchProgressInterval is the period of progress notifications.
	WatchProgressInterval time.Duration
	// WarningUnaryDuration is the age from which a unary request is explained in the log; WarningApplyDuration is the
	// same for applying.
	WarningUnaryDuration time.Duration
	WarningApplyDuration time.Duration
	// ExtensiveMetrics adds the latency histogram of every RPC.
	ExtensiveMetrics bool
	// EnablePprof serves /debug/pprof, where the debug pages are.
	EnablePprof bool
	// EnableGRPCGateway serves the API as JSON over HTTP too.
	EnableGRPCGateway bool
	// HostWhitelist are the names in Host headers that plain HTTP answers, and CORS the origins whose pages browsers let
	// read the answers; "*" in a list allows all.
	HostWhitelist, CORS []string

	// Waiting is for features that this version does not have.
	Waiting WaitingConfig

	// Features are the feature gates that were decided, by name, for /metrics; the others have their default.
	Features map[string]bool
	// LeaseCheckpoint stores from time to time how much of a lease is left. Only when every member has it.
	LeaseCheckpoint bool
	// WaitOnRenew makes renewals of leases wait until what is committed is applied: FastLeaseKeepAlive turned off.
	WaitOnRenew bool
	// PriorityRequest still takes requests to revoke leases when others are refused because apply is behind.
	PriorityRequest bool
	// StopServingOnDefragment makes the gRPC health service say NOT_SERVING during a defragmentation.
	StopServingOnDefragment bool
}

// WaitingConfig are the settings of features that this version does not have. Nothing reads them yet.
type WaitingConfig struct {
	// BcryptCost and AuthTokenTTL, in seconds, are for authentication.
	BcryptCost, AuthTokenTTL uint
	// SelfSignedCertValidity, in years, is for TLS with certificates of the member's own making.
	SelfSignedCertValidity uint
	// TracingAddress, TracingServiceName, TracingInstanceID and TracingSamplingRate, per million, are for tracing.
	TracingAddress, TracingServiceName, TracingInstanceID string
	TracingSamplingRate                                   int
}

// The defaults are etcd's (reference: etcd 3.7 embed.Config).
const (
	clientURLDefault = "http://localhost:2379"
	peerURLDefault   = "http://localhost:2380"
	nameDefault      = "default"

	heartbeatDefault = 100 * time.Millisecond
	electionDefault  = 1000 * time.Millisecond
	electionMax      = 50 * time.Second

	quotaBytesDefault = 2 << 30

	snapshotCountDefault  = 10_000
	catchUpEntriesDefault = 5_000

	// batchIntervalDefault is five times etcd's: the log has what the file lacks, and each commit of the file costs as
	// much as many puts.
	batchIntervalDefault = 500 * time.Millisecond
	batchLimitDefault    = 10_000

	freelistMap, freelistArray = "map", "array"

	compactionBatchDefault = 1_000
	compactionSleepDefault = 10 * time.Millisecond
)

// Default is the configuration of `troupe` without any flag.
func Default() Config {
	return Config{
		Name:                  nameDefault,
		ListenClientURLs:      mustURLs(clientURLDefault),
		ListenPeerURLs:        mustURLs(peerURLDefault),
		AdvertiseClientURLs:   mustURLs(clientURLDefault),
		AdvertisePeerURLs:     mustURLs(peerURLDefault),
		InitialCluster:        nameDefault + "=" + peerURLDefault,
		InitialClusterState:   "new",
		InitialClusterToken:   "etcd-cluster",
		Heartbeat:             heartbeatDefault,
		Election:              electionDefault,
		ElectionTickAdvance:   true,
		PreVote:               true,
		MaxLearners:           1,
		StrictReconfigCheck:   true,
		FreelistType:          freelistMap,
		SnapshotCount:         snapshotCountDefault,
		CatchUpEntries:        catchUpEntriesDefault,
		MaxWALs:               5,
		MaxSnapshots:          5,
		BatchInterval:         batchIntervalDefault,
		BatchLimit:            batchLimitDefault,
		CompactionBatchLimit:  compactionBatchDefault,
		CompactionSleep:       compactionSleepDefault,
		MaxTxnOps:             128,
		MaxRequestBytes:       1_572_864,
		MaxConcurrentStreams:  1<<32 - 1,
		KeepaliveMinTime:      5 * time.Second,
		KeepaliveInterval:     2 * time.Hour,
		KeepaliveTimeout:      20 * time.Second,
		WatchProgressInterval: 10 * time.Minute,
		WarningUnaryDuration:  300 * time.Millisecond,
		WarningApplyDuration:  100 * time.Millisecond,
		DowngradeCheckTime:    5 * time.Second,
		Waiting: WaitingConfig{
			BcryptCost: 10, AuthTokenTTL: 300, SelfSignedCertValidity: 1,
			TracingAddress: "localhost:4317", TracingServiceName: "etcd",
		},
		EnableGRPCGateway: true,
		HostWhitelist:     []string{"*"},
		CORS:              []string{"*"},

		AutoCompactionMode:      compactionPeriodic,
		AutoCompactionRetention: "0",
	}
}

// quota is the effective quota in bytes; negative when there is none.
func (c *Config) quota() int64 {
	if c.QuotaBytes == 0 {
		return quotaBytesDefault
	}
	return c.QuotaBytes
}

// requestTimeout is how long a proposal or a linearizable read may take: five seconds and two election timeouts.
func (c *Config) requestTimeout() time.Duration { return 5*time.Second + 2*c.Election }

// electionTicks is the election timeout in heartbeats.
func (c *Config) electionTicks() int { return int(c.Election / c.Heartbeat) }

// leaseTTLMin is the shortest time to live a lease may have, in whole seconds: one and a half election timeouts,
// rounded up. It is read at apply, so every member of a cluster must run with the same timing.
func (c *Config) leaseTTLMin() int64 {
	ticks := 3 * c.electionTicks() / 2
	return int64((time.Duration(ticks)*c.Heartbeat + time.Second - 1) / time.Second)
}

// Validate reports the first thing that is wrong, with the flag that sets it and what to do. It does not look at what
// counts for a new member only: whether this is one shows in the data directory.
func (c *Config) Validate() error {
	switch {
	case c.Name == "":
		return errors.New("--name is empty: give the member a name")
	case c.Heartbeat <= 0:
		return fmt.Errorf("--heartbeat-interval must be >0 (set to %dms)", c.Heartbeat.Milliseconds())
	case c.Election <= 0:
		return fmt.Errorf("--election-timeout must be >0 (set to %dms)", c.Election.Milliseconds())
	case 5*c.Heartbeat > c.Election:
		return fmt.Errorf("--election-timeout[%vms] should be at least as 5 times as --heartbeat-interval[%vms]",
			c.Election.Milliseconds(), c.Heartbeat.Milliseconds())
	case c.Election > electionMax:
		return fmt.Errorf("--election-timeout[%vms] is too long, and should be set less than 50000ms",
			c.Election.Milliseconds())
	case c.InitialClusterState != "new" && c.InitialClusterState != "existing":
		return fmt.Errorf("unexpected clusterState %q: --initial-cluster-state is new or existing",
			c.InitialClusterState)
	}
	_, err := c.retention()
	return errors.Join(err, c.validateLimits(), c.validateURLs())
}

func (c *Config) validateLimits() error {
	positive := []struct {
		flag  string
		value int64
	}{
		{"--max-txn-ops", int64(c.MaxTxnOps)},
		{"--max-request-bytes", int64(c.MaxRequestBytes)},
		{"--max-concurrent-streams", int64(c.MaxConcurrentStreams)},
		{"--compaction-batch-limit", int64(c.CompactionBatchLimit)},
		{"--backend-batch-limit", int64(c.BatchLimit)},
		{"--backend-batch-interval", int64(c.BatchInterval)},
		{"--watch-progress-notify-interval", int64(c.WatchProgressInterval)},
	}
	for _, p := range positive {
		if p.value <= 0 {
			return fmt.Errorf("%s must be >0 (set to %d)", p.flag, p.value)
		}
	}
	durations := []struct {
		flag  string
		value time.Duration
	}{
		{"--compaction-sleep-interval", c.CompactionSleep},
		{"--warning-unary-request-duration", c.WarningUnaryDuration},
		{"--warning-apply-duration", c.WarningApplyDuration},
		{"--downgrade-check-time", c.DowngradeCheckTime},
		{"--grpc-keepalive-min-time", c.KeepaliveMinTime},
		{"--grpc-keepalive-interval", c.KeepaliveInterval},
		{"--grpc-keepalive-timeout", c.KeepaliveTimeout},
	}
	for _, d := range durations {
		if d.value < 0 {
			return fmt.Errorf("%s must not be negative (set to %s)", d.flag, d.value)
		}
	}
	switch {
	case c.MaxWALs < 0 || c.MaxSnapshots < 0:
		return fmt.Errorf("--max-wals and --max-snapshots must not be negative (set to %d and %d)",
			c.MaxWALs, c.MaxSnapshots)
	case c.MaxLearners < 0:
		return fmt.Errorf("--max-learners must not be negative (set to %d)", c.MaxLearners)
	case c.FreelistType != freelistMap && c.FreelistType != freelistArray:
		return fmt.Errorf("--backend-bbolt-freelist-type=%q: must be %s or %s", c.FreelistType, freelistMap, freelistArray)
	}
	return nil
}

func (c *Config) validateURLs() error {
	if len(c.ListenClientURLs) == 0 || len(c.ListenPeerURLs) == 0 {
		return errors.New("--listen-client-urls and --listen-peer-urls must each name at least one URL")
	}
	if len(c.AdvertiseClientURLs) == 0 {
		return errors.New("--advertise-client-urls is required when --listen-client-urls is set explicitly")
	}
	for _, u := range slices.Concat(c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenPeerURLs, c.ListenMetricsURLs,
		c.ListenDebugURLs) {
		if err := checkListenURL(u); err != nil {
			return err
		}
	}
	for _, u := range c.ListenClientHTTPURLs {
		if slices.Contains(c.ListenClientURLs, u) {
			return fmt.Errorf("cannot bind both --listen-client-urls and --listen-client-http-urls on the same url %s: "+
				"give them different ports", u.String())
		}
	}
	return nil
}

// checkName refuses a new member that --initial-cluster does not name. A member that has been in a cluster before is
// not asked: --initial-cluster does not count for it.
func (c *Config) checkName() error {
	members, err := ParseCluster(c.InitialCluster)
	if err != nil {
		return err
	}
	if _, ok := members[c.Name]; !ok {
		return fmt.Errorf("couldn't find local name %q in the initial cluster configuration: --name must be one of the "+
			"names in --initial-cluster (%s)", c.Name, c.InitialCluster)
	}
	owners := map[string]string{}
	for name, urls := range members {
		for _, u := range urls {
			if other, taken := owners[u]; taken && other != name {
				return fmt.Errorf("initial cluster %s has duplicate url: %s is that of %s and of %s", c.InitialCluster, u,
					min(name, other), max(name, other))
			}
			owners[u] = name
		}
	}
	return nil
}

// checkListenURL refuses what one cannot bind to.
func checkListenURL(u url.URL) error {
	switch u.Scheme {
	case "unix":
		return nil
	case "http":
	case "https", "unixs":
		return fmt.Errorf("listen URL %q: TLS is not part of this version of troupe; use http or unix", u.String())
	default:
		return fmt.Errorf("listen URL %q: the scheme must be http or unix", u.String())
	}
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil {
		return fmt.Errorf("listen URL %q: %w", u.String(), err)
	}
	if host != "localhost" && host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("expected IP in URL for binding (%s)", u.String())
	}
	return nil
}

// ParseCluster reads "name=url,name=url"; a name may be given several times, once for each of its URLs.
func ParseCluster(s string) (map[string][]string, error) {
	members := map[string][]string{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, address, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("error setting up initial cluster: %q is not name=url (--initial-cluster)", part)
		}
		if _, err := ParseURLs(address); err != nil {
			return nil, fmt.Errorf("error setting up initial cluster: %w (--initial-cluster)", err)
		}
		members[name] = append(members[name], address)
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("--initial-cluster %q names no member: give name=peer-url", s)
	}
	return members, nil
}

// ParseURLs reads a comma-separated list of URLs and says which one is wrong. An empty list gives nil.
func ParseURLs(s string) ([]url.URL, error) {
	var urls []url.URL
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		u, err := url.Parse(part)
		if err != nil {
			return nil, fmt.Errorf("URL %q: %w", part, err)
		}
		if err := checkURLForm(u); err != nil {
			return nil, err
		}
		urls = append(urls, *u)
	}
	return urls, nil
}

func checkURLForm(u *url.URL) error {
	switch u.Scheme {
	case "http", "https":
		if _, _, err := net.SplitHostPort(u.Host); err != nil {
			return fmt.Errorf("URL address does not have the form \"host:port\": %s", u.String())
		}
		if u.Path != "" && u.Path != "/" {
			return fmt.Errorf("URL must not contain a path: %s", u.String())
		}
	case "unix", "unixs":
	default:
		return fmt.Errorf("URL scheme must be http, https, unix, or unixs: %s", u.String())
	}
	return nil
}

func mustURLs(s string) []url.URL {
	urls, err := ParseURLs(s)
	if err != nil {
		panic(err)
	}
	return urls
}

// URLStrings is the inverse of ParseURLs, one string for each URL.
func URLStrings(urls []url.URL) []string {
	out := make([]string, len(urls))
	for i := range urls {
		out[i] = urls[i].String()
	}
	return out
}

// dataDir is where the member's files are.
func (c *Config) dataDir() string {
	if c.DataDir != "" {
		return c.DataDir
	}
	return c.Name + ".etcd"
}

// hostIsDefault reports whether neither names nor URLs of the cluster were chosen, so that InitialCluster follows Name.
func (c *Config) hostIsDefault() bool {
	return c.InitialCluster == nameDefault+"="+peerURLDefault
}

// Complete fills what follows from other fields: the initial cluster from the name and the advertised peer URLs.
func (c *Config) Complete() {
	if c.hostIsDefault() && (c.Name != nameDefault || len(c.AdvertisePeerURLs) > 0) {
		var parts []string
		for _, u := range URLStrings(c.AdvertisePeerURLs) {
			parts = append(parts, c.Name+"="+u)
		}
		c.InitialCluster = strings.Join(parts, ",")
	}
}

// ensureDir makes a directory that only its owner may read.
func ensureDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("data directory %s: %w", path, err)
	}
	return nil
}
