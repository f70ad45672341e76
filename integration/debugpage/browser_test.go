package debugpage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// limit covers a browser's start on a slow, busy machine.
const limit = 2 * time.Minute

// pageTime is how long a page lives, by its own clock, before it is looked at: a few polls.
const pageTime = 3500 * time.Millisecond

// browser is an installed Chromium.
type browser struct{ path string }

func findBrowser(t *testing.T) browser {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return browser{path}
		}
	}
	t.Skip("no Chromium on this machine: the debug pages are not looked at (apt-get install chromium)")
	return browser{}
}

// run opens a page once and gives what the browser prints.
func (b browser) run(t *testing.T, page string, args ...string) string {
	t.Helper()
	profile := t.TempDir()
	all := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
		"--disable-default-apps", "--disable-dev-shm-usage", "--user-data-dir=" + profile,
		fmt.Sprintf("--virtual-time-budget=%d", pageTime.Milliseconds())}, args...)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, append(all, page)...)
	cmd.Env = append(os.Environ(), "HOME="+profile)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%.2000s", b.path, page, err, errs.String())
	}
	return out.String()
}

// dom gives the page as it is after its scripts have run, and checks that it asked nobody but the member for anything.
func (b browser) dom(t *testing.T, page string, args ...string) string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "net.json")
	text := b.run(t, page, append(args, "--dump-dom", "--log-net-log="+log)...)
	own, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	asked := requests(t, log)
	if !slices.ContainsFunc(asked, func(u *url.URL) bool {
		return u.Host == own.Host && strings.HasPrefix(u.RawQuery, "format=")
	}) {
		t.Errorf("the page did not ask for its numbers: %v", asked)
	}
	for _, u := range asked {
		if u.Host != own.Host && u.Scheme != "data" && u.Scheme != "chrome" {
			t.Errorf("the page made the browser ask %s", u)
		}
	}
	return text
}

// requests reads from the browser's log what was asked for on behalf of pages. What the browser itself looks up, for
// its own services, has no page behind it.
func requests(t *testing.T, path string) []*url.URL {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Events []struct {
			Params struct {
				URL       string `json:"url"`
				Initiator string `json:"initiator"`
				Isolation string `json:"network_isolation_key"`
			} `json:"params"`
		} `json:"events"`
	}
	if err := json.Unmarshal(raw, &log); err != nil {
		t.Fatal(err)
	}
	var all []*url.URL
	for _, e := range log.Events {
		if e.Params.URL == "" || e.Params.Initiator == "" || e.Params.Initiator == "not an origin" {
			continue
		}
		u, err := url.Parse(e.Params.URL)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}

// shoot makes a screenshot of a window of that size, if screenshots are asked for.
func (b browser) shoot(t *testing.T, page, name string, width, height int, args ...string) {
	t.Helper()
	dir := os.Getenv("TROUPE_SCREENSHOTS")
	if dir == "" {
		return
	}
	path := filepath.Join(dir, name+".png")
	b.run(t, page, append(args, "--screenshot="+path, fmt.Sprintf("--window-size=%d,%d", width, height),
		"--hide-scrollbars")...)
	if info, err := os.Stat(path); err != nil || info.Size() > 300<<10 {
		t.Errorf("%s: %v, or larger than 300 KiB", path, err)
	}
}

// row is a line of the page's table.
type row struct{ actor, condition, handled string }

var rowPattern = regexp.MustCompile(`<tr class="(\w+)" data-actor="([^"]+)" data-handled="(\d+)"`)

// rows reads the table of a dumped page.
func rows(dom string) (all []row) {
	for _, m := range rowPattern.FindAllStringSubmatch(dom, -1) {
		all = append(all, row{actor: m[2], condition: m[1], handled: m[3]})
	}
	return all
}

// handled is how much an actor has handled, as the page says.
func handled(t *testing.T, dom, actor string) string {
	t.Helper()
	for _, r := range rows(dom) {
		if r.actor == actor {
			return r.handled
		}
	}
	t.Fatalf("no actor %s on the page", actor)
	return ""
}
