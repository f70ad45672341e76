package gateway

import (
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// description is what a log line says about a request: its keys and numbers, never a value, and no more of it than a
// line can hold, whatever the client sent.
type description struct {
	// ops is etcd's "request count": 1 for a put, the number of operations of a transaction, -1 for what has no count.
	ops     int64
	content string
}

// describe describes a request in the manner of etcd's text: key:"a" range_end:"b" limit:10.
func describe(in protobuf.Message) description {
	var t text
	switch r := in.(type) {
	case *pb.RangeRequest:
		return description{0, string(t.ranged(r))}
	case *pb.PutRequest:
		return description{1, string(t.put(r))}
	case *pb.DeleteRangeRequest:
		return description{0, string(t.deleted(r))}
	case *pb.TxnRequest:
		return description{int64(max(len(r.Success), len(r.Failure))), string(t.txn(r, 0))}
	case *pb.CompactionRequest:
		return description{-1, string(t.number("revision", r.Revision).flag("physical", r.Physical))}
	case *pb.LeaseGrantRequest:
		return description{-1, string(t.number("TTL", r.TTL).number("ID", r.ID))}
	case *pb.LeaseRevokeRequest:
		return description{-1, string(t.number("ID", r.ID))}
	case *pb.LeaseTimeToLiveRequest:
		return description{-1, string(t.number("ID", r.ID).flag("keys", r.Keys))}
	case *pb.HashKVRequest:
		return description{-1, string(t.number("revision", r.Revision))}
	case *proto.LockRequest:
		return description{-1, string(t.key("name", r.Name).number("lease", r.Lease))}
	case *proto.CampaignRequest:
		return description{-1, string(t.key("name", r.Name).number("lease", r.Lease).
			number("value_size", int64(len(r.Value))))}
	}
	return description{ops: -1} // the rest may hold passwords
}

// text is a description as it is written.
type text []byte

func (t text) word(name string) text {
	if len(t) > 0 && t[len(t)-1] != '<' {
		t = append(t, ' ')
	}
	return append(t, name...)
}

// key writes a key that is not empty, quoted and cut.
func (t text) key(name string, key []byte) text {
	if len(key) == 0 {
		return t
	}
	t = append(t.word(name), ':')
	if len(key) <= loggedKeyBytesMax {
		return strconv.AppendQuote(t, string(key))
	}
	t = strconv.AppendQuote(t, string(key[:loggedKeyBytesMax]))
	return append(t, "..."...)
}

// number writes a number that is not 0.
func (t text) number(name string, n int64) text {
	if n == 0 {
		return t
	}
	return strconv.AppendInt(append(t.word(name), ':'), n, 10)
}

func (t text) flag(name string, set bool) text {
	if !set {
		return t
	}
	return append(t.word(name), ":true"...)
}

func (t text) ranged(r *pb.RangeRequest) text {
	t = t.key("key", r.Key).key("range_end", r.RangeEnd).number("limit", r.Limit).number("revision", r.Revision)
	if r.SortOrder != 0 || r.SortTarget != 0 {
		t = t.number("sort_order", int64(r.SortOrder)).number("sort_target", int64(r.SortTarget))
	}
	t = t.flag("serializable", r.Serializable).flag("keys_only", r.KeysOnly).flag("count_only", r.CountOnly)
	return t.number("min_mod_revision", r.MinModRevision).number("max_mod_revision", r.MaxModRevision).
		number("min_create_revision", r.MinCreateRevision).number("max_create_revision", r.MaxCreateRevision)
}

func (t text) put(r *pb.PutRequest) text {
	return t.key("key", r.Key).number("value_size", int64(len(r.Value))).number("lease", r.Lease).
		flag("prev_kv", r.PrevKv).flag("ignore_value", r.IgnoreValue).flag("ignore_lease", r.IgnoreLease)
}

func (t text) deleted(r *pb.DeleteRangeRequest) text {
	return t.key("key", r.Key).key("range_end", r.RangeEnd).flag("prev_kv", r.PrevKv)
}

// txn writes the compares and operations of a transaction, the first few of each.
func (t text) txn(r *pb.TxnRequest, depth int) text {
	t = append(t.word("compare"), ":<"...)
	for i, c := range r.Compare {
		if i == loggedOpsMax {
			t = t.more(len(r.Compare) - i)
			break
		}
		t = t.compare(c)
	}
	t = append(t, '>')
	t = t.ops("success", r.Success, depth)
	return t.ops("failure", r.Failure, depth)
}

func (t text) compare(c *pb.Compare) text {
	t = t.word("target:")
	t = append(t, c.Target.String()...)
	t = t.key("key", c.Key).key("range_end", c.RangeEnd)
	switch u := c.TargetUnion.(type) {
	case *pb.Compare_Version:
		t = t.number("version", u.Version)
	case *pb.Compare_CreateRevision:
		t = t.number("create_revision", u.CreateRevision)
	case *pb.Compare_ModRevision:
		t = t.number("mod_revision", u.ModRevision)
	case *pb.Compare_Lease:
		t = t.number("lease", u.Lease)
	case *pb.Compare_Value:
		t = t.number("value_size", int64(len(u.Value)))
	}
	return t
}

func (t text) ops(name string, ops []*pb.RequestOp, depth int) text {
	t = append(t.word(name), ":<"...)
	for i, op := range ops {
		if i == loggedOpsMax {
			t = t.more(len(ops) - i)
			break
		}
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			t = append(append(t.word("request_range:<"), text(nil).ranged(r.RequestRange)...), '>')
		case *pb.RequestOp_RequestPut:
			t = append(append(t.word("request_put:<"), text(nil).put(r.RequestPut)...), '>')
		case *pb.RequestOp_RequestDeleteRange:
			t = append(append(t.word("request_delete_range:<"), text(nil).deleted(r.RequestDeleteRange)...), '>')
		case *pb.RequestOp_RequestTxn:
			t = t.word("request_txn:<")
			if depth < loggedTxnDepthMax {
				t = append(t, text(nil).txn(r.RequestTxn, depth+1)...)
			}
			t = append(t, '>')
		}
	}
	return append(t, '>')
}

func (t text) more(n int) text {
	return append(strconv.AppendInt(t.word("and "), int64(n), 10), " more"...)
}

// Field numbers of the counts in RangeResponse and DeleteRangeResponse.
const fieldDeletedCount = 2

// countIn looks for the count in the encoded answer to a request: that of a range, or of the deleted keys. It looks at
// answers of one piece only, which small ones are; large ones know their count.
func countIn(in protobuf.Message, out *answer) int64 {
	var field protowire.Number
	switch in.(type) {
	case *pb.RangeRequest:
		field = fieldRangeCount
	case *pb.DeleteRangeRequest:
		field = fieldDeletedCount
	case *pb.PutRequest, *pb.TxnRequest:
		return 0
	default:
		return -1
	}
	if out.count > 0 || len(out.more) > 0 || len(out.body.Pieces) > 1 {
		return out.count
	}
	for _, b := range out.body.Pieces {
		for len(b) > 0 {
			number, kind, n := protowire.ConsumeTag(b)
			if n < 0 {
				return -1
			}
			if b = b[n:]; number == field && kind == protowire.VarintType {
				count, _ := protowire.ConsumeVarint(b)
				return int64(count)
			}
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return -1
			}
			b = b[n:]
		}
	}
	return 0
}
