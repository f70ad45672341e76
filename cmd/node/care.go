package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"troupe/proto"
	"troupe/storeactor"
)

// The words of --auto-compaction-mode.
const (
	compactionPeriodic = "periodic"
	compactionRevision = "revision"
)

// retention reads --auto-compaction-mode and --auto-compaction-retention as etcd does: a plain number is hours or, in
// revision mode, revisions; anything else is a duration. Unlike etcd it refuses what is negative, with which etcd
// compacts several times a second, and what is longer than a duration can say.
func (c *Config) retention() (storeactor.Retention, error) {
	const help = "--auto-compaction-retention is a number of hours or a duration such as 30m, " +
		"or in revision mode a number of revisions; 0 turns it off"
	var keep storeactor.Retention
	switch c.AutoCompactionMode {
	case compactionPeriodic, compactionRevision:
	case "":
		return keep, errors.New("undefined auto-compaction-mode: --auto-compaction-mode is periodic or revision")
	default:
		return keep, fmt.Errorf("unknown auto-compaction-mode %q: --auto-compaction-mode is periodic or revision",
			c.AutoCompactionMode)
	}
	number, period, err := c.parseRetention()
	switch {
	case err != nil:
		return keep, fmt.Errorf("error parsing CompactionRetention: %w: %s", err, help)
	case number < 0 || period < 0:
		return keep, fmt.Errorf("--auto-compaction-retention=%s is negative: %s", c.AutoCompactionRetention, help)
	case c.AutoCompactionMode == compactionRevision:
		keep.Revisions = max(number, int64(period))
	case number > int64(math.MaxInt64/time.Hour):
		return keep, fmt.Errorf("--auto-compaction-retention=%s is too many hours: %s", c.AutoCompactionRetention, help)
	default:
		keep.Period = max(time.Duration(number)*time.Hour, period)
	}
	return keep, nil
}

// parseRetention gives the retention as a plain number or as a duration; the other is 0.
func (c *Config) parseRetention() (number int64, period time.Duration, err error) {
	text := c.AutoCompactionRetention
	if text == "" {
		return 0, 0, nil
	}
	if number, err = strconv.ParseInt(text, 10, 64); err == nil && number >= 0 {
		return number, 0, nil
	}
	period, err = time.ParseDuration(text)
	return 0, period, err
}

// warnOfRetention says what a duration means in revision mode, where etcd reads it as its nanoseconds.
func (c *Config) warnOfRetention(log zerolog.Logger) {
	_, period, err := c.parseRetention()
	if err == nil && period > 0 && c.AutoCompactionMode == compactionRevision {
		log.Warn().Str("auto-compaction-retention", c.AutoCompactionRetention).Int64("revisions", int64(period)).
			Msg("--auto-compaction-retention is a duration, but the mode is revision: it keeps so many revisions, which is " +
				"practically all; give a number, or --auto-compaction-mode=periodic")
	}
}

// spawnCaretaker starts the caretaker, after raft, which it asks.
func (t *Troupe) spawnCaretaker() error {
	keep, err := t.cfg.retention()
	if err != nil {
		return err
	}
	raft := t.Raft
	t.Care, err = t.Store.SpawnCaretaker(t.System, storeactor.CareConfig{
		Retention: keep, QuotaBytes: t.cfg.QuotaBytes, AutoDisarm: t.cfg.QuotaAutoDisarm, Member: t.Meta.Member,
		Proposer: raft, LeaderTerm: func() proto.Term { return raft.Status().LeaderTerm },
		Metrics: t.Registry, Logger: t.log,
	})
	return err
}

// defragmentAtStart makes the file smaller before clients are served, if that gives back at least what
// --bootstrap-defrag-threshold-megabytes says. A failure is no reason not to serve.
func (t *Troupe) defragmentAtStart(ctx context.Context) {
	threshold := int64(t.cfg.BootstrapDefragMegabytes) << 20
	if threshold == 0 {
		return
	}
	sizes := t.Store.Sizes()
	if free := sizes.Total - sizes.InUse; free < threshold {
		t.log.Info().Int64("current-db-size-bytes", sizes.Total).Int64("current-db-size-in-use-bytes", sizes.InUse).
			Int64("bootstrap-defrag-threshold-bytes", threshold).Msg("Skipping defragmentation")
		return
	}
	if err := t.Store.Defragment(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn().Err(err).Msg("the defragmentation that --bootstrap-defrag-threshold-megabytes asks for failed")
	}
}
