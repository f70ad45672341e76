package files

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

const limit = time.Minute

// writeHistory writes a history with everything that leaves a trace in the files: overwritten and deleted keys, keys
// created again, transactions, leases with and without keys, revoked ones, and compactions, one of them at a tombstone.
// The same chapter gives the same requests, whatever the server.
func writeHistory(t *testing.T, conn *grpc.ClientConn, chapter int) {
	t.Helper()
	ctx := harness.Context(t, limit)
	random := rand.New(rand.NewPCG(uint64(chapter), 11))
	w := writer{t: t, ctx: ctx, conn: conn}
	for n := range 4 {
		w.grant(int64(chapter*100+n+1), int64(50_000+n))
	}
	for n := range 260 {
		key := fmt.Sprintf("chapter %d/key %02d", chapter, random.IntN(40))
		switch kind := random.IntN(20); {
		case kind < 12:
			w.put(key, fmt.Sprintf("value %d", n), 0)
		case kind < 14:
			w.put(key, "leased", int64(chapter*100+1+random.IntN(4)))
		case kind < 17:
			w.remove(key)
		default:
			w.txn(key, fmt.Sprint(n))
		}
		switch n {
		case 120:
			w.compact(w.revision - 30)
		case 200:
			w.put("tombstone", "x", 0)
			w.remove("tombstone")
			w.compact(w.revision)
		}
	}
	w.revoke(int64(chapter*100 + 2))
	w.put("after", fmt.Sprint(chapter), 0)
}

// writer sends requests and remembers the revision.
type writer struct {
	t        *testing.T
	ctx      context.Context
	conn     *grpc.ClientConn
	revision int64
}

func (w *writer) done(h *pb.ResponseHeader, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("writing the history: %v", err)
	}
	w.revision = h.Revision
}

func (w *writer) put(key, value string, lease int64) {
	w.t.Helper()
	request := &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}
	r, err := pb.NewKVClient(w.conn).Put(w.ctx, request)
	w.done(r.GetHeader(), err)
}

func (w *writer) remove(key string) {
	w.t.Helper()
	r, err := pb.NewKVClient(w.conn).DeleteRange(w.ctx, &pb.DeleteRangeRequest{Key: []byte(key)})
	w.done(r.GetHeader(), err)
}

// txn writes two keys and removes one in one revision.
func (w *writer) txn(key, value string) {
	w.t.Helper()
	put := func(key string) *pb.RequestOp {
		request := &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: request}}
	}
	remove := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key + "/b")},
	}}
	request := &pb.TxnRequest{Success: []*pb.RequestOp{put(key), put(key + "/a"), remove}}
	r, err := pb.NewKVClient(w.conn).Txn(w.ctx, request)
	w.done(r.GetHeader(), err)
}

func (w *writer) compact(revision int64) {
	w.t.Helper()
	r, err := pb.NewKVClient(w.conn).Compact(w.ctx, &pb.CompactionRequest{Revision: revision, Physical: true})
	w.done(r.GetHeader(), err)
}

func (w *writer) grant(id, ttl int64) {
	w.t.Helper()
	r, err := pb.NewLeaseClient(w.conn).LeaseGrant(w.ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	w.done(r.GetHeader(), err)
}

func (w *writer) revoke(id int64) {
	w.t.Helper()
	r, err := pb.NewLeaseClient(w.conn).LeaseRevoke(w.ctx, &pb.LeaseRevokeRequest{ID: id})
	w.done(r.GetHeader(), err)
}

// account is everything a server tells about its data, as text: what two servers on the same files must agree on.
func account(t *testing.T, s *harness.Server) string {
	t.Helper()
	ctx := harness.Context(t, limit)
	conn := s.Conn(t)
	var out strings.Builder
	write := func(m proto.Message) {
		text := prototext.MarshalOptions{}.Format(m)
		fmt.Fprintln(&out, strings.Join(strings.Fields(text), " "))
	}
	check := func(what string, err error) {
		if err != nil {
			t.Fatalf("%s on %s: %v", what, s.Kind, err)
		}
	}
	hash, err := pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{})
	check("HashKV", err)
	fmt.Fprintf(&out, "cluster %x, member %x, revision %d, compacted %d\n",
		hash.Header.ClusterId, hash.Header.MemberId, hash.HashRevision, hash.CompactRevision)
	members, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	check("member list", err)
	members.Header = nil
	write(members)
	for revision := max(hash.CompactRevision, 1); revision <= hash.HashRevision; revision++ {
		request := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision}
		all, err := pb.NewKVClient(conn).Range(ctx, request)
		check("range", err)
		all.Header = nil
		write(all)
	}
	request := &pb.RangeRequest{Key: []byte{0}, Revision: hash.CompactRevision - 1}
	_, err = pb.NewKVClient(conn).Range(ctx, request)
	fmt.Fprintf(&out, "below the compacted revision: %v\n", err)
	leases, err := pb.NewLeaseClient(conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	check("leases", err)
	sort.Slice(leases.Leases, func(i, j int) bool { return leases.Leases[i].ID < leases.Leases[j].ID })
	for _, lease := range leases.Leases {
		r, err := pb.NewLeaseClient(conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease.ID, Keys: true})
		check("lease", err)
		slices.SortFunc(r.Keys, slices.Compare[[]byte])
		fmt.Fprintf(&out, "lease %d granted %d alive %v keys %q\n", r.ID, r.GrantedTTL, r.TTL > 0, r.Keys)
	}
	for _, h := range s.Hashes(t) {
		fmt.Fprintf(&out, "%+v\n", h)
	}
	return out.String()
}

// sameAccount compares two accounts and shows the first line that differs.
func sameAccount(t *testing.T, nameA, a, nameB, b string) {
	t.Helper()
	linesA, linesB := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(linesA), len(linesB)) {
		if linesA[i] != linesB[i] {
			t.Errorf("line %d differs:\n%s: %s\n%s: %s", i, nameA, linesA[i], nameB, linesB[i])
			return
		}
	}
	if len(linesA) != len(linesB) {
		t.Errorf("%s has %d lines, %s has %d", nameA, len(linesA), nameB, len(linesB))
	}
}
