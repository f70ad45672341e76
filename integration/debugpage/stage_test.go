package debugpage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"troupe/actors"
	"troupe/cmd/node"
	"troupe/gateway"
	"troupe/integration/harness"
	"troupe/raftactor/disk"
)

// stallingDisk is a real disk whose syncs wait while it is stalled, as those of a dying one do.
type stallingDisk struct {
	disk.Disk
	mu    sync.Mutex
	stall chan struct{} // nil: not stalled
}

func (d *stallingDisk) set(stalled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case stalled && d.stall == nil:
		d.stall = make(chan struct{})
	case !stalled && d.stall != nil:
		close(d.stall)
		d.stall = nil
	}
}

func (d *stallingDisk) wait() {
	d.mu.Lock()
	stall := d.stall
	d.mu.Unlock()
	if stall != nil {
		<-stall
	}
}

func (d *stallingDisk) Open(path string) (disk.File, error) { return d.file(d.Disk.Open(path)) }

func (d *stallingDisk) Create(path string) (disk.File, error) { return d.file(d.Disk.Create(path)) }

func (d *stallingDisk) file(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return stallingFile{f, d}, nil
}

type stallingFile struct {
	disk.File
	disk *stallingDisk
}

func (f stallingFile) Sync(point disk.Point) error {
	f.disk.wait()
	return f.File.Sync(point)
}

// clog is an actor that does not come back from its turn.
type clog struct{ release <-chan struct{} }

func (clog) Start(actors.Self[int]) error     { return nil }
func (clog) Stop()                            {}
func (c clog) Handle(actors.Self[int], []int) { <-c.release }

// member is a whole member in this process, with a disk and a system that a test can reach into.
type member struct {
	url  string
	disk *stallingDisk
	sys  *actors.System
}

func startMember(t *testing.T) *member {
	t.Helper()
	m := &member{disk: &stallingDisk{Disk: disk.OS()}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.url = "http://" + l.Addr().String()
	cfg := node.Default()
	cfg.DataDir = t.TempDir()
	cfg.AdvertiseClientURLs = []url.URL{{Scheme: "http", Host: l.Addr().String()}}
	troupe, err := node.Assemble(cfg, node.Seams{Log: zerolog.Nop(), Disk: m.disk})
	if err != nil {
		t.Fatal(err)
	}
	m.sys = troupe.System
	edge, err := gateway.New(gateway.Config{Member: troupe.Meta.Member, Cluster: troupe.Meta.Cluster,
		Versions: gateway.Versions{Server: node.CompatibleVersion, Troupe: node.Version},
		Raft:     troupe.Raft, Store: gateway.StoreRoom(troupe.Store), Watch: gateway.WatchRoom(troupe.Watch),
		Leases: troupe.Leases, Actors: troupe.System, Registry: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- edge.ServeClients(l) }()
	edge.SetReady()
	t.Cleanup(func() {
		m.disk.set(false)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := errors.Join(edge.Stop(ctx), <-served, troupe.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *member) client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.url}, DialTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var firstAlarm = regexp.MustCompile(`(?s)id="alarms"[^>]*>\s*<section class="alarm (\w+)"><h3>([^<]+)</h3><p>([^<]*)`)

// TestPage_AMailboxAtItsBoundIsWhatOneSeesFirst: above the picture, and first in the table, whatever else goes on.
func TestPage_AMailboxAtItsBoundIsWhatOneSeesFirst(t *testing.T) {
	b := findBrowser(t)
	m := startMember(t)
	startLoad(t, m.client)
	release := make(chan struct{})
	ref, err := actors.Spawn(m.sys, actors.Spec[int]{Name: "test/clogged",
		Policy:   actors.Reject[int](actors.Bound{Messages: 32, Bytes: 1 << 20}),
		Behavior: func() actors.Behavior[int] { return clog{release} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(release)
		_ = ref.Stop(context.Background())
	})
	_ = ref.Tell(actors.Normal, 0)
	harness.Eventually(t, limit, "its turn has begun", func() error {
		if n := ref.Depth(actors.Normal); n > 0 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	for n := 0; n < 40; n++ {
		_ = ref.Tell(actors.Normal, n)
	}
	dom := b.dom(t, m.url+"/debug/actors")
	first := firstAlarm.FindStringSubmatch(dom)
	if first == nil || first[1] != "full" || !strings.HasPrefix(first[2], "test/clogged is full") ||
		!strings.Contains(first[3], "32 of 32 messages wait") {
		t.Errorf("the first thing on the page is %q", first)
	}
	if all := rows(dom); len(all) == 0 || all[0].actor != "test/clogged" || all[0].condition != "full" {
		t.Errorf("the table begins with %+v", all)
	}
}

// TestPage_AStalledDiskIsNamedAsTheLogWriter: what is stuck is on top, with how long and with what.
func TestPage_AStalledDiskIsNamedAsTheLogWriter(t *testing.T) {
	b := findBrowser(t)
	m := startMember(t)
	l := startLoad(t, m.client)
	harness.Eventually(t, limit, "the load runs", func() error {
		if n := l.puts.Load(); n < 500 {
			return fmt.Errorf("%d puts so far", n)
		}
		return nil
	})
	m.disk.set(true)
	began := time.Now()
	harness.Eventually(t, limit, "the log writer is stuck", func() error {
		if text := fetch(t, m.url+"/debug/actors?format=json"); !strings.Contains(text, `"stuck":1`) {
			return fmt.Errorf("%.300s", text)
		}
		return nil
	})
	dom := b.dom(t, m.url+"/debug/actors")
	first := firstAlarm.FindStringSubmatch(dom)
	if first == nil || first[1] != "stuck" || first[2] != "raft/wal is stuck" ||
		!regexp.MustCompile(`^In one turn for [\d.]+ s, with \w+\.`).MatchString(first[3]) {
		t.Errorf("%v after the disk stalled the first thing on the page is %q", time.Since(began), first)
	}
	b.shoot(t, m.url+"/debug/actors", "stalled-desktop", 1360, 1080)
	b.shoot(t, m.url+"/debug/actors", "stalled-phone", 390, 844)
}
