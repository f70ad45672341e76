package jsongateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"troupe/integration/harness"
)

func TestConcurrency_LocksAndElectionsAnswerAsEtcds(t *testing.T) {
	p := start(t)
	name, value := b64("n"), b64("v")
	p.same(t, post("/v3/lease/grant", `{"ID":7,"TTL":1000}`))
	p.same(t, post("/v3/lease/grant", `{"ID":8,"TTL":1000}`))
	p.same(t, post("/v3/lock/lock", `{"name":"`+name+`","lease":7}`))
	p.same(t, post("/v3/lock/lock", `{"name":"`+name+`","lease":"7"}`))
	p.same(t, post("/v3/lock/unlock", `{"key":"`+b64("n/7")+`"}`))
	p.same(t, post("/v3/lock/unlock", `{"key":"`+b64("none")+`"}`))
	for _, body := range []string{`{bad`, `{"name":"***"}`, `{"lease":1}`} {
		p.same(t, post("/v3/lock/lock", body))
		p.same(t, post("/v3/election/campaign", body))
	}
	p.same(t, post("/v3/election/leader", `{"name":"`+b64("e")+`"}`))
	campaign := post("/v3/election/campaign", `{"name":"`+b64("e")+`","lease":8,"value":"`+value+`"}`)
	p.same(t, campaign)
	p.same(t, post("/v3/election/leader", `{"name":"`+b64("e")+`"}`))
	p.sameLines(t, post("/v3/election/observe", `{"name":"`+b64("e")+`"}`), 1)
	for _, path := range []string{"/v3/election/proclaim", "/v3/election/resign"} {
		for _, body := range []string{`{}`, `{"leader":{"key":"` + b64("e/9") + `","rev":"1","lease":"8"}}`} {
			p.same(t, post(path, body))
		}
	}
	for _, s := range p.servers() {
		var won struct{ Leader json.RawMessage }
		got := ask(t, s, campaign)
		if err := json.Unmarshal([]byte(got.body), &won); err != nil || won.Leader == nil {
			t.Fatalf("%s: %v in %+v", s.Kind, err, got)
		}
		body := fmt.Sprintf(`{"leader":%s,"value":"%s"}`, won.Leader, b64("w"))
		if got := ask(t, s, post("/v3/election/proclaim", body)); got.status != http.StatusOK {
			t.Errorf("%s: proclaim: %+v", s.Kind, got)
		}
		if got := ask(t, s, post("/v3/election/resign", body)); got.status != http.StatusOK {
			t.Errorf("%s: resign: %+v", s.Kind, got)
		}
	}
	p.same(t, post("/v3/election/leader", `{"name":"`+b64("e")+`"}`))
	p.same(t, request{method: http.MethodGet, path: "/v3/lock/lock"})
	p.same(t, post("/v3/lock/nothing", `{}`))
}

// A client that closes the request with which it waits for a lock has no place in the line any more.
func TestConcurrency_ClosingARequestGivesUpItsPlace(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	holder := ask(t, s, post("/v3/lock/lock", `{"name":"`+b64("n")+`"}`))
	waiting := s.Converse(t, "/v3/lock/lock")
	waiting.Send(`{"name":"` + b64("n") + `"}`)
	waiting.End()
	places := func(want int) {
		t.Helper()
		harness.Eventually(t, limit, "places in the line", func() error {
			got := ask(t, s, post("/v3/kv/range", `{"key":"`+b64("n/")+`","range_end":"`+b64("n0")+`","count_only":true}`))
			if !strings.Contains(got.body, fmt.Sprintf(`"count":"%d"`, want)) {
				return fmt.Errorf("not %d: %s; the holder got %+v", want, got.body, holder)
			}
			return nil
		})
	}
	places(2)
	waiting.Close()
	places(1)
}
