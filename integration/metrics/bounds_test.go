package metrics

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"troupe/integration/harness"
)

// TestMetrics_ClientsCannotMakeSeries: whatever clients send, the page stays as long as it is, but for a bounded number
// of client versions, and stays readable.
func TestMetrics_ClientsCannotMakeSeries(t *testing.T) {
	harness.TroupeOnly(t, "etcd makes a series for each version that a client says it is")
	const (
		strangers = 300
		// versionsMax are the versions that are told apart, each for unary calls and for streams.
		versionsMax = 2 * 64
		// othersMax are the series that appear with the first use of what all clients share.
		othersMax = 100
	)
	s := harness.Start(t, harness.Options{})
	s.MustCtl(t, "get", "a")
	before := scrape(t, s)
	ctx := harness.Context(t, 4*limit)
	conn := s.Conn(t)
	kv, tend := pb.NewKVClient(conn), pb.NewMaintenanceClient(conn)
	for i := range strangers {
		version := fmt.Sprintf("9.%d.0", i)
		if i%3 == 0 {
			version = strings.Repeat("long", 100) + version
		}
		other := metadata.AppendToOutgoingContext(ctx, "client-api-version", version)
		if _, err := kv.Range(other, &pb.RangeRequest{Key: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		_ = conn.Invoke(ctx, fmt.Sprintf("/etcdserverpb.KV/Method%d", i), &pb.RangeRequest{}, &pb.RangeResponse{})
		_ = conn.Invoke(ctx, fmt.Sprintf("/service.%d/Method", i), &pb.RangeRequest{}, &pb.RangeResponse{})
		_, err := tend.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: uint64(i + 1),
			Alarm: pb.AlarmType_CORRUPT})
		if err != nil && i == 0 {
			t.Fatal(err)
		}
		if i%10 != 0 {
			continue
		}
		for _, path := range []string{"/readyz/", "/livez/", "/metrics/", "/health/", "/"} {
			if r, err := http.Get(fmt.Sprint(s.URL, path, i)); err == nil {
				r.Body.Close()
			}
		}
	}
	after := scrape(t, s)
	if grown := len(after.values) - len(before.values); grown > versionsMax+othersMax {
		t.Errorf("%d strangers made %d series", strangers, grown)
	}
	if n := after.sum("etcd_server_client_requests_total"); n < strangers {
		t.Errorf("%v requests are counted, at least %d were made", n, strangers)
	}
	for series := range after.values {
		if len(series) > 500 {
			t.Errorf("a client chose the label in %.100s...", series)
		}
	}
}

// TestMetrics_ScrapeStaysSmallWithThousandsOfStreams: every stream and every watched range has an actor, none a series.
func TestMetrics_ScrapeStaysSmallWithThousandsOfStreams(t *testing.T) {
	harness.TroupeOnly(t, "its actors are counted")
	const streams, connections, looks = 4000, 8, 10
	s := harness.Start(t, harness.Options{})
	open := func(from, to int) {
		var group sync.WaitGroup
		for c := range connections {
			watch := pb.NewWatchClient(s.Conn(t))
			ctx := t.Context()
			group.Go(func() {
				for i := from + c; i < to; i += connections {
					stream, err := watch.Watch(ctx)
					if err == nil {
						err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
							CreateRequest: &pb.WatchCreateRequest{
								Key: fmt.Append(nil, i), RangeEnd: fmt.Append(nil, i, "~"), ProgressNotify: true}}})
					}
					if err != nil {
						t.Errorf("stream %d: %v", i, err)
						return
					}
				}
			})
		}
		group.Wait()
		harness.Eventually(t, 4*limit, "the watches are there", func() error {
			if n := scrape(t, s).values["etcd_debugging_mvcc_watcher_total"]; int(n) != to {
				return fmt.Errorf("%v of %d", n, to)
			}
			return nil
		})
	}
	cost := func() (p page, bytes int, cpu time.Duration) {
		before := scrape(t, s).values["process_cpu_seconds_total"]
		for range looks {
			text, _ := get(t, s.URL+"/metrics", nil)
			bytes = len(text)
		}
		p = scrape(t, s)
		return p, bytes, time.Duration((p.values["process_cpu_seconds_total"] - before) / (looks + 1) * float64(time.Second))
	}
	open(0, connections)
	few, fewBytes, fewCPU := cost()
	open(connections, streams)
	many, manyBytes, manyCPU := cost()
	t.Logf("with %d streams a page of %d series and %d bytes costs %v of CPU; with %d: %d series, %d bytes, %v",
		connections, len(few.values), fewBytes, fewCPU, streams, len(many.values), manyBytes, manyCPU)
	if grown := len(many.values) - len(few.values); grown > 50 {
		t.Errorf("%d streams made %d series", streams, grown)
	}
	if manyBytes > fewBytes*11/10 {
		t.Errorf("the page grew from %d to %d bytes", fewBytes, manyBytes)
	}
}
