package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"troupe/proto"
	"troupe/raftactor"
	"troupe/raftactor/disk"
	"troupe/storeactor"
)

// files is a member's data directory, opened: the database file with what it holds, and the log with what it holds.
type files struct {
	file      storeactor.File
	restored  *storeactor.Restored
	log       *raftactor.Log
	recovered *raftactor.Recovered // nil when the log was just created
	meta      raftactor.LogMeta
	bootstrap []proto.Member // the members of a new cluster; nil on a restart
	snapDir   string
}

// Paths inside a data directory; they are etcd's.
func snapDirOf(c *Config) string { return filepath.Join(c.dataDir(), "member", "snap") }
func filePathOf(c *Config) string {
	return filepath.Join(snapDirOf(c), "db")
}
func walDirOf(c *Config) string {
	if c.WALDir != "" {
		return c.WALDir
	}
	return filepath.Join(c.dataDir(), "member", "wal")
}

// openFiles opens or makes the data directory. The database file comes first: its lock is what keeps a second process
// out, and a crash between the two leaves an empty file without a log, which is a fresh start again.
func openFiles(cfg *Config, seams Seams) (*files, error) {
	if err := checkCluster(cfg, seams); err != nil {
		return nil, err
	}
	f := &files{snapDir: snapDirOf(cfg)}
	if err := seams.Disk.MakeDir(f.snapDir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", cfg.dataDir(), err)
	}
	var err error
	if f.file, err = seams.OpenFile(filePathOf(cfg)); err != nil {
		return nil, err
	}
	if err := f.openBoth(cfg, seams); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// checkCluster refuses an --initial-cluster that cannot be read, or does not fit a new member, before anything is made
// of it. Where there is a log already it does not count, whatever it says; where there is a database only, something
// else is wrong.
func checkCluster(cfg *Config, seams Seams) error {
	exists, err := raftactor.LogExists(seams.Disk, walDirOf(cfg))
	if err != nil || exists {
		return err
	}
	if _, err := os.Stat(filePathOf(cfg)); err == nil {
		return nil
	}
	return cfg.checkNewMember()
}

// removeLeftovers deletes what a crash has left beside the database file. Only the holder of the file's lock may.
func removeLeftovers(dir string, seams Seams) error {
	removed, err := storeactor.RemoveLeftovers(dir)
	for _, name := range removed {
		seams.Log.Info().Str("directory", dir).Str("file", name).Msg("removed a file that a crash had left half written")
	}
	if err != nil {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	return nil
}

func (f *files) openBoth(cfg *Config, seams Seams) error {
	var err error
	if f.restored, err = storeactor.Restore(f.file, 0); err != nil {
		return err
	}
	if f.restored.AuthEnabled {
		return fmt.Errorf("the data directory %s has authentication enabled, which this version of troupe cannot enforce: "+
			"go on with etcd, or disable authentication there first", cfg.dataDir())
	}
	exists, err := raftactor.LogExists(seams.Disk, walDirOf(cfg))
	if err != nil {
		return err
	}
	if exists {
		f.log, f.recovered, err = raftactor.OpenLogBehind(seams.Disk, walDirOf(cfg), f.restored.Index)
	} else {
		err = f.createLog(cfg, seams)
	}
	if err != nil {
		return describeLogError(err, walDirOf(cfg))
	}
	if exists {
		f.meta = f.recovered.Meta
		if f.recovered.Repaired {
			seams.Log.Warn().Str("directory", walDirOf(cfg)).
				Msg("the end of the log was torn by a crash and has been cut off; nothing acknowledged was in it")
		}
	}
	if err := f.checkOwner(cfg); err != nil {
		return err
	}
	f.logOpened(cfg, seams.Log)
	if err := f.checkAlone(cfg, seams.Log); err != nil {
		return err
	}
	f.restored.Membership.ClusterID = f.meta.Cluster
	if f.bootstrap, err = initialMembers(cfg, f.meta.Member); err != nil && !f.begun() {
		return err
	}
	return nil
}

// checkOwner refuses a database file of another member: the log says who this member is, the file who is in the
// cluster.
func (f *files) checkOwner(cfg *Config) error {
	m := f.restored.Membership
	if len(m.Members) == 0 || m.Member(f.meta.Member) != nil || slices.Contains(m.Removed, f.meta.Member) {
		return nil
	}
	return fmt.Errorf("the log in %s belongs to member %v, which the database %s does not know: one of the two is "+
		"another member's; bring the right one back", walDirOf(cfg), f.meta.Member, filePathOf(cfg))
}

// logOpened writes what a start goes by: how far the file and the log are, and so how much is applied again.
func (f *files) logOpened(cfg *Config, log zerolog.Logger) {
	r := f.recovered
	if r == nil {
		log.Info().Str("data-dir", cfg.dataDir()).Stringer("local-member-id", f.meta.Member).
			Stringer("cluster-id", f.meta.Cluster).Msg("made a new data directory")
		return
	}
	commit := r.HardState.GetCommit()
	log.Info().Str("data-dir", cfg.dataDir()).Stringer("local-member-id", f.meta.Member).
		Stringer("cluster-id", f.meta.Cluster).Uint64("applied-index", uint64(f.restored.Index)).
		Uint64("commit-index", commit).Uint64("entries-to-apply", commit-min(commit, uint64(f.restored.Index))).
		Uint64("snapshot-index", uint64(r.Start.Index)).Int64("db-size-bytes", f.restored.Sizes.Total).
		Int("leases", len(f.restored.Leases)).Msg("opened the data directory")
}

// checkAlone refuses the directory of a member of a cluster in which other voters have started, because this version
// reaches no other member; with --force-new-cluster it makes it the only one. Learners do not matter: nobody waits for
// them. Voters that were added and never started have taken the quorum along; the member waits for it, as etcd does.
func (f *files) checkAlone(cfg *Config, log zerolog.Logger) error {
	if !f.begun() {
		return nil
	}
	if cfg.ForceNewCluster {
		removed, err := raftactor.ForceAlone(f.log, f.recovered, f.restored.Index, f.restored.Membership)
		if err != nil {
			return fmt.Errorf("--force-new-cluster: %w", err)
		}
		if len(removed) > 0 {
			log.Warn().Stringers("removed", stringers(removed)).Stringer("local-member-id", f.meta.Member).
				Msg("--force-new-cluster: the other members are removed without their consent; never start them again on " +
					"their data, and leave the flag out from now on")
		}
		return nil
	}
	members, err := raftactor.CommittedMembers(f.recovered, f.restored.Index, f.restored.Membership)
	if err != nil {
		return err
	}
	learner, known := members[f.meta.Member]
	if len(members) > 1 && (!known || learner) || f.othersStarted(members) {
		return fmt.Errorf("the data directory %s belongs to a member of a cluster of %d, and this version of troupe reaches "+
			"no other member: go on with etcd, or, if the others are lost for good, make it a cluster of its own with "+
			"--force-new-cluster", cfg.dataDir(), len(members))
	}
	voters := 0
	for _, learner := range members {
		if !learner {
			voters++
		}
	}
	if voters > 1 {
		log.Warn().Int("voters", voters).Msg("voters were added that this version of troupe cannot reach: there is no " +
			"quorum, and no request is served; --force-new-cluster makes this member the only one again, with all its data")
	}
	return nil
}

// othersStarted reports whether a voter beside this member has told its name. The log is only read through for that
// when there is one.
func (f *files) othersStarted(members map[proto.MemberID]bool) bool {
	var others []proto.MemberID
	for id, learner := range members {
		if id != f.meta.Member && !learner {
			others = append(others, id)
		}
	}
	if len(others) == 0 {
		return false
	}
	started := raftactor.StartedMembers(f.recovered, f.restored.Index, f.restored.Membership)
	return slices.ContainsFunc(others, func(id proto.MemberID) bool { return started[id] })
}

func stringers[T fmt.Stringer](values []T) []fmt.Stringer {
	out := make([]fmt.Stringer, len(values))
	for i := range values {
		out[i] = values[i]
	}
	return out
}

// begun reports whether the log holds a cluster already, so that --initial-cluster does not count any more.
func (f *files) begun() bool {
	r := f.recovered
	return r != nil && (r.Start.Index > 0 || r.HardState.GetTerm() > 0)
}

func (f *files) createLog(cfg *Config, seams Seams) error {
	if f.restored.Index > 0 {
		return fmt.Errorf("the log directory %s is missing or empty, but the database %s holds index %d: "+
			"bring the log back, or restore from a snapshot", walDirOf(cfg), filePathOf(cfg), f.restored.Index)
	}
	if cfg.InitialClusterState == "existing" {
		return errors.New("--initial-cluster-state=existing: joining a running cluster is not part of this version of " +
			"troupe; start a new one-member cluster with --initial-cluster-state=new")
	}
	members, err := initialMembers(cfg, 0)
	if err != nil {
		return err
	}
	if err := cfg.checkNewMember(); err != nil {
		return err
	}
	if len(members) > 1 {
		return fmt.Errorf("--initial-cluster names %d members: this version of troupe runs one; name only %q",
			len(members), cfg.Name)
	}
	f.meta = raftactor.LogMeta{Member: members[0].ID, Cluster: raftactor.NewClusterID(members)}
	f.log, err = raftactor.CreateLog(seams.Disk, walDirOf(cfg), f.meta)
	return err
}

// checkNewMember refuses what --initial-cluster says of a new member.
func (c *Config) checkNewMember() error {
	if err := c.checkName(); err != nil {
		return err
	}
	return checkAdvertised(c)
}

// checkAdvertised refuses a new member whose entry in --initial-cluster is not what it tells the others, as etcd does:
// its id is made of the one, and others would look for it at the other.
func checkAdvertised(cfg *Config) error {
	cluster, err := ParseCluster(cfg.InitialCluster)
	if err != nil {
		return err
	}
	named, told := cluster[cfg.Name], URLStrings(cfg.AdvertisePeerURLs)
	if slices.Equal(resolved(named), resolved(told)) {
		return nil
	}
	return fmt.Errorf("--initial-cluster has %s=%s but missing from --initial-advertise-peer-urls=%s: give both the same "+
		"URLs", cfg.Name, strings.Join(named, ","), strings.Join(told, ","))
}

// resolved are the URLs in order, with addresses in the place of names that can be resolved.
func resolved(urls []string) []string {
	out := make([]string, len(urls))
	for i, s := range urls {
		out[i] = s
		u, err := url.Parse(s)
		if err != nil || u.Port() == "" {
			continue
		}
		if a, err := net.ResolveTCPAddr("tcp", u.Host); err == nil {
			out[i] = u.Scheme + "://" + a.String()
		}
	}
	slices.Sort(out)
	return out
}

// initialMembers are the members that --initial-cluster names, with the ids that all of them compute. A non-zero id is
// checked to be among them.
func initialMembers(cfg *Config, own proto.MemberID) ([]proto.Member, error) {
	cluster, err := ParseCluster(cfg.InitialCluster)
	if err != nil {
		return nil, err
	}
	var members []proto.Member
	found := own == 0
	for name, urls := range cluster {
		id := raftactor.NewMemberID(urls, cfg.InitialClusterToken)
		found = found || id == own
		members = append(members, proto.Member{ID: id, PeerURLs: urls, Name: name})
	}
	if !found {
		return nil, fmt.Errorf("the log belongs to member %v, which --initial-cluster %q does not name", own,
			cfg.InitialCluster)
	}
	return members, nil
}

// describeLogError says what to do about a log that cannot be opened.
func describeLogError(err error, dir string) error {
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("%w (is another member running on %s?)", err, dir)
	}
	return err
}

// close gives everything back that was opened and has no other owner yet.
func (f *files) close() error {
	var logErr error
	if f.log != nil {
		logErr = f.log.Close()
	}
	if f.restored != nil && f.restored.View != nil {
		f.restored.View.Release()
	}
	return errors.Join(logErr, f.file.Close())
}
