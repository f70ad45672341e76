package fieldreports

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// T16 (etcd-io/etcd#14382): entries that change no key move the applied index too, so a server whose log was cut after
// nothing but such entries starts again.
func TestRestart_AfterEntriesThatChangeNoKey(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--snapshot-count=5", "--snapshot-catchup-entries=2"}})
	for round := range 3 {
		for range 5 {
			s.MustCtl(t, "endpoint", "health")
		}
		for n := range 7 { // refused entries, and leases, are such entries too
			s.Ctl(t, "lease", "revoke", fmt.Sprint(900+n))
			s.MustCtl(t, "lease", "grant", "1000")
		}
		s.Kill(t)
		s.Start(t)
		if got, want := newAPI(t, s).put("k", "v"), int64(round+2); got != want {
			t.Errorf("round %d: revision %d, want %d", round, got, want)
		}
	}
}

// T27 (etcd-io/etcd#14370): what was acknowledged is on the disk. A kill cannot take back what the kernel has, so the
// second half counts the flushes: each write of a lone client waits for one of its own.
func TestPut_IsAcknowledgedOnlyAfterItsFlush(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	for round := range 8 {
		a := newAPI(t, s)
		key := fmt.Sprint("round ", round)
		a.put(key, "v")
		s.Kill(t)
		s.Start(t)
		if value, ok := newAPI(t, s).get(key, 0); !ok || value != "v" {
			t.Errorf("%s is lost", key)
		}
	}
	a := newAPI(t, s)
	const writes = 50
	before := metric(t, s, "etcd_disk_wal_fsync_duration_seconds_count")
	for n := range writes {
		a.put("k", fmt.Sprint(n))
	}
	if flushes := metric(t, s, "etcd_disk_wal_fsync_duration_seconds_count") - before; flushes < writes {
		t.Errorf("%d acknowledged writes, one after the other, with %v flushes of the log", writes, flushes)
	}
}

// metric reads one value from the metrics page.
func metric(t *testing.T, s *harness.Server, name string) float64 {
	t.Helper()
	r, err := http.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(page), "\n") {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// memoryMax is far below what the test writes and far above what a server needs for it: entries of a few requests in
// flight, what the file has not yet, and the garbage between two collections.
const memoryMax = 220 << 20

// T58 (etcd-io/etcd#17098, #12548): the log kept in memory is bounded in bytes, not only in entries.
func TestMemory_LargeValuesDoNotPileUpInTheLog(t *testing.T) {
	harness.TroupeOnly(t, "etcd bounds the log by the number of its entries")
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	value := string(bytes.Repeat([]byte("v"), 1<<20))
	for range 250 {
		a.put("one key", value)
	}
	if anonymous := memory(t, s, "RssAnon"); anonymous > memoryMax {
		t.Errorf("after 250 puts of 1 MiB the server holds %d MiB, want less than %d", anonymous>>20, memoryMax>>20)
	}
	s.Kill(t)
	s.Start(t)
	if got, _ := newAPI(t, s).get("one key", 0); got != value {
		t.Errorf("after the restart the value has %d bytes", len(got))
	}
	if anonymous := memory(t, s, "RssAnon"); anonymous > memoryMax {
		t.Errorf("after the restart the server holds %d MiB, want less than %d", anonymous>>20, memoryMax>>20)
	}
}

// memory reads a field of the process's status, in bytes. Mapped pages of the file are not counted in RssAnon.
func memory(t *testing.T, s *harness.Server, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		t.Skipf("no process status here: %v", err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Skipf("no %s in the process status", field)
	return 0
}
