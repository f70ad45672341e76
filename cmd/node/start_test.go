package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"troupe/raftactor"
)

// testConfig is a member on a directory of its own.
func testConfig(t *testing.T) Config {
	t.Helper()
	c := Default()
	c.DataDir = t.TempDir()
	c.UnsafeNoFsync = true
	return c
}

// The id of a member is made of what --initial-cluster says, and others look for it at what it advertises.
func TestAssemble_InitialClusterMustSayWhatIsAdvertised(t *testing.T) {
	for _, c := range []struct {
		cluster, advertised string
		refused             bool
	}{
		{"default=http://127.0.0.1:1", "http://127.0.0.1:2", true},
		{"default=http://127.0.0.1:1,default=http://127.0.0.1:2", "http://127.0.0.1:1", true},
		{"default=http://127.0.0.1:2,default=http://127.0.0.1:1", "http://127.0.0.1:1,http://127.0.0.1:2", false},
		{"default=http://localhost:1", "http://127.0.0.1:1", false},
	} {
		cfg := testConfig(t)
		cfg.InitialCluster, cfg.AdvertisePeerURLs = c.cluster, mustURLs(c.advertised)
		member, err := Assemble(cfg, Seams{Log: zerolog.Nop()})
		if refused := err != nil; refused != c.refused {
			t.Errorf("%s advertised as %s: error %v", c.cluster, c.advertised, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "--initial-advertise-peer-urls") {
				t.Errorf("the error does not name the flag: %v", err)
			}
			continue
		}
		if err := member.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A proposal that can never be made must end the start, and not be tried for ever.
func TestJoin_EndsWithWhatTimeDoesNotChange(t *testing.T) {
	cfg := testConfig(t)
	cfg.Name = "not text \xff"
	cfg.InitialCluster = cfg.Name + "=" + peerURLDefault
	member, err := Assemble(cfg, Seams{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := member.join(ctx); !errors.Is(err, raftactor.ErrInvalidRequest) {
		t.Errorf("join: %v", err)
	}
	if err := member.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
