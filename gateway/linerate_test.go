package gateway

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLineRate_BoundsTheLinesOfASecond(t *testing.T) {
	r := lineRate{max: 3}
	second := time.Unix(1000, 0)
	for round := range 3 {
		allowed := 0
		for i := range 100 {
			if r.allow(second.Add(time.Duration(i) * time.Millisecond)) {
				allowed++
			}
		}
		if allowed != 3 {
			t.Errorf("second %d: %d lines", round, allowed)
		}
		second = second.Add(time.Second)
	}
}

// Anybody who reaches the port may ask for /health as often as they like.
func TestPages_FailedHealthProbesDoNotFillTheLog(t *testing.T) {
	e := newReadyEdge(t, nil)
	e.room.set(func() { e.room.status.Leader = 0 })
	began := time.Now()
	for range 200 {
		if code, _ := get(t, e, "/health"); code != 503 {
			t.Fatalf("code %d", code)
		}
	}
	lines := strings.Count(e.log.String(), "serving /health false")
	if seconds := int(time.Since(began).Seconds()) + 2; lines < 1 || lines > seconds*healthLinesPerSecondMax {
		t.Errorf("%d lines about 200 probes in at most %d s", lines, seconds)
	}
}

func TestPages_MetricsNameFeaturesAndPeers(t *testing.T) {
	e := newReadyEdge(t, nil)
	_, body := get(t, e, "/metrics")
	local := e.room.state.Membership.Members[0].ID.String()
	for _, want := range []string{
		`etcd_server_feature_enabled{name="FastLeaseKeepAlive",stage="BETA"} 1`,
		`etcd_server_feature_enabled{name="LeaseCheckpoint",stage="ALPHA"} 0`,
		`Remote="` + local + `"} 1`, "etcd_network_known_peers{Local=", "os_fd_used ", "os_fd_limit ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

// outOfFiles is a listener that cannot accept for a while, as when there are no file descriptors left.
type outOfFiles struct {
	net.Listener
	failures int
}

func (l *outOfFiles) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A member without file descriptors must say so, stay, and serve again when there are some.
func TestListener_OutOfFilesIsSaidAndSurvived(t *testing.T) {
	log := &lockedBuffer{}
	s, err := New(testConfig(newFakeRoom(), log))
	if err != nil {
		t.Fatal(err)
	}
	base, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeClients(&outOfFiles{Listener: base, failures: 20}) }()
	answer, err := pages.Get("http://" + base.Addr().String() + "/version")
	if err != nil {
		t.Fatalf("/version after the failures: %v", err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("/version after the failures: %s", answer.Status)
	}
	if n := strings.Count(log.String(), "too many open files"); n < 1 || n > 5 {
		t.Errorf("%d lines about 20 failures: %s", n, log.String())
	}
	if err := s.Stop(within(t)); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
