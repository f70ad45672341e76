package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

// startEtcds starts a cluster of three etcds.
func startEtcds(t *testing.T) []*harness.Server {
	t.Helper()
	servers := make([]*harness.Server, 3)
	var cluster []string
	for i := range servers {
		servers[i] = harness.New(t, harness.Options{Kind: harness.Etcd})
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, servers[i].PeerURL))
	}
	for i, s := range servers {
		s.SetArgs("--name", fmt.Sprint("m", i), "--initial-cluster", strings.Join(cluster, ","))
		if err := s.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		if !s.Log().Wait(harness.Context(t, time.Minute), harness.ReadyMessage) {
			t.Fatalf("a member does not serve:\n%s", s.Log().Ending())
		}
	}
	return servers
}

// What is left of a cluster whose quorum is lost goes on as a cluster of one, with all that it has, and only when that
// is asked for: it is refused otherwise, instead of waiting for the others for ever.
func TestFiles_AMemberOfALostClusterGoesOnAloneWhenForced(t *testing.T) {
	harness.TroupeOnly(t, "the refusal is troupe's; etcd waits for the others")
	etcds := startEtcds(t)
	s := etcds[0]
	writeHistory(t, s.Conn(t), 1)
	for _, e := range etcds {
		e.Kill(t)
	}
	asEtcd := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(asEtcd, os.DirFS(s.Dir)); err != nil {
		t.Fatal(err)
	}

	s.UseKind(t, harness.Troupe)
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	if !s.Log().Wait(harness.Context(t, limit), "make it a cluster of its own with --force-new-cluster") {
		t.Errorf("the refusal without the flag does not say what to do:\n%s", s.Log().Tail(3))
	}
	if code := s.ExitCode(t); code == 0 {
		t.Errorf("without the flag: code 0")
	}
	s.SetArgs("--name=m0", "--force-new-cluster")
	s.Start(t)
	forced := s.Hashes(t)
	if n := strings.Count(s.MustCtl(t, "member", "list"), "\n"); n != 1 {
		t.Errorf("%d members after it", n)
	}
	s.Kill(t)
	s.SetArgs("--name=m0")
	for n, kind := range []harness.Kind{harness.Troupe, harness.Etcd} { // both, without the flag
		s.UseKind(t, kind)
		s.Start(t)
		writeHistory(t, s.Conn(t), 2+n)
		s.Kill(t)
	}

	// etcd makes the same of the same directory. (The newest write may be missing in both: that it was committed was not
	// in this member's log.)
	other := harness.Start(t, harness.Options{Kind: harness.Etcd, Dir: asEtcd, Args: []string{"--name=m0",
		"--force-new-cluster"}})
	harness.SameHashes(t, "troupe, forced", forced, "etcd, forced", other.Hashes(t))
}
