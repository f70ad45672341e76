package fieldreports

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"troupe/integration/harness"
)

// variantDepthMax is how deep messages are nested in a variant: a txn in a txn, with something wrong in it.
const variantDepthMax = 4

// servicesTried are those whose unary calls do not change who may speak.
var servicesTried = []string{"KV", "Lease", "Maintenance", "Cluster"}

// notTried change which version the cluster has.
var notTried = []string{"Downgrade"}

// T28 (etcd-io/etcd#13554, #13553), as a kind: every field of every request, nested ones too, takes values that nobody
// meant, and every message inside is left empty. Each is answered with success or a clear refusal, and nothing that the
// log may hold of it keeps the server from starting.
func TestRequests_EveryFieldOfEveryRequestTakesExtremesWithoutHarm(t *testing.T) {
	harness.TroupeOnly(t, "etcd dies of an alarm request with an unknown action")
	s := harness.Start(t, harness.Options{})
	a := newAPI(t, s)
	calls := 0
	for _, service := range servicesTried {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("etcdserverpb." + service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if m.IsStreamingServer() || slices.Contains(notTried, string(m.Name())) {
				continue
			}
			for _, request := range variants(m.Input(), 0) {
				a.tryCall(m, request)
				calls++
			}
			a.clearAlarms()
		}
	}
	t.Logf("%d calls", calls)
	if calls < 400 {
		t.Errorf("only %d calls were made: the variants are not what they should be", calls)
	}
	for _, request := range variants((&pb.WatchRequest{}).ProtoReflect().Descriptor(), 0) {
		a.tryWatch(request.(*pb.WatchRequest))
	}
	a.put("after", "1")
	s.Kill(t)
	s.Start(t)
	if value, _ := newAPI(t, s).get("after", 0); value != "1" {
		t.Errorf("after the restart the key is %q", value)
	}
}

// tryCall makes a call. What is not the server's fault has other codes than these.
func (a *api) tryCall(m protoreflect.MethodDescriptor, request proto.Message) {
	a.t.Helper()
	reply, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		a.t.Fatal(err)
	}
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	err = a.conn.Invoke(a.ctx, path, request, reply.New().Interface())
	switch got := status.Convert(err); got.Code() {
	case codes.Unknown, codes.Internal, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		a.t.Errorf("%s{%v}: %v: %s", path, request, got.Code(), got.Message())
	case codes.OK:
	default:
		if !strings.HasPrefix(got.Message(), "etcdserver: ") {
			a.t.Errorf("%s{%v}: %v: %q is not a text of this server", path, request, got.Code(), got.Message())
		}
	}
}

// tryWatch sends a request on a stream that must go on after it.
func (a *api) tryWatch(request *pb.WatchRequest) {
	a.t.Helper()
	stream, err := pb.NewWatchClient(a.conn).Watch(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	const id = 4711
	for _, r := range []*pb.WatchRequest{request, {RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("a"), WatchId: id},
	}}} {
		if err := stream.Send(r); err != nil {
			a.t.Fatal(err)
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			a.t.Errorf("watch request %v ended the stream: %v", request, err)
			return
		}
		if r.Created && r.WatchId == id {
			break
		}
	}
	if err := stream.CloseSend(); err != nil {
		a.t.Error(err)
	}
}

// clearAlarms takes back what a variant of an alarm request has raised.
func (a *api) clearAlarms() {
	a.t.Helper()
	maintenance := pb.NewMaintenanceClient(a.conn)
	r, err := maintenance.Alarm(a.ctx, &pb.AlarmRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, raised := range r.Alarms {
		off := &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: raised.MemberID, Alarm: raised.Alarm}
		if _, err := maintenance.Alarm(a.ctx, off); err != nil {
			a.t.Fatal(err)
		}
	}
}

// variants gives a plain message of a type, and one for each extreme of each of its fields, those of nested messages
// included.
func variants(d protoreflect.MessageDescriptor, depth int) (all []proto.Message) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(fmt.Sprintf("fieldreports: %s: %v", d.FullName(), err))
	}
	plain := func() protoreflect.Message {
		m := kind.New()
		if key := d.Fields().ByName("key"); key != nil && key.Kind() == protoreflect.BytesKind {
			m.Set(key, protoreflect.ValueOfBytes([]byte("a"))) // without a key nothing else is looked at
		}
		return m
	}
	all = append(all, plain().Interface())
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		for _, value := range extremes(field, depth) {
			m := plain()
			if field.IsList() {
				list := m.Mutable(field).List()
				list.Append(value)
			} else {
				m.Set(field, value)
			}
			all = append(all, m.Interface())
		}
	}
	return all
}

// extremes gives values for a field that nobody means.
func extremes(field protoreflect.FieldDescriptor, depth int) (values []protoreflect.Value) {
	switch field.Kind() {
	case protoreflect.EnumKind:
		for _, n := range []protoreflect.EnumNumber{99, -1, math.MinInt32, math.MaxInt32} {
			values = append(values, protoreflect.ValueOfEnum(n))
		}
	case protoreflect.Int64Kind:
		for _, n := range []int64{-1, math.MinInt64, math.MaxInt64} {
			values = append(values, protoreflect.ValueOfInt64(n))
		}
	case protoreflect.Uint64Kind:
		values = append(values, protoreflect.ValueOfUint64(math.MaxUint64))
	case protoreflect.BoolKind:
		values = append(values, protoreflect.ValueOfBool(true))
	case protoreflect.BytesKind:
		for _, b := range [][]byte{{}, {0}, {0xff, 0xff}} {
			values = append(values, protoreflect.ValueOfBytes(b))
		}
	case protoreflect.StringKind:
		values = append(values, protoreflect.ValueOfString("\x00"))
	case protoreflect.MessageKind:
		if depth < variantDepthMax {
			for _, m := range variants(field.Message(), depth+1) {
				values = append(values, protoreflect.ValueOfMessage(m.ProtoReflect()))
			}
		}
	}
	return values
}
