package gateway

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"troupe/proto"
	"troupe/storeactor"
)

func (s *Server) registerMaintenance() {
	const n = serviceMaintenance
	s.register(n, []grpc.MethodDesc{
		unary(s, n, "Alarm", s.alarm),
		unary(s, n, "Status", s.status),
		unary(s, n, "HashKV", s.hashKV),
		unary(s, n, "Hash", s.hash),
		unary(s, n, "Defragment", s.defragment),
		unary(s, n, "MoveLeader", s.moveLeader),
		unary(s, n, "Downgrade", s.downgrade),
	}, s.streaming(rpcServerStream, n, "Snapshot", "snapshot", s.snapshot))
}

// alarm lists, raises or clears alarms. Listing is a read and does not go through the log, as etcd's does: it must work
// when nothing can be written.
func (s *Server) alarm(ctx context.Context, r *pb.AlarmRequest) (any, error) {
	if _, ok := pb.AlarmType_name[int32(r.Alarm)]; !ok {
		return nil, ErrUnknownAlarm
	}
	switch r.Action {
	case pb.AlarmRequest_GET:
		if err := s.linearize(ctx); err != nil {
			return nil, err
		}
		state := s.cfg.Store.State()
		out := &pb.AlarmResponse{Header: s.pbHeader(state.Revision)}
		for _, a := range state.Alarms {
			if r.Alarm == pb.AlarmType_NONE || r.Alarm == a.Alarm {
				out.Alarms = append(out.Alarms, a)
			}
		}
		return out, nil
	case pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE:
		return s.write(ctx, kindAlarm, &pb.InternalRaftRequest{Alarm: r})
	}
	return nil, ErrUnknownAlarm
}

// status tells what this member knows of itself. It waits for nothing.
func (s *Server) status(context.Context, *pb.StatusRequest) (any, error) {
	raft, state := s.cfg.Raft.Status(), s.cfg.Store.State()
	out := &pb.StatusResponse{
		Header:           s.pbHeader(state.Revision),
		Version:          s.cfg.Versions.Server,
		DbSize:           state.Sizes.Total,
		DbSizeInUse:      state.Sizes.InUse,
		DbSizeQuota:      s.cfg.quotaBytes(),
		Leader:           uint64(raft.Leader),
		RaftIndex:        uint64(raft.Commit),
		RaftTerm:         uint64(raft.Term),
		RaftAppliedIndex: uint64(state.Applied),
		IsLearner:        raft.Learner,
		StorageVersion:   s.cfg.Store.StorageVersion(),
		DowngradeInfo:    &pb.DowngradeInfo{},
	}
	if m := state.Membership; m != nil && m.DowngradeTarget != "" {
		out.DowngradeInfo.Enabled = true
		out.DowngradeInfo.TargetVersion = m.DowngradeTarget
	}
	if raft.Leader == 0 {
		out.Errors = append(out.Errors, rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader))
	}
	if s.fileDiskFull() {
		out.Errors = append(out.Errors, storeactor.ErrDiskFull.Error())
	}
	for _, a := range state.Alarms {
		out.Errors = append(out.Errors, alarmText(a))
	}
	return out, nil
}

// alarmText is how an alarm is written in text. A member id of zero, which a client may have chosen, is left out.
func alarmText(a *pb.AlarmMember) string {
	if a.MemberID == 0 {
		return fmt.Sprintf("alarm:%s", a.Alarm)
	}
	return fmt.Sprintf("memberID:%d alarm:%s", a.MemberID, a.Alarm)
}

// hashKV hashes the history up to a revision, for comparing members.
func (s *Server) hashKV(ctx context.Context, r *pb.HashKVRequest) (any, error) {
	hash, err := s.cfg.Store.HashKV(ctx, proto.Revision(r.Revision))
	if err != nil {
		return nil, err
	}
	return &pb.HashKVResponse{
		Header:          s.pbHeader(hash.Current),
		Hash:            hash.Hash,
		HashRevision:    int64(hash.Revision),
		CompactRevision: int64(hash.Compacted),
	}, nil
}
