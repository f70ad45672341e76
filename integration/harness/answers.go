package harness

import (
	"fmt"
	"io"
	"net/http"
	"sort"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// OrderTies brings the pairs of a sorted answer that are equal in the sort target into the order of their keys. Sorting
// is not stable in etcd, so such pairs come in any order; where a limit cuts through a tie, even which of them come is
// open, and only their sort targets are kept.
func OrderTies(request *pb.RangeRequest, reply *pb.RangeResponse) {
	if request.SortTarget == pb.RangeRequest_KEY || len(reply.Kvs) == 0 {
		return
	}
	target := func(kv *mvccpb.KeyValue) string {
		switch request.SortTarget {
		case pb.RangeRequest_VERSION:
			return fmt.Sprint(kv.Version)
		case pb.RangeRequest_CREATE:
			return fmt.Sprint(kv.CreateRevision)
		case pb.RangeRequest_MOD:
			return fmt.Sprint(kv.ModRevision)
		default:
			return string(kv.Value)
		}
	}
	if request.Limit > 0 {
		for i, kv := range reply.Kvs {
			reply.Kvs[i] = &mvccpb.KeyValue{Key: []byte(target(kv))}
		}
		return
	}
	for begin := 0; begin < len(reply.Kvs); {
		end := begin + 1
		for end < len(reply.Kvs) && target(reply.Kvs[end]) == target(reply.Kvs[begin]) {
			end++
		}
		tie := reply.Kvs[begin:end]
		sort.Slice(tie, func(i, j int) bool { return string(tie[i].Key) < string(tie[j].Key) })
		begin = end
	}
}

// Page gives status and body of a page.
func Page(t testing.TB, url string) (status int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// Serves checks that a server answers a write and a read.
func Serves(t testing.TB, s *Server) {
	t.Helper()
	ctx := Context(t, readyTimeout)
	client := s.Client(t)
	if _, err := client.Put(ctx, "serves", "yes"); err != nil {
		t.Fatalf("put: %v", err)
	}
	if r, err := client.Get(ctx, "serves"); err != nil || r.Count != 1 {
		t.Fatalf("get: %v, %v", r, err)
	}
}

// Program runs the binary of a kind to its end, which must come within a minute.
func Program(t testing.TB, kind Kind, env []string, args ...string) Output {
	t.Helper()
	binary, err := BinaryPath(kind)
	if err != nil {
		t.Fatalf("binary: %v", err)
	}
	return Run(t, Command{Program: binary, Args: args, Env: env, Limit: readyTimeout})
}
