package concurrency

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/integration/harness"
	"troupe/proto"
)

// transcript is what a server has answered to a script, without what no two servers have in common.
type transcript struct {
	*services
	lines []string
}

// note adds an answer or an error, and the keys of a line after it.
func (n *transcript) note(what, name string, answer protobuf.Message, err error) {
	n.t.Helper()
	line := what + ": "
	switch {
	case status.Code(err) == codes.Canceled, status.Code(err) == codes.DeadlineExceeded:
		line += status.Code(err).String() // the text is that of whoever notices first
	case err != nil:
		line += fmt.Sprintf("%s %q", status.Code(err), status.Convert(err).Message())
	default:
		if h, ok := answer.(interface{ GetHeader() *proto.ResponseHeader }); ok && h.GetHeader() != nil {
			header := h.GetHeader()
			if header.MemberId == 0 || header.ClusterId == 0 || header.RaftTerm == 0 {
				n.t.Errorf("%s: header without ids or term: %v", what, header)
			}
			header.MemberId, header.ClusterId, header.RaftTerm = 0, 0, 0
		}
		line += fmt.Sprint(answer)
	}
	r, err := n.client.Get(n.t.Context(), name, clientv3.WithPrefix())
	if err != nil {
		n.t.Fatalf("get: %v", err)
	}
	line += fmt.Sprintf("; revision %d", r.Header.Revision)
	for _, kv := range r.Kvs {
		line += fmt.Sprintf(" %q=%q(%d %d %d %x)", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	}
	n.lines = append(n.lines, line)
}

// noted is note of a call's results.
func noted[P protobuf.Message](n *transcript, what, name string) func(P, error) P {
	return func(answer P, err error) P {
		n.t.Helper()
		n.note(what, name, answer, err)
		return answer
	}
}

// run runs a script on a server of each kind and compares.
func run(t *testing.T, script func(ctx context.Context, n *transcript)) {
	t.Helper()
	var lines [2][]string
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		n := &transcript{services: servicesOf(t, harness.Start(t, harness.Options{Kind: kind}))}
		script(harness.Context(t, limit), n)
		lines[i] = n.lines
	}
	for i := range lines[0] {
		if lines[0][i] != lines[1][i] {
			t.Errorf("troupe: %s\n  etcd: %s", lines[0][i], lines[1][i])
		}
	}
}

func TestLockService_AnswersAsEtcdDoes(t *testing.T) {
	run(t, func(ctx context.Context, n *transcript) {
		lockScript(ctx, n)
		lockWaitScript(ctx, n)
	})
}

func lockScript(ctx context.Context, n *transcript) {
	lock := func(name string, lease int64) {
		what := fmt.Sprintf("lock of %.8q under %x", name, lease)
		noted[*proto.LockResponse](n, what, name[:min(len(name), 8)])(n.lock(ctx, name, lease))
	}
	unlock := func(key string) {
		noted[*proto.UnlockResponse](n, fmt.Sprintf("unlock of %q", key), key)(n.unlock(ctx, []byte(key)))
	}
	lock("absent", 12345)
	lock("negative", -5)
	n.grant(ctx, 0x1f, 600)
	n.grant(ctx, 0x2f, 600)
	lock("a", 0x1f)
	lock("elsewhere", 0x1f)
	lock("a", 0x1f)
	lock("a/", 0x2f)
	unlock("a//2f")
	lock("", 0x1f)
	unlock("/1f")
	lock("e\xff\xff", 0x2f)
	lock(strings.Repeat("x", 1_572_864), 0x1f)
	unlock("")
	unlock("nothing")
	unlock("a/1f")
	unlock("a/1f")
	// A key that stands there already is taken for a place, whoever put it.
	if _, err := n.client.Put(ctx, "d/2f", "mine"); err != nil {
		n.t.Fatalf("put: %v", err)
	}
	lock("d", 0x2f)
	// A lease of the server's own.
	own, err := n.lock(ctx, "own", 0)
	if err != nil {
		n.t.Fatalf("lock without a lease: %v", err)
	}
	r, err := n.client.Get(ctx, string(own.Key))
	if err != nil || len(r.Kvs) != 1 {
		n.t.Fatalf("get of %q: %v, %v", own.Key, r, err)
	}
	lease := clientv3.LeaseID(r.Kvs[0].Lease)
	left, err := n.client.TimeToLive(ctx, lease)
	if err != nil || left.GrantedTTL != 60 || string(own.Key) != fmt.Sprintf("own/%x", int64(lease)) {
		n.t.Errorf("key %q with a lease of %v s, %v; want 60 s", own.Key, left, err)
	}
}

func lockWaitScript(ctx context.Context, n *transcript) {
	for id := range int64(4) {
		n.grant(ctx, 0x30+id, 600)
	}
	lock := func(ctx context.Context, lease int64, places int64) <-chan result[*proto.LockResponse] {
		done := waiting(func() (*proto.LockResponse, error) { return n.lock(ctx, "w", lease) })
		n.inLine(ctx, "w", places)
		return done
	}
	end := func(what string, done <-chan result[*proto.LockResponse], places int64) {
		answer, err := await(n.t, done)
		n.inLine(ctx, "w", places)
		noted[*proto.LockResponse](n, what, "w")(answer, err)
	}
	end("lock", lock(ctx, 0x30, 1), 1)
	leaving, leave := context.WithCancel(ctx)
	left := lock(leaving, 0x31, 2)
	leave()
	end("lock that was cancelled", left, 1)
	second, third := lock(ctx, 0x32, 2), lock(ctx, 0x33, 3)
	n.revoke(ctx, 0x30)
	end("lock that waited for the end of a lease", second, 2)
	noted[*proto.UnlockResponse](n, "unlock", "w")(n.unlock(ctx, []byte("w/32")))
	end("lock that waited for an unlock", third, 1)
	expiring := lock(ctx, 0x31, 2)
	n.revoke(ctx, 0x31)
	noted[*proto.UnlockResponse](n, "unlock", "w")(n.unlock(ctx, []byte("w/33")))
	end("lock whose own lease has ended", expiring, 0)
}

func TestElectionService_AnswersAsEtcdDoes(t *testing.T) {
	run(t, func(ctx context.Context, n *transcript) {
		electionScript(ctx, n)
		foreignLeaderScript(ctx, n)
		campaignWaitScript(ctx, n)
		observeScript(ctx, n)
	})
}

func electionScript(ctx context.Context, n *transcript) {
	leader := func() { noted[*proto.LeaderResponse](n, "leader", "x")(n.leader(ctx, "x")) }
	campaign := func(lease int64, value string) *proto.CampaignResponse {
		what := fmt.Sprintf("campaign of %q under %x", value, lease)
		return noted[*proto.CampaignResponse](n, what, "x")(n.campaign(ctx, "x", lease, value))
	}
	proclaim := func(k *proto.LeaderKey, value string) {
		noted[*proto.ProclaimResponse](n, "proclamation of "+value, "x")(n.proclaim(ctx, k, value))
	}
	resign := func(k *proto.LeaderKey) { noted[*proto.ResignResponse](n, "resignation", "x")(n.resign(ctx, k)) }
	leader()
	resign(nil)
	proclaim(nil, "nobody")
	campaign(12345, "absent")
	campaign(-5, "negative")
	n.grant(ctx, 0x1f, 600)
	elected := campaign(0x1f, "first")
	if elected == nil {
		n.t.Fatal("nobody was elected")
	}
	leader()
	campaign(0x1f, "first")
	campaign(0x1f, "")
	campaign(0x1f, "second")
	proclaim(elected.Leader, "third")
	leader()
	resign(elected.Leader)
	proclaim(elected.Leader, "late")
	resign(elected.Leader)
	leader()
}

// foreignLeaderScript uses leader keys that no campaign has given.
func foreignLeaderScript(ctx context.Context, n *transcript) {
	n.grant(ctx, 0x5f, 600)
	elected, err := n.campaign(ctx, "f", 0x1f, "v")
	if err != nil {
		n.t.Fatalf("campaign: %v", err)
	}
	rev := elected.Leader.Rev
	for i, k := range []*proto.LeaderKey{
		{Lease: 0x1f},
		{Name: []byte("f"), Key: []byte("f/1f"), Rev: rev + 1, Lease: 0x1f},
		{Name: []byte("f"), Key: []byte("f/1f"), Rev: rev, Lease: 0x5f},
		{Name: []byte("f"), Key: []byte("f/1f"), Rev: rev, Lease: 12345},
		{Name: []byte("other"), Key: []byte("f/1f"), Rev: rev, Lease: 0x1f},
		{Key: []byte("f/1f"), Rev: rev, Lease: 0x1f},
		{Key: []byte("f/nobody"), Rev: rev, Lease: 0x1f},
		{Key: []byte("f/nobody"), Lease: 0x1f},
	} {
		noted[*proto.ProclaimResponse](n, fmt.Sprint("proclamation by ", k), "f")(n.proclaim(ctx, k, fmt.Sprint(i)))
	}
	for _, k := range []*proto.LeaderKey{
		{Lease: 0x1f},
		{Key: []byte("f/1f"), Rev: rev + 1, Lease: 0x1f},
		{Key: []byte("f/1f"), Rev: rev, Lease: 12345},
		{Key: []byte("f/nobody"), Lease: 0x1f},
	} {
		noted[*proto.ResignResponse](n, fmt.Sprint("resignation of ", k), "f")(n.resign(ctx, k))
	}
}

func campaignWaitScript(ctx context.Context, n *transcript) {
	for id := range int64(3) {
		n.grant(ctx, 0x70+id, 600)
	}
	campaign := func(ctx context.Context, lease int64, value string, places int64) <-chan result[*proto.CampaignResponse] {
		done := waiting(func() (*proto.CampaignResponse, error) { return n.campaign(ctx, "c", lease, value) })
		n.inLine(ctx, "c", places)
		return done
	}
	first, err := await(n.t, campaign(ctx, 0x70, "first", 1))
	noted[*proto.CampaignResponse](n, "campaign", "c")(first, err)
	leaving, leave := context.WithCancel(ctx)
	left := campaign(leaving, 0x71, "left", 2)
	leave()
	answer, err := await(n.t, left)
	n.inLine(ctx, "c", 1)
	noted[*proto.CampaignResponse](n, "campaign that was cancelled", "c")(answer, err)
	waiting := campaign(ctx, 0x72, "waiting", 2)
	noted[*proto.LeaderResponse](n, "leader", "c")(n.leader(ctx, "c"))
	noted[*proto.ResignResponse](n, "resignation", "c")(n.resign(ctx, first.GetLeader()))
	answer, err = await(n.t, waiting)
	noted[*proto.CampaignResponse](n, "campaign that waited", "c")(answer, err)
	noted[*proto.LeaderResponse](n, "leader", "c")(n.leader(ctx, "c"))
}

func observeScript(ctx context.Context, n *transcript) {
	n.grant(ctx, 0x81, 600)
	n.grant(ctx, 0x82, 600)
	observing, leave := context.WithCancel(ctx)
	seen, ended := n.observe(observing, "o")
	expect := func(what string, seen <-chan *proto.LeaderResponse) {
		n.t.Helper()
		select {
		case r := <-seen:
			noted[*proto.LeaderResponse](n, "observed after "+what, "o")(r, nil)
		case err := <-ended:
			n.t.Fatalf("%s: the observer has ended: %v", what, err)
		case <-ctx.Done():
			n.t.Fatalf("%s was not observed by %s", what, n.server.Kind)
		}
	}
	first, err := n.campaign(ctx, "o", 0x81, "one")
	if err != nil {
		n.t.Fatalf("campaign: %v", err)
	}
	expect("a campaign", seen)
	noted[*proto.ProclaimResponse](n, "proclamation", "o")(n.proclaim(ctx, first.Leader, "two"))
	expect("a proclamation", seen)
	second := waiting(func() (*proto.CampaignResponse, error) { return n.campaign(ctx, "o", 0x82, "three") })
	n.inLine(ctx, "o", 2)
	noted[*proto.ResignResponse](n, "resignation", "o")(n.resign(ctx, first.Leader))
	if _, err := await(n.t, second); err != nil {
		n.t.Fatalf("second campaign: %v", err)
	}
	expect("a resignation", seen)
	if _, err := n.client.Compact(ctx, first.Leader.Rev); err != nil {
		n.t.Fatalf("compact: %v", err)
	}
	late, _ := n.observe(observing, "o")
	expect("the beginning", late)
	n.revoke(ctx, 0x82)
	if _, err := n.campaign(ctx, "o", 0x81, "four"); err != nil {
		n.t.Fatalf("campaign: %v", err)
	}
	expect("an interregnum", seen)
	leave()
	noted[*proto.LeaderResponse](n, "end of the observation", "o")(nil, <-ended)
}
