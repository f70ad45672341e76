package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/raftactor"
)

// live runs a member through one life: it becomes ready, puts keys, and stops.
func live(t *testing.T, cfg Config, puts int) {
	t.Helper()
	member, err := Assemble(cfg, Seams{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := member.join(ctx); err != nil {
		t.Error(err)
	}
	for range puts {
		put := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}}
		if _, err := member.Raft.Propose(ctx, put); err != nil {
			t.Error(err)
		}
	}
	if err := member.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// refused starts a member that must not start, and gives the reason.
func refused(t *testing.T, cfg Config) error {
	t.Helper()
	member, err := Assemble(cfg, Seams{Log: zerolog.Nop()})
	if err == nil {
		_ = member.Stop(context.Background())
		t.Fatal("it starts")
	}
	return err
}

// copyDir copies the files of a directory.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// A log that was rolled back, or has lost its newest segment, ends before the index that the database holds. What is
// missing may have been acknowledged, so the member must not go on as if it had never been.
func TestAssemble_RefusesALogThatEndsBeforeTheDatabase(t *testing.T) {
	cfg := testConfig(t)
	old := filepath.Join(t.TempDir(), "wal")
	live(t, cfg, 1)
	copyDir(t, walDirOf(&cfg), old)
	live(t, cfg, 20)
	copyDir(t, old, walDirOf(&cfg))
	if err := refused(t, cfg); !errors.Is(err, raftactor.ErrFileAheadOfLog) {
		t.Errorf("the reason is %v", err)
	}
}

func TestAssemble_RefusesTheDatabaseOfAnotherMember(t *testing.T) {
	mine, other := testConfig(t), testConfig(t)
	other.Name = "other"
	other.AdvertisePeerURLs = mustURLs("http://127.0.0.1:4711")
	other.Complete()
	live(t, mine, 1)
	live(t, other, 1)
	copyDir(t, snapDirOf(&other), snapDirOf(&mine))
	err := refused(t, mine)
	for _, path := range []string{walDirOf(&mine), filePathOf(&mine)} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("the reason does not name %s: %v", path, err)
		}
	}
}

// --initial-cluster counts for a new member only: one that was in a cluster before starts whatever it says.
func TestAssemble_ANewMemberMustBeInItsClusterAnOldOneNeedNot(t *testing.T) {
	cfg := testConfig(t)
	cfg.Name = "stranger"
	if err := refused(t, cfg); !strings.Contains(err.Error(), `couldn't find local name "stranger"`) {
		t.Errorf("the reason is %v", err)
	}
	cfg.Name = nameDefault
	unreadable := cfg
	unreadable.InitialCluster = nameDefault + "=2380"
	if err := refused(t, unreadable); !strings.Contains(err.Error(), "--initial-cluster") {
		t.Errorf("the reason is %v", err)
	}
	if made, err := os.ReadDir(cfg.dataDir()); err != nil || len(made) > 0 {
		t.Errorf("members that were refused have made %v, %v", made, err)
	}
	live(t, cfg, 1)
	cfg.Name = "renamed"
	live(t, cfg, 1)
	cfg.InitialCluster = unreadable.InitialCluster
	live(t, cfg, 1)
}
