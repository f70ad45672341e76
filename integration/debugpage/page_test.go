package debugpage

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"troupe/integration/harness"
)

// designed are the actors of the design's table that this version has.
var designed = []string{"raft", "raft/wal", "raft/apply", "store", "backend", "watch/hub", "lease"}

// designedKinds are those of which there may be many.
var designedKinds = []string{"watch/group", "watch/stream"}

func TestPage_ShowsEveryActorOfTheDesignAndItsNumbersMove(t *testing.T) {
	harness.TroupeOnly(t, "etcd has no actors")
	b := findBrowser(t)
	s := harness.Start(t, harness.Options{})
	l := startLoad(t, func(t testing.TB) *clientv3.Client { return s.Client(t) })
	harness.Eventually(t, limit, "the load runs", func() error {
		if n := l.puts.Load(); n < 200 {
			return fmt.Errorf("%d puts so far", n)
		}
		return nil
	})
	page := s.URL + "/debug/actors"
	first := b.dom(t, page)
	shown := map[string]bool{}
	for _, r := range rows(first) {
		shown[r.actor] = true
	}
	for _, name := range designed {
		if !shown[name] {
			t.Errorf("no mailbox of %s on the page", name)
		}
	}
	for _, kind := range append(designedKinds, designed...) {
		if !strings.Contains(first, `data-kind="`+kind+`"`) {
			t.Errorf("no %s in the picture", kind)
		}
	}
	if !strings.Contains(first, `class="live on"`) {
		t.Error("the page does not refresh itself")
	}
	for _, wrong := range []string{"NaN", "undefined", "[object"} {
		if strings.Contains(strings.Split(first, "<script")[0], wrong) {
			t.Errorf("the page says %s", wrong)
		}
	}
	second := b.dom(t, page)
	for _, name := range []string{"raft", "raft/wal", "raft/apply", "store", "backend", "watch/hub"} {
		if before, after := handled(t, first, name), handled(t, second, name); before == after {
			t.Errorf("%s has handled %s messages in both dumps, under load", name, before)
		}
	}
	if plain := fetch(t, page+"?format=html"); !strings.Contains(plain, "<td>raft/wal</td>") ||
		!strings.Contains(plain, `<noscript><meta http-equiv="refresh"`) {
		t.Errorf("without scripts there is no table that refreshes itself:\n%.2000s", plain)
	}
	b.shoot(t, page, "actors-desktop", 1360, 1440)
	b.shoot(t, page, "actors-phone", 390, 1500)
}

// TestPage_ClientsAreShownWithWhatTheyWatch opens the other page.
func TestPage_ClientsAreShownWithWhatTheyWatch(t *testing.T) {
	harness.TroupeOnly(t, "etcd has no such page")
	b := findBrowser(t)
	s := harness.Start(t, harness.Options{})
	startLoad(t, func(t testing.TB) *clientv3.Client { return s.Client(t) })
	page := s.URL + "/debug/clients"
	harness.Eventually(t, limit, "the streams are there", func() error {
		if text := fetch(t, page+"?format=json"); !strings.Contains(text, `"range":"service/*"`) {
			return fmt.Errorf("%.500s", text)
		}
		return nil
	})
	dom := b.dom(t, page)
	for _, want := range []string{"service/*", "service/web-1/2", "watch/stream/", "127.0.0.1:"} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %s on the page", want)
		}
	}
	b.shoot(t, page, "clients-desktop", 1360, 760)
}

// fetch reads a page without a browser.
func fetch(t *testing.T, page string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
