package harness

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPeers_AreTheVersionsThatWeCompareWith(t *testing.T) {
	for name, args := range map[string][]string{
		"etcd": {"--version"}, "etcdctl": {"version"}, "etcdutl": {"version"},
	} {
		out := Run(t, Command{Program: Peer(t, name), Args: args, Limit: time.Minute})
		if out.Code != 0 || !strings.Contains(out.Stdout, "3.7.3") {
			t.Errorf("%s: code %d, output %s%s", name, out.Code, out.Stdout, out.Stderr)
		}
	}
	out := Run(t, Command{Program: Peer(t, "etcd-3.6"), Args: []string{"--version"}, Limit: time.Minute})
	if out.Code != 0 || !strings.Contains(out.Stdout, "3.6.8") {
		t.Errorf("etcd-3.6: code %d, output %s%s", out.Code, out.Stdout, out.Stderr)
	}
	for _, name := range []string{"benchmark", "etcd-dump-db", "etcd-dump-logs"} {
		if out := Run(t, Command{Program: Peer(t, name), Args: []string{"--help"}, Limit: time.Minute}); out.Code > 2 {
			t.Errorf("%s: code %d, output %s%s", name, out.Code, out.Stdout, out.Stderr)
		}
	}
}

func TestPorts_AreReservedOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		p, err := reservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if seen[p.number] {
			t.Errorf("port %d was given twice", p.number)
		}
		seen[p.number] = true
	}
}

func TestLog_WaitSeesLinesAndTheEnd(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := newLog()
	go l.consume(reader, nil)
	found := make(chan bool)
	go func() { found <- l.Wait(context.Background(), "the line") }()
	say := func(text string) {
		if _, err := writer.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	say("first\nhere is the line\n")
	if !<-found {
		t.Errorf("the line was not seen")
	}
	go func() { found <- l.Wait(context.Background(), "never") }()
	say("without end")
	writer.Close()
	if <-found {
		t.Errorf("a line was seen that nobody wrote")
	}
	if got := l.Tail(1); got != "without end" {
		t.Errorf("the last line is %q", got)
	}
}

// A server is found to serve, killed, started again, and handed to the other program.
func TestServer_LivesThroughItsStates(t *testing.T) {
	s := Start(t, Options{Kind: Etcd})
	s.MustCtl(t, "put", "k", "v")
	s.Kill(t)
	if s.Running() {
		t.Errorf("killed, and still running")
	}
	s.Start(t)
	if got := s.MustCtl(t, "get", "k", "--print-value-only"); got != "v\n" {
		t.Errorf("got %q", got)
	}
	s.Terminate(t)
	SameHashes(t, "a", []Hash{{Revision: 1}}, "b", []Hash{{Revision: 1}})
}
