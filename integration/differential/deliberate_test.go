package differential

import (
	"bytes"
	"context"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"troupe/integration/harness"
)

// refusal is a kind of request that troupe refuses and etcd does not. Only troupe gets it, because etcd's state would
// be another one afterwards.
type refusal struct {
	name, reason string
	matches      func(proto.Message) bool
}

// refusals are all of them.
var refusals = []refusal{
	{"unknown enum value in a write",
		"what is in the log must mean the same to every version that may read it; etcd compares 0 with 0, lists an alarm " +
			"that has no name, or stops at every start",
		hasUnknownEnum},
	{"overlap of a deletion and a put in a txn that etcd does not notice",
		"etcd does both, and loses the key when it compacts at that revision (etcd-io/etcd#22376)",
		func(m proto.Message) bool {
			txn, ok := m.(*pb.TxnRequest)
			return ok && hasHiddenOverlap(txn)
		}},
	{"update of a member to URLs that are none",
		"etcd takes them, and a member of etcd that has to reach them ends over it, at this and every later start",
		hasBadURLs},
	{"calls of the Auth service", "auth is a later storey; until then nothing may look as if it protected anything",
		func(m proto.Message) bool {
			name := string(m.ProtoReflect().Descriptor().Name())
			return strings.HasPrefix(name, "Auth") && strings.HasSuffix(name, "Request")
		}},
}

func deliberatelyRefused(s step) *refusal {
	if s.request == nil || s.verb == verbWatch {
		return nil
	}
	for i := range refusals {
		if refusals[i].matches(s.request) {
			return &refusals[i]
		}
	}
	return nil
}

// refusedByTroupe checks that troupe refuses a request that etcd does not get.
func (w *world) refusedByTroupe(s step, why *refusal) *difference {
	if harness.EtcdStandsIn() {
		return nil
	}
	w.use(why.name)
	request := proto.Clone(s.request)
	expand(request)
	shift(request, w.base)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, err := w.sides[troupeSide].call(ctx, s.verb, request)
	if err == nil { // for whatever reason: more than this may be wrong with it
		return &difference{s.String(), "(not asked; troupe should refuse: " + why.reason + ")", "{}"}
	}
	return nil
}

// answerDifference is an answer that may differ.
type answerDifference struct {
	name, reason string
	matches      func(w *world, s step, etcd, troupe answer) bool
}

var answerDifferences = []answerDifference{
	{"progress request beside a watch whose revisions are gone",
		"etcd never answers one again on a stream that had such a watch, until its id is cancelled",
		func(w *world, s step, etcd, troupe answer) bool {
			return s.verb == verbWatch && etcd.text == "" && slices.ContainsFunc(w.models, func(m *watchModel) bool {
				return m.stream == s.stream && m.gone
			})
		}},
	{"pieces of a streamed range with a negative limit",
		"etcd sends everything in one message, of any size",
		func(_ *world, s step, etcd, troupe answer) bool {
			r, ok := s.request.(*pb.RangeRequest)
			return ok && s.verb == verbRangeStream && r.Limit < 0 &&
				etcd.text == strings.ReplaceAll(troupe.text, " kvs:{}", "")
		}},
	{"keys of a streamed range that names a sort target and no order",
		"etcd sorts each piece and goes on behind the last key of the sorted one: it loses keys and sends others twice",
		func(w *world, s step, etcd, troupe answer) bool {
			r, ok := s.request.(*pb.RangeRequest)
			return ok && s.verb == verbRangeStream && r.SortTarget != pb.RangeRequest_KEY && etcd.reply != nil &&
				troupe.reply != nil && w.eachKeyOnce(r, troupe.reply.(*pb.RangeResponse))
		}},
}

// eachKeyOnce reports whether an answer to a streamed range has each key that etcd's own unary range has, once; with a
// limit, some of them.
func (w *world) eachKeyOnce(request *pb.RangeRequest, reply *pb.RangeResponse) bool {
	all := proto.Clone(request).(*pb.RangeRequest)
	all.SortTarget, all.Limit = pb.RangeRequest_KEY, 0
	shift(all, w.base)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	unary, err := w.sides[etcdSide].call(ctx, "Range", all)
	if err != nil {
		return false
	}
	missing := make(map[string]bool)
	for _, kv := range unary.(*pb.RangeResponse).Kvs {
		missing[string(kv.Key)] = true
	}
	for _, kv := range reply.Kvs {
		if len(kv.Key) == 0 { // between two pieces
			continue
		}
		if !missing[string(kv.Key)] {
			return false
		}
		delete(missing, string(kv.Key))
	}
	return request.Limit > 0 || len(missing) == 0
}

// deliberate reports whether two answers may differ.
func (w *world) deliberate(s step, etcd, troupe answer) bool {
	for _, d := range answerDifferences {
		if d.matches(w, s, etcd, troupe) {
			w.use(d.name)
			return true
		}
	}
	return false
}

// hasUnknownEnum reports whether a request that goes through the log has an enum value without a name.
func hasUnknownEnum(m proto.Message) (found bool) {
	switch r := m.(type) {
	case *pb.AlarmRequest:
		_, action := pb.AlarmRequest_AlarmAction_name[int32(r.Action)]
		_, kind := pb.AlarmType_name[int32(r.Alarm)]
		return !action || !kind
	case *pb.TxnRequest:
		for _, c := range r.Compare {
			_, result := pb.Compare_CompareResult_name[int32(c.Result)]
			_, target := pb.Compare_CompareTarget_name[int32(c.Target)]
			found = found || !result || !target
		}
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if nested := op.GetRequestTxn(); nested != nil {
				found = found || hasUnknownEnum(nested)
			}
		}
	}
	return found
}

// place is where in a transaction an operation is: the branches above it, from the outermost.
type place []branch

type branch struct {
	txn    *pb.TxnRequest
	failed bool
}

// exclusive reports whether one execution never does both.
func (p place) exclusive(q place) bool {
	for i := range min(len(p), len(q)) {
		if p[i] != q[i] {
			return p[i].txn == q[i].txn
		}
	}
	return false
}

// above reports whether p's list holds q, or holds the txn that holds it.
func (p place) above(q place) bool { return len(p) <= len(q) && slices.Equal(p, q[:len(p)]) }

// placed is a put or a deletion with its place and its number in the order of the request.
type placed[R any] struct {
	at      place
	number  int
	request R
}

type (
	placedPut    = placed[*pb.PutRequest]
	placedDelete = placed[*pb.DeleteRangeRequest]
)

// hasHiddenOverlap reports whether a transaction may put a key and delete it in one execution in a way that etcd does
// not notice: a deletion without an end, or one in a nested transaction behind that with the put.
func hasHiddenOverlap(txn *pb.TxnRequest) bool {
	var puts []placedPut
	var deletes []placedDelete
	collect(txn, nil, &puts, &deletes)
	for _, d := range deletes {
		endless := bytes.Equal(d.request.RangeEnd, []byte{0})
		for _, p := range puts {
			behind := !p.at.above(d.at) && !d.at.above(p.at) && p.number < d.number
			if covers(d.request, p.request.GetKey()) && !d.at.exclusive(p.at) && (endless || behind) {
				return true
			}
		}
	}
	return false
}

func collect(txn *pb.TxnRequest, at place, puts *[]placedPut, deletes *[]placedDelete) {
	for _, failed := range []bool{false, true} {
		ops, here := txn.Success, append(slices.Clone(at), branch{txn, failed})
		if failed {
			ops = txn.Failure
		}
		for _, op := range ops {
			switch r := op.Request.(type) {
			case *pb.RequestOp_RequestPut:
				*puts = append(*puts, placedPut{here, len(*puts) + len(*deletes), r.RequestPut})
			case *pb.RequestOp_RequestDeleteRange:
				*deletes = append(*deletes, placedDelete{here, len(*puts) + len(*deletes), r.RequestDeleteRange})
			case *pb.RequestOp_RequestTxn:
				if r.RequestTxn != nil {
					collect(r.RequestTxn, here, puts, deletes)
				}
			}
		}
	}
}

func covers(d *pb.DeleteRangeRequest, key []byte) bool {
	switch {
	case len(d.GetRangeEnd()) == 0:
		return bytes.Equal(d.GetKey(), key)
	case bytes.Equal(d.RangeEnd, []byte{0}):
		return bytes.Compare(key, d.Key) >= 0
	default:
		return bytes.Compare(key, d.Key) >= 0 && bytes.Compare(key, d.RangeEnd) < 0
	}
}
