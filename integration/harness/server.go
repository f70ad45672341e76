package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// ReadyMessage is the log line that says a server serves; every tool around etcd waits for it.
	ReadyMessage = "ready to serve client requests"
	// undecidedVersion is what /version says while the cluster has no version yet.
	undecidedVersion = "not_decided"
	// readyTimeout covers a start on a slow, busy machine: recovery, election, first entries.
	readyTimeout = 60 * time.Second
	// exitTimeout is far above the drain time of any server here; past it the process is called stuck.
	exitTimeout = 30 * time.Second
	// SmallPipeBytes is the capacity of a small pipe: one page, the least that Linux gives.
	SmallPipeBytes = 4096
)

// ErrNotReady means that a server ended, or did not serve in time. The error's text holds the end of its log.
var ErrNotReady = errors.New("harness: server did not become ready")

// Options describe a server to start. The zero value is troupe on a fresh directory with default settings.
type Options struct {
	Kind Kind
	// Dir is the data directory; empty: a new one that goes away with the test.
	Dir string
	// Args are added after the usual ones, so that they win.
	Args []string
	// Env is the whole environment besides PATH. A server must start with nothing else.
	Env []string
	// NoFlags leaves out the usual flags, for tests that configure the server another way.
	NoFlags bool
	// SmallPipe makes the pipe for the process's output hold SmallPipeBytes only, where the system allows it.
	SmallPipe bool
}

// Server is one server process on ports of its own. It may be stopped and started again on the same directory and the
// same ports. It is not safe for concurrent use, except that the clients made by it are.
type Server struct {
	Kind Kind
	// Dir is the data directory.
	Dir string
	// URL is the client URL, PeerURL the one for members.
	URL, PeerURL string

	options Options
	binary  string
	ports   []*port
	cmd     *exec.Cmd
	log     *Log
	exited  chan struct{}
	exitErr error
}

// Start starts a server, waits until it serves, and ends it with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := New(t, o)
	s.Start(t)
	return s
}

// New reserves ports and a directory for a server without starting it.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "data")
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatalf("harness: %s: %v", o.Kind, err)
	}
	t.Cleanup(func() {
		if t.Failed() && s.log != nil && s.Kind == Troupe {
			t.Logf("end of the log of %s on %s:\n%s", s.Kind, s.URL, s.log.Ending())
		}
		s.Close()
	})
	return s
}

// NewServer is New for programs that are not tests; Options.Dir must be set, and the caller calls Close.
func NewServer(o Options) (*Server, error) {
	binary, err := BinaryPath(o.Kind)
	if err != nil {
		return nil, err
	}
	client, err := reservePort()
	if err != nil {
		return nil, err
	}
	peer, err := reservePort()
	if err != nil {
		client.release()
		return nil, err
	}
	return &Server{
		Kind: o.Kind, Dir: o.Dir, URL: client.url(), PeerURL: peer.url(),
		options: o, binary: binary, ports: []*port{client, peer},
	}, nil
}

// Flags are the usual flags of a one-member cluster, the same for both kinds.
func (s *Server) Flags() []string {
	return []string{
		"--data-dir", s.Dir,
		"--listen-client-urls", s.URL, "--advertise-client-urls", s.URL,
		"--listen-peer-urls", s.PeerURL, "--initial-advertise-peer-urls", s.PeerURL,
		"--initial-cluster", "default=" + s.PeerURL,
	}
}

// SetArgs replaces Options.Args for the next start.
func (s *Server) SetArgs(args ...string) { s.options.Args = args }

// SetEnv replaces Options.Env for the next start.
func (s *Server) SetEnv(env ...string) { s.options.Env = env }

// UseKind makes the next start run the other program on the same directory and ports.
func (s *Server) UseKind(t testing.TB, k Kind) {
	t.Helper()
	binary, err := BinaryPath(k)
	if err != nil {
		t.Fatalf("harness: %s: %v", k, err)
	}
	s.Kind, s.binary = k, binary
}

// Start starts the process, again after a stop, and waits until it serves and its cluster has a version.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.Run(); err != nil {
		t.Fatalf("harness: %s: %v", s.Kind, err)
	}
}

// Run is Start for programs that are not tests.
func (s *Server) Run() error {
	if err := s.Launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if !s.log.Wait(ctx, ReadyMessage) {
		err := fmt.Errorf("%w; its end:\n%s", ErrNotReady, s.log.Ending())
		s.signal(syscall.SIGKILL)
		<-s.exited
		return err
	}
	return s.settled(ctx)
}

// settled waits until the member has decided its cluster's version. etcd does that after it says that it serves, by an
// entry of its own; a comparison that runs before it sees two moments of one server's life as two servers' answers.
func (s *Server) settled(ctx context.Context) error {
	for {
		err := s.versionDecided(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-s.exited:
			return fmt.Errorf("%w: it ended; its end:\n%s", ErrNotReady, s.log.Ending())
		case <-ctx.Done():
			return fmt.Errorf("%w: %w; its end:\n%s", ErrNotReady, err, s.log.Ending())
		}
	}
}

func (s *Server) versionDecided(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/version", nil)
	if err != nil {
		return err
	}
	request.Close = true // a server counts its connections, and tests look at that
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Cluster string `json:"etcdcluster"`
		Storage string `json:"storage"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Cluster == "" || answer.Cluster == undecidedVersion {
		return errors.New("cluster version not decided")
	}
	// etcd's file follows in a step of its own. After a downgrade it may stay above, as long as its log demands it.
	if s := answer.Storage; s != "" && s < answer.Cluster[:strings.LastIndexByte(answer.Cluster, '.')] {
		return fmt.Errorf("storage version %s is behind that of the cluster, %s", s, answer.Cluster)
	}
	return nil
}

var logCount atomic.Int64

// Launch starts the process without waiting for anything.
func (s *Server) Launch() error {
	var args []string
	if !s.options.NoFlags {
		args = s.Flags()
	}
	cmd := exec.Command(s.binary, append(args, s.options.Args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, s.options.Env...)
	cmd.Dir = filepath.Dir(s.Dir)
	cmd.SysProcAttr = childAttributes()
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	if s.options.SmallPipe {
		shrinkPipe(writer)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		reader.Close()
		writer.Close()
		return err
	}
	writer.Close()
	s.cmd, s.log, s.exited = cmd, newLog(), make(chan struct{})
	var file *os.File
	if dir := os.Getenv("TROUPE_TEST_LOGS"); dir != "" {
		name := fmt.Sprintf("%s-%d-%d.log", s.Kind, os.Getpid(), logCount.Add(1))
		file, _ = os.Create(filepath.Join(dir, name)) // without the file only the copy is missing
	}
	go func(l *Log) {
		l.consume(reader, file)
		reader.Close()
		if file != nil {
			file.Close()
		}
	}(s.log)
	go func(exited chan struct{}) {
		s.exitErr = cmd.Wait()
		close(exited)
	}(s.exited)
	return nil
}

// Log gives the output of the process that was started last.
func (s *Server) Log() *Log { return s.log }

// Pid is the process id of the process that was started last.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Exited is closed when the process that was started last has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Running reports whether the process has not ended.
func (s *Server) Running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// ExitCode waits for the end of the process and gives its code; -1 after a signal.
func (s *Server) ExitCode(t testing.TB) int {
	t.Helper()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(exitTimeout):
		t.Fatalf("harness: %s did not end; end of its log:\n%s", s.Kind, s.log.Ending())
		return 0
	}
}

// Kill ends the process as a power cut of the process would: SIGKILL, at once.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.signal(syscall.SIGKILL)
	s.ExitCode(t)
}

// Terminate sends SIGTERM, checks that the server exits cleanly, and gives the time that took. etcd ends itself with
// the signal it got; troupe exits with 0.
func (s *Server) Terminate(t testing.TB) time.Duration {
	t.Helper()
	begin := time.Now()
	s.signal(syscall.SIGTERM)
	code := s.ExitCode(t)
	took := time.Since(begin)
	state, _ := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	etcdWay := state.Signaled() && state.Signal() == syscall.SIGTERM
	if code != 0 && !(etcdWay && (s.Kind != Troupe || EtcdStandsIn())) {
		t.Errorf("%s after SIGTERM: %v; end of its log:\n%s", s.Kind, s.exitErr, s.log.Ending())
	}
	return took
}

// Signal sends a signal to the process.
func (s *Server) Signal(sig syscall.Signal) { s.signal(sig) }

// Freeze stops the process and waits until it stands still: the signal only asks, and the last thread may answer a
// request meanwhile. Thaw lets it go on.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.signal(syscall.SIGSTOP)
	Eventually(t, readyTimeout, "the process stands still", func() error { return frozen(s.cmd.Process.Pid) })
}

// Thaw lets a process go on that Freeze has stopped.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	if s.Running() {
		s.cmd.Process.Signal(sig)
	}
}

// Close kills the process and gives the ports back. It may be called more than once.
func (s *Server) Close() {
	if s.Running() {
		s.signal(syscall.SIGCONT)
		s.signal(syscall.SIGKILL)
		<-s.exited
	}
	for _, p := range s.ports {
		p.release()
	}
	s.ports = nil
}

// Endpoint is the client address without the scheme, as etcdctl takes it.
func (s *Server) Endpoint() string { return strings.TrimPrefix(s.URL, "http://") }
