package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"troupe/leaseactor"
	"troupe/proto"
)

// inspectedRoom is a fakeRoom that describes its streams and leases.
type inspectedRoom struct {
	*fakeRoom
	infos []proto.StreamInfo
	err   error
	asked [2]int
}

func (r *inspectedRoom) Open(owner *WatchOwner) (WatchStream, error) {
	stream, err := r.fakeRoom.Open(owner)
	return numberedStream{stream}, err
}

type numberedStream struct{ WatchStream }

func (numberedStream) Number() uint64 { return 17 }

func (r *inspectedRoom) Inspect(ctx context.Context, streamsMax, watchesMax int) ([]proto.StreamInfo, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.asked = [2]int{streamsMax, watchesMax}
	return r.infos, r.err
}

// inspectedLeases tells of leases.
type inspectedLeases struct{ *fakeRoom }

func (inspectedLeases) Inspect() leaseactor.Inspection {
	return leaseactor.Inspection{Leases: 5, Overdue: 2, OldestOverdue: 3 * time.Second}
}

func newClientsEdge(t *testing.T) (*edge, *inspectedRoom) {
	t.Helper()
	room := &inspectedRoom{infos: []proto.StreamInfo{
		{Stream: 4, Watches: 1, Shown: []proto.WatchInfo{{ID: 0, Key: []byte("calm"), Next: 2}}},
		{Stream: 17, Watches: 12, QueuedBytes: 4096, Resyncs: 3, Shown: []proto.WatchInfo{
			{ID: 9, Key: []byte("<b>dir</b>/"), End: []byte("<b>dir</b>0"), Next: 1, Behind: true},
			{ID: 2, Key: []byte("a\x00\xff"), End: []byte{0}, Next: 2},
		}},
	}}
	e := newReadyEdge(t, func(c *Config) {
		room.fakeRoom = c.Raft.(*fakeRoom)
		c.Watch, c.Leases = room, inspectedLeases{room.fakeRoom}
	})
	return e, room
}

func TestDebugClients_ShowsConnectionsStreamsAndLeases(t *testing.T) {
	e, room := newClientsEdge(t)
	client := newClient(t, e)
	if _, err := client.Put(within(t), "k", "v"); err != nil { // revision 2
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	client.Watch(ctx, "<b>dir</b>/")
	eventually(t, "the stream is open", func() bool { return e.debug.watchers.size() == 1 })

	_, body := get(t, e, "/debug/clients?format=json")
	var p clientsPicture
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if room.asked != [2]int{clientsShownMax, clientWatchesShownMax} {
		t.Errorf("the room was asked for %v", room.asked)
	}
	first := p.Streams.Shown[0]
	if first.Stream != 17 || first.Watches != 12 || first.QueuedBytes != 4096 || first.Resyncs != 3 {
		t.Fatalf("the first stream is %+v", first)
	}
	if w := first.Shown[0]; w.Range != "<b>dir</b>/*" || w.Behind != 2 || !w.Reading || w.Next != 1 || w.ID != 9 {
		t.Errorf("the watch that is behind is %+v", w)
	}
	if w := first.Shown[1]; w.Range != `from "a\x00\xff"` || w.Behind != 0 || w.Reading {
		t.Errorf("the other watch is %+v", w)
	}
	if p.Leases.Leases != 5 || p.Leases.Overdue != 2 || p.Leases.OldestOverdueSeconds != 3 || p.Streams.Open != 1 {
		t.Errorf("leases %+v, streams %d", p.Leases, p.Streams.Open)
	}
	var remote string
	for _, c := range p.Connections.Shown {
		if c.ID == first.Connection {
			remote = c.Remote
			if c.Protocol != "grpc" || c.Streams != 1 || c.AgeSeconds < 0 {
				t.Errorf("the client's connection is %+v", c)
			}
		}
	}
	if remote == "" || remote != first.Remote {
		t.Errorf("the stream is that of %q, connection %d, of %+v", first.Remote, first.Connection, p.Connections.Shown)
	}
	cancel()
	eventually(t, "the stream is forgotten", func() bool { return e.debug.watchers.size() == 0 })
}

func TestDebugClients_KeysAreTextAndTheRestIsShownWithoutTheRoom(t *testing.T) {
	e, room := newClientsEdge(t)
	page := (&theatre{edge: e}).page(t, "/debug/clients")
	if strings.Contains(page, "<b>dir") || !strings.Contains(page, "&lt;b&gt;dir&lt;/b&gt;/*") {
		t.Error("a key is markup")
	}
	if !strings.Contains(page, "2 of 12 watches shown") || !strings.Contains(page, "the oldest by") {
		t.Error("the page does not say what it leaves out, or what is late")
	}
	room.err, room.infos = errors.New("the hub is busy"), nil
	e.debug.clients.mu.Lock()
	e.debug.clients.until = time.Time{}
	e.debug.clients.mu.Unlock()
	if _, text := get(t, e, "/debug/clients"); !strings.Contains(text, "the hub is busy") ||
		!strings.Contains(text, "leases: 5, overdue 2") {
		t.Errorf("the text is\n%s", text)
	}
}

// A picture is shared, so that whoever goes away while it is made does not spoil it for the others.
func TestDebugClients_SomebodyWhoGoesAwaySpoilsNothing(t *testing.T) {
	e, _ := newClientsEdge(t)
	gone, leave := context.WithCancel(within(t))
	leave()
	e.serveClients(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, http.MethodGet, "/debug/clients", nil))
	if p := e.lookAtClients(); p.Streams.Error != "" || len(p.Streams.Shown) != 2 {
		t.Errorf("shown is %+v", p.Streams)
	}
}

func TestSpellRange(t *testing.T) {
	for _, c := range []struct{ key, end, want string }{
		{"a", "", "a"}, {"a/", "a0", "a/*"}, {"a", "c", "a to c"}, {"\x00", "\x00", `from "\x00"`}, {"", "", `""`},
		{"a\xff", "b", `"a\xff"*`}, {"\xff\xff", "\x00", `from "\xff\xff"`}, {"ключ", "", "ключ"},
		{"a\u202eb", "", `"a\u202eb"`},
		{strings.Repeat("k", 500), "", strings.Repeat("k", loggedKeyBytesMax) + "…"},
	} {
		if got := spellRange([]byte(c.key), []byte(c.end)); got != c.want {
			t.Errorf("%q to %q is %s, want %s", c.key, c.end, got, c.want)
		}
	}
}
