package storeactor

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// TestTranscripts plays the files of testdata/machine. Each line of a `do` is one entry of the log, in words:
//
//	put KEY VALUE [lease=N] [prev] [ignore-value] [ignore-lease]
//	del KEY [end=KEY] [prev]
//	get KEY [end=KEY] [rev=N] [limit=N] [keys] [count] [by=key|version|create|mod|value] [desc] [min-mod=N] [max-mod=N]
//	txn if KEY TARGET OP OPERAND, ... ; then OP, ... ; else OP, ...
//	compact N | grant ID TTL | revoke ID | alarm on|off|list nospace|corrupt
//	file: what is in the key bucket | events KEY [end=KEY] from=N | step: one step of a compaction
//	finish: all compactions | restart | leases
//
// where \0 stands for a zero byte. Answers come with the revision of their header.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		r := newRig(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				b.WriteString(r.sentence(strings.TrimSpace(line)))
			}
			return b.String()
		})
	})
}

// words are the parts of a sentence: bare words first, then options.
type words struct {
	bare    []string
	options map[string]string
}

func parseWords(s string) words {
	w := words{options: map[string]string{}}
	for _, part := range strings.Fields(s) {
		part = strings.ReplaceAll(part, `\0`, "\x00")
		if name, value, ok := strings.Cut(part, "="); ok && name != "" && value != "" {
			w.options[name] = value
		} else {
			w.bare = append(w.bare, part)
		}
	}
	return w
}

func (w words) at(i int) string {
	if i < len(w.bare) {
		return w.bare[i]
	}
	return ""
}

func (w words) has(word string) bool {
	for _, b := range w.bare[1:] {
		if b == word {
			return true
		}
	}
	return false
}

func (w words) number(name string) int64 { return numberOf(w.options[name]) }

func numberOf(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (r *rig) sentence(line string) string {
	w := parseWords(line)
	switch w.at(0) {
	case "file":
		r.checkpoint()
		return strings.Join(r.stored(), " ") + "\n"
	case "step":
		if request := r.m.compactStep(1); request != nil {
			return "the index is done\n"
		}
		return "more\n"
	case "finish":
		r.compactAll()
		return ""
	case "restart":
		r.restart()
		return fmt.Sprintf("revision %d, compacted %d, %d keys\n", r.m.revision, r.m.compacted, r.m.keys)
	case "events":
		return r.eventLines(w)
	case "leases":
		return r.leaseLines()
	}
	request, answer := parseEntry(line, w)
	result, err := r.run(request, true)
	if err != nil {
		return fmt.Sprintf("%s\n", strings.TrimPrefix(err.Error(), "storeactor: "))
	}
	decode(r.tb, result, answer)
	return fmt.Sprintf("@%d%s\n", result.Revision, answerText(answer))
}

func parseEntry(line string, w words) (*pb.InternalRaftRequest, gproto.Message) {
	switch w.at(0) {
	case "compact":
		return compactAt(proto.Revision(numberOf(w.at(1)))), &pb.CompactionResponse{}
	case "grant":
		grant := &pb.LeaseGrantRequest{ID: numberOf(w.at(1)), TTL: numberOf(w.at(2))}
		return &pb.InternalRaftRequest{LeaseGrant: grant}, &pb.LeaseGrantResponse{}
	case "revoke":
		revoke := &pb.LeaseRevokeRequest{ID: numberOf(w.at(1))}
		return &pb.InternalRaftRequest{LeaseRevoke: revoke}, &pb.LeaseRevokeResponse{}
	case "alarm":
		a := &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType(pb.AlarmType_value[strings.ToUpper(w.at(2))])}
		a.Action = map[string]pb.AlarmRequest_AlarmAction{
			"on": pb.AlarmRequest_ACTIVATE, "off": pb.AlarmRequest_DEACTIVATE, "list": pb.AlarmRequest_GET,
		}[w.at(1)]
		return &pb.InternalRaftRequest{Alarm: a}, &pb.AlarmResponse{}
	case "txn":
		return &pb.InternalRaftRequest{Txn: parseTxn(strings.TrimPrefix(line, "txn"))}, &pb.TxnResponse{}
	}
	switch op := parseOp(w).Request.(type) {
	case *pb.RequestOp_RequestPut:
		return &pb.InternalRaftRequest{Put: op.RequestPut}, &pb.PutResponse{}
	case *pb.RequestOp_RequestDeleteRange:
		return &pb.InternalRaftRequest{DeleteRange: op.RequestDeleteRange}, &pb.DeleteRangeResponse{}
	case *pb.RequestOp_RequestRange:
		return &pb.InternalRaftRequest{Range: op.RequestRange}, &pb.RangeResponse{}
	}
	panic("no such sentence: " + line)
}

func parseOp(w words) *pb.RequestOp {
	key, end := []byte(w.at(1)), []byte(w.options["end"])
	switch w.at(0) {
	case "put":
		p := &pb.PutRequest{Key: key, Lease: w.number("lease"), PrevKv: w.has("prev"),
			IgnoreValue: w.has("ignore-value"), IgnoreLease: w.has("ignore-lease")}
		if !p.IgnoreValue {
			p.Value = []byte(w.at(2))
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	case "del":
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: w.has("prev")},
		}}
	case "get":
		q := &pb.RangeRequest{Key: key, RangeEnd: end, Revision: w.number("rev"), Limit: w.number("limit"),
			KeysOnly: w.has("keys"), CountOnly: w.has("count"),
			MinModRevision: w.number("min-mod"), MaxModRevision: w.number("max-mod"),
			SortTarget: pb.RangeRequest_SortTarget(pb.RangeRequest_SortTarget_value[strings.ToUpper(w.options["by"])])}
		if w.has("desc") {
			q.SortOrder = pb.RangeRequest_DESCEND
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: q}}
	}
	return &pb.RequestOp{}
}

func parseTxn(s string) *pb.TxnRequest {
	x := &pb.TxnRequest{}
	for part := range strings.SplitSeq(s, ";") {
		kind, list, _ := strings.Cut(strings.TrimSpace(part), " ")
		for item := range strings.SplitSeq(list, ",") {
			w := parseWords(item)
			if len(w.bare) == 0 {
				continue
			}
			switch kind {
			case "if":
				x.Compare = append(x.Compare, parseCompare(w))
			case "then":
				x.Success = append(x.Success, parseOp(w))
			case "else":
				x.Failure = append(x.Failure, parseOp(w))
			}
		}
	}
	return x
}

func parseCompare(w words) *pb.Compare {
	c := &pb.Compare{Key: []byte(w.at(0)), RangeEnd: []byte(w.options["end"])}
	c.Result = map[string]pb.Compare_CompareResult{
		"is": pb.Compare_EQUAL, "not": pb.Compare_NOT_EQUAL, "above": pb.Compare_GREATER, "below": pb.Compare_LESS,
	}[w.at(2)]
	n := numberOf(w.at(3))
	switch w.at(1) {
	case "value":
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte(w.at(3))}
	case "version":
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: n}
	case "create":
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: n}
	case "mod":
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: n}
	case "lease":
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: n}
	}
	return c
}

func kvText(kv *mvccpb.KeyValue) string {
	s := fmt.Sprintf("%s=%s(c%d m%d v%d", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version)
	if kv.Lease != 0 {
		s += fmt.Sprintf(" l%d", kv.Lease)
	}
	return s + ")"
}

func kvTexts(kvs []*mvccpb.KeyValue) string {
	s := ""
	for _, kv := range kvs {
		s += " " + kvText(kv)
	}
	return s
}

func answerText(m gproto.Message) string {
	switch a := m.(type) {
	case *pb.PutResponse:
		if a.PrevKv != nil {
			return " before" + kvTexts([]*mvccpb.KeyValue{a.PrevKv})
		}
		return ""
	case *pb.DeleteRangeResponse:
		if len(a.PrevKvs) > 0 {
			return fmt.Sprintf(" deleted %d, before%s", a.Deleted, kvTexts(a.PrevKvs))
		}
		return fmt.Sprintf(" deleted %d", a.Deleted)
	case *pb.RangeResponse:
		s := fmt.Sprintf(" count %d", a.Count)
		if a.More {
			s += ", more"
		}
		return s + kvTexts(a.Kvs)
	case *pb.LeaseGrantResponse:
		return fmt.Sprintf(" lease %d for %ds", a.ID, a.TTL)
	case *pb.AlarmResponse:
		s := ""
		for _, one := range a.Alarms {
			s += fmt.Sprintf(" %v on member %d", one.Alarm, one.MemberID)
		}
		return s
	case *pb.TxnResponse:
		return txnText(a)
	}
	return ""
}

func txnText(a *pb.TxnResponse) string {
	s := fmt.Sprintf(" succeeded: %v", a.Succeeded)
	for _, op := range a.Responses {
		switch v := op.Response.(type) {
		case *pb.ResponseOp_ResponsePut:
			s += fmt.Sprintf("\n  put @%d%s", v.ResponsePut.Header.Revision, answerText(v.ResponsePut))
		case *pb.ResponseOp_ResponseDeleteRange:
			s += fmt.Sprintf("\n  del @%d%s", v.ResponseDeleteRange.Header.Revision, answerText(v.ResponseDeleteRange))
		case *pb.ResponseOp_ResponseRange:
			s += fmt.Sprintf("\n  get @%d%s", v.ResponseRange.Header.Revision, answerText(v.ResponseRange))
		}
	}
	return s
}

func (r *rig) eventLines(w words) string {
	keys := NewKeyRange([]byte(w.at(1)), []byte(w.options["end"]))
	events, next, err := r.view().Events(keys, proto.Revision(w.number("from")), 1<<60, 1<<20)
	if err != nil {
		return strings.TrimPrefix(err.Error(), "storeactor: ") + "\n"
	}
	s := ""
	for _, e := range events {
		kv := &mvccpb.KeyValue{}
		if err := gproto.Unmarshal(e.KeyValue, kv); err != nil {
			r.tb.Fatal(err)
		}
		kind := map[proto.EventKind]string{proto.EventPut: "put", proto.EventDelete: "delete"}[e.Kind]
		s += fmt.Sprintf("%d/%d %s %s", e.Version.Main, e.Version.Sub, kind, kvText(kv))
		if e.Previous != (proto.Version{}) {
			s += fmt.Sprintf(", before it %d/%d", e.Previous.Main, e.Previous.Sub)
		}
		s += "\n"
	}
	return s + fmt.Sprintf("next %d\n", next)
}

func (r *rig) leaseLines() string {
	s := ""
	state := r.m.state()
	state.Leases(func(l proto.Lease) bool {
		s += fmt.Sprintf("lease %d for %ds: %s\n", l.ID, l.TTL, strings.Join(keyTexts(state.LeaseKeys(l.ID)), " "))
		return true
	})
	return s
}

func keyTexts(keys [][]byte) (all []string) {
	for _, k := range keys {
		all = append(all, string(k))
	}
	return all
}
