package storeactor

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// compactionRecords are the two compaction records of the meta bucket, -1 when there is none; a compaction at 0 is
// legal, once.
type compactionRecords struct {
	scheduled, finished proto.Revision
}

func readCompactions(view FileView) (compactionRecords, error) {
	records := compactionRecords{scheduled: -1, finished: -1}
	for _, r := range []struct {
		key []byte
		to  *proto.Revision
	}{{metaScheduled, &records.scheduled}, {metaFinished, &records.finished}} {
		value, found, err := view.Append(nil, proto.BucketMeta, r.key)
		if err != nil {
			return records, err
		}
		if !found {
			continue
		}
		if len(value) < revisionKeyBytes {
			return records, fmt.Errorf("%w: %s has %d bytes", ErrFileDamaged, r.key, len(value))
		}
		*r.to = proto.Revision(binary.BigEndian.Uint64(value))
	}
	return records, nil
}

// admitCompaction queues a compaction behind the commit of everything sent before it, its scheduled revision included.
func (b *backend) admitCompaction(m *compactFile) {
	actors.Must(len(b.compactions) < compactionsWaitingMax, "%d compactions wait", len(b.compactions))
	d := newDeletion(m, b.previous, b.core.want(), b.cfg.CompactionBatch)
	d.resumed = m.revision <= b.scheduled
	b.previous = m.revision
	b.compactions = append(b.compactions, d)
}

// compact takes the next step of the first compaction, or the next of the empty commits that end it, when it is time.
func (b *backend) compact() {
	if len(b.compactions) == 0 || b.deletionTimer || b.held() {
		return
	}
	d := b.compactions[0]
	if b.filed.index < d.after || d.settling == 0 && b.copying.full() {
		return
	}
	start := b.self.Now()
	if d.started.IsZero() {
		d.started = start
	}
	if b.viewEnded() {
		return // the file is being closed
	}
	if d.settling > 0 {
		b.settle(d)
		return
	}
	step, err := d.step(b.view)
	mustWrite("read for a compaction", err)
	if len(step.writes) == 0 {
		b.stepped(d, &step, start)
		return
	}
	b.try(&fileCommit{
		bytes: int64(step.bytes),
		write: func(w FileWrite) { apply(w, step.writes) },
		done: func() {
			b.copying.forget(step.writes)
			b.tellStore()
			b.stepped(d, &step, start)
		},
	})
}

// stepped ends a step of a compaction and arms the next one.
func (b *backend) stepped(d *deletion, step *deletionStep, start time.Time) {
	now := b.self.Now()
	b.metrics.compactionPause.Observe(milliseconds(now.Sub(start)))
	if step.done {
		if d.deleted > 0 {
			d.settling = compactionSettleMax
		}
		b.armSettling(d)
		return
	}
	pause := b.cfg.CompactionPause
	if step.deletes == 0 {
		pause = 0 // nothing was written, so nobody needs to be let through
	}
	b.armDeletion(pause)
}

// settle makes an empty commit for the pages that a compaction without steps left gave up, if they are not free yet.
func (b *backend) settle(d *deletion) {
	if !b.pending(d) { // a checkpoint has come in between
		b.armSettling(d)
		return
	}
	b.try(&fileCommit{write: func(FileWrite) {}, done: func() {
		b.tellStore()
		d.settling--
		b.armSettling(d)
	}})
}

// pending reports whether one more empty commit is to be made for a compaction.
func (b *backend) pending(d *deletion) bool {
	return d.settling > 0 && b.cfg.File.Sizes().Pending > b.cfg.CompactionPending
}

// armSettling reports a compaction without steps left when nothing is pending. What comes next has a turn of its own:
// the next empty commit, or the compaction that waits behind it.
func (b *backend) armSettling(d *deletion) {
	if b.pending(d) {
		b.armDeletion(b.cfg.CompactionPause)
		return
	}
	b.compacted(d, b.self.Now())
	b.armDeletion(0)
}

func (b *backend) armDeletion(pause time.Duration) {
	if len(b.compactions) == 0 {
		return
	}
	b.deletionTimer = true
	if pause > 0 {
		b.self.After(pause, deletionDue{})
		return
	}
	tellSelf(b.self.Ref(), deletionDue{})
}

// compacted reports the first compaction as finished.
func (b *backend) compacted(d *deletion, now time.Time) {
	b.compactions = append([]*deletion(nil), b.compactions[1:]...)
	took := now.Sub(d.started)
	b.metrics.compactionAll.Observe(milliseconds(took))
	b.metrics.compactionKeys.Add(float64(d.deleted))
	b.metrics.compactionLast.Set(float64(now.Unix()))
	if !d.resumed {
		b.stored.add(HashResult{
			Hash: d.hash.sum, CompactRevision: d.hash.rule.compacted, HashRevision: d.request.revision,
		})
	}
	sizes := b.cfg.File.Sizes()
	b.cfg.Logger.Info().
		Int64("compact-revision", int64(d.request.revision)).
		Str("took", took.String()).
		Int("number-of-keys-compacted", d.deleted).
		Uint32("hash", d.hash.sum).
		Int64("current-db-size-bytes", sizes.Total).
		Str("current-db-size", sizeText(sizes.Total)).
		Int64("current-db-size-in-use-bytes", sizes.InUse).
		Str("current-db-size-in-use", sizeText(sizes.InUse)).
		Msg("finished scheduled compaction")
	b.cfg.Store.compactedPhysically(&compactedPhysically{revision: d.request.revision})
}

// sizeText prints a number of bytes for an operator as etcd does: decimal units, one digit behind the point below 10.
func sizeText(bytes int64) string {
	if bytes < 10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), 0
	for ; value >= 1000 && unit < len(sizeUnits)-1; unit++ {
		value /= 1000
	}
	if value = math.Floor(value*10+0.5) / 10; value < 10 {
		return fmt.Sprintf("%.1f %s", value, sizeUnits[unit])
	}
	return fmt.Sprintf("%.0f %s", value, sizeUnits[unit])
}

var sizeUnits = [...]string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}

// admitHash answers what needs no file, and queues the rest behind the commit of everything sent before it.
func (b *backend) admitHash(m *hashRequest) {
	if h, found := b.stored.at(m.revision); found && !m.whole {
		h.Revision = m.state.Revision
		m.reply.Send(h)
		return
	}
	switch {
	case m.revision > 0 && m.revision < m.state.Compacted:
		m.reply.Fail(ErrCompacted)
	case m.revision > m.state.Revision:
		m.reply.Fail(ErrFutureRevision)
	case len(b.hashes)+len(b.hashJobs) >= hashesWaitingMax:
		m.reply.Fail(ErrHashesWaiting)
	default:
		b.hashes = append(b.hashes, waitingHash{request: m, after: b.core.want()})
	}
}

// startHash gives every hash whose writes are in the file its handle, at once and before a later compaction can delete
// what it counts, and hands all of them to the worker when that is free.
func (b *backend) startHash() {
	for len(b.hashes) > 0 && b.filed.index >= b.hashes[0].after && !b.viewEnded() {
		request := b.hashes[0].request
		b.hashes = b.hashes[1:]
		actors.Must(b.view.Retain(), "the handle of the last commit is gone")
		b.hashJobs = append(b.hashJobs, hashJob{
			request: request, view: b.view, now: b.self.Now, metrics: b.metrics,
			rest: newRest(b.abandon, b.self.Now, b.cfg.Rest),
		})
	}
	if b.hashing || len(b.hashJobs) == 0 {
		return
	}
	b.hashing = true
	jobs, ref := b.hashJobs, b.self.Ref()
	b.hashJobs = nil
	b.cfg.Work(func() {
		for i := range jobs {
			jobs[i].run()
		}
		tellSelf(ref, hashDone{})
	})
}

func hashRuleOf(m *hashRequest) hashRule {
	revision := m.revision
	if revision == 0 {
		revision = m.state.Revision
	}
	return hashRule{revision: revision, compacted: m.state.Compacted, keep: m.state.hashKeep(revision)}
}

// hashJob is all a hash worker needs; it shares nothing with the actor but immutable values.
type hashJob struct {
	request *hashRequest
	view    FileView // one reference
	now     func() time.Time
	metrics *fileMetrics
	rest    *rest
}

func (j *hashJob) run() {
	defer j.view.Release()
	start := j.now()
	view := &restingView{FileView: j.view, rest: j.rest}
	if j.request.whole {
		sum, err := hashWholeFile(view)
		if err != nil {
			j.request.reply.Fail(err)
			return
		}
		j.metrics.hash.Observe(j.now().Sub(start).Seconds())
		j.request.reply.Send(HashResult{Hash: sum, Revision: j.request.state.Revision})
		return
	}
	rule := hashRuleOf(j.request) // looks through the index for what it keeps, so not in the actor's turn
	sum, err := hashKeyValues(view, rule)
	if err != nil {
		j.request.reply.Fail(err)
		return
	}
	j.metrics.hashRevision.Observe(j.now().Sub(start).Seconds())
	j.request.reply.Send(HashResult{
		Hash: sum, CompactRevision: rule.compacted, HashRevision: rule.revision, Revision: j.request.state.Revision,
	})
}

func (b *backend) viewEnded() bool {
	v, endable := b.view.(endableView)
	return endable && v.ended()
}
