package diskfull

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

const (
	// fileFull and fileSpace are the log lines of the operator about the disk of the database.
	fileFull  = "no space left on the disk of the database file: writes are refused"
	fileSpace = "there is space again on the disk of the database file"
	// backendDisk is the size of the disk under the database; the log is on the machine's own.
	backendDisk = "size=96m"
)

// startOnSmallDisk starts a server whose database is on a small disk and whose log is not.
func startOnSmallDisk(t *testing.T) (s *harness.Server, disk string) {
	t.Helper()
	disk = smallDisk(t, backendDisk)
	s = harness.New(t, harness.Options{
		Dir: filepath.Join(disk, "data"), Args: []string{"--wal-dir", filepath.Join(t.TempDir(), "wal")},
	})
	s.Start(t)
	return s, disk
}

// snapFiles are the names in the directory of the database, but the files that belong there.
func snapFiles(t *testing.T, s *harness.Server) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Dir, "member", "snap"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "db" && !strings.HasSuffix(name, ".snap") {
			left = append(left, name)
		}
	}
	return left
}

// TestBackendFull_WritesAreRefusedReadsGoOnNothingIsLost fills the disk under the database: puts are refused with
// etcd's answer for no space, what was acknowledged is read, what needs no space goes on, probes and Status say why,
// the log has one line, a kill loses nothing although the file lacks what the log has, and all goes on by itself when
// there is space.
func TestBackendFull_WritesAreRefusedReadsGoOnNothingIsLost(t *testing.T) {
	s, disk := startOnSmallDisk(t)
	f := newFiller(t, s)
	for range 8 {
		if err := f.put(t); err != nil {
			t.Fatal(err)
		}
	}
	writeOut(t, s)
	empty := fill(t, disk, 3<<20)
	f.untilRefused(t)
	f.check(t)
	for range 20 {
		if err := f.put(t); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("a put while the disk is full: %v", err)
		}
	}
	checkWithoutSpace(t, s, f)
	wantOneLine(t, s, fileFull)
	s.Kill(t)
	s.Start(t) // on the full disk
	f.client = s.Client(t)
	f.check(t)
	f.untilRefused(t)
	s.Terminate(t) // exits with 0: nothing is lost
	wantOneLine(t, s, "the database file was not brought up to date, its disk is full; nothing is lost")
	s.Start(t)
	f.client = s.Client(t)
	f.check(t)
	f.untilRefused(t)
	empty()
	harness.Eventually(t, time.Minute, "a put is taken", func() error { return f.put(t) })
	f.check(t)
	wantOneLine(t, s, fileSpace)
	harness.Eventually(t, time.Minute, "the member is ready", func() error {
		if code, body := harness.Page(t, s.URL+"/readyz/space"); code != 200 {
			return errors.New(body)
		}
		return nil
	})
	want := s.Hashes(t)
	s.Kill(t)
	s.Start(t)
	f.client = s.Client(t)
	f.check(t)
	harness.SameHashes(t, "before the kill", want, "after it", s.Hashes(t))
}

// checkWithoutSpace is what a member whose database disk is full still does, and says.
func checkWithoutSpace(t *testing.T, s *harness.Server, f *filler) {
	t.Helper()
	ctx := harness.Context(t, time.Minute)
	if _, err := f.client.Grant(ctx, 60); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a grant: %v", err)
	}
	if _, err := f.client.Txn(ctx).Then(clientv3.OpPut("a", "b")).Commit(); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a txn that puts: %v", err)
	}
	if _, err := f.client.Txn(ctx).Then(clientv3.OpGet(keyOf(0))).Commit(); err != nil {
		t.Errorf("a txn that reads: %v", err)
	}
	if _, err := f.client.Delete(ctx, "not there"); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	wantFullDiskNamed(t, s, "disk of the database file is full")
	if _, body := harness.Page(t, s.URL+"/metrics"); !strings.Contains(body, "\ntroupe_store_disk_full 1\n") {
		t.Error("the metric does not say that the disk is full")
	}
	r, err := f.client.Status(ctx, s.URL)
	if err != nil || !strings.Contains(strings.Join(r.Errors, " "), "no space left") {
		t.Errorf("status: %v %v", r, err)
	}
	if alarms, err := f.client.AlarmList(ctx); err != nil || len(alarms.Alarms) > 0 {
		t.Errorf("alarms, which somebody would have to clear: %v %v", alarms, err)
	}
}

// TestBackendFull_CopiesThatDoNotFitChangeNothing: a defragmentation and a snapshot for which there is no room, at
// several amounts of what is left, say so, leave nothing on the disk and disturb no write; with room both are done.
func TestBackendFull_CopiesThatDoNotFitChangeNothing(t *testing.T) {
	s, disk := startOnSmallDisk(t)
	f := newFiller(t, s)
	for range 24 {
		if err := f.put(t); err != nil {
			t.Fatal(err)
		}
	}
	ctx := harness.Context(t, 2*time.Minute)
	m := pb.NewMaintenanceClient(s.Conn(t))
	isFull := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s without room: %v", what, err)
		}
	}
	for _, leave := range []int64{16 << 20, 12 << 20, 9 << 20} {
		writeOut(t, s)
		empty := fill(t, disk, leave)
		free := freeBytes(t, disk)
		_, err := m.Defragment(ctx, &pb.DefragmentRequest{})
		isFull("a defragmentation", err)
		isFull("a snapshot", downloadSnapshot(ctx, m))
		if left := snapFiles(t, s); len(left) > 0 {
			t.Errorf("left beside the database: %v", left)
		}
		harness.Eventually(t, time.Minute, "the disk has its room back", func() error {
			if now := freeBytes(t, disk); now < free-(4<<20) {
				return errors.New("the copy still takes room")
			}
			return nil
		})
		if err := f.put(t); err != nil {
			t.Errorf("a put after it: %v", err)
		}
		empty()
	}
	if _, err := m.Defragment(ctx, &pb.DefragmentRequest{}); err != nil {
		t.Errorf("a defragmentation with room: %v", err)
	}
	// The file that was replaced takes room until the last reader has left it.
	harness.Eventually(t, time.Minute, "a snapshot with room", func() error { return downloadSnapshot(ctx, m) })
	f.check(t)
	if n := count(s, fileFull); n > 0 {
		t.Errorf("the writes ran out of space:\n%s", s.Log().Tail(20))
	}
}

// writeOut waits until the file has what was acknowledged, so that the amount of free space stands still.
func writeOut(t *testing.T, s *harness.Server) {
	t.Helper()
	_, err := pb.NewMaintenanceClient(s.Conn(t)).Hash(harness.Context(t, time.Minute), &pb.HashRequest{})
	if err != nil {
		t.Fatal(err)
	}
}

// downloadSnapshot reads a snapshot to its end.
func downloadSnapshot(ctx context.Context, m pb.MaintenanceClient) error {
	stream, err := m.Snapshot(ctx, &pb.SnapshotRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
