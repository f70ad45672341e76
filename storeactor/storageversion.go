package storeactor

import (
	"slices"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/proto"
)

// The storage version: which members can read this file and the log behind it. It is the member's own, not a part of
// the replicated state, and never below what the cluster version was at any entry that a start may read.
//
// So it rises with the commit that brings a higher cluster version into the file. It is lowered in three steps: the
// file holds the entry that lowered the cluster version; the log says that no start reads it up to that entry any more,
// for which it takes a snapshot; the storage version goes into the file. Only then may an older program be started on
// this directory: it would stop at the entry that has set the higher version.

// storageVersions are the versions of the schema that the file can say of itself, lowest first: etcd writes none for a
// cluster below 3.6.
var storageVersions = []string{"", "3.6.0", "3.7.0"}

// storageAbove reports whether a storage version is above another. A version that the file cannot say is below all.
func storageAbove(a, b string) bool {
	return slices.Index(storageVersions, a) > slices.Index(storageVersions, b)
}

// raiseStorageVersion gives the storage version of a file that gets a membership: at least the cluster version, and
// what it has been since the file's last commit, at index after.
func raiseStorageVersion(now string, m *proto.Membership, after proto.Index) string {
	if storageAbove(m.ClusterVersion, now) {
		now = m.ClusterVersion
	}
	if m.Lowered.At > after && storageAbove(m.Lowered.From, now) {
		now = m.Lowered.From
	}
	return now
}

// lowering is how far the storage version is on its way down.
type lowering struct {
	// passed is the highest entry that the log said no start reads it up to.
	passed proto.Index
	// asked is the entry of the question that is out, 0 when none is.
	asked proto.Index
	// refused says that the log did not take the question: it is stopping, or has too much to do. The next commit asks
	// again.
	refused bool
}

// answered takes the log's answer.
func (l *lowering) answered(m *snapshotPassed) {
	actors.Must(l.asked == m.index, "the log has passed entry %d, asked was %d", m.index, l.asked)
	l.asked = 0
	if m.err != nil {
		l.refused = true
		return
	}
	l.passed = max(l.passed, m.index)
}

// snapshotPassed is the log's answer to SnapshotPast. Told by the log's actor.
type snapshotPassed struct {
	index proto.Index
	err   error
}

func (*snapshotPassed) backendMessage() {}

// lowerStorage does the next step when the cluster version in the file is below the storage version.
func (b *backend) lowerStorage() {
	m, l := b.filed.membership, &b.lowering
	if m == nil || b.held() || slices.Index(storageVersions, m.ClusterVersion) <= 0 ||
		!storageAbove(b.filed.storageVersion, m.ClusterVersion) {
		return
	}
	through := m.Lowered.At
	if through == 0 {
		through = b.cfg.Index // lowered before this start
	}
	switch {
	case l.passed >= through:
		b.commitStorageVersion(m)
	case l.asked == 0 && !l.refused && b.cfg.Notify.SnapshotPast != nil:
		l.asked = through
		ref := b.self.Ref()
		b.cfg.Notify.SnapshotPast(through, func(err error) {
			tellSelf(ref, &snapshotPassed{index: through, err: err})
		})
	}
}

// commitStorageVersion makes the storage version that of the cluster, in a commit of its own: there may be no other for
// long.
func (b *backend) commitStorageVersion(m *proto.Membership) {
	version := m.ClusterVersion
	b.core.position.storageVersion = version
	b.try(&fileCommit{
		write: func(w FileWrite) {
			mustWrite("put", w.Put(proto.BucketMeta, metaStorageVersion, []byte(version)))
		},
		done: func() {
			b.filed.storageVersion = version
			b.tellStatus(*b.cfg.status.Load())
			b.sayStorageVersion(m)
			b.tellStore()
		},
	})
}

// sayStorageVersion says that the file has a new storage version, and what that means.
func (b *backend) sayStorageVersion(m *proto.Membership) {
	b.cfg.Logger.Info().Str("new-storage-version", b.filed.storageVersion).Msg("updated storage version")
	sayReady(b.cfg.Logger, m, b.filed.storageVersion)
}

// sayReady says that this member is through with its part of a downgrade, if it is; again at each start until then.
func sayReady(log zerolog.Logger, m *proto.Membership, storageVersion string) {
	if m != nil && m.DowngradeTarget != "" && m.DowngradeTarget == storageVersion {
		log.Info().Str("target-version", m.DowngradeTarget).Msg("The server is ready to downgrade: " +
			"this member may now be stopped and replaced by one of the target version on the same data directory")
	}
}

// tellStatus publishes what the backend knows of the disk, with what the file says of its version.
func (b *backend) tellStatus(s FileStatus) {
	s.StorageVersion = b.filed.storageVersion
	if m := b.filed.membership; m != nil {
		s.lowered = m.Lowered.At
	}
	b.cfg.status.Store(&s)
}

// StorageVersion is the version of the file's schema, empty while it has none. A version that rises is in the file
// with the next commit, and said as soon as it is decided. It is published and does not wait.
func (c *Client) StorageVersion() string {
	s := c.FileStatus()
	if m := c.State().Membership; m != nil {
		return raiseStorageVersion(s.StorageVersion, m, s.lowered)
	}
	return s.StorageVersion
}
