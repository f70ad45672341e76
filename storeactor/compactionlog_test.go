package storeactor

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// compactAfter executes puts and a compaction to their last revision, and waits until that is over.
func compactAfter(t *testing.T, c *Client, puts ...*pb.InternalRaftRequest) {
	t.Helper()
	b := &proto.Batch{}
	for i, put := range puts {
		b.Commands = append(b.Commands, proto.Command{Index: proto.Index(i + 1), Term: 1, Request: put})
	}
	n := len(puts) + 1
	compact := &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: int64(n)}}
	answer := actors.NewReply[*proto.Result]()
	b.Commands = append(b.Commands, proto.Command{Index: proto.Index(n), Term: 1, Request: compact, Answer: answer})
	if err := c.Apply(b); err != nil {
		t.Fatal(err)
	}
	result, err := answer.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-result.Done
}

// TestCompaction_LogLineHasTheFieldsThatAreWaitedFor: scripts wait for `finished scheduled compaction` and read etcd's
// fields.
func TestCompaction_LogLineHasTheFieldsThatAreWaitedFor(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	restored, err := Restore(file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c, err := Spawn(actors.NewSystem(actors.Config{Name: t.Name()}), Config{
		File: file, Restored: restored, Log: realStore{}, QuotaBytes: -1, Logger: zerolog.New(&out),
		CheckpointInterval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	compactAfter(t, c, putOf("a", 1), putOf("a", 1))
	if err := c.Stop(context.Background()); err != nil { // after it nobody writes to the buffer
		t.Fatal(err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		fields := map[string]any{}
		if err := json.Unmarshal(line, &fields); err != nil || fields["message"] != "finished scheduled compaction" {
			continue
		}
		if fields["compact-revision"] != 3.0 || fields["number-of-keys-compacted"] != 1.0 || fields["level"] != "info" {
			t.Errorf("%s", line)
		}
		for _, name := range []string{"took", "hash", "current-db-size-bytes", "current-db-size",
			"current-db-size-in-use-bytes", "current-db-size-in-use"} {
			if _, there := fields[name]; !there {
				t.Errorf("%s is missing in %s", name, line)
			}
		}
		return
	}
	t.Errorf("no line about the compaction in:\n%s", out.String())
}

// TestCompaction_EndsWhenWhatItGaveUpIsFree: bbolt frees the pages that a commit gave up two commits later. Who puts
// when the compaction is over must not be refused for pages that it has just emptied.
func TestCompaction_EndsWhenWhatItGaveUpIsFree(t *testing.T) {
	file := openTestFile(t, BoltOptions{AddressBytes: 64 << 20})
	restored, err := Restore(file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Spawn(actors.NewSystem(actors.Config{Name: t.Name()}), Config{
		File: file, Restored: restored, Log: realStore{}, QuotaBytes: -1, CheckpointInterval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop(context.Background()) }()
	const values, valueBytes = 40, 64 << 10
	put := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), Value: make([]byte, valueBytes)}}
	compactAfter(t, c, slices.Repeat([]*pb.InternalRaftRequest{put}, values)...)
	s := c.State().Sizes
	if s.Total < values*valueBytes {
		t.Fatalf("%d values of %d bytes made a file of %d", values, valueBytes, s.Total)
	}
	if left := (values - 2) * int64(valueBytes); s.Projected(left) != s.Total {
		t.Errorf("after the compaction %d bytes do not fit into %+v", left, s)
	}
}

// TestSizeText_IsEtcds: the texts are those that etcd 3.7.3 prints.
func TestSizeText_IsEtcds(t *testing.T) {
	var got []string
	for _, n := range []int64{0, 9, 10, 999, 1000, 16384, 20480, 53248, 999_999, 1_500_000, 2 << 30} {
		got = append(got, sizeText(n))
	}
	want := []string{"0 B", "9 B", "10 B", "999 B", "1.0 kB", "16 kB", "20 kB", "53 kB", "1000 kB", "1.5 MB", "2.1 GB"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
