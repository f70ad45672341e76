package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"troupe/storeactor"
)

// fakeClock stands still until it is told to go on.
type fakeClock struct{ passed atomic.Int64 }

func (c *fakeClock) now() time.Time          { return time.Unix(1000, c.passed.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.passed.Add(int64(d)) }

// newDownloads makes downloads with that many places, and tells who makes room.
func newDownloads(places int64) (d *downloads, clock *fakeClock, yielded *[]string) {
	clock, yielded = &fakeClock{}, new([]string)
	return &downloads{gate: &gate{max: places}, yieldAfter: snapshotYieldAfter, now: clock.now,
		yielded: func(d *download, stalled time.Duration) {
			*yielded = append(*yielded, fmt.Sprint(d.remote, " ", stalled))
		}}, clock, yielded
}

// enterMoving takes a place and begins to send. A download that is told to make room leaves at once.
func enterMoving(t *testing.T, d *downloads, remote string) *download {
	t.Helper()
	var one *download
	one, err := d.enter(t.Context(), remote, func(error) { go one.leave() })
	if err != nil {
		t.Fatalf("%s: %v", remote, err)
	}
	one.move()
	return one
}

func wantRefused(t *testing.T, d *downloads, when string) {
	t.Helper()
	if _, err := d.enter(t.Context(), "late", func(error) {}); !errors.Is(err, storeactor.ErrSnapshotsOpen) {
		t.Fatalf("a newcomer %s: %v", when, err)
	}
}

// However slow the clients are, and however many newcomers there are, a download that moves within the bound stays; so
// does one whose copy is being made.
func TestDownloads_OneThatMovesIsNeverCut(t *testing.T) {
	d, clock, yielded := newDownloads(2)
	slow := enterMoving(t, d, "slow")
	if _, err := d.enter(t.Context(), "made", func(error) {}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		clock.advance(snapshotYieldAfter - 1)
		wantRefused(t, d, "just before the bound")
		slow.move()
	}
	clock.advance(1)
	wantRefused(t, d, "after it has moved")
	if len(*yielded) != 0 || d.gate.inside() != 2 {
		t.Fatalf("%q made room, %d places are taken", *yielded, d.gate.inside())
	}
	clock.advance(snapshotYieldAfter - 1)
	enterMoving(t, d, "newcomer")
	if want := "slow 10s"; len(*yielded) != 1 || (*yielded)[0] != want {
		t.Errorf("%q made room, want %q", *yielded, want)
	}
}

// Of several that have not moved, the one that has been so longest goes, and one newcomer takes one place.
func TestDownloads_TheOneStalledLongestMakesRoom(t *testing.T) {
	d, clock, yielded := newDownloads(3)
	first := enterMoving(t, d, "first")
	clock.advance(time.Second)
	enterMoving(t, d, "second")
	clock.advance(time.Second)
	enterMoving(t, d, "third")
	first.move()
	clock.advance(snapshotYieldAfter)
	for _, want := range []string{"second 11s", "first 10s", "third 10s"} {
		enterMoving(t, d, "newcomer")
		if last := (*yielded)[len(*yielded)-1]; last != want {
			t.Fatalf("%q made room, want %q", last, want)
		}
	}
	wantRefused(t, d, "behind three that have just begun")
	if d.gate.inside() != 3 || len(*yielded) != 3 {
		t.Errorf("%d places are taken, %q made room", d.gate.inside(), *yielded)
	}
}

// A newcomer whose call ends while a place is cleared for it takes none, and loses none that it has got meanwhile.
func TestDownloads_NewcomerThatLeavesLosesNoPlace(t *testing.T) {
	d, clock, _ := newDownloads(1)
	told := make(chan struct{})
	victim, err := d.enter(t.Context(), "victim", func(error) { close(told) })
	if err != nil {
		t.Fatal(err)
	}
	victim.move()
	clock.advance(snapshotYieldAfter)
	ctx, leave := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	left := make(chan error, 1)
	go func() {
		_, err := d.enter(ctx, "newcomer", func(error) {})
		left <- err
	}()
	<-told
	wantRefused(t, d, "while the place is promised to another")
	leave(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Fatalf("the newcomer that left: %v", err)
	}
	if d.gate.inside() != 1 {
		t.Fatal("the place was given back before its copy was closed")
	}
	victim.leave()
	if d.gate.inside() != 0 || len(d.list) != 0 {
		t.Fatalf("%d places and %d downloads are left", d.gate.inside(), len(d.list))
	}
	enterMoving(t, d, "next").leave()
	if d.gate.inside() != 0 {
		t.Fatal("a place was lost")
	}
}

// dialNarrow gives a connection with windows of 64 KiB, which do not grow, and tells its address.
func dialNarrow(t *testing.T, e *edge) (client pb.MaintenanceClient, address func() string) {
	t.Helper()
	var local atomic.Value
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				local.Store(c.LocalAddr().String())
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewMaintenanceClient(conn), func() string { return local.Load().(string) }
}

// rest reads a snapshot to its end.
func rest(stream pb.Maintenance_SnapshotClient) (got []byte, err error) {
	for {
		r, err := stream.Recv()
		if err != nil {
			return got, err
		}
		got = append(got, r.Blob...)
	}
}

// movedLast is when the client of that download in the list took something last; zero if it has not begun.
func (d *downloads) movedLast(i int) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i >= len(d.list) {
		return time.Time{}
	}
	return d.list[i].moved
}

// Clients that read nothing do not keep others from a backup, and one that reads slowly gets all of its own meanwhile.
func TestSnapshot_ClientsThatNeverReadDoNotLockOutBackups(t *testing.T) {
	k := &fakeKeeper{content: bytes.Repeat([]byte("0123456789abcdef"), 1<<20), places: 2}
	clock := &fakeClock{}
	e := newBoundedEdge(t, func(cfg *Config) {
		k.fakeRoom = cfg.Store.(*fakeRoom)
		cfg.Store = k
	}, func(s *Server) { s.gates.snapshots.max, s.downloads.now = k.places, clock.now })
	e.SetReady()
	begin := func() (pb.Maintenance_SnapshotClient, func() string) {
		client, address := dialNarrow(t, e)
		stream, err := client.Snapshot(within(t), &pb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return stream, address
	}
	slow, _ := begin()
	eventually(t, "the slow one has begun", func() bool { return !e.downloads.movedLast(0).IsZero() })
	silent, address := begin()
	eventually(t, "the silent one has begun", func() bool { return !e.downloads.movedLast(1).IsZero() })

	var read []byte
	take := func() bool {
		r, err := slow.Recv()
		if err != nil {
			t.Fatalf("the slow one after %d bytes: %v", len(read), err)
		}
		read = append(read, r.Blob...)
		return e.downloads.movedLast(0).Equal(clock.now())
	}
	refused := 0
	newcomer, _ := begin()
	first, err := newcomer.Recv()
	for ; err != nil; first, err = newcomer.Recv() {
		wantStatus(t, err, codes.ResourceExhausted, status.Convert(statusSnapshotsOpen).Message())
		if refused++; refused == 20 {
			t.Fatal("no newcomer is let in")
		}
		clock.advance(snapshotYieldAfter) // the silent one may have been filling its window until now
		eventually(t, "the slow one moves", take)
		newcomer, _ = begin()
	}
	if refused == 0 {
		t.Error("a newcomer was let in although all had just moved")
	}
	wantPage(t, e, "/metrics", fmt.Sprintf(`troupe_gateway_rejected_total{kind="snapshot"} %d`, refused),
		`troupe_gateway_open{kind="snapshot"} 2`, `troupe_gateway_open_bound{kind="snapshot"} 2`)
	log := e.log.String()
	if !strings.Contains(log, `"kind":"snapshot"`) {
		t.Error("the log does not tell of the refusals")
	}
	said := fmt.Sprintf(`"remote":%q`, address())
	if strings.Count(log, "client does not read its snapshot") != 1 || !strings.Contains(log, said) {
		t.Errorf("the log does not tell once that the download of %s made room", address())
	}
	if _, err := rest(silent); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "did not read") {
		t.Errorf("the silent one ended by %v", err)
	}
	wantRest := func(who string, stream pb.Maintenance_SnapshotClient, got []byte) {
		t.Helper()
		more, err := rest(stream)
		got = append(got, more...)
		if !errors.Is(err, io.EOF) || len(got) != len(k.content)+32 || !bytes.HasPrefix(got, k.content) {
			t.Errorf("the %s got %d bytes: %v", who, len(got), err)
		}
	}
	wantRest("newcomer", newcomer, first.Blob)
	wantRest("slow", slow, read)
	eventually(t, "all places are free", func() bool { return e.gates.snapshots.inside() == 0 && k.open.Load() == 0 })
}
