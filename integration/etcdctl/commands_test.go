package etcdctl

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

// harnessLimit bounds one request that the test itself sends.
const harnessLimit = 30 * time.Second

// step is one etcdctl command, run on both servers.
type step struct {
	args  []string
	stdin string
	// until interrupts a command that runs on, once it has printed this.
	until string
	// status marks a table or line of "endpoint status", whose columns are partly replaced.
	status bool
	// members marks an output with several members, which are in the order of their ids.
	members bool
	// version is what the storage version must be before the next step, if given.
	version string
}

// run makes a step of a command line; arguments are separated by single spaces, and "<lease N>" is one argument.
func run(line string) step {
	line = strings.ReplaceAll(strings.ReplaceAll(line, "<lease ", "<lease\x00"), "<added ", "<added\x00")
	args := strings.Split(line, " ")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "\x00", " ")
	}
	return step{args: args}
}

func (s step) input(text string) step  { s.stdin = text; return s }
func (s step) stopAt(text string) step { s.until = text; return s }
func (s step) reaches(v string) step   { s.version = v; return s }
func (s step) statusColumns() step     { s.status = true; return s }
func (s step) anyOrder() step          { s.members = true; return s }
func (s step) format(name string) step { s.args = append([]string{"-w", name}, s.args...); return s }
func (s step) String() string          { return strings.Join(s.args, " ") }
func every(line string) (steps []step) { return formats(run(line)) }
func formats(one step) (steps []step) {
	for _, format := range []string{"simple", "json", "fields"} {
		steps = append(steps, one.format(format))
	}
	return steps
}

var grantedLease = regexp.MustCompile(`lease ([0-9a-f]+) granted`)

// addedMember finds the id in the output of member add.
var addedMember = regexp.MustCompile(`Member +([0-9a-f]+) added (?:as learner )?to cluster`)

// compare runs the steps in order on both servers and compares each output.
func compare(t *testing.T, steps []step) {
	t.Helper()
	troupe := harness.Start(t, harness.Options{Kind: harness.Troupe})
	etcd := harness.Start(t, harness.Options{Kind: harness.Etcd})
	left, right := newNames(t, troupe), newNames(t, etcd)
	for i, s := range steps {
		got, want := execute(t, left, s), execute(t, right, s)
		if got != want {
			t.Errorf("step %d: etcdctl %s\n--- troupe: code %d\n%s\n--- etcd: code %d\n%s", i, s,
				got.Code, got.Stdout+got.Stderr, want.Code, want.Stdout+want.Stderr)
		}
	}
}

// execute runs one step on one server and gives the normalised output.
func execute(t *testing.T, n *names, s step) harness.Output {
	t.Helper()
	args := []string{"--endpoints", n.server.Endpoint()}
	for _, arg := range s.args {
		args = append(args, n.fill(arg))
		if strings.Contains(args[len(args)-1], "<added ") {
			t.Fatalf("step %s: no such member was added", s)
		}
	}
	out := harness.Run(t, harness.Command{
		Program: harness.Peer(t, "etcdctl"), Args: args, Stdin: n.fill(s.stdin), Until: s.until, Limit: harnessLimit,
	})
	if m := grantedLease.FindStringSubmatch(out.Stdout); m != nil {
		n.addLease(m[1])
	}
	if m := addedMember.FindStringSubmatch(out.Stdout); m != nil {
		n.addMember(m[1])
	}
	if s.version != "" {
		n.reaches(t, s.version)
	}
	out.Stdout, out.Stderr = n.normalise(out.Stdout), n.normalise(out.Stderr)
	if s.members {
		out.Stdout = normaliseMembers(out.Stdout)
	}
	if s.status {
		out.Stdout = normaliseStatus(out.Stdout)
	}
	return out
}

func join(lists ...[]step) (all []step) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
