package node

import (
	"strings"
	"testing"
	"time"
)

func TestDangers_EachIsNamedAndNothingElse(t *testing.T) {
	standard := Default()
	if got := standard.dangers(); len(got) > 0 {
		t.Errorf("the defaults are called dangerous: %q", got)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"no fsync":      {func(c *Config) { c.UnsafeNoFsync = true }, []string{"--unsafe-no-fsync"}},
		"forced":        {func(c *Config) { c.ForceNewCluster = true }, []string{"--force-new-cluster"}},
		"large request": {func(c *Config) { c.MaxRequestBytes = 11 << 20 }, []string{"--max-request-bytes"}},
		"no quota":      {func(c *Config) { c.QuotaBytes = -1 }, []string{"--quota-backend-bytes is negative"}},
		"all segments":  {func(c *Config) { c.MaxWALs = 0 }, []string{"--max-wals"}},
		"lazy file":     {func(c *Config) { c.BatchInterval = time.Minute }, []string{"--backend-batch-interval"}},
		"open to all": {func(c *Config) {
			c.ListenClientURLs = mustURLs("http://0.0.0.0:2379,http://127.0.0.1:2379")
			c.AdvertiseClientURLs = mustURLs("http://10.0.0.1:2379")
		}, []string{"neither TLS nor authentication"}},
		"open, told as local": {func(c *Config) { c.ListenClientURLs = mustURLs("http://10.0.0.1:2379") },
			[]string{"neither TLS nor authentication", "addresses of this machine only"}},
		"told as every address": {func(c *Config) { c.AdvertiseClientURLs = mustURLs("http://[::]:2379") },
			[]string{"means every address"}},
		"open debug pages": {func(c *Config) { c.ListenDebugURLs = mustURLs("http://0.0.0.0:1") },
			[]string{"--debug-listen-urls"}},
		"a socket file": {func(c *Config) { c.ListenClientURLs = mustURLs("unix://localhost:1") }, nil},
	} {
		cfg := Default()
		c.change(&cfg)
		got := cfg.dangers()
		if len(got) != len(c.want) {
			t.Errorf("%s: %d warnings %q, want %q", name, len(got), got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: %q, want %q", name, got[i], c.want[i])
			}
		}
	}
}
