package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// TestSnapshot_EtcdsToolsTakeItAndBothServersStartOnIt saves a snapshot of each server with etcdctl, looks into it and
// restores it with etcdutl, and starts each of the two servers on what was restored: the same history is there.
func TestSnapshot_EtcdsToolsTakeItAndBothServersStartOnIt(t *testing.T) {
	for _, from := range []harness.Kind{harness.Troupe, harness.Etcd} {
		t.Run("of "+from.String(), func(t *testing.T) {
			s := harness.Start(t, harness.Options{Kind: from})
			writeHistory(t, s.Conn(t), 1)
			want := s.Hashes(t)
			file := filepath.Join(t.TempDir(), "snapshot.db")
			s.MustCtl(t, "snapshot", "save", file)
			checkSnapshotStatus(t, file, s)
			for _, onto := range []harness.Kind{harness.Troupe, harness.Etcd} {
				r := harness.New(t, harness.Options{Kind: onto})
				out := harness.Run(t, harness.Command{Program: harness.Peer(t, "etcdutl"), Args: []string{
					"snapshot", "restore", file, "--data-dir", r.Dir, "--name", "default",
					"--initial-cluster", "default=" + r.PeerURL, "--initial-advertise-peer-urls", r.PeerURL,
				}})
				if out.Code != 0 {
					t.Fatalf("etcdutl snapshot restore: code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
				}
				r.Start(t)
				harness.SameHashes(t, from.String(), want, onto.String()+" on its snapshot", r.Hashes(t))
				r.MustCtl(t, "put", "after", "the restore")
				r.Terminate(t)
			}
		})
	}
}

// checkSnapshotStatus compares what etcdutl says of a file with what the server says of itself.
func checkSnapshotStatus(t *testing.T, file string, s *harness.Server) {
	t.Helper()
	out := harness.Run(t, harness.Command{
		Program: harness.Peer(t, "etcdutl"), Args: []string{"snapshot", "status", file, "-w", "json"},
	})
	var got struct {
		Revision  int64  `json:"revision"`
		TotalSize int64  `json:"totalSize"`
		Version   string `json:"version"`
	}
	if err := json.Unmarshal([]byte(out.Stdout), &got); err != nil || out.Code != 0 {
		t.Fatalf("etcdutl snapshot status: code %d, %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
	}
	status, err := pb.NewMaintenanceClient(s.Conn(t)).Status(harness.Context(t, limit), &pb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.Revision != status.Header.Revision || got.Version != status.StorageVersion || info.Size()%512 != sha256.Size {
		t.Errorf("etcdutl snapshot status says %+v of a file of %d bytes, the server %v", got, info.Size(), status)
	}
}

// snapshotStream is a snapshot as it came over the wire.
type snapshotStream struct {
	file    []byte
	pieces  []int
	version string
}

// readSnapshot reads a stream and checks what holds for every one: the remaining bytes count down to nothing, no
// message has a header, and the last one is the SHA-256 of all before.
func readSnapshot(t *testing.T, s *harness.Server) snapshotStream {
	t.Helper()
	stream, err := pb.NewMaintenanceClient(s.Conn(t)).Snapshot(harness.Context(t, limit), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*pb.SnapshotResponse
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: after %d messages: %v", s.Kind, len(all), err)
		}
		all = append(all, r)
	}
	var out snapshotStream
	last := all[len(all)-1]
	for _, r := range all[:len(all)-1] {
		out.file = append(out.file, r.Blob...)
		out.pieces = append(out.pieces, len(r.Blob))
		out.version = r.Version
	}
	total := uint64(len(out.file))
	for i, r := range all[:len(all)-1] {
		if total -= uint64(len(r.Blob)); r.RemainingBytes != total || r.Header != nil || r.Version != last.Version {
			t.Fatalf("%s: message %d: remaining %d, want %d; header %v, version %q", s.Kind, i, r.RemainingBytes, total,
				r.Header, r.Version)
		}
	}
	if sum := sha256.Sum256(out.file); !bytes.Equal(last.Blob, sum[:]) || last.RemainingBytes != 0 {
		t.Errorf("%s: the last message is %x with %d remaining, the hash is %x", s.Kind, last.Blob, last.RemainingBytes, sum)
	}
	return out
}

// TestSnapshot_StreamIsAsEtcds compares the shape of the two servers' streams.
func TestSnapshot_StreamIsAsEtcds(t *testing.T) {
	var streams []snapshotStream
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind})
		writeHistory(t, s.Conn(t), 1)
		got := readSnapshot(t, s)
		full := slices.IndexFunc(got.pieces, func(n int) bool { return n != 32<<10 })
		if full >= 0 && full != len(got.pieces)-1 {
			t.Errorf("%s: piece %d of %d has %d bytes", kind, full, len(got.pieces), got.pieces[full])
		}
		streams = append(streams, got)
	}
	if streams[0].version != streams[1].version {
		t.Errorf("troupe says version %q, etcd %q", streams[0].version, streams[1].version)
	}
}

// TestSnapshot_AbandonedDownloadsGiveTheirPlacesBack: more downloads than may be open at a time, each left in its
// middle without a word to the server but the end of the call; the next one is served.
func TestSnapshot_AbandonedDownloadsGiveTheirPlacesBack(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	writeHistory(t, s.Conn(t), 1)
	client := pb.NewMaintenanceClient(s.Conn(t))
	for range 20 {
		ctx, leave := context.WithCancel(harness.Context(t, limit))
		stream, err := client.Snapshot(ctx, &pb.SnapshotRequest{})
		if err == nil {
			_, _ = stream.Recv() // the first piece, or a refusal while the places of those before are given back
		}
		leave()
	}
	harness.Eventually(t, limit, "a snapshot is served", func() error {
		stream, err := client.Snapshot(harness.Context(t, limit), &pb.SnapshotRequest{})
		if err != nil {
			return err
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	entries, err := os.ReadDir(filepath.Join(s.Dir, "member", "snap"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".snap" && e.Name() != "db" {
			t.Errorf("left in the directory: %s", e.Name())
		}
	}
}
