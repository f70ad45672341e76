package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"

	"troupe/raftactor"
)

// joinRetryPause is the pause after a refused proposal at start; refusals come from an election that is under way.
// joinWarningPause is the time between two lines about that.
const (
	joinRetryPause   = 50 * time.Millisecond
	joinWarningPause = 5 * time.Second
)

// join publishes this member's name and client URLs through the log and settles the cluster version. Clients are served
// only afterwards: an entry of this member's own has been applied then, so no read can be answered from the state
// before the restart.
func (t *Troupe) join(ctx context.Context) error {
	attributes := &pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{
		Member_ID: uint64(t.Meta.Member),
		MemberAttributes: &membershippb.Attributes{
			Name: t.cfg.Name, ClientUrls: URLStrings(t.cfg.AdvertiseClientURLs),
		},
	}}
	if err := t.proposeUntilDone(ctx, attributes); err != nil {
		return err
	}
	return t.Versions.Settle(ctx)
}

// proposeUntilDone repeats a proposal that may be applied twice without harm until it was applied, ctx ends, or it is
// refused for a reason that time does not change.
func (t *Troupe) proposeUntilDone(ctx context.Context, r *pb.InternalRaftRequest) error {
	var warned time.Time
	for {
		end := t.timer.start(r)
		_, err := t.Raft.Propose(ctx, r)
		end(err)
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, raftactor.ErrStopped):
			return err
		case errors.Is(err, raftactor.ErrInvalidRequest) || errors.Is(err, raftactor.ErrRequestTooLarge):
			return fmt.Errorf("publish this member's name and URLs to the cluster: %w", err)
		case time.Since(warned) >= joinWarningPause:
			warned = time.Now()
			t.log.Warn().Err(err).Msg("could not publish this member to the cluster yet, trying again")
		}
		select {
		case <-time.After(joinRetryPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
