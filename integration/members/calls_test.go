package members

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// calls are made of both over the JSON gateway, in this order; OWN and ADDED stand for the ids of the server itself and
// of the learner with learnerURL.
var calls = [][2]string{
	{"cluster/member/add", `{}`},
	{"cluster/member/add", `{"peerURLs":["zzz"]}`},
	{"cluster/member/add", `{"peerURLs":["PEER"]}`},
	{"cluster/member/add", `{"peerURLs":["` + learnerURL + `"],"isLearner":true}`},
	{"cluster/member/add", `{"peerURLs":["` + voterURL + `"],"isLearner":true}`},
	{"cluster/member/list", `{"linearizable":true}`},
	{"cluster/member/promote", `{"ID":"ADDED"}`},
	{"cluster/member/promote", `{"ID":"OWN"}`},
	{"cluster/member/promote", `{"ID":"17"}`},
	{"cluster/member/update", `{"ID":"17","peerURLs":["` + voterURL + `"]}`},
	{"cluster/member/update", `{"ID":"ADDED","peerURLs":["PEER"]}`},
	{"cluster/member/update", `{"ID":"ADDED","peerURLs":["` + voterURL + `","` + learnerURL + `"]}`},
	{"cluster/member/update", `{"ID":"OWN","peerURLs":["PEER"]}`},
	{"maintenance/transfer-leadership", `{"targetID":"OWN"}`},
	{"maintenance/transfer-leadership", `{"targetID":"ADDED"}`},
	{"maintenance/transfer-leadership", `{"targetID":"17"}`},
	{"maintenance/transfer-leadership", `{}`},
	{"cluster/member/remove", `{"ID":"17"}`},
	{"cluster/member/remove", `{}`},
	{"kv/put", `{"key":"YQ==","value":"YQ=="}`},
	{"kv/range", `{"key":"YQ=="}`},
	{"cluster/member/remove", `{"ID":"ADDED"}`},
	{"cluster/member/list", `{}`},
}

// Every call for a change of the members is answered as etcd answers it, with each of the flags that concern them; and
// the failures of promotions are counted under the same reasons.
func TestMembers_CallsAreAnsweredAsEtcdAnswersThem(t *testing.T) {
	for _, args := range [][]string{nil, {"--max-learners=0"}, {"--max-learners=2", "--strict-reconfig-check=false"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			p := startPair(t, args...)
			added := map[*harness.Server]string{}
			for _, s := range p {
				added[s] = "18"
			}
			for _, c := range calls {
				p.same(t, c[0]+" "+c[1], func(s *harness.Server) string {
					own := fmt.Sprint(member(t, s, s.PeerURL))
					body := strings.NewReplacer("PEER", s.PeerURL, "OWN", own, "ADDED", added[s]).Replace(c[1])
					return post(t, s, c[0], body)
				})
				if strings.Contains(c[1], learnerURL) && !slices.Contains(args, "--max-learners=0") {
					for _, s := range p {
						added[s] = fmt.Sprint(member(t, s, learnerURL))
					}
				}
			}
			p.same(t, "metrics", func(s *harness.Server) string {
				return strings.Join(metricLines(get(t, s, "/metrics")), "\n")
			})
		})
	}
}

// metricLines are the metrics of members, in order.
func metricLines(page string) (lines []string) {
	for line := range strings.Lines(page) {
		for _, name := range []string{"etcd_server_learner_promote_", "etcd_server_is_learner", "etcd_server_is_leader"} {
			if strings.HasPrefix(line, name) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(lines)
	return lines
}
