package storeactor

import (
	"errors"
	"fmt"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// defragmentation is one run: rounds of copying in a worker, each over a handle of its own, beside all other work. When
// a round was short, or there were many, the last one copies while no commit is made; then the copy takes the place of
// the file. Puts go on all the time, because the file is behind memory: the store's credit bounds what gathers
// meanwhile.
type defragmentation struct {
	callers []*defragmentFile
	started time.Time
	before  FileSizes
	rounds  int
	// final says that the round under way is the last one, since when no commit is made.
	final time.Time
	// copier belongs to the worker while a round is under way.
	copier *copier
	// deleted are the keys of the records that compactions deleted since the handle of the round under way was opened.
	deleted      [][]byte
	deletedBytes int
}

// last reports whether the last round is under way. A nil defragmentation is none.
func (d *defragmentation) last() bool { return d != nil && !d.final.IsZero() }

// full reports whether no more deletions can be remembered before the next round.
func (d *defragmentation) full() bool { return d != nil && d.deletedBytes >= copyDeletionsMax }

// forget remembers what a compaction deleted.
func (d *defragmentation) forget(writes []proto.BucketWrite) {
	if d == nil {
		return
	}
	for i := range writes {
		if w := &writes[i]; w.Delete && w.Bucket == proto.BucketKey {
			d.deleted = append(d.deleted, w.Key)
			d.deletedBytes += len(w.Key)
		}
	}
}

// roundCopied is the worker's report of one round.
type roundCopied struct {
	took time.Duration
	// renamed says that the copy has the name of the file; with an error nobody knows what a crash would leave.
	renamed bool
	err     error
}

// admitDefragment queues a caller for the next run.
func (b *backend) admitDefragment(m *defragmentFile) {
	waiting := len(b.callers)
	if b.copying != nil {
		waiting += len(b.copying.callers)
	}
	switch {
	case b.finishing != nil:
		m.reply.Fail(actors.ErrStopped)
	case waiting >= defragmentationsWaitingMax:
		m.reply.Fail(ErrDefragmentationsWaiting)
	default:
		b.callers = append(b.callers, m)
	}
}

// startDefragment begins a run for all who wait. One that is under way does not answer for them: they may have deleted
// something since it began, and expect the space back.
func (b *backend) startDefragment() {
	if b.copying != nil || len(b.callers) == 0 || b.viewEnded() || b.finishing != nil {
		return
	}
	b.copying = &defragmentation{callers: b.callers, started: b.self.Now(), before: b.cfg.File.Sizes()}
	b.copying.copier = &copier{rest: newRest(b.abandon, b.self.Now, b.cfg.Rest).rest}
	b.callers = nil
	b.metrics.defragInflight.Set(1)
	b.cfg.Logger.Info().Int64("current-db-size-bytes", b.copying.before.Total).
		Int64("current-db-size-in-use-bytes", b.copying.before.InUse).Msg("defragmenting")
	b.startRound()
}

// startRound hands the next round to a worker.
func (b *backend) startRound() {
	d := b.copying
	view, err := b.cfg.File.View()
	mustWrite("view", err)
	d.rounds++
	job := &copyJob{
		file: b.cfg.File, copier: d.copier, view: view, deleted: d.deleted, last: d.last(), now: b.self.Now,
		ref: b.self.Ref(),
	}
	d.deleted, d.deletedBytes = nil, 0
	b.cfg.Work(job.run)
}

// copied takes the report of a round, and goes on with the next one or ends the run.
func (b *backend) copied(m *roundCopied) {
	d := b.copying
	if m.renamed && m.err != nil {
		mustWrite("replace the file by its defragmented copy", m.err)
	}
	if m.err == nil && !m.renamed {
		if m.took <= copyRoundShort || d.rounds+1 >= copyRoundsMax {
			d.final = b.self.Now()
			d.copier.rest = func() error { return nil } // commits wait for it
		}
		b.startRound()
		return
	}
	b.copying = nil
	b.metrics.defragInflight.Set(0)
	if m.err != nil {
		err := fmt.Errorf("defragmentation failed, the database file is as it was: %w", m.err)
		b.cfg.Logger.Warn().Err(m.err).Str("took", b.self.Now().Sub(d.started).String()).
			Msg("defragmentation failed; the database file is as it was, the copy is deleted")
		for _, c := range d.callers {
			c.reply.Fail(err)
		}
		b.retryCommit() // it waited for the last round
		return
	}
	b.replacedFile(d)
}

// replacedFile goes over to the new file. The old one takes disk until the last handle on it is released or too old.
func (b *backend) replacedFile(d *defragmentation) {
	b.renewView()
	b.tellStore(d.callers...)
	now, sizes := b.self.Now(), b.cfg.File.Sizes()
	b.metrics.defrag.Observe(now.Sub(d.started).Seconds())
	b.cfg.Logger.Info().
		Str("took", now.Sub(d.started).String()).
		Str("commits-paused-for", now.Sub(d.final).String()).
		Int("rounds", d.rounds).
		Int64("records", d.copier.records).
		Int64("current-db-size-bytes-diff", sizes.Total-d.before.Total).
		Int64("current-db-size-bytes", sizes.Total).
		Str("current-db-size", sizeText(sizes.Total)).
		Int64("current-db-size-in-use-bytes", sizes.InUse).
		Str("current-db-size-in-use", sizeText(sizes.InUse)).
		Msg("finished defragmenting")
	b.retryCommit() // the smaller file may have made the space
}

// copyJob is one round in a worker.
type copyJob struct {
	file    File
	copier  *copier
	view    FileView // one reference
	deleted [][]byte
	last    bool
	now     func() time.Time
	ref     actors.Ref[backendMessage]
}

func (j *copyJob) run() {
	start := j.now()
	report := &roundCopied{}
	if report.err = j.copy(); report.err == nil && j.last {
		report.renamed, report.err = j.copier.to.Become()
	}
	j.view.Release()
	if report.err != nil && !report.renamed && j.copier.to != nil {
		report.err = errors.Join(report.err, j.copier.to.Discard())
	}
	report.took = j.now().Sub(start)
	tellSelf(j.ref, report)
}

func (j *copyJob) copy() (err error) {
	if j.copier.to == nil {
		if j.copier.to, err = j.file.Copy(); err != nil {
			return err
		}
	}
	return j.copier.round(j.view, j.deleted)
}
