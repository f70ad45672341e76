package node

import (
	"net"
	"net/url"
	"runtime"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// Values from which a start warns. They are etcd's where etcd has any.
const (
	requestBytesRecommended = 10 << 20
	// batchIntervalRecommended is how far the file may lag before a start takes long to catch up.
	batchIntervalRecommended = 10 * time.Second
)

// logConfiguration writes the start-up line, with the flags' names as keys, and what of it is dangerous.
func logConfiguration(log zerolog.Logger, c *Config) {
	log.Info().Str("troupe-version", Version).Str("etcd-version", CompatibleVersion).Str("go-version", runtime.Version()).
		Int("processors", runtime.NumCPU()).
		Str("name", c.Name).Str("data-dir", c.dataDir()).Str("wal-dir", walDirOf(c)).
		Strs("listen-client-urls", URLStrings(c.ListenClientURLs)).
		Strs("listen-client-http-urls", URLStrings(c.ListenClientHTTPURLs)).
		Strs("listen-peer-urls", URLStrings(c.ListenPeerURLs)).
		Strs("listen-metrics-urls", URLStrings(c.ListenMetricsURLs)).
		Strs("debug-listen-urls", URLStrings(c.ListenDebugURLs)).
		Strs("advertise-client-urls", URLStrings(c.AdvertiseClientURLs)).
		Strs("initial-advertise-peer-urls", URLStrings(c.AdvertisePeerURLs)).
		Str("initial-cluster", c.InitialCluster).Str("initial-cluster-state", c.InitialClusterState).
		Str("initial-cluster-token", c.InitialClusterToken).
		Uint64("snapshot-count", c.SnapshotCount).Uint64("snapshot-catchup-entries", c.CatchUpEntries).
		Int64("heartbeat-interval-ms", c.Heartbeat.Milliseconds()).Int64("election-timeout-ms", c.Election.Milliseconds()).
		Int64("quota-backend-bytes", c.quota()).Int("max-request-bytes", c.MaxRequestBytes).
		Str("auto-compaction-mode", c.AutoCompactionMode).Str("auto-compaction-retention", c.AutoCompactionRetention).
		Int("max-txn-ops", c.MaxTxnOps).Bool("unsafe-no-fsync", c.UnsafeNoFsync).
		Msg("starting a member")
	c.warnOfRetention(log)
	for _, danger := range c.dangers() {
		log.Warn().Msg(danger)
	}
}

// dangers are warnings about values that are permitted and rarely meant, each with what follows from it.
func (c *Config) dangers() []string {
	var all []string
	when := func(condition bool, text string) {
		if condition {
			all = append(all, text)
		}
	}
	when(c.UnsafeNoFsync, "--unsafe-no-fsync: a crash of the machine loses acknowledged writes")
	when(c.ForceNewCluster, "--force-new-cluster: other members of this cluster are removed without their consent, and "+
		"what they alone have is lost; leave it out once the member has started")
	when(c.MaxRequestBytes > requestBytesRecommended, "--max-request-bytes is above what is recommended, 10 MiB: each "+
		"request is held in memory several times, and one that exceeds the bounds of the mailboxes is refused all the same")
	when(c.QuotaBytes < 0, "--quota-backend-bytes is negative: nothing but the disk bounds the database")
	when(c.MaxWALs == 0, "--max-wals is 0: segments of the log are never deleted and fill the disk in time")
	when(c.BatchInterval > batchIntervalRecommended, "--backend-batch-interval is long: a start after a crash applies "+
		"again what the file lacks, and what it lacks is held in memory")
	open := anyURL(c.ListenClientURLs, isOpen)
	when(open || anyURL(c.ListenClientHTTPURLs, isOpen), "client URLs are open to other machines, and this version has "+
		"neither TLS nor authentication: whoever reaches them may read and change everything; keep them on a private network")
	when(anyURL(c.ListenDebugURLs, isOpen),
		"--debug-listen-urls is open to other machines and shows keys: keep it private")
	when(anyURL(c.AdvertiseClientURLs, isUnspecified), "--advertise-client-urls tells clients an address that means "+
		"every address, such as 0.0.0.0: on another machine it leads nowhere; give one that clients can reach")
	when(open && !anyURL(c.AdvertiseClientURLs, isOpen), "client URLs are open to other machines, but "+
		"--advertise-client-urls tells clients addresses of this machine only: clients that ask for the members' "+
		"addresses will not reach it from elsewhere")
	return all
}

func anyURL(urls []url.URL, is func(url.URL) bool) bool { return slices.ContainsFunc(urls, is) }

// isOpen reports whether other machines can reach what is behind the URL.
func isOpen(u url.URL) bool {
	if u.Scheme == "unix" || u.Scheme == "unixs" || u.Hostname() == "localhost" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip == nil || !ip.IsLoopback()
}

// isUnspecified reports whether the URL has an address that only means something to listen on.
func isUnspecified(u url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsUnspecified()
}

// logServing says what is served where, and what state the member is in that an operator should know of.
func logServing(log zerolog.Logger, t *Troupe, sockets *listeners) {
	state := t.Store.State()
	log.Info().Str("local-member-id", t.Meta.Member.String()).Str("cluster-id", t.Meta.Cluster.String()).
		Uint64("raft-term", uint64(t.Raft.Status().Term)).Int64("revision", int64(state.Revision)).
		Int64("compact-revision", int64(state.Compacted)).Int64("db-size-bytes", t.Store.Sizes().Total).
		Msg("ready to serve client requests")
	traffic := "grpc+http"
	if len(sockets.pages) > 0 {
		traffic = "grpc"
	}
	say := func(group []net.Listener, message, traffic string) {
		for _, l := range group {
			line := log.Info().Str("address", l.Addr().String())
			if traffic != "" {
				line = line.Str("traffic", traffic)
			}
			line.Msg(message)
		}
	}
	say(sockets.clients, "serving client traffic", traffic)
	say(sockets.pages, "serving client traffic", "http")
	say(sockets.peers, "serving peer traffic", "")
	say(sockets.metrics, "serving metrics and health", "")
	say(sockets.debug, "serving debug pages; they show keys, so the address should be private", "")
	for _, a := range state.Alarms {
		log.Warn().Str("alarm", a.Type.String()).Stringer("member-id", a.Member).
			Msg("an alarm is raised: until its cause is gone and it is disarmed (etcdctl alarm disarm) writes are refused")
	}
}
