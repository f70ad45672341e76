package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Kind says which program a Server runs.
type Kind int

const (
	// Troupe is the program under test.
	Troupe Kind = iota
	// Etcd is the official server, built from integration/peers.
	Etcd
	// Etcd36 is the official server of the minor version before, built from integration/peers/bench: what a downgrade
	// leads to.
	Etcd36
)

// String is the name used in messages and directory names.
func (k Kind) String() string {
	switch k {
	case Etcd:
		return "etcd"
	case Etcd36:
		return "etcd-3.6"
	}
	return "troupe"
}

// BinaryPath gives the program of a kind, built when necessary.
func BinaryPath(k Kind) (string, error) {
	if k != Troupe {
		return PeerPath(k.String())
	}
	return troupePath()
}

var troupePath = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("TROUPE_TEST_BINARY"); path != "" {
		return path, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	// One place per source tree; go build leaves the file alone when it is current.
	sum := sha256.Sum256([]byte(root))
	dir := filepath.Join(cache, "troupe-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "troupe")
	err = withFileLock(path+".lock", func() error { return goBuild(root, path, "./cmd/troupe") })
	return path, err
})

// EtcdStandsIn reports whether etcd runs in the place of troupe, which proves the tests themselves.
func EtcdStandsIn() bool {
	return filepath.Base(os.Getenv("TROUPE_TEST_BINARY")) == "etcd"
}

// TroupeOnly skips a test of something that etcd does not promise.
func TroupeOnly(t testing.TB, why string) {
	t.Helper()
	if EtcdStandsIn() {
		t.Skipf("only troupe promises this: %s", why)
	}
}
