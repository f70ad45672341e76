package storeactor

import (
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// quotaRaises knows the last requests with which this member's quota raised its NOSPACE alarm. An alarm says by which
// request it was raised, so what an operator raised in this member's name, here or at another member, is told from what
// the quota did, in whatever order the two came. To remember "the quota has raised it" instead would go wrong when the
// alarm is ended and raised by hand between two looks.
type quotaRaises struct {
	mu   sync.Mutex
	last []proto.RequestID
}

func (q *quotaRaises) note(id proto.RequestID) {
	if id == 0 {
		return // nothing was proposed
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.last) >= quotaRaisesMax {
		q.last = slices.Delete(q.last, 0, 1)
	}
	q.last = append(q.last, id)
}

// raised reports whether the quota raised the alarm. One that was found in the file counts as the quota's.
func (q *quotaRaises) raised(a Alarm) bool {
	if a.By == 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Contains(q.last, a.By)
}

// NoteQuotaRaise says with which request the quota of this member raised its NOSPACE alarm, or tried to; 0 is none.
// --quota-auto-disarm ends no other alarm.
func (c *Client) NoteQuotaRaise(id proto.RequestID) { c.raises.note(id) }

// AdoptAlarm makes the member's NOSPACE alarm, if it is raised now, the quota's: at a start, when the log is applied
// and no client was served yet, nobody knows any more who raised it.
func (c *Client) AdoptAlarm(member proto.MemberID) {
	for _, a := range c.State().Alarms {
		if a.is(member, pb.AlarmType_NOSPACE) {
			c.raises.note(a.By)
		}
	}
}
