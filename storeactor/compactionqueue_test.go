package storeactor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// TestCompaction_ManyAtOnceAreDoneAsTwo: whoever asks for one compaction after the other does not make the index be
// walked over for each. All are answered, and all are done when the last is.
func TestCompaction_ManyAtOnceAreDoneAsTwo(t *testing.T) {
	const puts = 200
	file := NewModelFile(ModelOptions{})
	restored, err := Restore(file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c, err := Spawn(actors.NewSystem(actors.Config{Name: t.Name()}), Config{
		File: file, Restored: restored, Log: realStore{}, QuotaBytes: -1, Logger: zerolog.New(&out),
		CheckpointInterval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &proto.Batch{}
	add := func(r *pb.InternalRaftRequest, answer proto.Answer) {
		b.Commands = append(b.Commands, proto.Command{
			Index: proto.Index(len(b.Commands) + 1), Term: 1, Request: r, Answer: answer,
		})
	}
	for range puts {
		add(putOf("a", 1), nil)
	}
	var answers []actors.Reply[*proto.Result]
	for revision := int64(2); revision <= puts; revision++ {
		answer := actors.NewReply[*proto.Result]()
		answers = append(answers, answer)
		add(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: revision}}, answer)
	}
	if err := c.Apply(b); err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		result, err := answer.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-result.Done:
		case <-t.Context().Done():
			t.Fatal("a compaction is never done")
		}
	}
	if compacted := c.State().Compacted; compacted != puts {
		t.Errorf("compacted through %d, want %d", compacted, puts)
	}
	if err := c.Stop(context.Background()); err != nil { // after it nobody writes to the text
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `"finished scheduled compaction"`); n != compactionsQueuedMax {
		t.Errorf("%d compactions were done, want %d", n, compactionsQueuedMax)
	}
	if !strings.Contains(out.String(), `"compact-revision":200`) {
		t.Errorf("the last one was not done:\n%s", out.String())
	}
}
