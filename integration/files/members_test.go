package files

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// twoLearners lets two learners in.
var twoLearners = []string{"--max-learners=2"}

// changeMembers leaves a learner that was updated, one that was only added, one that was removed, and changes that were
// refused. A chapter has URLs of its own; the learners of the one before go.
func changeMembers(t *testing.T, conn *grpc.ClientConn, chapter int) {
	t.Helper()
	first, url := changeMembersWell(t, conn, chapter)
	ctx, cluster := harness.Context(t, limit), pb.NewClusterClient(conn)
	for what, err := range map[string]error{
		"add":    second(cluster.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: url(4), IsLearner: true})),
		"update": second(cluster.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: first, PeerURLs: url(3)})),
	} {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s of a URL that is taken: %v", what, err)
		}
	}
}

// changeMembersWell is the part of it that is not refused. It gives a learner, and the URLs of the chapter.
func changeMembersWell(t *testing.T, conn *grpc.ClientConn, chapter int) (first uint64, url func(int) []string) {
	t.Helper()
	ctx, cluster := harness.Context(t, limit), pb.NewClusterClient(conn)
	url = func(n int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d", 10*chapter+n)} }
	all, err := cluster.MemberList(ctx, &pb.MemberListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	remove := func(id uint64) {
		t.Helper()
		if _, err := cluster.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) uint64 {
		t.Helper()
		r, err := cluster.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: url(n), IsLearner: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Member.ID
	}
	for _, m := range all.Members {
		if m.IsLearner {
			remove(m.ID)
		}
	}
	remove(add(1))
	first = add(2)
	add(3)
	update := &pb.MemberUpdateRequest{ID: first, PeerURLs: append(url(4), url(5)...)}
	if _, err := cluster.MemberUpdate(ctx, update); err != nil {
		t.Fatal(err)
	}
	own := &pb.MemberUpdateRequest{ID: all.Header.MemberId, PeerURLs: url(6)}
	if _, err := cluster.MemberUpdate(ctx, own); err != nil {
		t.Fatal(err)
	}
	return first, url
}

func second[T any](_ T, err error) error { return err }

// Who is in the cluster, who was removed and what was refused is in the log, in the file and in snapshots; each server
// goes on from what the other has written, and has the same members, ids and hashes.
func TestFiles_MembersOutliveTheServerThatChangedThem(t *testing.T) {
	for _, c := range []struct{ first, second harness.Kind }{
		{harness.Troupe, harness.Etcd}, {harness.Etcd, harness.Troupe}, {harness.Troupe, harness.Troupe},
	} {
		for _, how := range stops {
			for _, args := range [][]string{twoLearners, append(slices.Clone(smallSnapshots), twoLearners...)} {
				name := fmt.Sprintf("%s to %s %s %d", c.first, c.second, how.name, len(args))
				t.Run(name, func(t *testing.T) { handOverMembers(t, c.first, c.second, how, args) })
			}
		}
	}
}

func handOverMembers(t *testing.T, first, second harness.Kind, how stop, args []string) {
	t.Helper()
	s := harness.Start(t, harness.Options{Kind: first, Args: args})
	for chapter, next := range []harness.Kind{second, first} {
		changeMembers(t, s.Conn(t), 2*chapter+1)
		writeHistory(t, s.Conn(t), chapter+1)
		changeMembers(t, s.Conn(t), 2*chapter+2)
		before, name := account(t, s), s.Kind.String()
		how.stop(s, t)
		s.UseKind(t, next)
		s.Start(t)
		sameAccount(t, name+" before", before, next.String()+" "+how.name, account(t, s))
		if n := strings.Count(before, "IsLearner:true") + strings.Count(before, "is_learner:true") +
			strings.Count(before, "isLearner:true"); n != 2 {
			t.Errorf("the account of %s has %d learners, the test is not what it should be", name, n)
		}
	}
}

var (
	confLine = regexp.MustCompile(`\tconf\t.*`)
	longIDs  = regexp.MustCompile(`[0-9a-f]{12,16}|\b[0-9]{12,}\b`)
	ownURLs  = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]{3,}`)
)

// confLines gives the conf changes that etcd-dump-logs finds, without ids and the server's own URLs.
func confLines(dump string) (lines []string) {
	for _, line := range confLine.FindAllString(dump, -1) {
		lines = append(lines, ownURLs.ReplaceAllString(longIDs.ReplaceAllString(line, "ID"), "URL"))
	}
	return lines
}

// Changes that are refused are in etcd's log and not in troupe's: etcd would take them for good at the next start.
func TestFiles_EtcdDumpLogsReadsTheSameConfChanges(t *testing.T) {
	var found [2][]string
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind, Args: twoLearners})
		changeMembersWell(t, s.Conn(t), 1)
		changeMembersWell(t, s.Conn(t), 2)
		s.Terminate(t)
		d := stopped{server: s}
		found[i] = confLines(d.tool(t, "etcd-dump-logs", s.Dir))
	}
	if len(found[1]) < 12 {
		t.Fatalf("only %d conf changes found in etcd's own log", len(found[1]))
	}
	if !slices.Equal(found[0], found[1]) {
		t.Error(firstOf(found[0], found[1]))
	}
}
