package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

func TestDaemon_SecondStartOnALiveDirectoryIsRefused(t *testing.T) {
	harness.TroupeOnly(t, "etcd waits for the lock without end")
	s := harness.Start(t, harness.Options{})
	second := harness.New(t, harness.Options{Dir: s.Dir})
	if err := second.Launch(); err != nil {
		t.Fatal(err)
	}
	if code := second.ExitCode(t); code == 0 {
		t.Errorf("the second one exited with 0")
	}
	text := second.Log().Tail(20)
	if !strings.Contains(text, s.Dir) && !strings.Contains(text, filepath.Base(s.Dir)) {
		t.Errorf("the refusal does not name the directory:\n%s", text)
	}
	if strings.Contains(text, "goroutine ") {
		t.Errorf("the refusal is a stack trace:\n%s", text)
	}
	harness.Serves(t, s)
	s.Kill(t)
	s.Start(t)
	harness.Serves(t, s)
}

func TestDaemon_SecondStartOnALivePortIsRefused(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	second := harness.New(t, harness.Options{})
	second.SetArgs("--listen-client-urls", s.URL)
	if err := second.Launch(); err != nil {
		t.Fatal(err)
	}
	if code := second.ExitCode(t); code == 0 {
		t.Errorf("the second one exited with 0")
	}
	if !second.Log().Contains("address already in use") {
		t.Errorf("the refusal does not say why:\n%s", second.Log().Tail(10))
	}
	harness.Serves(t, s)
}

func TestDaemon_SigtermWhenIdleExitsWithZeroSoon(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	harness.Serves(t, s)
	// A stop that waits for a time-out does so each time; a busy machine makes one stop slow, not all.
	const stops = 5
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		quickest := time.Duration(math.MaxInt64)
		for i := 0; i < stops && quickest > 1500*time.Millisecond; i++ {
			begin := time.Now()
			s.Signal(sig)
			code := s.ExitCode(t)
			quickest = min(quickest, time.Since(begin))
			if code != 0 && !harness.EtcdStandsIn() {
				t.Errorf("%v: exit code %d", sig, code)
			}
			s.Start(t)
		}
		if quickest > 1500*time.Millisecond {
			t.Errorf("%v: the quickest of %d stops took %v, want less than 1.5 s", sig, stops, quickest)
		}
	}
}

// Requests under way when SIGTERM comes are answered, and what was answered is there afterwards.
func TestDaemon_SigtermUnderLoadLosesNothing(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ctx := harness.Context(t, limit)
	kv := pb.NewKVClient(s.Conn(t)) // not the official client: that would wait for the server's return
	last := int64(0)
	for {
		r, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("key")})
		if err != nil {
			break
		}
		if last = r.Header.Revision; last == 300 {
			s.Signal(syscall.SIGTERM)
		}
	}
	if last < 300 {
		t.Fatalf("puts failed at revision %d, before the signal", last)
	}
	s.ExitCode(t)
	s.Start(t)
	r, err := pb.NewKVClient(s.Conn(t)).Range(ctx, &pb.RangeRequest{Key: []byte("key")})
	if err != nil || r.Header.Revision < last {
		t.Errorf("after SIGTERM: %v, %v; acknowledged up to %d", r, err, last)
	}
}

func TestDaemon_StoppedProcessGoesOnAfterwards(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	harness.Serves(t, s)
	s.Freeze(t)
	client := s.Client(t)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Put(harness.Context(t, limit), "while", "stopped")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a stopped server answered: %v", err)
	case <-time.After(1200 * time.Millisecond): // longer than an election timeout
	}
	s.Thaw()
	if err := <-answered; err != nil {
		t.Errorf("put across the stop: %v", err)
	}
	harness.Serves(t, s)
}

func TestDaemon_NotifiesSystemdWhenItServes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	s := harness.New(t, harness.Options{Env: []string{"NOTIFY_SOCKET=" + socket}})
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatalf("no notification: %v; log:\n%s", err, s.Log().Tail(10))
	}
	if !strings.Contains(string(buffer[:n]), "READY=1") {
		t.Errorf("notified %q, want READY=1", buffer[:n])
	}
	harness.Serves(t, s)
}

// A server that cannot serve must not say that it does.
func TestDaemon_FailedStartNotifiesNobody(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	other := harness.Start(t, harness.Options{})
	s := harness.New(t, harness.Options{Env: []string{"NOTIFY_SOCKET=" + socket}})
	s.SetArgs("--listen-client-urls", other.URL)
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	s.ExitCode(t)
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	if n, err := conn.Read(buffer); err == nil && strings.Contains(string(buffer[:n]), "READY=1") {
		t.Errorf("notified %q", buffer[:n])
	} else if err != nil && !errors.Is(err, errTimeout(err)) {
		t.Errorf("notification socket: %v", err)
	}
	if s.Log().Contains(harness.ReadyMessage) {
		t.Errorf("said %q", harness.ReadyMessage)
	}
}

// errTimeout gives err itself when it is a timeout.
func errTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return nil
}

func TestDaemon_EveryLogLineIsOneJSONObject(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	harness.Serves(t, s)
	if err := s.Client(t).Close(); err != nil {
		t.Fatal(err)
	}
	s.Terminate(t)
	for _, line := range s.Log().Lines() {
		var entry struct{ Level, TS, Caller, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("%v in %s", err, line)
			continue
		}
		if _, err := time.Parse("2006-01-02T15:04:05.999999Z0700", entry.TS); err != nil {
			t.Errorf("%v in %s", err, line)
		}
		if entry.Level == "" || entry.Caller == "" || entry.Msg == "" {
			t.Errorf("level, caller or msg is missing in %s", line)
		}
		bad := entry.Level == "error" || entry.Level == "fatal" || entry.Level == "panic"
		if bad && !harness.EtcdStandsIn() { // etcd does, when it stops
			t.Errorf("normal operation logs at %s: %s", entry.Level, line)
		}
	}
	for _, msg := range []string{harness.ReadyMessage, "serving client traffic"} {
		if !s.Log().Contains(msg) {
			t.Errorf("no log line says %q", msg)
		}
	}
	for _, setting := range []string{`"snapshot-catchup-entries":5000`, `"data-dir":"` + s.Dir + `"`} {
		if !s.Log().Contains(setting) {
			t.Errorf("no start-up line lists %s", setting)
		}
	}
}

func TestDaemon_BlockedLogPipeDoesNotStopService(t *testing.T) {
	harness.TroupeOnly(t, "etcd waits for whoever reads its log")
	s := harness.Start(t, harness.Options{
		Args:      []string{"--log-level=debug", "--warning-unary-request-duration=1ns"},
		SmallPipe: true,
	})
	client := s.Client(t)
	ctx := harness.Context(t, limit)
	resume := s.Log().Stall()
	defer resume()
	before := s.Log().Bytes()
	// Slow requests are logged a few times a second: long enough to fill what pipe and reader hold three times.
	for begin := time.Now(); time.Since(begin) < 8*time.Second; {
		if _, err := client.Put(ctx, strings.Repeat("k", 100), "v"); err != nil {
			t.Fatalf("put while nobody reads the log: %v", err)
		}
	}
	resume()
	harness.Eventually(t, limit, "the log goes on", func() error {
		if n := s.Log().Bytes() - before; n < 2*harness.SmallPipeBytes {
			return fmt.Errorf("%d bytes were logged, less than pipe and reader hold, so nothing was blocked", n)
		}
		return nil
	})
	harness.Serves(t, s)
}

// Go's monitor thread is the one that matters, and no code of the program ever runs on it.
func TestDaemon_EveryThreadSleepsWithCoarseTimers(t *testing.T) {
	harness.TroupeOnly(t, "etcd leaves its timers alone")
	if own, err := os.ReadFile("/proc/self/timerslack_ns"); err != nil || string(own) != "50000\n" {
		t.Skipf("the timer slack of this test is %q, %v; what is not the default the daemon keeps", own, err)
	}
	s := harness.Start(t, harness.Options{})
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.Pid()))
	if err != nil {
		t.Skipf("no list of threads here: %v", err)
	}
	seen := 0
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if err != nil { // it has ended, or only a privileged user may read it
			continue
		}
		if seen++; string(text) != "300000\n" {
			t.Errorf("thread %s has a timer slack of %q ns, want 300000", thread.Name(), text)
		}
	}
	if seen == 0 {
		t.Skip("the timer slack of another process cannot be read here")
	}
}
