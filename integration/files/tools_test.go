package files

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// stopped is a stopped server's directory with what the server said before it stopped.
type stopped struct {
	server *harness.Server
	hash   *pb.HashKVResponse
}

func writeAndStop(t *testing.T, kind harness.Kind, args ...string) stopped {
	t.Helper()
	s := harness.Start(t, harness.Options{Kind: kind, Args: args})
	writeHistory(t, s.Conn(t), 1)
	hash, err := pb.NewMaintenanceClient(s.Conn(t)).HashKV(harness.Context(t, limit), &pb.HashKVRequest{})
	if err != nil {
		t.Fatalf("HashKV: %v", err)
	}
	s.Terminate(t)
	return stopped{server: s, hash: hash}
}

// tool runs one of etcd's tools on the directory and gives its output.
func (d stopped) tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out := harness.Run(t, harness.Command{Program: harness.Peer(t, name), Args: args})
	if out.Code != 0 {
		t.Fatalf("%s %q for %s: code %d\n%s%s", name, args, d.server.Kind, out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

func (d stopped) file() string { return filepath.Join(d.server.Dir, "member", "snap", "db") }

func TestFiles_EtcdutlHashesTheFileAsTheServerDid(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		d := writeAndStop(t, kind)
		var got struct {
			Hash     uint32 `json:"hash"`
			Revision int64  `json:"hashRevision"`
			Compact  int64  `json:"compactRevision"`
		}
		text := d.tool(t, "etcdutl", "hashkv", d.file(), "-w", "json")
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("etcdutl hashkv: %v in %q", err, text)
		}
		if got.Hash != d.hash.Hash || got.Revision != d.hash.HashRevision || got.Compact != d.hash.CompactRevision {
			t.Errorf("%s: etcdutl hashkv says %s, the server said %v", kind, text, d.hash)
		}
	}
}

var (
	headerID = regexp.MustCompile(`header:<ID:\d+ ?>`)
	voters   = regexp.MustCompile(`voters\\":\[[\d,]+\]`)
	pageOf   = regexp.MustCompile(`^pageID=\d+, index=\d+/\d+, `)
)

// requestLines gives the client requests that etcd-dump-logs finds in the log, without their ids.
func requestLines(dump string) (lines []string) {
	for _, line := range strings.Split(dump, "\n") {
		if !strings.Contains(line, "header:<") || strings.Contains(line, "cluster_member_attr_set") ||
			strings.Contains(line, "cluster_version_set") {
			continue
		}
		lines = append(lines, headerID.ReplaceAllString(strings.SplitN(line, "\tnorm\t", 2)[1], "header"))
	}
	return lines
}

func TestFiles_EtcdDumpLogsReadsTheSameRequests(t *testing.T) {
	a, b := writeAndStop(t, harness.Troupe), writeAndStop(t, harness.Etcd)
	dump := a.tool(t, "etcd-dump-logs", a.server.Dir)
	got, want := requestLines(dump), requestLines(b.tool(t, "etcd-dump-logs", b.server.Dir))
	if len(want) < 260 {
		t.Fatalf("only %d requests found in etcd's own log", len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("entry %d: troupe's log has %s, etcd's has %s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("troupe's log has %d requests, etcd's has %d", len(got), len(want))
	}
	if !strings.Contains(dump, fmt.Sprintf("nodeID=%x", a.hash.Header.MemberId)) ||
		!strings.Contains(dump, fmt.Sprintf("clusterID=%x", a.hash.Header.ClusterId)) {
		t.Errorf("the log's metadata does not name member %x of cluster %x:\n%.400s",
			a.hash.Header.MemberId, a.hash.Header.ClusterId, dump)
	}
}

// With snapshots the tool starts at the last one, which it must find and read.
func TestFiles_EtcdDumpLogsStartsAtTroupesSnapshot(t *testing.T) {
	d := writeAndStop(t, harness.Troupe, smallSnapshots...)
	dump := d.tool(t, "etcd-dump-logs", d.server.Dir)
	if !strings.Contains(dump, "term=") || strings.Contains(dump, "Snapshot:\nempty") {
		t.Errorf("no snapshot in:\n%.400s", dump)
	}
}

// bucketLines gives the content of one bucket as etcd-dump-db decodes it, without page numbers, in key order.
func (d stopped) bucketLines(t *testing.T, bucket string) []string {
	t.Helper()
	text := strings.TrimSpace(d.tool(t, "etcd-dump-db", "iterate-bucket", d.server.Dir, bucket, "--decode"))
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = pageOf.ReplaceAllString(lines[i], "")
	}
	slices.Sort(lines)
	return lines
}

func TestFiles_EtcdDumpDBReadsTheSameBuckets(t *testing.T) {
	a, b := writeAndStop(t, harness.Troupe), writeAndStop(t, harness.Etcd)
	buckets := strings.Fields(b.tool(t, "etcd-dump-db", "list-bucket", b.server.Dir))
	if got := strings.Fields(a.tool(t, "etcd-dump-db", "list-bucket", a.server.Dir)); !slices.Equal(got, buckets) {
		t.Errorf("troupe's file has buckets %q, etcd's has %q", got, buckets)
	}
	for _, bucket := range buckets {
		got, want := a.bucketLines(t, bucket), b.bucketLines(t, bucket)
		switch bucket {
		case "members": // ids and addresses differ: only their number is compared
			got, want = []string{fmt.Sprint(len(got))}, []string{fmt.Sprint(len(want))}
		case "meta": // term and consistent_index count a server's own entries too
			got, want = withoutOwnCounts(got), withoutOwnCounts(want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("bucket %s: %s", bucket, firstOf(got, want))
		}
	}
}

func withoutOwnCounts(lines []string) (out []string) {
	for _, line := range lines {
		if name, _, _ := strings.Cut(line, ", value="); name == `key="term"` || name == `key="consistent_index"` {
			line = name
		}
		out = append(out, voters.ReplaceAllString(line, "voters:<ids>"))
	}
	return out
}

// firstOf shows the first difference of two lists.
func firstOf(got, want []string) string {
	for i := range max(len(got), len(want)) {
		var a, b string
		if i < len(got) {
			a = got[i]
		}
		if i < len(want) {
			b = want[i]
		}
		if a != b {
			return fmt.Sprintf("first difference:\ntroupe: %s\netcd:   %s", a, b)
		}
	}
	return "equal"
}
