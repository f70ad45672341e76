package differential

import (
	"cmp"
	"slices"
	"strings"

	"troupe/integration/harness"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What is left out of the comparison. Everything else must be equal.
const (
	leftIDs      = "ids of clusters and members, the URLs of the servers themselves"
	leftRaft     = "terms and indexes of raft"
	leftSizes    = "sizes of files, and the hash of the whole file"
	leftTime     = "remaining time of a lease: above zero and at most what was granted"
	leftOrder    = "order of leases, of a lease's keys, of alarms: etcd has none"
	leftTies     = "order of more than twelve keys that are equal in the sort target: etcd's sort is not stable"
	leftHashes   = "the number that HashKV gives, where both give the same: it depends on earlier scripts"
	leftVersion  = "etcd's storage version just after a start: it raises it seconds later"
	leftGrouping = "which revisions share a response of a watch, and its header's revision: at least the last event's"
	leftPeriodic = "number of periodic progress notifications: none may go back, none may precede an event it covers"
)

// storageVersion is that of the two servers.
const storageVersion = "3.7.0"

// blanked are single fields of which only whether they are set is compared.
var blanked = map[protoreflect.FullName]string{
	"etcdserverpb.ResponseHeader.cluster_id":       leftIDs,
	"etcdserverpb.ResponseHeader.member_id":        leftIDs,
	"etcdserverpb.StatusResponse.leader":           leftIDs,
	"etcdserverpb.ResponseHeader.raft_term":        leftRaft,
	"etcdserverpb.StatusResponse.raftTerm":         leftRaft,
	"etcdserverpb.StatusResponse.raftIndex":        leftRaft,
	"etcdserverpb.StatusResponse.raftAppliedIndex": leftRaft,
	"etcdserverpb.StatusResponse.dbSize":           leftSizes,
	"etcdserverpb.StatusResponse.dbSizeInUse":      leftSizes,
	"etcdserverpb.HashResponse.hash":               leftSizes,
}

// blank replaces the fields of blanked.
func blank(m proto.Message, use func(string)) {
	visit(m.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, _ protoreflect.Value) {
		why, found := blanked[field.FullName()]
		if !found {
			return
		}
		use(why)
		switch field.Kind() {
		case protoreflect.Uint64Kind:
			m.Set(field, protoreflect.ValueOfUint64(1))
		case protoreflect.Uint32Kind:
			m.Set(field, protoreflect.ValueOfUint32(1))
		default:
			m.Set(field, protoreflect.ValueOfInt64(1))
		}
	})
}

// tidy takes out of both answers what is left out of the comparison.
func (w *world) tidy(s step, etcd, troupe proto.Message) {
	if a, ok := etcd.(*pb.HashKVResponse); ok {
		b := troupe.(*pb.HashKVResponse)
		equal := a.Hash == b.Hash
		a.Hash, b.Hash = 1, 2
		if equal {
			w.use(leftHashes)
			b.Hash = 1
		}
	}
	if a, ok := etcd.(*pb.StatusResponse); ok && a.StorageVersion < storageVersion &&
		!a.GetDowngradeInfo().GetEnabled() {
		w.use(leftVersion)
		a.StorageVersion = storageVersion
	}
	for _, reply := range []proto.Message{etcd, troupe} {
		blank(reply, w.use)
		switch r := reply.(type) {
		case *pb.RangeResponse:
			w.tidyRange(s.request.(*pb.RangeRequest), r)
		case *pb.TxnResponse:
			w.tidyTxn(s.request.(*pb.TxnRequest), r)
		default:
			w.tidyRest(reply)
		}
	}
}

func (w *world) tidyRest(reply proto.Message) {
	switch r := reply.(type) {
	case *pb.LeaseTimeToLiveResponse:
		if r.TTL > 0 && r.TTL <= r.GrantedTTL {
			w.use(leftTime)
			r.TTL = 1
		}
		w.inOrder(slices.IsSortedFunc(r.Keys, slices.Compare))
		slices.SortFunc(r.Keys, slices.Compare)
	case *pb.LeaseLeasesResponse:
		w.inOrder(slices.IsSortedFunc(r.Leases, byID))
		slices.SortFunc(r.Leases, byID)
	case *pb.AlarmResponse:
		byText := func(a, b *pb.AlarmMember) int {
			return slices.Compare([]byte(text(a)), []byte(text(b)))
		}
		w.inOrder(slices.IsSortedFunc(r.Alarms, byText))
		slices.SortFunc(r.Alarms, byText)
	case *pb.StatusResponse:
		for i, e := range r.Errors { // protobuf varies the spaces of its text on purpose
			r.Errors[i] = strings.Join(strings.Fields(e), " ")
		}
		w.inOrder(slices.IsSorted(r.Errors))
		slices.Sort(r.Errors)
	case *pb.MemberAddResponse, *pb.MemberRemoveResponse, *pb.MemberUpdateResponse, *pb.MemberListResponse:
		w.use(leftIDs) // renamed, and the lists, which are in their order, with them
	}
}

func byID(a, b *pb.LeaseStatus) int { return cmp.Compare(a.ID, b.ID) }

func (w *world) inOrder(already bool) {
	if !already {
		w.use(leftOrder)
	}
}

// tidyTxn tidies the ranges of a transaction.
func (w *world) tidyTxn(request *pb.TxnRequest, reply *pb.TxnResponse) {
	ops := request.Failure
	if reply.Succeeded {
		ops = request.Success
	}
	for i, r := range reply.Responses {
		if i >= len(ops) {
			return // one answer too many: it stays in the text and the comparison fails on it
		}
		switch inner := r.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			if op := ops[i].GetRequestRange(); op != nil {
				w.tidyRange(op, inner.ResponseRange)
			}
		case *pb.ResponseOp_ResponseTxn:
			if op := ops[i].GetRequestTxn(); op != nil {
				w.tidyTxn(op, inner.ResponseTxn)
			}
		}
	}
}

// stableSortMax is the length up to which Go's unstable sort is stable.
const stableSortMax = 12

// tidyRange orders ties. Where a limit cuts through a tie, even which of its keys come is open, and only their sort
// targets are kept.
func (w *world) tidyRange(request *pb.RangeRequest, reply *pb.RangeResponse) {
	if request.SortTarget == pb.RangeRequest_KEY || reply.Count <= stableSortMax || len(reply.Kvs) == 0 {
		return
	}
	w.use(leftTies)
	harness.OrderTies(request, reply)
}
