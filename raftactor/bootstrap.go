package raftactor

import (
	"crypto/sha1" //nolint:gosec // ids are etcd's hashes, not secrets
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
	pb "google.golang.org/protobuf/proto"

	"troupe/actors"
	"troupe/proto"
)

// NewMemberID computes the id of a member of a new cluster, as etcd does: the first 8 bytes of SHA-1 over the sorted
// peer URLs and the cluster token. All members of a new cluster compute the same ids.
func NewMemberID(peerURLs []string, token string) proto.MemberID {
	sorted := slices.Clone(peerURLs)
	slices.Sort(sorted)
	sum := sha1.Sum([]byte(strings.Join(sorted, "") + token)) //nolint:gosec // see the import
	return proto.MemberID(binary.BigEndian.Uint64(sum[:8]))
}

// NewClusterID computes the id of a new cluster, as etcd does: the first 8 bytes of SHA-1 over the member ids in order.
func NewClusterID(members []proto.Member) proto.ClusterID {
	ids := make([]proto.MemberID, len(members))
	for i := range members {
		ids[i] = members[i].ID
	}
	slices.Sort(ids)
	var data []byte
	for _, id := range ids {
		data = binary.BigEndian.AppendUint64(data, uint64(id))
	}
	sum := sha1.Sum(data) //nolint:gosec // see the import
	return proto.ClusterID(binary.BigEndian.Uint64(sum[:8]))
}

// bootstrapEntries gives the first entries of a new cluster: one conf change per member, sorted by id, with the member
// and its name as context, all in term 1. Every member of the new cluster writes the same ones and counts them as
// committed. They pass through apply like any others, and fill the members bucket there.
func bootstrapEntries(members []proto.Member) []*raftpb.Entry {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b proto.Member) int { return cmpIDs(a.ID, b.ID) })
	entries := make([]*raftpb.Entry, len(sorted))
	for i := range sorted {
		m := &sorted[i]
		data, err := pb.Marshal(&raftpb.ConfChange{
			Type:    raftpb.ConfChangeAddNode.Enum(),
			NodeId:  new(uint64(m.ID)),
			Context: encodeMember(&proto.Member{ID: m.ID, PeerURLs: m.PeerURLs, IsLearner: m.IsLearner, Name: m.Name}),
		})
		actors.Must(err == nil, "a conf change cannot be encoded: %v", err)
		entries[i] = &raftpb.Entry{
			Type:  raftpb.EntryConfChange.Enum(),
			Term:  new(uint64(1)),
			Index: new(uint64(i) + 1),
			Data:  data,
		}
	}
	return entries
}

// recovered gives what the member starts from: what the log held, or for a new member the bootstrap entries, which are
// made durable here before anything else happens. A crash before that leaves a log without a hard state, perhaps with
// some of the entries, and the next start comes here again and overwrites them.
func recovered(cfg *Config) (*Recovered, error) {
	r := cfg.Recovered
	if r != nil && (r.Start.Index > 0 || r.HardState.GetTerm() > 0) {
		return r, nil
	}
	if len(cfg.Bootstrap) == 0 {
		return nil, fmt.Errorf("%w: the log is not begun and there are no members to begin a cluster with", ErrConfig)
	}
	if cfg.AppliedAtStart > 0 {
		return nil, fmt.Errorf("%w: the log is not begun, the file holds index %d", ErrFileAheadOfLog, cfg.AppliedAtStart)
	}
	entries := bootstrapEntries(cfg.Bootstrap)
	hard := &raftpb.HardState{
		Term:   new(uint64(1)),
		Vote:   new(uint64(0)),
		Commit: new(uint64(len(entries))),
	}
	if err := cfg.Log.Append(hard, entries); err != nil {
		return nil, fmt.Errorf("write the first entries: %w", err)
	}
	if err := cfg.Log.Sync(); err != nil {
		return nil, fmt.Errorf("sync the first entries: %w", err)
	}
	return &Recovered{Meta: cfg.Meta, HardState: hard, Entries: entries}, nil
}

// checkRecovered refuses a log and a file that cannot belong together (rule 4.5).
func checkRecovered(r *Recovered, applied proto.Index, m *proto.Membership) error {
	last := r.Last()
	commit := proto.Index(r.HardState.GetCommit())
	switch {
	case commit > last:
		return fmt.Errorf("%w: the hard state says that %d is committed, the log ends at %d", ErrLogDamaged, commit, last)
	case applied < r.Start.Index:
		return fmt.Errorf("%w: the file holds index %d, the last snapshot record is at %d", ErrFileBehindLog, applied,
			r.Start.Index)
	case applied > 0 && len(m.Members) == 0:
		return fmt.Errorf("%w: the file holds index %d and no members", ErrConfig, applied)
	case applied > last:
		return fmt.Errorf("%w: the file holds index %d, the log ends at %d: its newest segment is missing, or it was "+
			"rolled back; bring the log back, or restore from a snapshot", ErrFileAheadOfLog, applied, last)
	}
	return nil
}
