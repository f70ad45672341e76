package raftactor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// peer gives the path of one of etcd's programs, which the integration tests build once.
func peer(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("TROUPE_PEERS_DIR")
	if dir == "" {
		t.Skipf("TROUPE_PEERS_DIR is not set: it names the directory with %s", name)
	}
	program := filepath.Join(dir, name)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not there: %v", name, err)
	}
	return program
}

// putEntry is an entry as a member proposes it.
func putEntry(t *testing.T, term, index uint64, key string, value []byte) *raftpb.Entry {
	t.Helper()
	data, err := protobuf.Marshal(&etcdserverpb.InternalRaftRequest{
		Header: &etcdserverpb.RequestHeader{ID: index},
		Put:    &etcdserverpb.PutRequest{Key: []byte(key), Value: value},
	})
	if err != nil {
		t.Fatal(err)
	}
	return logEntry(term, index, data)
}

// etcd-dump-logs reads a data directory that we wrote: several segments, a snapshot record and its file, a cut tail.
func TestLog_EtcdDumpLogsReadsWhatWeWrite(t *testing.T) {
	program := peer(t, "etcd-dump-logs")
	dir := t.TempDir()
	member := filepath.Join(dir, "member")
	d, snaps := OSDisk(), filepath.Join(member, "snap")
	if err := d.MakeDir(snaps); err != nil {
		t.Fatal(err)
	}
	log, err := CreateLog(d, filepath.Join(member, "wal"), LogMeta{Member: 0xabc, Cluster: 0xdef})
	if err != nil {
		t.Fatal(err)
	}
	const entries, snapshotAt = 70, 64
	value := []byte(strings.Repeat("v", 1<<20))
	for index := uint64(1); index <= entries; index++ {
		if index > snapshotAt {
			value = []byte("small")
		}
		entry := putEntry(t, 2, index, fmt.Sprintf("key-%d", index), value)
		err := log.Append(logState(2, 0xabc, index), []*raftpb.Entry{entry})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Flush(); err != nil {
			t.Fatal(err)
		}
		if index == snapshotAt {
			s := &walSnapshot{
				record: SnapshotRecord{Index: snapshotAt, Term: 2, ConfState: &raftpb.ConfState{Voters: []uint64{0xabc}}},
				data:   []byte("{}"),
			}
			if err := SaveSnapFile(d, snaps, s.file()); err != nil {
				t.Fatal(err)
			}
			if err := log.AppendSnapshot(s.record); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob(filepath.Join(member, "wal", "*.wal")); len(names) != 2 {
		t.Fatalf("%d segments, want 2", len(names))
	}
	out, err := exec.Command(program, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("etcd-dump-logs: %v\n%s", err, last(out))
	}
	text := string(out)
	for _, want := range []string{
		"nodeID=abc clusterID=def term=2 commitIndex=70 vote=abc", "lastIndex=70", "key-65", "key-70",
		"term=2 index=64 nodes=[abc]",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output has no %q\n%s", want, text[:min(len(text), 600)])
		}
	}
	out, err = exec.Command(program, "--start-index=62", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "key-63\"") {
		t.Errorf("from the first segment on: %v\n%s", err, last(out))
	}
}

func last(out []byte) string { return string(out[max(0, len(out)-2000):]) }

// OpenLog reads what a real etcd left behind when it was killed: every acknowledged put is there.
func TestLog_ReadsTheLogOfAKilledEtcd(t *testing.T) {
	server, client := peer(t, "etcd"), peer(t, "etcdctl")
	for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			urls := []string{freeURL(t), freeURL(t)}
			cmd := exec.Command(server, "--data-dir", dir, "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
				"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
				"--initial-cluster", "default="+urls[1], "--log-level", "error", "--snapshot-count", "10")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			const puts = 25
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range puts {
				put := exec.CommandContext(ctx, client, "--endpoints", urls[0], "--dial-timeout", "30s", "--command-timeout", "30s",
					"put", fmt.Sprintf("key-%d", i), strings.Repeat("v", 400))
				if out, err := put.CombinedOutput(); err != nil {
					t.Fatalf("put: %v\n%s", err, out)
				}
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			checkEtcdLog(t, filepath.Join(dir, "member"), puts)
		})
	}
}

func checkEtcdLog(t *testing.T, member string, puts int) {
	t.Helper()
	log, r, err := OpenLog(OSDisk(), filepath.Join(member, "wal"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the test synced it
	if r.Meta.Member == 0 || r.Meta.Cluster == 0 || r.HardState.GetTerm() == 0 {
		t.Errorf("metadata %+v, hard state %v", r.Meta, r.HardState)
	}
	if r.Start.Index > 0 {
		s, err := LoadSnapFile(OSDisk(), filepath.Join(member, "snap"))
		if err != nil || proto.Index(s.GetMetadata().GetIndex()) != r.Start.Index {
			t.Errorf("the record is at %d, the file at %v (%v)", r.Start.Index, s.GetMetadata(), err)
		}
	} else if uint64(puts) > r.HardState.GetCommit()+1 {
		t.Errorf("commit %d after %d puts", r.HardState.GetCommit(), puts)
	}
	var request etcdserverpb.InternalRaftRequest
	entry := r.Entries[len(r.Entries)-1]
	if err := protobuf.Unmarshal(entry.GetData(), &request); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("key-%d", puts-1); string(request.GetPut().GetKey()) != want {
		t.Errorf("the last entry is %v, want the put of %s", &request, want)
	}
	index := uint64(r.Last()) + 1
	ours := []*raftpb.Entry{putEntry(t, entry.GetTerm(), index, "ours", nil)}
	if err := errors.Join(log.Append(nil, ours), log.Sync()); err != nil {
		t.Fatal(err)
	}
}

func freeURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}
