package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// requestTimeout is for one request of a test on a slow machine.
const requestTimeout = 20 * time.Second

// Client gives an official client of the server, closed with the test.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}, DialTimeout: requestTimeout})
	if err != nil {
		t.Fatalf("harness: client of %s: %v", s.Kind, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Conn gives a plain gRPC connection: no retries, no renaming of errors. It is closed with the test.
func (s *Server) Conn(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := s.Dial()
	if err != nil {
		t.Fatalf("harness: dial %s: %v", s.Kind, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Dial is Conn for code that closes the connection itself.
func (s *Server) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+s.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
}

// Hash is the answer of HashKV at one revision.
type Hash struct {
	Revision, Compacted int64
	Hash                uint32
}

// HashHistory asks for the hash at every revision from the one after the compacted to the current. The compacted
// revision itself is left out: etcd remembers the hash that it computed while it compacted, with the compacted revision
// before that, and answers with another one after a restart.
func HashHistory(ctx context.Context, conn *grpc.ClientConn) ([]Hash, error) {
	m := pb.NewMaintenanceClient(conn)
	now, err := m.HashKV(ctx, &pb.HashKVRequest{})
	if err != nil {
		return nil, err
	}
	var all []Hash
	for rev := max(now.CompactRevision+1, 1); rev <= now.HashRevision; rev++ {
		r, err := m.HashKV(ctx, &pb.HashKVRequest{Revision: rev})
		if err != nil {
			return nil, fmt.Errorf("HashKV at revision %d: %w", rev, err)
		}
		all = append(all, Hash{Revision: r.HashRevision, Compacted: r.CompactRevision, Hash: r.Hash})
	}
	return all, nil
}

// Hashes is HashHistory for tests.
func (s *Server) Hashes(t testing.TB) []Hash {
	t.Helper()
	conn, err := s.Dial()
	if err != nil {
		t.Fatalf("harness: dial %s: %v", s.Kind, err)
	}
	defer conn.Close()
	all, err := HashHistory(Context(t, 2*time.Minute), conn)
	if err != nil {
		t.Fatalf("harness: hashes of %s: %v", s.Kind, err)
	}
	return all
}

// SameHashes compares two hash histories and names the first revision at which they differ.
func SameHashes(t testing.TB, nameA string, a []Hash, nameB string, b []Hash) {
	t.Helper()
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("HashKV differs: %s has %+v, %s has %+v", nameA, a[i], nameB, b[i])
			return
		}
	}
	if len(a) != len(b) {
		t.Errorf("HashKV: %s has %d revisions, %s has %d", nameA, len(a), nameB, len(b))
	}
}
