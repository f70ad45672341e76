package diskfull

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"troupe/integration/harness"
)

// The usual case: one disk for the log and the database. Whichever of the two finds no room first, writes are refused,
// reads go on, a killed process starts again without a free byte, and space heals everything.
func TestWAL_AndDatabaseOnOneDisk(t *testing.T) {
	harness.TroupeOnly(t, "etcd ends when its disk is full")
	mount := smallDisk(t, "size=320m")
	s := harness.Start(t, harness.Options{Dir: filepath.Join(mount, "data"), Args: []string{"--snapshot-count=10"}})
	f := newFiller(t, s)
	for round, leave := range []int64{0, 20 << 20} {
		empty := fill(t, mount, leave)
		f.untilRefused(t)
		t.Logf("round %d: refused after %d keys", round, f.acknowledged)
		f.check(t)
		wantFullDiskNamed(t, s, "disk")
		s.Terminate(t) // exits with 0: nothing is lost
		s.Start(t)
		f.client = s.Client(t)
		f.check(t)
		s.Kill(t)
		fill(t, mount, 0)
		s.Start(t)
		f.client = s.Client(t)
		f.check(t)
		f.untilRefused(t)
		empty()
		// The database has space again; the log may use up its segment before it has looked for space, too, and refuse.
		for range 20 {
			harness.Eventually(t, time.Minute, "writes are taken again", func() error { return f.put(t) })
		}
		f.check(t)
		harness.Eventually(t, time.Minute, "the member is ready", func() error {
			if code, body := harness.Page(t, s.URL+"/readyz/space"); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
	}
	s.Terminate(t)
	s.Start(t)
	f.client = s.Client(t)
	f.check(t)
}
