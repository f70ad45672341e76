package node

import (
	"math"
	"strings"
	"testing"
	"time"

	"troupe/storeactor"
)

// TestRetention_IsReadAsEtcdReadsIt, except that what cannot be meant is refused.
func TestRetention_IsReadAsEtcdReadsIt(t *testing.T) {
	period := func(d time.Duration) storeactor.Retention { return storeactor.Retention{Period: d} }
	revisions := func(n int64) storeactor.Retention { return storeactor.Retention{Revisions: n} }
	const longest = math.MaxInt64 / int64(time.Hour)
	for _, c := range []struct {
		mode, retention string
		want            storeactor.Retention
		wrong           string // part of the error
	}{
		{"periodic", "0", period(0), ""}, {"periodic", "", period(0), ""}, {"periodic", "0h", period(0), ""},
		{"periodic", "1", period(time.Hour), ""}, {"periodic", "010", period(10 * time.Hour), ""},
		{"periodic", "30m", period(30 * time.Minute), ""}, {"periodic", "1.5h", period(90 * time.Minute), ""},
		{"periodic", "2562047", period(time.Duration(longest) * time.Hour), ""},
		{"periodic", "2562048", period(0), "too many hours"},
		{"periodic", "99999999999999999999", period(0), `time: invalid duration "99999999999999999999"`},
		{"periodic", "x", period(0), `error parsing CompactionRetention: time: invalid duration "x"`},
		{"periodic", "1.5", period(0), `time: missing unit in duration "1.5"`},
		{"periodic", "-1", period(0), `time: missing unit in duration "-1"`},
		{"periodic", "-5m", period(0), "negative"},
		{"revision", "0", revisions(0), ""}, {"revision", "1000", revisions(1000), ""},
		{"revision", "1h", revisions(int64(time.Hour)), ""}, {"revision", "-3s", revisions(0), "negative"},
		{"revision", "x", revisions(0), "invalid duration"},
		{"", "1", revisions(0), "undefined auto-compaction-mode"},
		{"Periodic", "1", revisions(0), `unknown auto-compaction-mode "Periodic"`},
	} {
		cfg := Default()
		cfg.AutoCompactionMode, cfg.AutoCompactionRetention = c.mode, c.retention
		got, err := cfg.retention()
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s %q: error %v, want %q", c.mode, c.retention, err, c.wrong)
		} else if err == nil && got != c.want {
			t.Errorf("%s %q: %+v, want %+v", c.mode, c.retention, got, c.want)
		}
		if (cfg.Validate() != nil) != (c.wrong != "") {
			t.Errorf("%s %q: the configuration is checked otherwise", c.mode, c.retention)
		}
	}
}
