package storeactor

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// Alarm is one raised alarm: which member, which kind.
type Alarm struct {
	Member proto.MemberID
	Type   pb.AlarmType
	// By is the request that raised it last, 0 if it was found in the file, which does not say. Nothing that is
	// replicated or answered depends on it.
	By proto.RequestID
}

// is reports whether it is that member's alarm of that kind, whoever raised it.
func (a Alarm) is(member proto.MemberID, kind pb.AlarmType) bool {
	return a.Member == member && a.Type == kind
}

// sortAlarms puts alarms into the order in which they are listed: kind, then member.
func sortAlarms(alarms []Alarm) {
	slices.SortFunc(alarms, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Member, b.Member))
	})
}

// encode gives the AlarmMember; it is the key in the alarm bucket too.
func (a Alarm) encode() []byte {
	b := appendVarintField(nil, tagAlarmMember, uint64(a.Member))
	return appendVarintField(b, tagAlarmType, uint64(uint32(a.Type)))
}

// EncodeAlarms gives the body, without header, of an AlarmResponse that lists the alarms of the type; NONE lists all.
func EncodeAlarms(alarms []Alarm, kind pb.AlarmType) []byte {
	var body []byte
	for _, a := range alarms {
		if kind == pb.AlarmType_NONE || kind == a.Type {
			member := a.encode()
			body = append(appendBytesHead(body, tagAlarms, len(member)), member...)
		}
	}
	return body
}

// raised reports whether any member has raised the alarm.
func raised(alarms []Alarm, kind pb.AlarmType) bool {
	return slices.ContainsFunc(alarms, func(a Alarm) bool { return a.Type == kind })
}

// alarm executes an alarm request. Raising and clearing are idempotent; the answer lists what now is, or was, raised.
// The list is replaced, never changed, because the published state shares it. An alarm that is raised again is the
// later request's: who raises by hand what the quota has raised wants it to stay.
func (m *machine) alarm(r *pb.AlarmRequest, by proto.RequestID) (*proto.Result, error) {
	a := Alarm{Member: proto.MemberID(r.MemberID), Type: r.Alarm, By: by}
	at := slices.IndexFunc(m.alarms, func(b Alarm) bool { return b.is(a.Member, a.Type) })
	var listed []Alarm
	switch r.Action {
	case pb.AlarmRequest_GET:
		return newBytesResult(m.revision, EncodeAlarms(m.alarms, r.Alarm)), nil
	case pb.AlarmRequest_ACTIVATE:
		if a.Type == pb.AlarmType_NONE {
			break
		}
		listed = []Alarm{a}
		if at >= 0 {
			alarms := slices.Clone(m.alarms)
			alarms[at] = a
			m.setAlarms(alarms)
			break
		}
		alarms := append(slices.Clone(m.alarms), a)
		sortAlarms(alarms)
		m.setAlarms(alarms)
		m.out.put(proto.BucketAlarm, a.encode(), nil)
	case pb.AlarmRequest_DEACTIVATE:
		if at < 0 {
			break
		}
		listed = []Alarm{a}
		m.setAlarms(slices.Delete(slices.Clone(m.alarms), at, at+1))
		m.out.delete(proto.BucketAlarm, a.encode())
	}
	return newBytesResult(m.revision, EncodeAlarms(listed, pb.AlarmType_NONE)), nil
}

func (m *machine) setAlarms(alarms []Alarm) {
	m.alarms = alarms
	m.noSpace = raised(alarms, pb.AlarmType_NOSPACE)
	m.corrupt = raised(alarms, pb.AlarmType_CORRUPT)
}

// gate refuses what the raised alarms forbid. It looks at replicated data only, and comes before anything else.
func (m *machine) gate(r *pb.InternalRaftRequest) error {
	if m.corrupt {
		switch {
		case r.Put != nil, r.Range != nil, r.DeleteRange != nil, r.Txn != nil, r.Compaction != nil,
			r.LeaseGrant != nil, r.LeaseRevoke != nil:
			return ErrCorrupt
		}
	}
	if m.noSpace && QuotaCost(r) > 0 {
		return ErrNoSpace
	}
	return nil
}
