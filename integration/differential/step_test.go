package differential

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Verbs of steps that are not unary calls.
const (
	verbWatch       = "Watch"       // Watch STREAM REQUEST: one request on a watch stream
	verbHalfClose   = "HalfClose"   // HalfClose STREAM: the client says that no more requests come
	verbClose       = "Close"       // Close STREAM: the client leaves the stream
	verbRangeStream = "RangeStream" // RangeStream REQUEST
	verbKeepAlive   = "KeepAlive"   // KeepAlive REQUEST, on one stream for the whole script
	verbShortLease  = "ShortLease"  // ShortLease REQUEST: grant, look, renew, revoke, before it could end by itself
	verbFill        = "Fill"        // Fill COUNT PREFIX BYTES: that many puts
	verbExpire      = "Expire"      // Expire LEASE: wait until a lease has ended by itself
	verbSnapshot    = "Snapshot"    // a snapshot of both servers, the streams and what is in the files
	verbDownAndUp   = "DownAndUp"   // a downgrade until both are at its target, and a cancellation until both are back
	verbKill        = "Kill"        // kill -9 of both servers, and a start
	verbRestart     = "Restart"     // SIGTERM of both servers, and a start
)

// method is one unary call.
type method struct {
	path           string
	request, reply proto.Message
}

var methods = map[string]method{
	"Range":       {"/etcdserverpb.KV/Range", &pb.RangeRequest{}, &pb.RangeResponse{}},
	"Put":         {"/etcdserverpb.KV/Put", &pb.PutRequest{}, &pb.PutResponse{}},
	"DeleteRange": {"/etcdserverpb.KV/DeleteRange", &pb.DeleteRangeRequest{}, &pb.DeleteRangeResponse{}},
	"Txn":         {"/etcdserverpb.KV/Txn", &pb.TxnRequest{}, &pb.TxnResponse{}},
	"Compact":     {"/etcdserverpb.KV/Compact", &pb.CompactionRequest{}, &pb.CompactionResponse{}},
	"LeaseGrant":  {"/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{}, &pb.LeaseGrantResponse{}},
	"LeaseRevoke": {"/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeRequest{}, &pb.LeaseRevokeResponse{}},
	"LeaseTimeToLive": {"/etcdserverpb.Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{},
		&pb.LeaseTimeToLiveResponse{}},
	"LeaseLeases":  {"/etcdserverpb.Lease/LeaseLeases", &pb.LeaseLeasesRequest{}, &pb.LeaseLeasesResponse{}},
	"HashKV":       {"/etcdserverpb.Maintenance/HashKV", &pb.HashKVRequest{}, &pb.HashKVResponse{}},
	"Hash":         {"/etcdserverpb.Maintenance/Hash", &pb.HashRequest{}, &pb.HashResponse{}},
	"Status":       {"/etcdserverpb.Maintenance/Status", &pb.StatusRequest{}, &pb.StatusResponse{}},
	"Alarm":        {"/etcdserverpb.Maintenance/Alarm", &pb.AlarmRequest{}, &pb.AlarmResponse{}},
	"Defragment":   {"/etcdserverpb.Maintenance/Defragment", &pb.DefragmentRequest{}, &pb.DefragmentResponse{}},
	"AuthEnable":   {"/etcdserverpb.Auth/AuthEnable", &pb.AuthEnableRequest{}, &pb.AuthEnableResponse{}},
	"AuthStatus":   {"/etcdserverpb.Auth/AuthStatus", &pb.AuthStatusRequest{}, &pb.AuthStatusResponse{}},
	"Authenticate": {"/etcdserverpb.Auth/Authenticate", &pb.AuthenticateRequest{}, &pb.AuthenticateResponse{}},
	"UserAdd":      {"/etcdserverpb.Auth/UserAdd", &pb.AuthUserAddRequest{}, &pb.AuthUserAddResponse{}},
	"RoleAdd":      {"/etcdserverpb.Auth/RoleAdd", &pb.AuthRoleAddRequest{}, &pb.AuthRoleAddResponse{}},
	"UserList":     {"/etcdserverpb.Auth/UserList", &pb.AuthUserListRequest{}, &pb.AuthUserListResponse{}},
	"MemberList":   {"/etcdserverpb.Cluster/MemberList", &pb.MemberListRequest{}, &pb.MemberListResponse{}},
	"MemberAdd":    {"/etcdserverpb.Cluster/MemberAdd", &pb.MemberAddRequest{}, &pb.MemberAddResponse{}},
	"MemberRemove": {"/etcdserverpb.Cluster/MemberRemove", &pb.MemberRemoveRequest{}, &pb.MemberRemoveResponse{}},
	"MemberUpdate": {"/etcdserverpb.Cluster/MemberUpdate", &pb.MemberUpdateRequest{}, &pb.MemberUpdateResponse{}},
	"MemberPromote": {"/etcdserverpb.Cluster/MemberPromote", &pb.MemberPromoteRequest{},
		&pb.MemberPromoteResponse{}},
	"Downgrade":  {"/etcdserverpb.Maintenance/Downgrade", &pb.DowngradeRequest{}, &pb.DowngradeResponse{}},
	"MoveLeader": {"/etcdserverpb.Maintenance/MoveLeader", &pb.MoveLeaderRequest{}, &pb.MoveLeaderResponse{}},
}

// requests of the verbs that have one and are not unary.
var requests = map[string]proto.Message{
	verbWatch: &pb.WatchRequest{}, verbRangeStream: &pb.RangeRequest{},
	verbKeepAlive: &pb.LeaseKeepAliveRequest{}, verbShortLease: &pb.LeaseGrantRequest{},
}

// step is one line of a script.
type step struct {
	verb        string
	stream      int // for Expire, the lease
	request     proto.Message
	count, size int
	prefix      string
}

// call makes the step of a unary call.
func call(verb string, request proto.Message) step { return step{verb: verb, request: request} }

// watchStep makes the step of a request on a watch stream.
func watchStep(stream int, request *pb.WatchRequest) step {
	return step{verb: verbWatch, stream: stream, request: request}
}

// GoString is what rapid prints.
func (s step) GoString() string { return s.String() }

func (s step) String() string {
	switch s.verb {
	case verbKill, verbRestart, verbSnapshot, verbDownAndUp:
		return s.verb
	case verbHalfClose, verbClose, verbExpire:
		return fmt.Sprintf("%s %d", s.verb, s.stream)
	case verbFill:
		return fmt.Sprintf("%s %d %s %d", s.verb, s.count, s.prefix, s.size)
	case verbWatch:
		return strings.TrimSpace(fmt.Sprintf("%s %d %s", s.verb, s.stream, text(s.request)))
	}
	return strings.TrimSpace(s.verb + " " + text(s.request))
}

// text prints a message on one line. prototext varies its spaces on purpose.
func text(m proto.Message) string {
	return strings.Join(strings.Fields(prototext.MarshalOptions{}.Format(m)), " ")
}

// parseStep reads what String prints.
func parseStep(line string) (step, error) {
	verb, rest, _ := strings.Cut(line, " ")
	s := step{verb: verb}
	fields := strings.Fields(rest)
	numbers := func(at ...*int) (err error) {
		for i, n := range at {
			if n != nil && err == nil {
				if i >= len(fields) {
					return fmt.Errorf("%q has too few arguments", line)
				}
				*n, err = strconv.Atoi(fields[i])
			}
		}
		return err
	}
	switch verb {
	case verbKill, verbRestart, verbSnapshot, verbDownAndUp:
		return s, nil
	case verbHalfClose, verbClose, verbExpire:
		return s, numbers(&s.stream)
	case verbFill:
		if err := numbers(&s.count, nil, &s.size); err != nil {
			return s, err
		}
		s.prefix = fields[1]
		return s, nil
	case verbWatch:
		if err := numbers(&s.stream); err != nil {
			return s, err
		}
		_, rest, _ = strings.Cut(rest, " ")
	}
	request := requests[verb]
	if m, ok := methods[verb]; ok {
		request = m.request
	}
	if request == nil {
		return s, fmt.Errorf("%q: there is no verb %q", line, verb)
	}
	s.request = proto.Clone(request)
	if err := prototext.Unmarshal([]byte(rest), s.request); err != nil {
		return s, fmt.Errorf("%q: %w", line, err)
	}
	return s, nil
}

// readScript reads a file of steps. Empty lines and lines that begin with # say nothing.
func readScript(path string) ([]step, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var steps []step
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// revisionFields are the fields of etcd's messages that hold a revision.
var revisionFields = map[protoreflect.Name]bool{
	"revision": true, "mod_revision": true, "create_revision": true, "start_revision": true, "compact_revision": true,
	"min_mod_revision": true, "max_mod_revision": true, "min_create_revision": true, "max_create_revision": true,
	"hash_revision": true,
}

// revisionShiftMax is above every revision that is moved; larger ones are meant as they are.
const revisionShiftMax = 1 << 40

// shift moves every revision in a message by a number of revisions, both ways: scripts count as on a fresh store, the
// servers may have had other scripts before. What is not above zero has another meaning, and stays.
func shift(m proto.Message, by int64) {
	if by == 0 {
		return
	}
	visit(m.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, v protoreflect.Value) {
		if field.Kind() == protoreflect.Int64Kind && revisionFields[field.Name()] {
			if r := v.Int(); r > 0 && r < revisionShiftMax && r+by > 0 {
				m.Set(field, protoreflect.ValueOfInt64(r+by))
			}
		}
	})
}

// longBytes is from where values are printed by their length.
const longBytes = 64

// expand replaces the values that stand for long ones: *1000 is a thousand bytes.
func expand(m proto.Message) {
	visit(m.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, v protoreflect.Value) {
		if field.Kind() != protoreflect.BytesKind || field.Name() != "value" {
			return
		}
		if after, ok := bytes.CutPrefix(v.Bytes(), []byte("*")); ok {
			if n, err := strconv.Atoi(string(after)); err == nil {
				m.Set(field, protoreflect.ValueOfBytes(bytes.Repeat([]byte("v"), n)))
			}
		}
	})
}

// contract is the reverse of expand.
func contract(m proto.Message) {
	visit(m.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, v protoreflect.Value) {
		if field.Kind() != protoreflect.BytesKind || len(v.Bytes()) < longBytes {
			return
		}
		short := fmt.Appendf(nil, "*%d", len(v.Bytes()))
		if bytes.Count(v.Bytes(), []byte("v")) != len(v.Bytes()) {
			short = append(short, " of something else"...)
		}
		m.Set(field, protoreflect.ValueOfBytes(short))
	})
}

// visit calls f for every set field of a message and of those in it; lists of scalars are left out.
func visit(m protoreflect.Message,
	f func(protoreflect.Message, protoreflect.FieldDescriptor, protoreflect.Value)) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
			if !field.IsList() {
				f(m, field, v)
			}
		case field.IsList():
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message(), f)
			}
		default:
			visit(v.Message(), f)
		}
		return true
	})
}
