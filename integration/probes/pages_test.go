package probes

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

const limit = 30 * time.Second

// target is a server with a port for metrics.
type target struct {
	*harness.Server
	metricsURL string
}

func start(t *testing.T, kind harness.Kind, args ...string) target {
	t.Helper()
	free := harness.New(t, harness.Options{}) // never started: its port is ours
	s := harness.Start(t, harness.Options{Kind: kind, Args: append(args, "--listen-metrics-urls", free.URL)})
	return target{s, free.URL}
}

// answer is what a probe got. The lines of checks are sorted, because they run in any order.
type answer struct {
	status             int
	contentType, allow string
	nosniff, body      string
}

func ask(t *testing.T, method, url string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	lines := strings.Split(ownChecks.ReplaceAllString(string(body), ""), "\n")
	slices.Sort(lines)
	return answer{status: r.StatusCode, contentType: r.Header.Get("Content-Type"), allow: r.Header.Get("Allow"),
		nosniff: r.Header.Get("X-Content-Type-Options"), body: strings.Join(lines, "\n")}
}

// ownChecks are the lines of the checks that only troupe has.
var ownChecks = regexp.MustCompile(`(?m)^\[.\](disk|space) .*\n`)

// asked are probes as they are, and as people write them by mistake.
var asked = []string{
	"/health", "/health?serializable=true", "/health?serializable=TRUE", "/health?serializable=maybe",
	"/health?exclude=NOSPACE", "/health?exclude=CORRUPT", "/health?exclude=nospace", "/health?exclude=",
	"/health?exclude=NOSPACE,CORRUPT", "/health?exclude=NOSPACE&exclude=CORRUPT", "/health/", "/health?verbose",
	"/livez", "/livez?verbose", "/livez?verbose=false", "/livez/", "/livez/serializable_read",
	"/livez/serializable_read?verbose", "/livez/data_corruption", "/livez?exclude=serializable_read&verbose",
	"/readyz", "/readyz?verbose", "/readyz?verbose=0", "/readyz/data_corruption", "/readyz/serializable_read",
	"/readyz/linearizable_read", "/readyz/non_learner", "/readyz/nothing", "/readyz?exclude=nothing&verbose",
	"/readyz/data_corruption?exclude=data_corruption", "/readyz/data_corruption?verbose",
	"/readyz?exclude=data_corruption", "/readyz?exclude=data_corruption&verbose", "/readyz?exclude=&verbose",
	"/readyz?exclude=data_corruption,serializable_read&verbose",
	"/readyz?exclude=data_corruption&exclude=serializable_read&exclude=linearizable_read&exclude=non_learner&verbose",
	"/config/local/log", // the log level cannot be changed while etcd 3.7 runs
	"/readyz?%zz", "/readyz?verbose;exclude=data_corruption",
}

// Every probe, on every port, with every alarm, gets from troupe what it gets from etcd, and is counted alike.
func TestProbes_AnswersAreEtcdsOnEveryPort(t *testing.T) {
	troupe, etcd := start(t, harness.Troupe), start(t, harness.Etcd)
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NONE, pb.AlarmType_CORRUPT, pb.AlarmType_NOSPACE} {
		t.Run(alarm.String(), func(t *testing.T) {
			for _, s := range []target{troupe, etcd} {
				defer raise(t, s, alarm)()
			}
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				for _, path := range asked {
					compare(t, method, path, troupe.URL, etcd.URL)
					compare(t, method, path, troupe.metricsURL, etcd.metricsURL)
				}
			}
			for _, path := range []string{"/health", "/livez", "/readyz", "/metrics"} {
				compare(t, http.MethodGet, path, troupe.PeerURL, etcd.PeerURL)
			}
		})
	}
	if got, want := counted(t, troupe), counted(t, etcd); got != want {
		t.Errorf("counted\n%s\netcd:\n%s", got, want)
	}
}

// raise raises an alarm and gives what takes it back.
func raise(t *testing.T, s target, alarm pb.AlarmType) (clear func()) {
	t.Helper()
	if alarm == pb.AlarmType_NONE {
		return func() {}
	}
	ctx := harness.Context(t, limit)
	m := pb.NewMaintenanceClient(s.Conn(t))
	status, err := m.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	change := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		r := &pb.AlarmRequest{Action: action, Alarm: alarm, MemberID: status.Header.MemberId}
		if _, err := m.Alarm(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	change(pb.AlarmRequest_ACTIVATE)
	return func() { change(pb.AlarmRequest_DEACTIVATE) }
}

func compare(t *testing.T, method, path, troupe, etcd string) {
	t.Helper()
	got, want := ask(t, method, troupe+path), ask(t, method, etcd+path)
	if got != want {
		t.Errorf("%s %s:\ntroupe: %+v\netcd:   %+v", method, path, got, want)
	}
	if path == "/livez?verbose" && method == http.MethodGet && got.status != http.StatusOK {
		t.Errorf("liveness fails: %+v", got)
	}
}

// counted are the metrics of probes, without the checks that only troupe has.
func counted(t *testing.T, s target) string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(ask(t, http.MethodGet, s.metricsURL+"/metrics").body, "\n") {
		own := strings.Contains(line, `name="disk"`) || strings.Contains(line, `name="space"`)
		if strings.HasPrefix(line, "etcd_server_health") && !own {
			lines = append(lines, line)
		}
	}
	return fmt.Sprint(strings.Join(lines, "\n"))
}
