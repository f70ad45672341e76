package debugpage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// TestPage_ThousandsOfStreamsAreOneBox: what is shown does not grow with the number of clients, and neither does the
// number of metrics.
func TestPage_ThousandsOfStreamsAreOneBox(t *testing.T) {
	harness.TroupeOnly(t, "etcd has no actors")
	s := harness.Start(t, harness.Options{})
	const connections, each = 10, 200
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range connections {
		watches := pb.NewWatchClient(s.Conn(t))
		for j := range each {
			stream, err := watches.Watch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			request := &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "key-%d-%d", i, j)}
			if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
				CreateRequest: request}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	page := s.URL + "/debug/actors?format=json"
	series := strings.Count(fetch(t, s.URL+"/metrics"), "\nactor_")
	var text string
	harness.Eventually(t, limit, "all streams are there", func() error {
		text = fetch(t, page)
		var v struct {
			Kinds []struct {
				Kind   string
				Actors int
			}
			Actors []struct{ Kind string }
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		shown := 0
		for _, a := range v.Actors {
			if a.Kind == "watch/stream" {
				shown++
			}
		}
		for _, k := range v.Kinds {
			if k.Kind == "watch/stream" && k.Actors == connections*each && shown == 8 {
				return nil
			}
		}
		return fmt.Errorf("%d of them shown in %+v", shown, v.Kinds)
	})
	if len(text) > 64<<10 {
		t.Errorf("the picture has %d bytes", len(text))
	}
	clients := fetch(t, s.URL+"/debug/clients?format=json")
	if !strings.Contains(clients, `"open":2000`) || strings.Count(clients, `"stream":`) != 200 {
		t.Errorf("%d streams are listed in %.300s", strings.Count(clients, `"stream":`), clients)
	}
	if more := strings.Count(fetch(t, s.URL+"/metrics"), "\nactor_"); more > series+100 {
		t.Errorf("%d series of actors, before there were clients %d", more, series)
	}
}
