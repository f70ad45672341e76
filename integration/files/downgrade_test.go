package files

import (
	"fmt"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// downgrade makes the server's directory one of version 3.6 and waits until the server says that it is.
func downgrade(t *testing.T, s *harness.Server) {
	t.Helper()
	client := pb.NewMaintenanceClient(s.Conn(t))
	_, err := client.Downgrade(harness.Context(t, limit), &pb.DowngradeRequest{
		Action: pb.DowngradeRequest_ENABLE, Version: "3.6"})
	if err != nil {
		t.Fatalf("downgrade %s: %v", s.Kind, err)
	}
	hasVersion(t, s, "3.6.0", true)
}

// hasVersion waits for a storage version, and for the downgrade to be enabled or not.
func hasVersion(t *testing.T, s *harness.Server, version string, enabled bool) {
	t.Helper()
	client := pb.NewMaintenanceClient(s.Conn(t))
	harness.Eventually(t, limit, fmt.Sprintf("%s at %s", s.Kind, version), func() error {
		r, err := client.Status(harness.Context(t, limit), &pb.StatusRequest{})
		if err != nil {
			return err
		}
		if r.StorageVersion != version || r.DowngradeInfo.GetEnabled() != enabled {
			return fmt.Errorf("storage version %s, downgrade %v", r.StorageVersion, r.DowngradeInfo)
		}
		return nil
	})
}

// TestFiles_Etcd36ServesWhatTroupeDowngraded is the whole way down and up again: troupe writes and downgrades, is
// stopped or killed, etcd 3.6 serves the same data, writes more and ends the downgrade, and troupe serves that and
// brings the cluster up again. kill -9 comes as soon as the member says that it is ready, so it must be true.
func TestFiles_Etcd36ServesWhatTroupeDowngraded(t *testing.T) {
	harness.TroupeOnly(t, "etcd's own downgrade is etcd's to test")
	for _, args := range [][]string{nil, smallSnapshots} {
		for _, how := range stops {
			t.Run(fmt.Sprintf("%s %d", how.name, len(args)), func(t *testing.T) {
				s := harness.Start(t, harness.Options{Args: append([]string{"--downgrade-check-time=500ms"}, args...)})
				writeHistory(t, s.Conn(t), 1)
				before := account(t, s)
				downgrade(t, s)
				how.stop(s, t)
				s.UseKind(t, harness.Etcd36)
				s.Start(t)
				sameAccount(t, "troupe before", before, "etcd 3.6 "+how.name, account(t, s))
				hasVersion(t, s, "3.6.0", false) // it finds that all members are at the target
				writeHistory(t, s.Conn(t), 2)
				before = account(t, s)
				how.stop(s, t)
				s.UseKind(t, harness.Troupe)
				s.Start(t)
				sameAccount(t, "etcd 3.6 before", before, "troupe "+how.name, account(t, s))
				hasVersion(t, s, "3.7.0", false)
			})
		}
	}
}

// In the middle of a downgrade either program of version 3.7 goes on where the other was, and the version below may
// still be started; after a kill at any time, too.
func TestFiles_ADowngradeGoesOnAfterARestart(t *testing.T) {
	harness.TroupeOnly(t, "etcd's own downgrade is etcd's to test")
	for _, next := range []harness.Kind{harness.Troupe, harness.Etcd} {
		for _, how := range stops {
			t.Run(next.String()+" "+how.name, func(t *testing.T) {
				s := harness.Start(t, harness.Options{})
				writeHistory(t, s.Conn(t), 1)
				before := account(t, s)
				_, err := pb.NewMaintenanceClient(s.Conn(t)).Downgrade(harness.Context(t, limit), &pb.DowngradeRequest{
					Action: pb.DowngradeRequest_ENABLE, Version: "3.6"})
				if err != nil {
					t.Fatal(err)
				}
				how.stop(s, t) // nothing has followed from it yet, or all of it
				s.UseKind(t, next)
				s.Start(t)
				hasVersion(t, s, "3.6.0", true)
				if next == harness.Etcd {
					s.Terminate(t) // it tells of the version before its file has it
				} else {
					how.stop(s, t)
				}
				s.UseKind(t, harness.Etcd36)
				s.Start(t)
				sameAccount(t, "troupe before", before, "etcd 3.6", account(t, s))
			})
		}
	}
}

// What etcd's tools see in a directory that troupe has downgraded is what they see after etcd.
func TestFiles_EtcdDumpDBReadsTheSameDowngrade(t *testing.T) {
	var dumps [2][]string
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind})
		downgrade(t, s)
		s.Terminate(t)
		d := stopped{server: s}
		dumps[i] = append(d.bucketLines(t, "cluster"), withoutOwnCounts(d.bucketLines(t, "meta"))...)
	}
	if !slices.Equal(dumps[0], dumps[1]) {
		t.Error(firstOf(dumps[0], dumps[1]))
	}
}
