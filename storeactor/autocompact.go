package storeactor

import (
	"time"

	"troupe/proto"
)

// Retention is how much history is kept before it is compacted without being asked. At most one field is positive; the
// zero value keeps all until a client compacts.
type Retention struct {
	// Period keeps what was current at some time during the last Period.
	Period time.Duration
	// Revisions keeps so many revisions behind the current one.
	Revisions int64
}

// autoCompactor decides when to compact up to which revision, at the pace that etcd's operators know:
//
//   - by revisions: every five minutes, up to the current revision less those kept;
//   - by time: it notes the revision ten times in a period, or each six minutes if that is more often. After the first
//     period, and then once in a period, or each hour if that is more often, it compacts up to the oldest note, which
//     is a period and one interval old.
//
// A compaction that fails is tried again at the next note. Every member takes notes, so that a new leader can go on at
// once; only the leader compacts. It is pure: moments since the start go in, revisions to compact up to come out.
type autoCompactor struct {
	keep Retention
	// interval is the time between two notes; due is when the next one is taken.
	interval, due time.Duration
	// wait is how long after `since`, the last success, the next compaction may come.
	wait, since time.Duration
	// notes are revisions, the oldest first, at most notesMax.
	notes    []proto.Revision
	notesMax int
	// last is the revision of the last success, asked the one that a proposal is under way for; 0: none.
	last, asked proto.Revision
}

func newAutoCompactor(keep Retention, revision proto.Revision) *autoCompactor {
	a := &autoCompactor{keep: keep}
	switch {
	case keep.Revisions > 0:
		a.interval = revisionCompactionInterval
	case keep.Period > 0:
		every := min(keep.Period, periodicCompactionIntervalMax)
		a.interval = max(every/notesPerInterval, notesIntervalMin)
		a.wait = keep.Period
		a.notesMax = int(min(keep.Period/a.interval, notesMax)) + 1
		a.notes = []proto.Revision{revision}
	}
	a.due = a.interval
	return a
}

// on reports whether there is anything to do at all.
func (a *autoCompactor) on() bool { return a.interval > 0 }

// look takes the present moment and revision, and gives the revision to compact up to; 0 when nothing is to be done.
// A proposal that it asks for is answered by answered.
func (a *autoCompactor) look(now time.Duration, revision proto.Revision, leading bool) proto.Revision {
	if !a.on() || now < a.due {
		return 0
	}
	a.due = now + a.interval // what was missed while the process stood still is not made up for
	upTo := a.upTo(now, revision)
	a.note(revision)
	if !leading || a.asked != 0 || upTo <= 0 || upTo == a.last {
		return 0
	}
	a.asked = upTo
	return upTo
}

func (a *autoCompactor) upTo(now time.Duration, revision proto.Revision) proto.Revision {
	switch {
	case a.keep.Revisions > 0:
		return revision - proto.Revision(a.keep.Revisions)
	case now-a.since < a.wait:
		return 0
	}
	return a.notes[0]
}

func (a *autoCompactor) note(revision proto.Revision) {
	if a.keep.Period <= 0 {
		return
	}
	if len(a.notes) == a.notesMax {
		a.notes = append(a.notes[:0], a.notes[1:]...)
	}
	a.notes = append(a.notes, revision)
}

// answered takes the end of the proposal under way. That somebody else has compacted as far is a success too.
func (a *autoCompactor) answered(now time.Duration, done bool) {
	if done {
		a.last, a.since = a.asked, now
		a.wait = min(a.wait, periodicCompactionIntervalMax)
	}
	a.asked = 0
}
