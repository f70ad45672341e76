package storm

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
	"troupe/proto"
)

// contentionMax is how long a client waits for a lock or an election at most: longer than leases last, so that some
// lose their places.
const contentionMax = 4 * time.Second

// contend waits for locks and elections that many want, under leases that nobody renews: some win, some give up, some
// outlive their lease, and the connection breaks with calls that wait.
func contend(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := source(seed)
	for range turns / 4 {
		grant, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: stormTTL})
		if !c.ok("grant", err) {
			return nil
		}
		name := fmt.Appendf(nil, "contended/%d", r.IntN(2))
		patient, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(contentionMax))))
		switch r.IntN(3) {
		case 0:
			c.lock(patient, conn, &proto.LockRequest{Name: name, Lease: grant.ID}, r.IntN(2) == 0)
		case 1:
			c.campaign(patient, conn, &proto.CampaignRequest{Name: name, Lease: grant.ID, Value: name}, r.IntN(2) == 0)
		case 2:
			c.observe(patient, conn, &proto.LeaderRequest{Name: name})
		}
		cancel()
	}
	return nil
}

// lock waits for a lock, and releases it or leaves that to the lease.
func (c *tally) lock(ctx context.Context, conn *grpc.ClientConn, r *proto.LockRequest, release bool) {
	held := new(proto.LockResponse)
	err := conn.Invoke(ctx, "/v3lockpb.Lock/Lock", r, held)
	if c.contended("lock", err) && release {
		c.ok("unlock", conn.Invoke(ctx, "/v3lockpb.Lock/Unlock", &proto.UnlockRequest{Key: held.Key},
			new(proto.UnlockResponse)))
	}
}

func (c *tally) campaign(ctx context.Context, conn *grpc.ClientConn, r *proto.CampaignRequest, release bool) {
	elected := new(proto.CampaignResponse)
	err := conn.Invoke(ctx, "/v3electionpb.Election/Campaign", r, elected)
	if !c.contended("campaign", err) {
		return
	}
	c.contended("proclamation", conn.Invoke(ctx, "/v3electionpb.Election/Proclaim",
		&proto.ProclaimRequest{Leader: elected.Leader, Value: []byte("again")}, new(proto.ProclaimResponse)))
	if release {
		c.ok("resignation", conn.Invoke(ctx, "/v3electionpb.Election/Resign",
			&proto.ResignRequest{Leader: elected.Leader}, new(proto.ResignResponse)))
	}
}

func (c *tally) observe(ctx context.Context, conn *grpc.ClientConn, r *proto.LeaderRequest) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/v3electionpb.Election/Observe")
	if err == nil {
		err = stream.SendMsg(r)
	}
	for c.contended("observation", err) {
		err = stream.RecvMsg(new(proto.LeaderResponse))
	}
}

// contended is ok for calls that end when a lease does.
func (c *tally) contended(name string, err error) bool {
	text := status.Convert(err).Message()
	if err != nil && (strings.HasSuffix(text, "session is expired") || text == "election: not leader" ||
		text == "etcdserver: requested lease not found") {
		c.ok("place lost", nil)
		return false
	}
	return c.ok(name, err)
}
