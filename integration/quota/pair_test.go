package quota

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"troupe/integration/harness"
)

// limit is for one condition or one request on a slow, busy machine.
const limit = 30 * time.Second

// side is one of the two servers that are compared.
type side struct {
	server *harness.Server
	conn   *grpc.ClientConn
	member uint64
}

func newSide(t *testing.T, kind harness.Kind, args ...string) *side {
	t.Helper()
	return sideOf(t, harness.Start(t, harness.Options{Kind: kind, Args: args}))
}

func sideOf(t *testing.T, s *harness.Server) *side {
	t.Helper()
	conn := s.Conn(t)
	r, err := pb.NewMaintenanceClient(conn).Status(harness.Context(t, limit), &pb.StatusRequest{})
	if err != nil {
		t.Fatalf("status of %s: %v", s.Kind, err)
	}
	return &side{server: s, conn: conn, member: r.Header.MemberId}
}

// pair is troupe and etcd with the same history.
type pair struct{ troupe, etcd *side }

func newPair(t *testing.T, args ...string) *pair {
	t.Helper()
	return &pair{newSide(t, harness.Troupe, args...), newSide(t, harness.Etcd, args...)}
}

// each does the same on both.
func (p *pair) each(f func(*side)) {
	f(p.troupe)
	f(p.etcd)
}

// same compares what a call gives on both.
func (p *pair) same(t *testing.T, what string, call func(*side) string) {
	t.Helper()
	if got, want := call(p.troupe), call(p.etcd); got != want {
		t.Errorf("%s:\n  troupe: %s\n  etcd:   %s", what, got, want)
	}
}

// text is an answer or an error as one line, in which nothing differs between two servers that agree: no ids, no term
// and no sizes.
func (s *side) text(answer proto.Message, err error) string {
	if err != nil {
		return fmt.Sprintf("%v: %s", status.Code(err), s.named(status.Convert(err).Message()))
	}
	answer = proto.Clone(answer)
	m := answer.ProtoReflect()
	for _, name := range []protoreflect.Name{"raftIndex", "raftAppliedIndex", "raftTerm", "dbSize", "dbSizeInUse"} {
		if f := m.Descriptor().Fields().ByName(name); f != nil {
			m.Clear(f)
		}
	}
	switch r := answer.(type) { // etcd lists alarms in any order
	case *pb.AlarmResponse:
		slices.SortFunc(r.Alarms, func(a, b *pb.AlarmMember) int {
			return cmp.Or(cmp.Compare(a.Alarm, b.Alarm), cmp.Compare(s.own(a.MemberID), s.own(b.MemberID)))
		})
	case *pb.StatusResponse:
		for i := range r.Errors {
			r.Errors[i] = s.named(spaces.ReplaceAllString(r.Errors[i], " "))
		}
		slices.Sort(r.Errors)
	}
	if f := m.Descriptor().Fields().ByName("header"); f != nil && m.Has(f) {
		header := m.Mutable(f).Message()
		for _, name := range []protoreflect.Name{"cluster_id", "member_id", "raft_term"} {
			header.Clear(header.Descriptor().Fields().ByName(name))
		}
	}
	return "OK: " + s.named(spaces.ReplaceAllString(prototext.MarshalOptions{}.Format(answer), " "))
}

// spaces are what prototext varies on purpose; the rest is what two servers that agree may
// differ in.
var (
	spaces    = regexp.MustCompile(` +`)
	revisions = regexp.MustCompile(`revision:\d+`)
	rafts     = regexp.MustCompile(`"(RaftTerm|ClusterID)" : \d+\n`)
)

// own is an id by which the member itself comes last.
func (s *side) own(id uint64) uint64 {
	if id == s.member {
		return math.MaxUint64
	}
	return id - 1
}

// named replaces the server's own names.
func (s *side) named(text string) string {
	return strings.NewReplacer(strconv.FormatUint(s.member, 10), "<member>", strconv.FormatUint(s.member, 16), "<member>",
		s.server.Endpoint(), "<address>").Replace(text)
}

// alarm changes or lists alarms; member 0 is the server itself.
func (s *side) alarm(ctx context.Context, action pb.AlarmRequest_AlarmAction, kind pb.AlarmType, member uint64) string {
	if member == 0 {
		member = s.member
	}
	return s.text(pb.NewMaintenanceClient(s.conn).Alarm(ctx,
		&pb.AlarmRequest{Action: action, Alarm: kind, MemberID: member}))
}

// ownChecks are the health checks that only troupe has.
var ownChecks = regexp.MustCompile(`(?m)^\[.\](disk|space) .*\n`)

// page gives status and body of an HTTP page. The lines are sorted: health checks run in any order.
func (s *side) page(t *testing.T, path string) string {
	t.Helper()
	status, body := s.fetch(t, path)
	lines := strings.Split(ownChecks.ReplaceAllString(body, ""), "\n")
	slices.Sort(lines)
	return fmt.Sprint(status, " ", strings.Join(lines, "\n"))
}

func (s *side) fetch(t *testing.T, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), http.MethodGet, s.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return r.StatusCode, string(text)
}
