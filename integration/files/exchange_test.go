package files

import (
	"testing"

	"troupe/integration/harness"
)

// A small snapshot count makes the log of these short histories hold snapshots, and lose old segments.
var smallSnapshots = []string{"--snapshot-count=60", "--snapshot-catchup-entries=20"}

// stop ends a server in one of the two ways.
type stop struct {
	name string
	stop func(*harness.Server, *testing.T)
}

var stops = []stop{
	{"after SIGTERM", func(s *harness.Server, t *testing.T) { s.Terminate(t) }},
	{"after kill -9", func(s *harness.Server, t *testing.T) { s.Kill(t) }},
}

// handOver writes a history with the first kind and starts the second on the same directory; then the second writes,
// and the first takes over again.
func handOver(t *testing.T, first, second harness.Kind, how stop, args []string) {
	t.Helper()
	s := harness.Start(t, harness.Options{Kind: first, Args: args})
	for chapter, next := range []harness.Kind{second, first} {
		writeHistory(t, s.Conn(t), chapter+1)
		before, name := account(t, s), s.Kind.String()
		how.stop(s, t)
		s.UseKind(t, next)
		s.Start(t)
		sameAccount(t, name+" before", before, next.String()+" "+how.name, account(t, s))
		if t.Failed() {
			return
		}
	}
}

func TestFiles_EtcdServesWhatTroupeWroteAndBack(t *testing.T) {
	for _, how := range stops {
		t.Run(how.name, func(t *testing.T) { handOver(t, harness.Troupe, harness.Etcd, how, nil) })
		t.Run(how.name+" with snapshots", func(t *testing.T) {
			handOver(t, harness.Troupe, harness.Etcd, how, smallSnapshots)
		})
	}
}

func TestFiles_TroupeServesWhatEtcdWroteAndBack(t *testing.T) {
	for _, how := range stops {
		t.Run(how.name, func(t *testing.T) { handOver(t, harness.Etcd, harness.Troupe, how, nil) })
		t.Run(how.name+" with snapshots", func(t *testing.T) {
			handOver(t, harness.Etcd, harness.Troupe, how, smallSnapshots)
		})
	}
}

func TestFiles_TroupeServesWhatTroupeWrote(t *testing.T) {
	for _, how := range stops {
		t.Run(how.name, func(t *testing.T) { handOver(t, harness.Troupe, harness.Troupe, how, smallSnapshots) })
	}
}

// A copy of the directory, made while nothing runs on it, is a backup at another path.
func TestFiles_CopyOfAStoppedDirectoryIsABackup(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	writeHistory(t, s.Conn(t), 1)
	before := account(t, s)
	s.Kill(t)
	copied := t.TempDir() + "/copy"
	harness.CopyDir(t, s.Dir, copied)
	s.Start(t)
	writeHistory(t, s.Conn(t), 2)
	s.Kill(t)
	s.Dir = copied
	s.Start(t)
	sameAccount(t, "before", before, "the copy", account(t, s))
}
