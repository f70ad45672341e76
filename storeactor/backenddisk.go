package storeactor

import (
	"errors"
	"time"

	"troupe/actors"
)

// fileCommit is one transaction on the file, kept until it is in.
type fileCommit struct {
	// bytes is what it writes, for the address space.
	bytes int64
	// write puts everything into a transaction. It may run more than once.
	write func(w FileWrite)
	// done runs once, when the file holds it and the backend's handle shows it.
	done func()
}

// diskFull is the state of a disk without space.
type diskFull struct {
	since time.Time // zero: there is space
	pause time.Duration
	timer bool // a diskFullDue is on its way
}

// held reports whether nothing may be written now: a commit waits for space, or the last round of a defragmentation
// copies.
func (b *backend) held() bool { return b.stuck != nil || b.copying.last() }

// try writes a commit. When the disk is full it becomes stuck: nothing has changed in the file, nothing else is written
// before it, and it is tried again. The log has what it holds, and readers have it from memory.
func (b *backend) try(c *fileCommit) {
	actors.Must(b.stuck == nil, "a commit overtakes one that waits for space")
	if !b.attempt(c) {
		b.stuck = c
	}
}

func (b *backend) attempt(c *fileCommit) bool {
	w := b.begin(c.bytes)
	c.write(w)
	stats, err := w.Commit()
	if errors.Is(err, ErrDiskFull) {
		b.foundFull(err)
		if b.viewEnded() { // begin cut all handles off; readers and copies must not wait for space to get another one
			b.renewView()
			b.tellStore()
		}
		return false
	}
	mustWrite("commit", err)
	b.metrics.committed(stats)
	b.foundSpace()
	b.renewView()
	c.done()
	return true
}

// retryCommit tries the stuck commit again, when its time has come and no copy is at its last round.
func (b *backend) retryCommit() {
	if b.stuck == nil || b.copying.last() {
		return
	}
	if c := b.stuck; b.attempt(c) {
		b.stuck = nil
	}
}

// foundFull says so once, and comes back later.
func (b *backend) foundFull(err error) {
	if b.full.since.IsZero() {
		b.full.since, b.full.pause = b.self.Now(), diskFullRetryMin
		b.cfg.Logger.Error().Err(err).Int64("current-db-size-bytes", b.cfg.File.Sizes().Total).
			Msg("no space left on the disk of the database file: writes are refused until there is space again; reads go " +
				"on, and what was acknowledged is in the log")
		b.tellStatus(FileStatus{FullSince: b.full.since})
		b.cfg.Store.diskFull()
	} else {
		b.full.pause = min(2*b.full.pause, diskFullRetryMax)
	}
	if !b.full.timer {
		b.full.timer = true
		b.self.After(b.full.pause, diskFullDue{})
	}
}

// foundSpace ends the state.
func (b *backend) foundSpace() {
	if b.full.since.IsZero() {
		return
	}
	b.cfg.Logger.Info().Str("full-for", b.self.Now().Sub(b.full.since).String()).
		Msg("there is space again on the disk of the database file: writes are accepted")
	b.full = diskFull{timer: b.full.timer}
	b.tellStatus(FileStatus{})
}

// turnAway answers those who wait for a commit that may never come, and publishes how much waits.
func (b *backend) turnAway() {
	if b.full.since.IsZero() {
		return
	}
	for _, h := range b.hashes {
		h.request.reply.Fail(ErrDiskFull)
	}
	b.hashes = nil
	b.failSnapshots(ErrDiskFull)
	b.tellStatus(FileStatus{FullSince: b.full.since, Backlog: int64(b.core.bytes) + b.stuck.bytes})
}
