package debugpage

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"troupe/integration/harness"
	"troupe/proto"
)

// TestPort_DebugPagesCanBeTakenFromTheClientPort: --debug-listen-urls has them all and the client port none.
func TestPort_DebugPagesCanBeTakenFromTheClientPort(t *testing.T) {
	harness.TroupeOnly(t, "etcd has no --debug-listen-urls")
	s := startWithDebugPort(t)
	status := func(url string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(harness.Context(t, limit), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode
	}
	for _, path := range []string{"/debug/actors", "/debug/clients", "/debug/vars", "/debug/pprof/"} {
		if here, there := status(s.URL+path), status(s.debug+path); here != 404 || there != 200 {
			t.Errorf("%s: %d on the client port, %d on the debug port", path, here, there)
		}
	}
	if got := status(s.URL + "/health"); got != 200 {
		t.Errorf("/health on the client port: %d", got)
	}
	profile := fetch(t, s.debug+"/debug/pprof/goroutine?debug=1")
	for _, actor := range []string{"raft", "raft/wal", "store"} {
		if !strings.Contains(profile, `"actor":"`+actor+`"`) {
			t.Errorf("no goroutine is labelled %s in the profile", actor)
		}
	}
	if _, err := picture(t, strings.TrimPrefix(s.URL, "http://")); code(err) != codes.Unimplemented {
		t.Errorf("Introspect on the client port: %v", err)
	}
	p, err := picture(t, strings.TrimPrefix(s.debug, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, a := range p.Actors {
		found[a.Name] = true
	}
	for _, name := range designed {
		if !found[name] {
			t.Errorf("Introspect does not show %s", name)
		}
	}
}

func code(err error) codes.Code { return status.Code(err) }

type serverWithDebug struct {
	*harness.Server
	debug string
}

// startWithDebugPort starts a member with a debug port. The port is free when it is looked for; should somebody else
// take it before the member does, another one is tried.
func startWithDebugPort(t *testing.T) serverWithDebug {
	t.Helper()
	var failures error
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		debug := "http://" + l.Addr().String()
		_ = l.Close()
		s := harness.New(t, harness.Options{Args: []string{"--debug-listen-urls", debug, "--enable-pprof"}})
		if err := s.Run(); err != nil {
			failures = errors.Join(failures, err)
			s.Close()
			continue
		}
		return serverWithDebug{s, debug}
	}
	t.Fatal(failures)
	return serverWithDebug{}
}

func picture(t *testing.T, address string) (*proto.IntrospectPicture, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	out := new(proto.IntrospectPicture)
	err = conn.Invoke(harness.Context(t, limit), "/troupe.introspect.v1.Introspect/Get", &proto.IntrospectRequest{}, out)
	return out, err
}
