package gateway

import (
	"context"
	"errors"
	"io"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
	"troupe/storeactor"
)

func (s *Server) registerLease() {
	const n = serviceLease
	s.register(n, []grpc.MethodDesc{
		unary(s, n, "LeaseGrant", s.leaseGrant),
		unary(s, n, "LeaseRevoke", s.leaseRevoke),
		unary(s, n, "LeaseTimeToLive", s.leaseTimeToLive),
		unary(s, n, "LeaseLeases", s.leaseLeases),
	}, s.streaming(rpcBidiStream, n, "LeaseKeepAlive", "lease-keepalive", s.leaseKeepAlive))
}

// leaseGrant grants a lease, choosing its id if the client did not. The time to live is apply's to check: a client
// hears of a raised alarm first.
func (s *Server) leaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (any, error) {
	if err := s.quota.check(ctx, storeactor.LeaseCost); err != nil {
		return nil, err
	}
	for r.ID == 0 {
		r.ID = int64(uint64(s.cfg.Raft.NextRequestID()) & math.MaxInt64)
	}
	return s.write(ctx, kindLeaseGrant, &pb.InternalRaftRequest{LeaseGrant: r})
}

func (s *Server) leaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (any, error) {
	return s.write(ctx, kindLeaseRevoke, &pb.InternalRaftRequest{LeaseRevoke: r})
}

// Field numbers of LeaseKeepAliveResponse.
const (
	fieldKeepAliveID  = 2
	fieldKeepAliveTTL = 3
)

// leaseKeepAlive renews leases, one answer per request, in order. The loop has a goroutine of its own, because a
// blocked read ends only after the handler has returned.
func (s *Server) leaseKeepAlive(stream *stream) error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ended <- s.panicked("LeaseKeepAlive", r)
			}
		}()
		ended <- s.renewLoop(stream)
	}()
	select {
	case err := <-ended:
		return err
	case <-stream.ctx.Done():
		return context.Cause(stream.ctx)
	}
}

func (s *Server) renewLoop(stream *stream) error {
	defer stream.input.leave()
	for {
		in := new(pb.LeaseKeepAliveRequest)
		if err := stream.receive(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		// The header comes first: its revision must not be later than the renewal.
		h := s.header(s.cfg.Store.State().Revision)
		noteLease(stream.ctx, proto.LeaseID(in.ID))
		ttl, err := s.cfg.Leases.Renew(stream.ctx, proto.LeaseID(in.ID))
		if err != nil {
			if !errors.Is(wireError(err), rpctypes.ErrGRPCLeaseNotFound) {
				return err
			}
			ttl = 0 // an unknown lease is an answer, not an error, and the stream goes on
		}
		body := make([]byte, 0, 2*(1+protowire.SizeVarint(math.MaxUint64)))
		body = appendUint(body, fieldKeepAliveID, uint64(in.ID))
		body = appendUint(body, fieldKeepAliveTTL, uint64(ttl))
		if err := stream.send(&answer{header: h, body: proto.Body{Pieces: [][]byte{body}}}); err != nil {
			return err
		}
	}
}

// leaseTimeToLive tells how long a lease has still to live, and its keys. An unknown lease is TTL -1.
func (s *Server) leaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (any, error) {
	id := proto.LeaseID(r.ID)
	remaining, granted, ok, err := s.cfg.Leases.Remaining(ctx, id)
	if err != nil && !errors.Is(wireError(err), rpctypes.ErrGRPCLeaseNotFound) {
		return nil, err
	}
	if !ok || err != nil {
		return &pb.LeaseTimeToLiveResponse{Header: s.pbHeader(s.cfg.Store.State().Revision), ID: r.ID, TTL: -1}, nil
	}
	return s.readWhole(ctx, r.Keys, func() (*proto.Result, error) {
		// The header comes first: a client that reads on from its revision must not miss keys attached meanwhile.
		revision := s.cfg.Store.State().Revision
		var keys [][]byte
		if r.Keys {
			keys = s.cfg.Store.LeaseKeys(id)
		}
		body := timeToLive(r.ID, remaining, granted, keys)
		return &proto.Result{Revision: revision, Body: proto.Body{Pieces: [][]byte{body}}}, nil
	})
}

// Field numbers of LeaseTimeToLiveResponse.
const (
	fieldTimeToLiveID      = 2
	fieldTimeToLiveTTL     = 3
	fieldTimeToLiveGranted = 4
	fieldTimeToLiveKeys    = 5
)

// timeToLive encodes an answer behind its header. A lease may have a hundred thousand keys, so they are copied once,
// from the published state, in the goroutine of who asks.
func timeToLive(id, remaining, granted int64, keys [][]byte) []byte {
	size := 3 * (1 + protowire.SizeVarint(math.MaxUint64))
	for _, key := range keys {
		size += 1 + protowire.SizeBytes(len(key))
	}
	body := appendUint(make([]byte, 0, size), fieldTimeToLiveID, uint64(id))
	body = appendUint(body, fieldTimeToLiveTTL, uint64(remaining))
	body = appendUint(body, fieldTimeToLiveGranted, uint64(granted))
	for _, key := range keys {
		body = protowire.AppendTag(body, fieldTimeToLiveKeys, protowire.BytesType)
		body = protowire.AppendBytes(body, key)
	}
	return body
}

// leaseLeases lists the leases this member knows, those that end first at the front as far as it can tell.
func (s *Server) leaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (any, error) {
	ids, err := s.cfg.Leases.ByExpiry(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.LeaseLeasesResponse{Header: s.pbHeader(s.cfg.Store.State().Revision),
		Leases: make([]*pb.LeaseStatus, len(ids))}
	for i, id := range ids {
		out.Leases[i] = &pb.LeaseStatus{ID: int64(id)}
	}
	return out, nil
}
