package downgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// limit bounds one step. etcd looks at its versions every 4 s.
const limit = time.Minute

// state is what a server says of its versions.
type state struct {
	Cluster, Storage, Target string
	Enabled                  bool
	// Page is the storage version of /version, Metric the cluster versions of /metrics, Peers the answer to members.
	Page, Metric, Peers string
}

var clusterVersionLine = regexp.MustCompile(`(?m)^etcd_cluster_version\{cluster_version="([0-9.]+)"\} ([01])$`)

func stateOf(t *testing.T, s *harness.Server) (out state) {
	t.Helper()
	r, err := pb.NewMaintenanceClient(s.Conn(t)).Status(harness.Context(t, limit), &pb.StatusRequest{})
	if err != nil {
		t.Fatalf("status of %s: %v", s.Kind, err)
	}
	out.Storage = r.StorageVersion
	out.Target, out.Enabled = r.DowngradeInfo.GetTargetVersion(), r.DowngradeInfo.GetEnabled()
	var page struct{ Etcdcluster, Storage string }
	_, body := harness.Page(t, s.URL+"/version")
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("/version of %s: %v in %q", s.Kind, err, body)
	}
	out.Cluster, out.Page = page.Etcdcluster, page.Storage
	_, body = harness.Page(t, s.URL+"/metrics")
	var lines []string
	for _, m := range clusterVersionLine.FindAllStringSubmatch(body, -1) {
		lines = append(lines, m[1]+"="+m[2])
	}
	slices.Sort(lines)
	out.Metric = strings.Join(lines, " ")
	_, out.Peers = harness.Page(t, s.PeerURL+"/downgrade/enabled")
	return out
}

// reaches waits for a state in which nothing is under way any more: the storage version is the cluster's.
func reaches(t *testing.T, s *harness.Server, cluster string) {
	t.Helper()
	harness.Eventually(t, limit, fmt.Sprintf("%s at version %s", s.Kind, cluster), func() error {
		if now := stateOf(t, s); now.Cluster != cluster || now.Storage != cluster || now.Page != cluster {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
}

// call makes one call and gives its answer as text.
func call(t *testing.T, s *harness.Server, action pb.DowngradeRequest_DowngradeAction, version string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := pb.NewMaintenanceClient(s.Conn(t)).Downgrade(ctx, &pb.DowngradeRequest{Action: action, Version: version})
	if err != nil {
		return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
	}
	return fmt.Sprintf("version %s, revision %d, header %v", r.Version, r.Header.GetRevision(),
		r.Header.GetClusterId() != 0 && r.Header.GetMemberId() != 0 && r.Header.GetRaftTerm() != 0)
}

const (
	validate = pb.DowngradeRequest_VALIDATE
	enable   = pb.DowngradeRequest_ENABLE
	cancel   = pb.DowngradeRequest_CANCEL
)

// step is calls that change nothing, or one that does and the version it leads to.
type step struct {
	action   pb.DowngradeRequest_DowngradeAction
	versions []string
	reaches  string
}

var spellings = []string{
	"", "3.6", "3.6.0", "3.6.1", "3.6.99", "v3.6", "3", "3.6.0.0", "3.6.", ".3.6", " 3.6", "3.6 ", "3.06", "3.6.0-alpha",
	"3.6.0-alpha+x", "3.6+meta", "3.6.0+meta", "3.6-rc.1", "3.6.x", "3.5", "3.5.0", "3.7", "3.7.0", "3.8", "4.6", "2.6",
	"-3.6.0", "3.-6.0", "3.6.-1", "+3.6.0", "3.6.0-", "3.6.0+", "03.6.0", "99999999999999999999.6.0", "3.6.0-a_b",
	"3.6.0-é", "abc", "3.6.0-01", "3,6", "0x3.6.0", "3_0.6.0", "3.6\n", "3.6.0-a..b", "3.6.0-.", "3.6.0+a+b",
	"3.6.0+a-b", "3.6.9223372036854775807", "3.6.9223372036854775808", "3.6.0-a.b+c.d", "3.6.0+_", "3.6.0+..",
}

// The refused calls change nothing: had one of them an effect, the state after the step would show it.
var steps = []step{
	{action: validate, versions: spellings},
	{action: 3, versions: []string{"", "3.6"}},
	{action: -1, versions: []string{"3.6"}},
	{action: cancel, versions: []string{"", "3.6", "abc"}}, // nothing to cancel
	{action: enable, versions: []string{"", "3.5", "3.7", "3.8", "abc"}},
	{action: enable, versions: []string{"3.6"}, reaches: "3.6.0"},
	{action: validate, versions: []string{"3.6", "3.5", "3.7", "x"}},
	{action: enable, versions: []string{"3.6", "3.5", "3.7", "x"}},
	{action: cancel, versions: []string{"anything"}, reaches: "3.7.0"},
	{action: validate, versions: []string{"3.6", "3.5", "3.7", "x"}},
	{action: enable, versions: []string{"3.6.5-rc.1+x"}, reaches: "3.6.0"},
	{action: cancel, versions: []string{""}, reaches: "3.7.0"},
}

// TestDowngrade_AnswersAndStatesAreEtcds goes through a downgrade on both servers and compares each answer and each
// state that is reached, over gRPC, on the pages, and on the port of the members.
func TestDowngrade_AnswersAndStatesAreEtcds(t *testing.T) {
	t.Parallel()
	harness.TroupeOnly(t, "the test compares two servers")
	ours := harness.Start(t, harness.Options{Kind: harness.Troupe})
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	for i, step := range steps {
		for _, version := range step.versions {
			got, want := call(t, ours, step.action, version), call(t, etcd, step.action, version)
			if got != want {
				t.Errorf("step %d: %v %q: %s, etcd: %s", i, step.action, version, got, want)
			}
		}
		if step.reaches != "" {
			reaches(t, ours, step.reaches)
			reaches(t, etcd, step.reaches)
		}
		if got, want := stateOf(t, ours), stateOf(t, etcd); got != want {
			t.Errorf("step %d: %+v, etcd: %+v", i, got, want)
		}
	}
}

// What etcd serves once the cluster version is 3.6 is served, too: no feature depends on it.
func TestDowngrade_TakesNoFeatureAway(t *testing.T) {
	t.Parallel()
	harness.TroupeOnly(t, "the test compares two servers")
	var answers [2][]string
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind})
		call(t, s, enable, "3.6")
		reaches(t, s, "3.6.0")
		answers[i] = features(t, s)
	}
	if !slices.Equal(answers[0], answers[1]) {
		t.Errorf("troupe at 3.6: %q\netcd at 3.6:   %q", answers[0], answers[1])
	}
}

// features calls what came with 3.6 and 3.7 and gives the codes of the answers.
func features(t *testing.T, s *harness.Server) (out []string) {
	t.Helper()
	ctx, conn := harness.Context(t, limit), s.Conn(t)
	note := func(what string, err error) { out = append(out, fmt.Sprintf("%s: %v", what, status.Code(err))) }
	_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
	note("put", err)
	_, err = pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 1000})
	note("grant", err)
	_, err = pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{})
	note("hash", err)
	stream, err := pb.NewKVClient(conn).RangeStream(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err == nil {
		_, err = stream.Recv()
	}
	note("range stream", err)
	snapshot, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
	if err == nil {
		var r *pb.SnapshotResponse
		if r, err = snapshot.Recv(); err == nil {
			out = append(out, "snapshot version "+r.Version)
		}
	}
	note("snapshot", err)
	return out
}

// An operator reads in the log how far it is: enabled, this member is ready, cancelled.
func TestDowngrade_TheLogHasAFinishLine(t *testing.T) {
	t.Parallel()
	harness.TroupeOnly(t, "etcd has other lines")
	s := harness.Start(t, harness.Options{})
	wait := func(line string) {
		t.Helper()
		if !s.Log().Wait(harness.Context(t, limit), line) {
			t.Fatalf("the log does not say %q:\n%s", line, s.Log().Ending())
		}
	}
	if s.Log().Contains("ready to downgrade") {
		t.Error("it says so too early")
	}
	call(t, s, enable, "3.6")
	wait("a downgrade of the cluster is enabled")
	wait("The server is ready to downgrade")
	if now := stateOf(t, s); now.Storage != "3.6.0" {
		t.Errorf("it says so too early: %+v", now)
	}
	s.Kill(t)
	s.Start(t)
	wait("The server is ready to downgrade") // again, for who looks only now
	call(t, s, cancel, "")
	wait("the downgrade of the cluster is cancelled")
	reaches(t, s, "3.7.0")
}

// A downgrade to the version that all members run is over: that is how one from 3.8 ends here. The leader finds out by
// itself, and no sooner than --downgrade-check-time after the last look.
func TestDowngrade_EndsWhenAllMembersRunTheTarget(t *testing.T) {
	t.Parallel()
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind, Args: []string{"--downgrade-check-time=100ms"}})
		s.Terminate(t)
		enableInFile(t, s.Dir, "3.7.0")
		s.Start(t)
		harness.Eventually(t, limit, kind.String()+" ends the downgrade", func() error {
			if now := stateOf(t, s); now.Enabled || now.Cluster != "3.7.0" {
				return fmt.Errorf("%+v", now)
			}
			return nil
		})
	}
}
