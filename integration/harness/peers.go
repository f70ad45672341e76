package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ErrNoModule means that the working directory is not inside troupe's source tree.
var ErrNoModule = errors.New("harness: no go.mod of module troupe above the working directory")

// peerTool is one program that is built from a nested module.
type peerTool struct {
	name   string // file name of the program
	module string // directory below the module root
	path   string // package path
}

var peerTools = []peerTool{
	{"etcd", "integration/peers", "go.etcd.io/etcd/server/v3"},
	{"etcdctl", "integration/peers", "go.etcd.io/etcd/etcdctl/v3"},
	{"etcdutl", "integration/peers", "go.etcd.io/etcd/etcdutl/v3"},
	{"etcd-3.6", "integration/peers/bench", "go.etcd.io/etcd/server/v3"},
	{"benchmark", "integration/peers/bench", "go.etcd.io/etcd/v3/tools/benchmark"},
	{"etcd-dump-db", "integration/peers/bench", "go.etcd.io/etcd/v3/tools/etcd-dump-db"},
	{"etcd-dump-logs", "integration/peers/bench", "go.etcd.io/etcd/v3/tools/etcd-dump-logs"},
}

// Peer gives the path of one of etcd's programs and fails the test when it cannot be built.
func Peer(t testing.TB, name string) string {
	t.Helper()
	path, err := PeerPath(name)
	if err != nil {
		t.Fatalf("harness: peer %s: %v", name, err)
	}
	return path
}

// PeerPath gives the path of one of etcd's programs: etcd, etcd-3.6, etcdctl, etcdutl, benchmark, etcd-dump-logs,
// etcd-dump-db. The first call builds them all when the cache lacks them.
func PeerPath(name string) (string, error) {
	dir, err := peersDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
}

var peersDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("TROUPE_PEERS_DIR"); dir != "" {
		return dir, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	key, err := peersKey(root)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "peers-"+key)
	return dir, withFileLock(dir+".lock", func() error { return buildPeers(root, dir) })
})

// peersKey names one set of peer binaries: what they are built from, and with what.
func peersKey(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, module := range []string{"integration/peers", "integration/peers/bench"} {
		for _, file := range []string{"go.mod", "go.sum"} {
			data, err := os.ReadFile(filepath.Join(root, module, file))
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, len(data))
			h.Write(data)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// buildPeers builds every peer into dir unless dir exists. The directory appears complete or not at all.
func buildPeers(root, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(part) }()
	for _, p := range peerTools {
		if err := goBuild(filepath.Join(root, p.module), filepath.Join(part, p.name), p.path); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}

// goBuild builds one package of the module in dir. CGO is off so that no C compiler is needed.
func goBuild(dir, output, pkg string) error {
	cmd := exec.Command("go", "build", "-o", output, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if os.Getenv("GOFLAGS") == "" {
		cmd.Env = append(cmd.Env, "GOFLAGS=-buildvcs=false")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// ModuleRoot finds the directory of troupe's go.mod at or above the working directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module troupe\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoModule
		}
		dir = parent
	}
}

// cacheDir is where built programs live: the user's cache, or the temporary directory when there is no HOME.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
	}
	dir := filepath.Join(base, "troupe-integration")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, nil
}

// withFileLock runs f while this process holds the lock file: test packages run in parallel and must not build twice.
func withFileLock(path string, f func() error) error {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return f()
}

// copyFile copies a file with its mode; used for directories that must stay as they were found.
func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// CopyDir copies a data directory of a stopped server.
func CopyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), info.Mode().Perm())
		}
		return copyFile(path, filepath.Join(to, name), info.Mode().Perm())
	})
	if err != nil {
		t.Fatalf("harness: copy %s: %v", from, err)
	}
}
