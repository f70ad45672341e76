package npmclient

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

const (
	// installTimeout covers a slow registry.
	installTimeout = 5 * time.Minute
	scriptTimeout  = 2 * time.Minute
)

// modules gives the folder of the installed packages. They are kept in the user's cache, one set per lock file.
func modules(t *testing.T, node string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
	}
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.CommandContext(t.Context(), node, "--version").Output()
	if err != nil {
		t.Fatalf("node --version: %v", err)
	}
	sum := sha256.Sum256(append(lock, version...))
	dir := filepath.Join(cache, "troupe-integration", fmt.Sprintf("npm-%x", sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return filepath.Join(dir, "node_modules")
	}
	install(t, dir)
	return filepath.Join(dir, "node_modules")
}

// install makes the folder, complete or not at all.
func install(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part-npm-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(part) }()
	for _, file := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(part, file), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = part
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci of integration/npmclient/package-lock.json: %v; is the registry within reach?\n%s", err, out)
	}
	if err := os.Rename(part, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, missing := os.Stat(dir); missing != nil { // another run may have been faster
			t.Fatal(err)
		}
	}
}

// script runs the script against a server and gives its lines.
func script(ctx context.Context, node, modules string, s *harness.Server) ([]string, error) {
	cmd := exec.CommandContext(ctx, node, "script.js", s.URL)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	var out, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("script.js against %s: %w\n%s%s", s.Kind, err, &out, &failure)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n"), nil
}

// Everything that the package offers without authentication is answered by troupe as by etcd: keys, ranges,
// transactions, watches, leases, locks, elections, namespaces, upkeep; and the services for locks and elections.
func TestNode_ClientOfAnotherLanguageGetsEtcdsAnswers(t *testing.T) {
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = exec.LookPath("npm")
	}
	if err != nil {
		t.Skipf("troupe is not used from Node.js here: %v", err)
	}
	installed := modules(t, node)
	ctx := harness.Context(t, scriptTimeout)
	var lines [2][]string
	var failures [2]error
	done := make(chan struct{}, 2)
	for i, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind})
		go func() {
			lines[i], failures[i] = script(ctx, node, installed, s)
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	if err := errors.Join(failures[:]...); err != nil {
		t.Fatal(err)
	}
	if last := lines[0][len(lines[0])-1]; last != "done" || len(lines[0]) != len(lines[1]) {
		t.Errorf("%d lines from troupe, %d from etcd, the last is %q", len(lines[0]), len(lines[1]), last)
	}
	for i := range min(len(lines[0]), len(lines[1])) {
		if lines[0][i] != lines[1][i] {
			t.Errorf("troupe: %.500s\n  etcd: %.500s", lines[0][i], lines[1][i])
		}
	}
}
