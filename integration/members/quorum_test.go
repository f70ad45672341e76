package members

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
)

// limit is for whatever a test waits for, on a slow machine.
const limit = time.Minute

// httpClient gives a server up only when it says nothing at all.
var httpClient = &http.Client{Timeout: limit}

// post makes a call of the JSON gateway and gives code and body, without ids and addresses.
func post(t *testing.T, s *harness.Server, path, body string) string {
	t.Helper()
	return ask(t, s, http.MethodPost, "/v3/"+path, body)
}

func get(t *testing.T, s *harness.Server, path string) string {
	t.Helper()
	return ask(t, s, http.MethodGet, path, "")
}

func ask(t *testing.T, s *harness.Server, method, path, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := httpClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer.StatusCode, " ", normalise(s, string(text)))
}

var varying = regexp.MustCompile(`"(cluster_id|member_id|raft_term|raftIndex|raftTerm|raftAppliedIndex|dbSize|` +
	`dbSizeInUse)":"\d+",?`)

// normalise leaves out what differs between two servers, and brings members and checks into one order.
func normalise(s *harness.Server, text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, s.PeerURL, "PEER"), s.URL, "CLIENT")
	text = varying.ReplaceAllString(text, "")
	var answer map[string]any
	if json.Unmarshal([]byte(text), &answer) != nil {
		lines := strings.Split(text, "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { // checks that only troupe has
			return strings.HasPrefix(l, "[+]disk") || strings.HasPrefix(l, "[+]space")
		})
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	var members []string
	list, _ := answer["members"].([]any)
	for _, m := range list {
		members = append(members, describe(m.(map[string]any)))
	}
	slices.Sort(members)
	delete(answer, "members")
	if m, ok := answer["member"].(map[string]any); ok {
		answer["member"] = describe(m)
	}
	return fmt.Sprint(answer, members)
}

func describe(member map[string]any) string {
	delete(member, "ID")
	return fmt.Sprint(member)
}

// pair is troupe and etcd, started with the same flags.
type pair [2]*harness.Server

func startPair(t *testing.T, args ...string) pair {
	t.Helper()
	p := pair{harness.New(t, harness.Options{Kind: harness.Troupe, Args: args}),
		harness.New(t, harness.Options{Kind: harness.Etcd, Args: args})}
	p.each(func(s *harness.Server) {
		if err := s.Run(); err != nil {
			t.Errorf("%s: %v", s.Kind, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return p
}

func (p pair) each(f func(*harness.Server)) {
	var wait sync.WaitGroup
	for _, s := range p {
		wait.Go(func() { f(s) })
	}
	wait.Wait()
}

// same asks both the same and compares the answers.
func (p pair) same(t *testing.T, what string, f func(*harness.Server) string) {
	t.Helper()
	var answers [2]string
	p.each(func(s *harness.Server) {
		for i := range p {
			if p[i] == s {
				answers[i] = f(s)
			}
		}
	})
	if answers[0] != answers[1] {
		t.Errorf("%s\ntroupe: %s\n  etcd: %s", what, answers[0], answers[1])
	}
}

// member gives the id of the member with that peer URL.
func member(t *testing.T, s *harness.Server, url string) uint64 {
	t.Helper()
	r, err := pb.NewClusterClient(s.Conn(t)).MemberList(harness.Context(t, limit), &pb.MemberListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Members {
		if slices.Contains(m.PeerURLs, url) {
			return m.ID
		}
	}
	t.Fatalf("%s has no member with %s: %v", s.Kind, url, r.Members)
	return 0
}

// awaitNoLeader waits until a member has noticed that its quorum is gone.
func awaitNoLeader(t *testing.T, s *harness.Server) {
	t.Helper()
	harness.Eventually(t, limit, s.Kind.String()+" steps down", func() error {
		if answer := get(t, s, "/health"); !strings.Contains(answer, "RAFT NO LEADER") {
			return fmt.Errorf("%s", answer)
		}
		return nil
	})
}

const (
	learnerURL = "http://127.0.0.1:1"
	voterURL   = "http://127.0.0.1:2"
)

// A voter that is added and never comes takes the quorum of a lone member along. From then on both say the same, at the
// same pace; what is asked of the whole cluster fails, what is asked of the member alone goes on.
func TestMembers_AVoterThatNeverComesTakesTheQuorumAlong(t *testing.T) {
	p := startPair(t)
	p.same(t, "put", func(s *harness.Server) string { return post(t, s, "kv/put", `{"key":"YQ==","value":"YQ=="}`) })
	p.same(t, "learner", func(s *harness.Server) string {
		return post(t, s, "cluster/member/add", `{"peerURLs":["`+learnerURL+`"],"isLearner":true}`)
	})
	p.same(t, "voter", func(s *harness.Server) string {
		return post(t, s, "cluster/member/add", `{"peerURLs":["`+voterURL+`"]}`)
	})
	for _, s := range p {
		awaitNoLeader(t, s)
	}
	p.same(t, "another voter", func(s *harness.Server) string {
		return post(t, s, "cluster/member/add", `{"peerURLs":["http://127.0.0.1:3"]}`)
	})
	p.same(t, "another learner", func(s *harness.Server) string {
		return post(t, s, "cluster/member/add", `{"peerURLs":["http://127.0.0.1:3"],"isLearner":true}`)
	})
	var wait sync.WaitGroup
	for path, body := range map[string]string{
		"kv/put": `{"key":"YQ==","value":"Yg=="}`, "kv/range": `{"key":"YQ=="}`, "lease/grant": `{"TTL":100}`,
		"cluster/member/list": `{"linearizable":true}`, "cluster/member/remove": `{"ID":"1"}`,
		"maintenance/status": `{}`, "kv/deleterange": `{"key":"YQ=="}`,
	} {
		wait.Go(func() { p.same(t, path, func(s *harness.Server) string { return post(t, s, path, body) }) })
	}
	for _, url := range []string{learnerURL, voterURL, ""} {
		wait.Go(func() {
			for _, path := range []string{"cluster/member/promote", "maintenance/transfer-leadership"} {
				p.same(t, path+" "+url, func(s *harness.Server) string {
					id := uint64(17)
					if url != "" {
						id = member(t, s, url)
					}
					return post(t, s, path, fmt.Sprintf(`{"ID":"%d","targetID":"%[1]d"}`, id))
				})
			}
		})
	}
	for _, path := range []string{"/health", "/livez", "/readyz?verbose", "/health?serializable=true", "/readyz",
		"/livez?verbose", "/readyz/non_learner"} {
		wait.Go(func() { p.same(t, path, func(s *harness.Server) string { return get(t, s, path) }) })
	}
	for path, body := range map[string]string{
		"kv/range": `{"key":"YQ==","serializable":true}`, "cluster/member/list": `{}`,
	} {
		wait.Go(func() { p.same(t, path, func(s *harness.Server) string { return post(t, s, path, body) }) })
	}
	wait.Wait()
}

// Whoever has lost the quorum that way gets the member back with all data, and the voter that never came is gone for
// good. Before that a start serves nobody, and says why.
func TestMembers_ForcedToBeAloneTheMemberHasAllItsData(t *testing.T) {
	harness.TroupeOnly(t, "the line of the log is troupe's")
	s := harness.Start(t, harness.Options{})
	kv := pb.NewKVClient(s.Conn(t))
	for i := range 100 {
		put := &pb.PutRequest{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")}
		if _, err := kv.Put(harness.Context(t, limit), put); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Hashes(t)
	cluster := pb.NewClusterClient(s.Conn(t))
	for _, add := range []*pb.MemberAddRequest{{PeerURLs: []string{learnerURL}, IsLearner: true},
		{PeerURLs: []string{voterURL}}} {
		if _, err := cluster.MemberAdd(harness.Context(t, limit), add); err != nil {
			t.Fatal(err)
		}
	}
	gone := member(t, s, voterURL)
	awaitNoLeader(t, s)
	s.Kill(t)
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	if !s.Log().Wait(harness.Context(t, limit), "--force-new-cluster makes this member the only one again") {
		t.Errorf("a start without a quorum does not say so:\n%s", s.Log().Tail(5))
	}
	s.Kill(t)
	s.SetArgs("--force-new-cluster")
	s.Start(t)
	harness.SameHashes(t, "before", before, "forced", s.Hashes(t))
	s.Kill(t)
	s.SetArgs()
	s.Start(t)
	all := &pb.MemberListRequest{Linearizable: true}
	r, err := pb.NewClusterClient(s.Conn(t)).MemberList(harness.Context(t, limit), all)
	if err != nil || len(r.Members) != 1 {
		t.Errorf("members %v, %v", r, err)
	}
	update := &pb.MemberUpdateRequest{ID: gone, PeerURLs: []string{voterURL}}
	_, err = pb.NewClusterClient(s.Conn(t)).MemberUpdate(harness.Context(t, limit), update)
	if status.Code(err) != codes.NotFound {
		t.Errorf("the voter that was dropped: %v", err)
	}
}

// The checks can be turned off; what would leave a cluster of nobody is refused all the same. etcd ends over it, at
// every later start, too.
func TestMembers_TheLastVoterStays(t *testing.T) {
	harness.TroupeOnly(t, "etcd ends")
	for _, args := range [][]string{nil, {"--strict-reconfig-check=false"}} {
		s := harness.Start(t, harness.Options{Args: args})
		cluster := pb.NewClusterClient(s.Conn(t))
		add := &pb.MemberAddRequest{PeerURLs: []string{learnerURL}, IsLearner: true}
		if _, err := cluster.MemberAdd(harness.Context(t, limit), add); err != nil {
			t.Fatal(err)
		}
		remove := &pb.MemberRemoveRequest{ID: member(t, s, s.PeerURL)}
		_, err := cluster.MemberRemove(harness.Context(t, limit), remove)
		if status.Convert(err).Message() != "etcdserver: re-configuration failed due to not enough started members" {
			t.Errorf("%v: removing the only voter: %v", args, err)
		}
		s.Kill(t)
		s.Start(t)
	}
}
