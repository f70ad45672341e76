package entries

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

// answer is what one server said to one request, ready to be compared: ids of cluster and members and raft terms are
// gone, and what etcd itself leaves open is put in order.
type answer struct {
	text     string
	err      string
	revision int64
}

// send sends one request on a plain connection.
func send(ctx context.Context, conn *grpc.ClientConn, request any) answer {
	reply, err := call(ctx, conn, request)
	if err != nil {
		s := status.Convert(err)
		return answer{err: fmt.Sprintf("%v: %s", s.Code(), s.Message())}
	}
	a := answer{revision: reply.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader().GetRevision()}
	tidy(request, reply)
	a.text = prototext.MarshalOptions{}.Format(reply)
	a.text = strings.Join(strings.Fields(a.text), " ") // prototext varies its spaces on purpose
	return a
}

func call(ctx context.Context, conn *grpc.ClientConn, request any) (proto.Message, error) {
	switch r := request.(type) {
	case *pb.PutRequest:
		return pb.NewKVClient(conn).Put(ctx, r)
	case *pb.DeleteRangeRequest:
		return pb.NewKVClient(conn).DeleteRange(ctx, r)
	case *pb.TxnRequest:
		return pb.NewKVClient(conn).Txn(ctx, r)
	case *pb.RangeRequest:
		return pb.NewKVClient(conn).Range(ctx, r)
	case *pb.CompactionRequest:
		return pb.NewKVClient(conn).Compact(ctx, r)
	case *pb.LeaseGrantRequest:
		return pb.NewLeaseClient(conn).LeaseGrant(ctx, r)
	case *pb.LeaseRevokeRequest:
		return pb.NewLeaseClient(conn).LeaseRevoke(ctx, r)
	case *pb.LeaseTimeToLiveRequest:
		return pb.NewLeaseClient(conn).LeaseTimeToLive(ctx, r)
	case *pb.LeaseLeasesRequest:
		return pb.NewLeaseClient(conn).LeaseLeases(ctx, r)
	case *pb.HashKVRequest:
		return pb.NewMaintenanceClient(conn).HashKV(ctx, r)
	case *pb.AlarmRequest:
		return pb.NewMaintenanceClient(conn).Alarm(ctx, r)
	case *pb.MemberListRequest:
		return pb.NewClusterClient(conn).MemberList(ctx, r)
	default:
		panic(fmt.Sprintf("entries: no call for %T", request))
	}
}

// tidy removes what must differ between two servers, and orders what etcd gives in any order.
func tidy(request any, reply proto.Message) {
	tidyHeader(reply.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader())
	switch r := reply.(type) {
	case *pb.RangeResponse:
		harness.OrderTies(request.(*pb.RangeRequest), r)
	case *pb.TxnResponse:
		tidyTxn(request.(*pb.TxnRequest), r)
	case *pb.LeaseTimeToLiveResponse:
		if r.TTL > 0 {
			r.TTL = 1 // seconds pass
		}
		slices.SortFunc(r.Keys, slices.Compare[[]byte])
	case *pb.LeaseLeasesResponse:
		sort.Slice(r.Leases, func(i, j int) bool { return r.Leases[i].ID < r.Leases[j].ID })
	case *pb.MemberListResponse:
		for _, m := range r.Members {
			m.ID, m.PeerURLs, m.ClientURLs = 0, nil, nil
		}
	}
}

func tidyHeader(h *pb.ResponseHeader) {
	if h != nil {
		h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	}
}

func tidyTxn(request *pb.TxnRequest, reply *pb.TxnResponse) {
	tidyHeader(reply.Header)
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
			tidyHeader(inner.ResponseRange.GetHeader())
			if op := ops[i].GetRequestRange(); op != nil {
				harness.OrderTies(op, inner.ResponseRange)
			}
		case *pb.ResponseOp_ResponsePut:
			tidyHeader(inner.ResponsePut.GetHeader())
		case *pb.ResponseOp_ResponseDeleteRange:
			tidyHeader(inner.ResponseDeleteRange.GetHeader())
		case *pb.ResponseOp_ResponseTxn:
			if op := ops[i].GetRequestTxn(); op != nil {
				tidyTxn(op, inner.ResponseTxn)
			}
		}
	}
}
