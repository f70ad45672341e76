package concurrency

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/integration/harness"
	"troupe/proto"
)

// services calls the Lock and Election services of one server.
type services struct {
	t      *testing.T
	server *harness.Server
	conn   *grpc.ClientConn
	client *clientv3.Client
}

func servicesOf(t *testing.T, s *harness.Server) *services {
	return &services{t: t, server: s, conn: s.Conn(t), client: s.Client(t)}
}

// call makes one unary call; the answer is nil when it fails.
func call[R any, P interface {
	*R
	protobuf.Message
}](ctx context.Context, s *services, method string, in protobuf.Message) (P, error) {
	out := P(new(R))
	if err := s.conn.Invoke(ctx, method, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

func (s *services) lock(ctx context.Context, name string, lease int64) (*proto.LockResponse, error) {
	return call[proto.LockResponse](ctx, s, "/v3lockpb.Lock/Lock", &proto.LockRequest{Name: []byte(name), Lease: lease})
}

func (s *services) unlock(ctx context.Context, key []byte) (*proto.UnlockResponse, error) {
	return call[proto.UnlockResponse](ctx, s, "/v3lockpb.Lock/Unlock", &proto.UnlockRequest{Key: key})
}

func (s *services) campaign(ctx context.Context, name string, lease int64, value string) (
	*proto.CampaignResponse, error) {
	return call[proto.CampaignResponse](ctx, s, "/v3electionpb.Election/Campaign",
		&proto.CampaignRequest{Name: []byte(name), Lease: lease, Value: []byte(value)})
}

func (s *services) proclaim(ctx context.Context, leader *proto.LeaderKey, value string) (
	*proto.ProclaimResponse, error) {
	return call[proto.ProclaimResponse](ctx, s, "/v3electionpb.Election/Proclaim",
		&proto.ProclaimRequest{Leader: leader, Value: []byte(value)})
}

func (s *services) leader(ctx context.Context, name string) (*proto.LeaderResponse, error) {
	return call[proto.LeaderResponse](ctx, s, "/v3electionpb.Election/Leader", &proto.LeaderRequest{Name: []byte(name)})
}

func (s *services) resign(ctx context.Context, leader *proto.LeaderKey) (*proto.ResignResponse, error) {
	return call[proto.ResignResponse](ctx, s, "/v3electionpb.Election/Resign", &proto.ResignRequest{Leader: leader})
}

// observe gives what Observe sends, until the context or the stream ends; then the error.
func (s *services) observe(ctx context.Context, name string) (<-chan *proto.LeaderResponse, <-chan error) {
	s.t.Helper()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/v3electionpb.Election/Observe")
	if err == nil {
		err = stream.SendMsg(&proto.LeaderRequest{Name: []byte(name)})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		s.t.Fatalf("observe: %v", err)
	}
	seen, ended := make(chan *proto.LeaderResponse, 16), make(chan error, 1)
	go func() {
		for {
			r := new(proto.LeaderResponse)
			if err := stream.RecvMsg(r); err != nil {
				ended <- err
				return
			}
			seen <- r
		}
	}()
	return seen, ended
}

// grant makes a lease of that id.
func (s *services) grant(ctx context.Context, id, ttl int64) int64 {
	s.t.Helper()
	_, err := pb.NewLeaseClient(s.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	if err != nil {
		s.t.Fatalf("grant of lease %x: %v", id, err)
	}
	return id
}

func (s *services) revoke(ctx context.Context, id int64) {
	s.t.Helper()
	if _, err := pb.NewLeaseClient(s.conn).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}); err != nil {
		s.t.Fatalf("revocation of lease %x: %v", id, err)
	}
}

// inLine waits until a line has so many places.
func (s *services) inLine(ctx context.Context, name string, places int64) {
	s.t.Helper()
	harness.Eventually(s.t, limit, fmt.Sprintf("%d places in the line of %q", places, name), func() error {
		r, err := s.client.Get(ctx, name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && r.Count != places {
			err = fmt.Errorf("%d places", r.Count)
		}
		return err
	})
}

// result is how a call that waits has ended.
type result[P any] struct {
	answer P
	err    error
}

// waiting makes a call that is expected to wait.
func waiting[P any](f func() (P, error)) <-chan result[P] {
	done := make(chan result[P], 1)
	go func() {
		answer, err := f()
		done <- result[P]{answer, err}
	}()
	return done
}

// await waits for the end of such a call.
func await[P any](t *testing.T, done <-chan result[P]) (P, error) {
	t.Helper()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-t.Context().Done():
	case <-harness.Context(t, limit).Done():
	}
	t.Fatal("the call still waits")
	return *new(P), nil
}
