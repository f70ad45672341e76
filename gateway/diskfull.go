package gateway

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
	"troupe/raftactor"
	"troupe/storeactor"
)

// GuardDisk is a Raft that refuses requests which need space while the disk of the store's file is full. What needs
// none goes on, because it may free some, until so much waits for the disk that the store would have to stop: then
// reads would wait too. What is refused was not proposed, so a client may try again elsewhere or later; nothing has to
// be cleared when space is back, unlike after the alarm NOSPACE, which would also stop members that have space.
func GuardDisk(raft Raft, store interface{ FileStatus() storeactor.FileStatus }) Raft {
	return guardedRaft{Raft: raft, file: store}
}

type guardedRaft struct {
	Raft
	file interface{ FileStatus() storeactor.FileStatus }
}

// Propose refuses with storeactor.ErrDiskFull, or proposes.
func (g guardedRaft) Propose(ctx context.Context, r *pb.InternalRaftRequest) (*proto.Result, error) {
	if status := g.file.FileStatus(); status.Full() && (needsSpace(r) || status.Crowded() && r.Alarm == nil) {
		return nil, storeactor.ErrDiskFull
	}
	return g.Raft.Propose(ctx, r)
}

// ChangeMembers is the same for a change of the members, which takes next to no space.
func (g guardedRaft) ChangeMembers(ctx context.Context, verb raftactor.MemberVerb, m proto.Member) (
	*proto.Membership, error) {
	if status := g.file.FileStatus(); status.Full() && status.Crowded() {
		return nil, storeactor.ErrDiskFull
	}
	return g.Raft.ChangeMembers(ctx, verb, m)
}

// needsSpace reports whether a request makes the file grow, as the quota counts that.
func needsSpace(r *pb.InternalRaftRequest) bool {
	return storeactor.QuotaCost(r) > 0
}

// checkFileDisk is the part of the health check of the disks that looks at the database file.
func (s *Server) checkFileDisk() error {
	if s.fileDiskFull() {
		return errors.New("the disk of the database file is full: writes are refused until there is space")
	}
	return nil
}

func (s *Server) fileDiskFull() bool {
	h, err := s.housekeeping()
	return err == nil && h.FileStatus().Full()
}

// spaceIsShort reports whether the log or the database file has found its disk full.
func (s *Server) spaceIsShort() bool { return s.cfg.Raft.Status().LogFull || s.fileDiskFull() }
