package storeactor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// peersDirectory is where the real etcd and its tools are; the tests that need them are skipped without.
func peersDirectory(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("TROUPE_PEERS_DIR")
	if dir == "" {
		t.Skip("TROUPE_PEERS_DIR is not set")
	}
	return dir
}

// realEtcd is one etcd process on free ports.
type realEtcd struct {
	t        *testing.T
	bin      string
	data     string
	endpoint string
	process  *exec.Cmd
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

func startEtcd(t *testing.T, bin string) *realEtcd {
	t.Helper()
	e := &realEtcd{t: t, bin: bin, data: filepath.Join(t.TempDir(), "etcd"), endpoint: freeURL(t)}
	peer := freeURL(t)
	e.process = exec.Command(filepath.Join(bin, "etcd"), "--data-dir", e.data, "--log-level", "error",
		"--listen-client-urls", e.endpoint, "--advertise-client-urls", e.endpoint,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err := e.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := e.try("", "endpoint", "health"); err == nil {
			return e
		}
		if time.Now().After(deadline) {
			t.Fatal("etcd does not become healthy")
		}
	}
}

func (e *realEtcd) kill() {
	_ = e.process.Process.Kill()
	_, _ = e.process.Process.Wait()
}

func (e *realEtcd) try(stdin string, args ...string) (string, error) {
	c := exec.Command(filepath.Join(e.bin, "etcdctl"), append([]string{"--endpoints", e.endpoint}, args...)...)
	c.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("etcdctl %q: %w: %s", args, err, stderr.Bytes())
	}
	return string(out), err
}

func (e *realEtcd) ctl(stdin string, args ...string) string {
	e.t.Helper()
	out, err := e.try(stdin, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func (e *realEtcd) hash(rev proto.Revision) HashResult {
	e.t.Helper()
	out := e.ctl("", "endpoint", "hashkv", "--rev", fmt.Sprint(rev), "-w", "json")
	var answers []struct {
		HashKV struct {
			Header          struct{ Revision int64 }
			Hash            uint32
			CompactRevision int64 `json:"compact_revision"`
			HashRevision    int64 `json:"hash_revision"`
		}
	}
	if err := json.Unmarshal([]byte(out), &answers); err != nil || len(answers) != 1 {
		e.t.Fatalf("%s: %v", out, err)
	}
	a := answers[0].HashKV
	return HashResult{
		Hash: a.Hash, CompactRevision: proto.Revision(a.CompactRevision),
		HashRevision: proto.Revision(a.HashRevision), Revision: proto.Revision(a.Header.Revision),
	}
}

// work does random everyday work: puts, deletions, both in one transaction, re-creations, leases, and compactions, some
// exactly at a deletion. The last one commits everything before it to the file. It gives the compact revision.
func (e *realEtcd) work(seed uint64, n int) proto.Revision {
	r := rand.New(rand.NewPCG(seed, 3))
	keys := []string{"a", "b", "c", "d"}
	compacted := proto.Revision(0)
	compact := func(rev proto.Revision) {
		if rev > compacted {
			e.ctl("", "compact", fmt.Sprint(rev), "--physical")
			compacted = rev
		}
	}
	for i := range n {
		key := keys[r.IntN(len(keys))]
		switch kind := r.IntN(12); {
		case kind < 5:
			e.ctl("", "put", key, fmt.Sprint("value ", i))
		case kind < 8:
			e.ctl("", "del", key)
			if r.IntN(4) == 0 {
				compact(e.hash(0).Revision)
			}
		case kind < 10:
			other := keys[(strings.Index("abcd", key)+1)%len(keys)]
			e.ctl(fmt.Sprintf("\ndel %s\nput %s txn%d\n\n\n", key, other, i), "txn")
		case kind < 11:
			compact(e.hash(0).Revision - proto.Revision(r.IntN(3)))
		default:
			lease := strings.Fields(e.ctl("", "lease", "grant", "1000"))[1]
			e.ctl("", "put", key, "leased", "--lease", lease)
		}
	}
	e.ctl("", "put", "last", "1")
	e.ctl("", "del", "a")
	e.ctl("", "put", "b", "2")
	compact(e.hash(0).Revision - 1)
	e.ctl("", "put", "c", "3")
	e.ctl("", "put", "d", "4")
	for i := range 8 {
		e.ctl("", "put", keys[i%2], fmt.Sprint("late ", i))
	}
	e.ctl("", "del", "b")
	compact(e.hash(0).Revision - 9) // commits all that came before it
	return compacted
}

// TestPeers_FilesOfEtcdAreRestoredAndHashedAsEtcdDoes kills a working etcd, restores its file and compares HashKV at
// every revision that is left: ours, the live etcd's, and etcdutl's over the file.
func TestPeers_FilesOfEtcdAreRestoredAndHashedAsEtcdDoes(t *testing.T) {
	bin := peersDirectory(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareWithEtcd(t, bin, seed) })
	}
}

func compareWithEtcd(t *testing.T, bin string, seed uint64) {
	e := startEtcd(t, bin)
	compacted := e.work(seed, 40)
	live := map[proto.Revision]HashResult{}
	for rev := compacted + 1; rev <= e.hash(0).Revision; rev++ {
		live[rev] = e.hash(rev)
	}
	e.kill()
	path := filepath.Join(e.data, "member", "snap", "db")
	file, err := OpenBoltFile(path, BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, err := Restore(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Index == 0 || r.Term == 0 || r.Finished != compacted || r.Scheduled != compacted || r.ConfState == nil {
		t.Fatalf("restored %+v", r)
	}
	if m := r.Membership; len(m.Members) != 1 || m.Members[0].Name != "default" || m.ClusterVersion != "3.7.0" ||
		m.Members[0].ClientURLs[0] != e.endpoint {
		t.Fatalf("restored membership %+v", m)
	}
	state := &State{Revision: r.Keys.revision, Compacted: r.Finished, tree: r.Keys.tree}
	t.Logf("index %d, revision %d, compacted %d, %d leases, %d hashes",
		r.Index, state.Revision, compacted, len(r.Leases), len(live))
	ours := map[proto.Revision]uint32{}
	for rev := compacted; rev <= state.Revision; rev++ {
		rule := hashRule{revision: rev, compacted: compacted, keep: state.hashKeep(rev)}
		if ours[rev], err = hashKeyValues(r.View, rule); err != nil {
			t.Fatal(err)
		}
		if l, ok := live[rev]; ok && (l.Hash != ours[rev] || l.CompactRevision != compacted) {
			t.Errorf("revision %d: ours %d, the live etcd's %+v", rev, ours[rev], l)
		}
	}
	r.View.Release()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	compareWithEtcdutl(t, bin, path, ours)
}

// compareWithEtcdutl compares hashes with etcdutl's over the same file.
func compareWithEtcdutl(t *testing.T, bin, path string, ours map[proto.Revision]uint32) {
	t.Helper()
	for rev, want := range ours {
		if rev <= 0 {
			continue
		}
		out, err := exec.Command(filepath.Join(bin, "etcdutl"), "hashkv", path, "--rev", fmt.Sprint(rev)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		fields := strings.Split(strings.TrimSpace(string(out)), ", ")
		if got, _ := strconv.ParseUint(fields[0], 10, 32); uint32(got) != want {
			t.Errorf("revision %d: ours %d, etcdutl says %s", rev, want, out)
		}
	}
}

// realStore lets a backend work on a real file with goroutines: a log that confirms everything, a store that gives the
// handles back.
type realStore struct {
	compacted chan proto.Revision
}

func (realStore) ConfirmCommit(_ proto.Index, done func(error)) { done(nil) }
func (realStore) diskFull()                                     {}
func (realStore) checkpointed(c *checkpointed)                  { c.view.Release() }
func (s realStore) compactedPhysically(c *compactedPhysically)  { s.compacted <- c.revision }

// writeHistory brings a history through a backend into the file, with all its compactions done.
func writeHistory(t *testing.T, file File, h *history) {
	t.Helper()
	store := realStore{compacted: make(chan proto.Revision, len(h.steps))}
	sys := actors.NewSystem(actors.Config{Name: "test"})
	handle, err := spawnBackend(sys, backendConfig{
		File: file, Log: store, Store: store, Revision: 1, CompactionBatch: 3, CompactionPending: 1,
		CompactionPause: time.Microsecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	compactions := 0
	var hashes []actors.Reply[HashResult]
	for i := range h.steps {
		h.steps[i].write.membership = &proto.Membership{ClusterVersion: "3.7.0"}
		handle.write(h.steps[i].write)
		if h.steps[i].compact {
			handle.compact(&compactFile{revision: h.steps[i].compacted, keep: h.keep(h.steps[i].compacted)})
			compactions++
		}
		if i%5 == 0 {
			reply := actors.NewReply[HashResult]()
			handle.hash(&hashRequest{state: h.state(proto.Index(i + 1)), reply: reply})
			hashes = append(hashes, reply)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range compactions {
		select {
		case <-store.compacted:
		case <-ctx.Done():
			t.Fatal("a compaction does not end")
		}
	}
	for i, reply := range hashes {
		got, err := reply.Wait(ctx)
		index := proto.Index(5*i + 1)
		if errors.Is(err, ErrHashesWaiting) {
			continue
		}
		if want := h.wantHash(index, h.at(index).revision); err != nil || got.Hash != want {
			t.Errorf("hash at index %d is %d (%v), want %d", index, got.Hash, err, want)
		}
	}
	if err := handle.stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestPeers_EtcdsToolsReadWhatWeWrite writes histories through a backend and lets etcdutl and etcd-dump-db read the
// file.
func TestPeers_EtcdsToolsReadWhatWeWrite(t *testing.T) {
	bin := peersDirectory(t)
	for _, c := range []struct{ seed, entries int }{
		{0, 80}, {1, 80}, {2, 80},
		{149, 10}, {394, 10}, {1131, 10}, // a hash for which no key has a version to keep
	} {
		path := filepath.Join(t.TempDir(), "db")
		file, err := OpenBoltFile(path, BoltOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h := newHistory(rand.New(rand.NewPCG(uint64(c.seed), 9)), c.entries)
		h.dropRecreations()
		writeHistory(t, file, h)
		r, err := Restore(file, 0)
		if err != nil {
			t.Fatal(err)
		}
		last := h.at(proto.Index(len(h.steps)))
		if r.Index != proto.Index(len(h.steps)) || r.Finished != last.compacted {
			t.Fatalf("restored index %d, finished %d", r.Index, r.Finished)
		}
		r.View.Release()
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		ours := map[proto.Revision]uint32{}
		for rev := max(last.compacted, 1); rev <= last.revision; rev++ {
			ours[rev] = h.wantHash(r.Index, rev)
		}
		compareWithEtcdutl(t, bin, path, ours)
		checkDump(t, bin, path, r)
	}
}

func checkDump(t *testing.T, bin, path string, r *Restored) {
	t.Helper()
	dump := func(args ...string) string {
		out, err := exec.Command(filepath.Join(bin, "etcd-dump-db"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("etcd-dump-db %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	names := strings.Fields(dump("list-bucket", path))
	if len(names) != len(buckets) {
		t.Errorf("etcd-dump-db lists the buckets %q", names)
	}
	meta := dump("iterate-bucket", path, "meta", "--decode")
	for _, want := range []string{
		fmt.Sprintf(`key="consistent_index", value=%d`, r.Index), fmt.Sprintf(`key="term", value=%d`, r.Term),
		fmt.Sprintf(`key="finishedCompactRev", value={%d 0}`, r.Finished), `key="storageVersion", value="3.7.0"`,
	} {
		if !strings.Contains(meta, want) {
			t.Errorf("etcd-dump-db shows\n%swithout %s", meta, want)
		}
	}
}
