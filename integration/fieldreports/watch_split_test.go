package fieldreports

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

const (
	splitTxns     = 4
	splitPuts     = 12
	splitBytes    = 100_000
	splitLease    = 77
	splitLeased   = 30_000 // keys on one lease; their deletions are some 3 MB
	splitLeasedOp = 100
)

// defaultClient is a connection with grpc's limit of 4 MiB for a message, as most clients have it.
func (a *api) defaultClient(s *harness.Server) *api {
	a.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	return &api{t: a.t, ctx: a.ctx, conn: conn, kv: pb.NewKVClient(conn)}
}

// T10 (etcd-io/etcd#19441, #9294): several large revisions are several responses, live and from history, so that a
// client with the usual limit survives; one revision is never split unless the client has asked for it.
func TestWatch_ResponsesAreSplitBetweenRevisions(t *testing.T) {
	harness.TroupeOnly(t, "etcd packs history into one response, however large")
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	client := a.defaultClient(s)
	live := client.watch(&pb.WatchCreateRequest{Key: []byte("split/"), RangeEnd: []byte("split0")})
	if r := a.receive(live); !r.Created {
		t.Fatalf("watch: %v", r)
	}
	value := string(make([]byte, splitBytes))
	for txn := range splitTxns {
		request := &pb.TxnRequest{}
		for i := range splitPuts {
			request.Success = append(request.Success, putOp(fmt.Sprintf("split/%d/%d", txn, i), value))
		}
		if _, err := a.kv.Txn(a.ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	past := client.watch(&pb.WatchCreateRequest{Key: []byte("split/"), RangeEnd: []byte("split0"), StartRevision: 1})
	if r := a.receive(past); !r.Created {
		t.Fatalf("watch: %v", r)
	}
	for name, stream := range map[string]pb.Watch_WatchClient{"live": live, "from history": past} {
		for revision := int64(2); revision < 2+splitTxns; revision++ {
			r := a.receive(stream)
			if len(r.Events) != splitPuts || r.Fragment || proto.Size(r) > responseMost {
				t.Errorf("%s: %d events in %d bytes, fragment %v; want the %d of one revision", name, len(r.Events),
					proto.Size(r), r.Fragment, splitPuts)
			}
			for _, e := range r.Events {
				if e.Kv.ModRevision != revision {
					t.Fatalf("%s: an event at revision %d among those at %d", name, e.Kv.ModRevision, revision)
				}
			}
		}
	}
}

// T10 (etcd-io/etcd#8188): the end of a lease with very many keys is one revision: one response without fragments, and
// with them pieces below the limit, all marked but the last.
func TestWatch_LeaseWithManyKeysEndsInFragments(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	a.grant(splitLease, 1000)
	key := func(i int) string { return fmt.Sprintf("leased/%0100d", i) }
	for first := 0; first < splitLeased; first += splitLeasedOp {
		request := &pb.TxnRequest{}
		for i := first; i < first+splitLeasedOp; i++ {
			op := putOp(key(i), "")
			op.GetRequestPut().Lease = splitLease
			request.Success = append(request.Success, op)
		}
		if _, err := a.kv.Txn(a.ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	client := a.defaultClient(s)
	watch := func(on *api, fragment bool, start int64) pb.Watch_WatchClient {
		stream := on.watch(&pb.WatchCreateRequest{
			Key: []byte("leased/"), RangeEnd: []byte("leased0"), Fragment: fragment, StartRevision: start,
		})
		if r := a.receive(stream); !r.Created {
			t.Fatalf("watch: %v", r)
		}
		return stream
	}
	whole, live := watch(a, false, 0), watch(client, true, 0)
	r, err := a.lease().LeaseRevoke(a.ctx, &pb.LeaseRevokeRequest{ID: splitLease})
	if err != nil {
		t.Fatal(err)
	}
	at := r.Header.Revision
	if r := a.receive(whole); len(r.Events) != splitLeased || r.Fragment {
		t.Errorf("without fragments: %d events, fragment %v; want all %d", len(r.Events), r.Fragment, splitLeased)
	}
	a.wantFragments("live", live, at)
	a.wantFragments("from history", watch(client, true, at), at)
}

// wantFragments reads the pieces of one revision.
func (a *api) wantFragments(name string, stream pb.Watch_WatchClient, at int64) {
	a.t.Helper()
	events, pieces := 0, 0
	for {
		r := a.receive(stream)
		pieces++
		if size := proto.Size(r); size > responseMost {
			a.t.Errorf("%s: a piece of %d bytes", name, size)
		}
		for _, e := range r.Events {
			if e.Kv.ModRevision != at {
				a.t.Fatalf("%s: revision %d, want %d", name, e.Kv.ModRevision, at)
			}
		}
		if events += len(r.Events); !r.Fragment {
			break
		}
	}
	if events != splitLeased || pieces < 2 {
		a.t.Errorf("%s: %d events in %d pieces, want %d", name, events, pieces, splitLeased)
	}
}
