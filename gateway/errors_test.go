package gateway

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"troupe/actors"
	"troupe/raftactor"
	"troupe/storeactor"
)

// rooms are the packages whose errors may reach the gateway.
var rooms = []string{"actors", "raftactor", "storeactor", "watchactor", "leaseactor", "authactor", "gateway"}

// exportedErrors finds the exported Err* variables of a package in its sources.
func exportedErrors(t *testing.T, room string) (names []string) {
	t.Helper()
	sources, err := filepath.Glob("../" + room + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, room+"."+name.Name)
					}
				}
			}
		}
	}
	return names
}

func TestErrors_EveryExportedErrorHasALineInTheTable(t *testing.T) {
	var listed, found []string
	for _, m := range errorLines {
		listed = append(listed, m.name)
	}
	for _, room := range rooms {
		found = append(found, exportedErrors(t, room)...)
	}
	if len(found) < 50 {
		t.Fatalf("only %d errors found, the search is broken", len(found))
	}
	for _, name := range found {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not in the table: add a line to errorLines in errortable.go", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(found, name) {
			t.Errorf("%s is in the table and nowhere else: remove its line", name)
		}
	}
	for i, m := range errorLines {
		for _, other := range errorLines[:i] {
			if m.name == other.name || m.err == other.err && m.wire != other.wire {
				t.Errorf("%s and %s contradict each other", m.name, other.name)
			}
		}
	}
}

func TestErrors_WireCodesAndTexts(t *testing.T) {
	for _, m := range errorLines {
		if m.wire == nil {
			continue
		}
		if got := wireError(m.err); got != m.wire {
			t.Errorf("%s: got %v, want %v", m.name, got, m.wire)
		}
		wrapped := fmt.Errorf("with facts: %w", m.err)
		if got := wireError(wrapped); got != m.wire {
			t.Errorf("%s wrapped: got %v, want %v", m.name, got, m.wire)
		}
		text := status.Convert(m.wire).Message()
		ours := m.wire == statusNotPrimary || m.wire == statusDeadline || status.Code(m.wire) == codes.Unimplemented ||
			slices.Contains(concurrencyStatuses, m.wire)
		if !ours && !strings.HasPrefix(text, "etcdserver: ") {
			t.Errorf("%s: text %q", m.name, text)
		}
		// Where etcd's client knows the text, it must be able to tell the error.
		if known := rpctypes.Error(m.wire); status.Code(m.wire) != codes.Unknown && known == m.wire &&
			slices.Contains(officialTexts, text) {
			t.Errorf("%s: the official client does not know %q", m.name, text)
		}
	}
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{raftactor.ErrTooManyRequests, codes.Unknown, "etcdserver: too many requests"},
		{actors.ErrFull, codes.Unknown, "etcdserver: too many requests"},
		{raftactor.ErrNotEnoughStarted, codes.Unknown,
			"etcdserver: re-configuration failed due to not enough started members"},
		{errors.New("a text nobody knows"), codes.Unknown, "a text nobody knows"},
		{context.Canceled, codes.Canceled, "context canceled"},
		{fmt.Errorf("waited: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "context deadline exceeded"},
		{status.Error(codes.Aborted, "as it is"), codes.Aborted, "as it is"},
		{raftactor.ErrTimeoutLeaderFail, codes.Unavailable,
			"etcdserver: request timed out, possibly due to previous leader failure"},
		{raftactor.ErrRequestTooLarge, codes.InvalidArgument, "etcdserver: request is too large"},
		{uncomparableError{"facts"}, codes.Unknown, "facts"},
	} {
		wantStatus(t, wireError(c.err), c.code, c.text)
	}
}

// concurrencyStatuses have the texts of clientv3's concurrency package, which etcd's Lock and Election services are
// clients of.
var concurrencyStatuses = []error{statusLockExpired, statusCandidateExpired, statusNotElected, statusNobodyElected,
	statusLeaderMissing}

// Errors of what the Lock and Election services ask of the others arrive without a code, those that end the call itself
// with theirs.
func TestErrors_OfServersClientKeepOnlyTheTextButForTheEndOfTheCall(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{storeactor.ErrLeaseNotFound, codes.Unknown, "etcdserver: requested lease not found"},
		{storeactor.ErrKeyEmpty, codes.Unknown, "etcdserver: key is not provided"},
		{raftactor.ErrTimeout, codes.Unknown, "etcdserver: request timed out"},
		{ErrElectionNotLeader, codes.Unknown, "election: not leader"},
		{context.Canceled, codes.Canceled, "context canceled"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "context deadline exceeded"},
		{ErrDraining, codes.Unavailable, "etcdserver: server stopped"},
	} {
		wantStatus(t, wireError(ofServersClient(c.err)), c.code, c.text)
	}
}

// uncomparableError would make a panic of a comparison or a look-up.
type uncomparableError []string

func (e uncomparableError) Error() string { return e[0] }

// officialTexts are the texts that etcd's client turns into errors of its own.
var officialTexts = []string{
	rpctypes.ErrorDesc(rpctypes.ErrGRPCEmptyKey), rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound), rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader), rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeout),
}
