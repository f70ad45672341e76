package diskfull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"troupe/integration/harness"
)

const (
	// entered and recovered are the log lines of the operator, refusing and taking those about the clients.
	entered   = "the disk of the log is full, writes go on until"
	refusing  = "the disk of the log is full, writes are refused"
	recovered = "the disk of the log has space again"
	taking    = "the log has room again"
	// valueBytes is the size of the values: some 70 fill a segment.
	valueBytes = 900 << 10
)

// filler writes until it is refused, and remembers what was acknowledged.
type filler struct {
	client *clientv3.Client
	value  string
	// acknowledged is the number of keys, named by number, that were.
	acknowledged int
}

func newFiller(t *testing.T, s *harness.Server) *filler {
	return &filler{client: s.Client(t), value: string(bytes.Repeat([]byte("v"), valueBytes))}
}

func keyOf(n int) string { return fmt.Sprintf("key-%06d", n) }

// put writes the next key.
func (f *filler) put(t *testing.T) error {
	t.Helper()
	_, err := f.client.Put(harness.Context(t, 30*time.Second), keyOf(f.acknowledged), f.value)
	if err == nil {
		f.acknowledged++
	}
	return err
}

// untilRefused writes until there is no room, and fails on every other answer.
func (f *filler) untilRefused(t *testing.T) {
	t.Helper()
	for range 1000 {
		err := f.put(t)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatalf("after %d keys: %v", f.acknowledged, err)
		}
	}
	t.Fatal("the disk is never full")
}

// check reads all that was acknowledged, linearizably, and that nothing that was refused has come back.
func (f *filler) check(t *testing.T) {
	t.Helper()
	r, err := f.client.Get(harness.Context(t, time.Minute), "key-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) != f.acknowledged {
		t.Errorf("%d keys were acknowledged, %d are there", f.acknowledged, len(r.Kvs))
	}
	for i, kv := range r.Kvs {
		if string(kv.Key) != keyOf(i) {
			t.Fatalf("key %d is %s", i, kv.Key)
		}
	}
	last, err := f.client.Get(harness.Context(t, time.Minute), keyOf(f.acknowledged-1))
	if err != nil || len(last.Kvs) != 1 || string(last.Kvs[0].Value) != f.value {
		t.Errorf("the last acknowledged value cannot be read: %v", err)
	}
}

// count is the number of lines of the log with the text.
func count(s *harness.Server, text string) int {
	n := 0
	for _, line := range s.Log().Lines() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// wantOneLine waits for a line of the log with the text, which comes a little behind what it speaks of, and fails when
// there are more.
func wantOneLine(t *testing.T, s *harness.Server, text string) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the log says: "+text, func() error {
		if count(s, text) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if n := count(s, text); n != 1 {
		t.Errorf("%d lines %q:\n%s", n, text, s.Log().Tail(20))
	}
}

// watchAll counts the events of the filler's keys.
func watchAll(ctx context.Context, c *clientv3.Client) (events func() int) {
	seen := make(chan int, 1)
	seen <- 0
	go func() {
		for r := range c.Watch(ctx, "key-", clientv3.WithPrefix(), clientv3.WithRev(1)) {
			seen <- <-seen + len(r.Events)
		}
	}()
	return func() int { n := <-seen; seen <- n; return n }
}

// A log whose disk is full serves all that needs no space, refuses what does, and goes on by itself.
func TestWAL_AFullDiskRefusesWritesAndNothingElse(t *testing.T) {
	harness.TroupeOnly(t, "etcd ends when the disk of its log is full")
	mount := smallDisk(t, "size=200m")
	s := harness.Start(t, harness.Options{Args: []string{"--wal-dir", mount + "/wal"}})
	f := newFiller(t, s)
	ctx := harness.Context(t, 5*time.Minute)
	events := watchAll(ctx, f.client)
	lease, err := f.client.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	short, err := f.client.Grant(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Put(ctx, "held", "x", clientv3.WithLease(short.ID)); err != nil {
		t.Fatal(err)
	}
	empty := fill(t, mount, 1<<20)
	f.untilRefused(t)
	t.Logf("refused after %d keys of %d bytes", f.acknowledged, valueBytes)

	serveWithoutSpace(t, s, f, lease.ID)
	harness.Eventually(t, time.Minute, "the lease whose time is up ends on a full disk", func() error {
		r, err := f.client.Get(ctx, "held")
		if err == nil && len(r.Kvs) > 0 {
			return errors.New("its key is there")
		}
		return err
	})
	harness.Eventually(t, time.Minute, "the watch has every event", func() error {
		if n := events(); n != f.acknowledged {
			return fmt.Errorf("%d of %d", n, f.acknowledged)
		}
		return nil
	})

	// A process that is killed now finds a full disk, and serves what it can.
	s.Kill(t)
	fill(t, mount, 0)
	s.Start(t)
	f = &filler{client: s.Client(t), value: f.value, acknowledged: f.acknowledged}
	f.check(t)
	f.untilRefused(t)
	serveWithoutSpace(t, s, f, lease.ID)
	s.Terminate(t) // exits with 0: nothing is lost
	s.Start(t)
	f.client = s.Client(t)
	f.check(t)
	f.untilRefused(t)

	empty()
	harness.Eventually(t, time.Minute, "writes are taken again", func() error { return f.put(t) })
	if code, body := harness.Page(t, s.URL+"/readyz/space"); code != http.StatusOK {
		t.Errorf("/readyz afterwards: %d %s", code, body)
	}
	for range 80 { // into the next segment
		if err := f.put(t); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{entered, refusing, recovered, taking} {
		wantOneLine(t, s, line)
	}
	f.check(t)
	s.Kill(t)
	s.Start(t)
	f.client = s.Client(t)
	f.check(t)
}

// serveWithoutSpace looks at all that must go on while writes are refused.
func serveWithoutSpace(t *testing.T, s *harness.Server, f *filler, lease clientv3.LeaseID) {
	t.Helper()
	ctx := harness.Context(t, time.Minute)
	f.check(t)
	if r, err := f.client.KeepAliveOnce(ctx, lease); err != nil || r.TTL != 600 {
		t.Errorf("a renewal got %v, %v", r, err)
	}
	if _, err := f.client.Delete(ctx, "nothing"); err != nil {
		t.Errorf("a deletion, which frees space: %v", err)
	}
	wantFullDiskNamed(t, s, "disk of the log is full")
	if !s.Running() {
		t.Fatal("the server has ended")
	}
}

// wantFullDiskNamed checks the pages of a member whose disk is full: it lives and serves reads, so that nobody should
// restart it or send its readers away; who asks is told what is wrong.
func wantFullDiskNamed(t *testing.T, s *harness.Server, reason string) {
	t.Helper()
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":                  {http.StatusOK, "ok\n"},
		"/readyz":                 {http.StatusOK, "ok\n"},
		"/readyz?verbose":         {http.StatusOK, "[!]space warns: "},
		"/readyz/space":           {http.StatusServiceUnavailable, reason},
		"/health":                 {http.StatusServiceUnavailable, "DISK FULL"},
		"/health?exclude=NOSPACE": {http.StatusOK, "true"},
	} {
		if code, body := harness.Page(t, s.URL+path); code != want.code || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s, want %d and %q", path, code, body, want.code, want.text)
		}
	}
}
