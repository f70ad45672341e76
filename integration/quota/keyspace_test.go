package quota

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
	"troupe/proto"
)

// etcd-io/etcd#22079, #13310, #14645: which prefix uses the space, as a table, as JSON and over gRPC, while others
// write; what a compaction frees is gone from the report.
func TestKeyspace_SaysWhichPrefixTakesTheSpace(t *testing.T) {
	s := newSide(t, harness.Troupe)
	ctx := harness.Context(t, 4*limit)
	kv := pb.NewKVClient(s.conn)
	putInto := func(key string, bytes int) {
		t.Helper()
		if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: make([]byte, bytes)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		putInto(fmt.Sprint("/registry/pods/default/", i%100), 1000)
		putInto(fmt.Sprint("/registry/events/", i%3, "/", i), 100)
	}
	if _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("/registry/events/0/"),
		RangeEnd: []byte("/registry/events/00")}); err != nil {
		t.Fatal(err)
	}
	stop, writers := make(chan struct{}), sync.WaitGroup{}
	writers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := kv.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "busy/%d", i)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	report := func() *proto.KeyspaceReport {
		t.Helper()
		out := new(proto.KeyspaceReport)
		in := &proto.KeyspaceRequest{Depth: 2, Within: []byte("/registry/")}
		if err := s.conn.Invoke(ctx, "/troupe.introspect.v1.Introspect/Keyspace", in, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	r := report()
	close(stop)
	writers.Wait()
	if len(r.Prefixes) != 2 || string(r.Prefixes[0].Prefix) != "/registry/pods/" ||
		string(r.Prefixes[1].Prefix) != "/registry/events/" {
		t.Fatalf("rows: %v", r.Prefixes)
	}
	if pods := r.Prefixes[0]; pods.Keys != 100 || pods.Revisions != 300 || pods.LiveBytes < 100_000 ||
		pods.LiveBytes > 110_000 || pods.Bytes < 300_000 || pods.Bytes > 330_000 {
		t.Errorf("pods: %v", pods)
	}
	if events := r.Prefixes[1]; events.Keys != 200 || events.Revisions != 400 {
		t.Errorf("events: %v", events)
	}
	s.compactAll(ctx, t)
	if pods := report().Prefixes[0]; pods.Keys != 100 || pods.Revisions != 100 || pods.Bytes != pods.LiveBytes {
		t.Errorf("pods after the compaction: %v", pods)
	}
	if _, table := s.fetch(t, "/debug/keyspace?depth=3&within=/registry/"); !strings.Contains(table,
		"  /registry/pods/default/") || !strings.Contains(table, "  /registry/events/2/") {
		t.Error(table)
	}
	var all struct{ Total struct{ Keys int64 } }
	_, text := s.fetch(t, "/debug/keyspace?format=json")
	if err := json.Unmarshal([]byte(text), &all); err != nil || all.Total.Keys < 300 {
		t.Errorf("%v: %s", err, text)
	}
}
