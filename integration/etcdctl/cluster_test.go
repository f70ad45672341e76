package etcdctl

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

func TestEtcdctl_LeaseCommandsPrintWhatTheyPrintOnEtcd(t *testing.T) {
	t.Parallel()
	compare(t, join(
		every("lease list"),
		[]step{
			run("lease grant 1000"), run("lease grant 2000"), run("put k1 v --lease=<lease 0>"),
			run("put k2 v --lease=<lease 0>"), run("put k3 v --lease=<lease 1>"), run("lease grant 0"),
			run("lease grant x"), run("lease grant 9000000001"), run("lease grant"),
		},
		// One key, because etcd gives several in any order.
		every("lease timetolive <lease 0>"), every("lease timetolive <lease 1> --keys"),
		every("lease timetolive 1234"), every("lease timetolive 1234 --keys"), every("get k1"),
		every("get --from-key k"),
		[]step{
			run("lease keep-alive --once <lease 0>"), run("lease keep-alive --once <lease 0>").format("json"),
			run("lease keep-alive --once <lease 1>").format("fields"), run("lease keep-alive --once 1234"),
			run("lease keep-alive <lease 1>").stopAt("keepalived"), run("lease keep-alive 1234"),
			run("put k2 w --ignore-lease"), run("get k2").format("json"), run("put k2 x"), run("get k2").format("json"),
			run("lease timetolive <lease 0> --keys"), run("lease revoke 1234"), run("lease revoke"),
			run("lease revoke <lease 0>"), run("lease timetolive <lease 0>"), run("get k1"), run("get k2"),
			run("lease revoke <lease 1>").format("json"), run("get --prefix k").format("json"),
		},
	))
}

func TestEtcdctl_EndpointAndMemberCommandsPrintWhatTheyPrintOnEtcd(t *testing.T) {
	t.Parallel()
	compare(t, join(
		[]step{
			run("put a 1"), run("endpoint status").statusColumns(),
			run("endpoint status").format("table").statusColumns(),
			run("endpoint status").format("json"), run("endpoint status").format("fields"),
			run("endpoint status --cluster").format("json"), run("endpoint health --cluster"),
			run("endpoint health").format("table").statusColumns(), run("endpoint hashkv").format("table"),
			run("member list").format("table"), run("member list --hex"), run("member list --hex").format("json"),
		},
		every("endpoint health"), every("endpoint hashkv"), every("endpoint hashkv --cluster"), every("member list"),
		every("member list --consistency=s"), every("alarm list"), []step{run("alarm list").format("table")},
		every("put b 2"), every("endpoint hashkv"),
	))
}

func TestEtcdctl_ChangesOfTheMembersPrintWhatTheyPrintOnEtcd(t *testing.T) {
	t.Parallel()
	const first, second = "http://127.0.0.1:1", "http://127.0.0.1:2"
	list := func() []step {
		return []step{run("member list").anyOrder(), run("member list").format("json").anyOrder(),
			run("member list").format("table").anyOrder(), run("endpoint status").statusColumns()}
	}
	compare(t, join(
		[]step{
			run("member add"), run("member add x"), run("member add x --peer-urls=zzz --learner"),
			run("member add x --peer-urls=" + first + "/path --learner").format("json"),
			run("member add one --learner --peer-urls=" + first + "," + second).anyOrder(),
		},
		list(),
		[]step{
			run("member add two --learner --peer-urls=http://127.0.0.1:3"),
			run("member add two --peer-urls=" + first).format("json"), run("member promote <added 0>"),
			run("member promote <self>"), run("member promote 1234").format("json"), run("member promote"),
			run("member update <added 0>"), run("member update <added 0> --peer-urls=" + first),
			run("member update <added 0> --peer-urls=" + second).format("json").anyOrder(),
			run("member update 1234 --peer-urls=http://127.0.0.1:3"), run("member remove 1234"),
			run("member remove xyz"), run("member remove <self>"), run("member remove"),
			run("move-leader <self>"), run("move-leader <added 0>"), run("move-leader 1234"), run("move-leader"),
			run("put a 1"), run("get a"),
		},
		list(),
		[]step{
			run("member remove <added 0>"), run("member remove <added 0>"), run("member promote <added 0>"),
			run("member update <added 0> --peer-urls=" + first), run("move-leader <added 0>"),
			run("member add again --learner --peer-urls=" + first).anyOrder(),
		},
		list(),
		[]step{
			run("member remove <added 1>").format("json"),
			run("member add voter --peer-urls=http://127.0.0.1:4").anyOrder(),
			run("member add other --peer-urls=http://127.0.0.1:5"),
			run("member add learner --peer-urls=http://127.0.0.1:5 --learner"),
			run("member list --consistency=s").anyOrder(),
		},
	))
}

func TestEtcdctl_DowngradeCommandsPrintWhatTheyPrintOnEtcd(t *testing.T) {
	t.Parallel()
	status := []step{run("endpoint status").format("table").statusColumns(), run("endpoint status").format("json"),
		run("endpoint status").format("fields")}
	compare(t, join(
		every("downgrade validate 3.6"), every("downgrade validate 3.5"), every("downgrade validate nonsense"),
		every("downgrade cancel"),
		[]step{
			run("downgrade validate 3.6").format("table"),
			run("downgrade"), run("downgrade validate"), run("downgrade enable"), run("downgrade cancel 3.6"),
			run("downgrade enable 3.5"), run("downgrade enable 3.6 3.5"), run("downgrade enable nonsense"),
			run("downgrade enable 3.6").reaches("3.6.0"),
		},
		status,
		every("downgrade validate 3.5"), every("downgrade enable 3.6"), every("downgrade enable 3.5"),
		[]step{run("downgrade cancel").reaches("3.7.0")}, status,
		[]step{run("downgrade enable 3.6").format("json").reaches("3.6.0"),
			run("downgrade cancel").format("json").reaches("3.7.0")},
		status,
	))
}

var perfNumbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?(s| writes/s)`)

// check perf has one length, a minute. It runs on both servers at the same time, beside the other tests.
func TestEtcdctl_CheckPerfPrintsWhatItPrintsOnEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("etcdctl check perf takes a minute")
	}
	outputs := make(chan harness.Output, 2)
	for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
		s := harness.Start(t, harness.Options{Kind: kind})
		go func() {
			out := harness.Run(t, harness.Command{
				Program: harness.Peer(t, "etcdctl"), Limit: 3 * time.Minute,
				Args: []string{"--endpoints", s.Endpoint(), "check", "perf", "--load", "s"},
			})
			out.Stdout = perfNumbers.ReplaceAllString(out.Stdout, "<number>$2")
			out.Stderr = "" // the progress bar
			outputs <- out
		}()
	}
	first, second := <-outputs, <-outputs
	if got, want := perfShape(first.Stdout), perfShape(second.Stdout); got != want || got == "" {
		t.Errorf("etcdctl check perf differs:\n%+v\n%+v", first, second)
	}
	// The verdict is about time, which a busy machine takes from both: it counts only where both have enough.
	if first.Code == 0 && second.Code == 0 && first != second {
		t.Errorf("etcdctl check perf differs:\n%+v\n%+v", first, second)
	}
	if first.Code != 0 || second.Code != 0 {
		t.Logf("the machine is too busy for etcdctl check perf:\n%s\n%s", first.Stdout, second.Stdout)
	}
}

// perfShape is what the lines of etcdctl check perf are about, whatever they find.
func perfShape(out string) string {
	var about []string
	for _, what := range []string{"Throughput", "Slowest request", "Stddev"} {
		if strings.Contains(out, what) {
			about = append(about, what)
		}
	}
	return strings.Join(about, ",")
}

func TestEtcdctl_LockAndElectPrintWhatTheyPrintOnEtcd(t *testing.T) {
	t.Parallel()
	compare(t, []step{
		run("lock the-lock echo held"), run("get --prefix the-lock"), run("lock the-lock").stopAt("the-lock/"),
		run("lock the-lock --ttl=5 echo again"), run("get --prefix the-lock"),
		run("elect the-election me").stopAt("me"), run("get --prefix the-election").format("json"),
	})
}
