package storeactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/actors"
	"troupe/proto"
)

// CareConfig says what a caretaker does. Proposer and LeaderTerm must be set.
type CareConfig struct {
	// Retention is how much history is kept; the zero value leaves compaction to clients.
	Retention Retention
	// QuotaBytes is the quota that is warned of: 0 is QuotaBytesDefault, a negative number is no quota.
	QuotaBytes int64
	// AutoDisarm ends this member's NOSPACE alarm when there is space again, if the quota raised it (NoteQuotaRaise) or it
	// was there at the start.
	AutoDisarm bool
	// Member is whose alarm that is.
	Member proto.MemberID
	// Proposer is the log.
	Proposer Proposer
	// LeaderTerm is the term in which this member leads and may compact; 0: it does not.
	LeaderTerm func() proto.Term
	// Metrics is where the metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Logger  zerolog.Logger
}

// Proposer is the log as the caretaker needs it; raftactor's client implements it. Neither method waits; the answer
// comes through answer unless the method itself returns an error.
type Proposer interface {
	// ProposeInTerm proposes only while this member leads in that term.
	ProposeInTerm(t proto.Term, r *pb.InternalRaftRequest, answer actors.Reply[*proto.Result]) error
	// ProposeTo proposes whoever leads.
	ProposeTo(r *pb.InternalRaftRequest, answer actors.Reply[*proto.Result]) error
}

// Caretaker is the running caretaker.
type Caretaker struct{ ref actors.Ref[careMessage] }

// SpawnCaretaker starts the actor that does what a store needs from time to time without being asked: compactions by
// age or number of revisions, the warning before the quota is reached, and the end of the alarm. It reads the published
// state and asks through the log like everybody else.
func (c *Client) SpawnCaretaker(sys *actors.System, cfg CareConfig) (*Caretaker, error) {
	cfg.QuotaBytes = sayQuota(cfg.Logger, cfg.QuotaBytes)
	metrics, err := newCareMetrics(cfg.Metrics, cfg.QuotaBytes, c.State)
	if err != nil {
		return nil, err
	}
	actor := &caretaker{
		cfg: cfg, store: c, metrics: metrics,
		compactor: newAutoCompactor(cfg.Retention, c.State().Revision),
		quota:     &quotaWatch{quota: cfg.QuotaBytes, heal: cfg.AutoDisarm},
	}
	ref, err := actors.Spawn(sys, actors.Spec[careMessage]{
		Name:     "store/caretaker",
		Policy:   actors.Reject[careMessage](actors.Bound{Messages: caretakerMessagesMax, Bytes: caretakerBytesMax}),
		Behavior: func() actors.Behavior[careMessage] { return actor },
		OnPanic:  actors.FailStop,
	})
	if err != nil {
		return nil, fmt.Errorf("spawn the caretaker: %w", err)
	}
	return &Caretaker{ref}, nil
}

// sayQuota writes etcd's line about the quota, and gives the one in force.
func sayQuota(log zerolog.Logger, quota int64) int64 {
	switch {
	case quota < 0:
		log.Info().Int64("quota-size-bytes", quota).Msg("disabled backend quota")
		return quota
	case quota == 0:
		quota = QuotaBytesDefault
		log.Info().Int64("quota-size-bytes", quota).Str("quota-size", sizeText(quota)).
			Msg("enabled backend quota with default value")
		return quota
	case quota > quotaBytesAdvised:
		log.Warn().Int64("quota-size-bytes", quota).Str("quota-size", sizeText(quota)).
			Int64("quota-maximum-size-bytes", quotaBytesAdvised).Str("quota-maximum-size", sizeText(quotaBytesAdvised)).
			Msg("quota exceeds the maximum value: starts, snapshots and defragmentations of so large a file take long")
	}
	log.Info().Int64("quota-size-bytes", quota).Str("quota-size", sizeText(quota)).Msg("enabled backend quota")
	return quota
}

// Stop ends the caretaker. What it has asked for goes on.
func (c *Caretaker) Stop(ctx context.Context) error { return c.ref.Stop(ctx) }

// careMessage is anything the caretaker understands. It has one lane; all of it is the caretaker's own timer, or an
// answer to what it asked for.
type careMessage interface{ careMessage() }

type (
	// lookDue is the timer.
	lookDue struct{}
	// autoCompacted is the end of a proposed compaction. Told in raft's or the store's turn.
	autoCompacted struct{ err error }
	// quotaTried is the end of an attempt to end the alarm. Told in raft's, the store's or the backend's turn.
	quotaTried struct {
		step quotaStep
		err  error
	}
)

func (lookDue) careMessage()       {}
func (autoCompacted) careMessage() {}
func (quotaTried) careMessage()    {}

// caretaker is the shell around the two cores.
type caretaker struct {
	cfg     CareConfig
	store   *Client
	metrics *careMetrics
	began   time.Time // moment 0

	compactor *autoCompactor
	asked     time.Time // when the compaction under way was
	quota     *quotaWatch
	left      proto.RequestID // the alarm of which was said that it stays
}

// Start implements actors.Behavior.
func (c *caretaker) Start(self actors.Self[careMessage]) error {
	c.began = self.Now()
	c.wait(self)
	return nil
}

// Stop implements actors.Behavior.
func (c *caretaker) Stop() {}

// wait arms the timer. It does so only from Start and from the timer itself, so that there is one.
func (c *caretaker) wait(self actors.Self[careMessage]) {
	pause := careInterval
	if c.compactor.on() {
		pause = max(min(pause, c.compactor.due-c.now(self)), notesIntervalMin)
	}
	self.After(pause, lookDue{})
}

func (c *caretaker) now(self actors.Self[careMessage]) time.Duration { return self.Now().Sub(c.began) }

// Handle implements actors.Behavior.
func (c *caretaker) Handle(self actors.Self[careMessage], batch []careMessage) {
	for _, m := range batch {
		switch m := m.(type) {
		case lookDue:
			c.compact(self)
			c.watch(self)
			c.wait(self)
		case autoCompacted:
			c.compacted(self, m.err)
		case quotaTried:
			c.tried(self, m)
		}
	}
}

// compact asks for a compaction if one is due, in the term of the decision.
func (c *caretaker) compact(self actors.Self[careMessage]) {
	term := c.cfg.LeaderTerm()
	upTo := c.compactor.look(c.now(self), c.store.State().Revision, term != 0)
	if upTo == 0 {
		return
	}
	c.asked = self.Now()
	c.describe(c.cfg.Logger.Info(), upTo).Msgf("starting auto %s compaction", c.mode())
	ref := self.Ref()
	err := c.cfg.Proposer.ProposeInTerm(term,
		&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: int64(upTo)}},
		actors.ReplyTo(func(_ *proto.Result, err error) { _ = ref.Tell(actors.Control, autoCompacted{err}) }))
	if err != nil {
		c.compacted(self, err)
	}
}

func (c *caretaker) compacted(self actors.Self[careMessage], err error) {
	upTo := c.compactor.asked
	done := err == nil || errors.Is(err, ErrCompacted)
	c.compactor.answered(c.now(self), done)
	if !done {
		c.metrics.compactionsFailed.Inc()
		c.describe(c.cfg.Logger.Warn(), upTo).Str("retry-interval", c.compactor.interval.String()).Err(err).
			Msgf("failed auto %s compaction", c.mode())
		return
	}
	c.metrics.compactions.Inc()
	c.describe(c.cfg.Logger.Info(), upTo).Str("took", self.Now().Sub(c.asked).String()).
		Msgf("completed auto %s compaction", c.mode())
}

func (c *caretaker) mode() string {
	if c.cfg.Retention.Revisions > 0 {
		return "revision"
	}
	return "periodic"
}

func (c *caretaker) describe(line *zerolog.Event, upTo proto.Revision) *zerolog.Event {
	line = line.Int64("revision", int64(upTo))
	if keep := c.cfg.Retention; keep.Revisions > 0 {
		return line.Int64("revision-compaction-retention", keep.Revisions)
	}
	return line.Str("compact-period", c.cfg.Retention.Period.String())
}

// watch does what the quota asks for.
func (c *caretaker) watch(self actors.Self[careMessage]) {
	for {
		facts := c.facts()
		step := c.quota.look(c.now(self), facts)
		c.metrics.high(c.quota.high)
		switch step {
		case quotaNothing:
			return
		case quotaWarn:
			c.size(c.cfg.Logger.Warn(), &facts).Str("remedy", c.remedy(&facts)).
				Msgf("database size has reached %d %% of the quota", quotaHighPercent)
		case quotaRelax:
			c.size(c.cfg.Logger.Info(), &facts).Msgf("database size is below %d %% of the quota again", quotaLowPercent)
		case quotaDefragment:
			c.size(c.cfg.Logger.Info(), &facts).Msg("alarm NOSPACE can end once the file is smaller, defragmenting it")
			c.store.defragmentTo(quotaReply[struct{}](self, step))
		case quotaDisarm:
			c.size(c.cfg.Logger.Info(), &facts).Msg("there is space again, disarming alarm NOSPACE")
			c.disarm(self)
		}
	}
}

func (c *caretaker) facts() quotaFacts {
	s := c.store.State()
	facts := quotaFacts{sizes: s.Sizes, unwritten: s.Unwritten}
	for _, a := range s.Alarms {
		if !a.is(c.cfg.Member, pb.AlarmType_NOSPACE) {
			continue
		}
		facts.alarmed = c.store.raises.raised(a)
		if !facts.alarmed {
			c.leave(a)
		}
	}
	return facts
}

// leave says once that an alarm which the quota did not raise stays.
func (c *caretaker) leave(a Alarm) {
	if c.left == a.By || !c.cfg.AutoDisarm {
		return
	}
	c.left = a.By
	c.cfg.Logger.Info().Msg("alarm NOSPACE was raised by hand: --quota-auto-disarm leaves it to whoever raised it " +
		"(etcdctl alarm disarm)")
}

// remedy says what helps: free pages come back by a defragmentation, and nothing else brings any.
func (c *caretaker) remedy(f *quotaFacts) string {
	if f.used() < c.quota.ofQuota(quotaLowPercent) {
		return "defragment: most of what the file has above the low mark are free pages"
	}
	return "compact, delete keys, or raise --quota-backend-bytes; /debug/keyspace shows which prefix takes the space"
}

func (c *caretaker) size(line *zerolog.Event, f *quotaFacts) *zerolog.Event {
	return line.Int64("quota-backend-bytes", c.quota.quota).
		Int64("current-db-size-bytes", f.sizes.Total).Str("current-db-size", sizeText(f.sizes.Total)).
		Int64("current-db-size-in-use-bytes", f.sizes.InUse).Str("current-db-size-in-use", sizeText(f.sizes.InUse)).
		Int64("unwritten-bytes", f.unwritten)
}

// quotaReply makes an answer that arrives as quotaTried.
func quotaReply[T any](self actors.Self[careMessage], step quotaStep) actors.Reply[T] {
	ref := self.Ref()
	return actors.ReplyTo(func(_ T, err error) { _ = ref.Tell(actors.Control, quotaTried{step, err}) })
}

func (c *caretaker) disarm(self actors.Self[careMessage]) {
	err := c.cfg.Proposer.ProposeTo(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{
		Action: pb.AlarmRequest_DEACTIVATE, MemberID: uint64(c.cfg.Member), Alarm: pb.AlarmType_NOSPACE,
	}}, quotaReply[*proto.Result](self, quotaDisarm))
	if err != nil {
		c.tried(self, quotaTried{quotaDisarm, err})
	}
}

func (c *caretaker) tried(self actors.Self[careMessage], m quotaTried) {
	c.quota.tried(c.now(self), m.step, m.err)
	again := max(0, c.quota.again-c.now(self))
	switch {
	case m.err != nil:
		c.cfg.Logger.Warn().Err(m.err).Str("retry-after", again.String()).Msg("alarm NOSPACE could not be ended")
	case m.step == quotaDisarm:
		c.metrics.disarmed.Inc()
		c.cfg.Logger.Info().Msg("alarm NOSPACE is disarmed")
	}
}

// defragmentTo is Defragment for an actor: it never waits.
func (c *Client) defragmentTo(reply actors.Reply[struct{}]) {
	m := &defragmentFile{reply: reply}
	if err := c.ref.Tell(actors.Normal, m); err != nil {
		m.Abort(err)
	}
}

// careMetrics are the counters of the caretaker.
type careMetrics struct {
	compactions, compactionsFailed, disarmed prometheus.Counter
	warning                                  prometheus.Gauge
}

func newCareMetrics(registry prometheus.Registerer, quota int64, state func() *State) (*careMetrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &careMetrics{
		compactions: counter("troupe_store_auto_compactions_total",
			"Compactions that --auto-compaction-retention asked this member for."),
		compactionsFailed: counter("troupe_store_auto_compactions_failed_total",
			"Those of them that failed and are tried again."),
		disarmed: counter("troupe_store_quota_disarmed_total",
			"NOSPACE alarms that --quota-auto-disarm has ended."),
		warning: prometheus.NewGauge(prometheus.GaugeOpts{Name: "troupe_store_quota_warning",
			Help: fmt.Sprintf("1 from when the database reaches %d %% of its quota until it is below %d %%, else 0.",
				quotaHighPercent, quotaLowPercent)}),
	}
	if registry == nil {
		return m, nil
	}
	used := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "troupe_store_quota_used_ratio",
		Help: "The size of the database, with what is not written yet, as a part of its quota; 0 without a quota."},
		func() float64 {
			if quota <= 0 {
				return 0
			}
			s := state()
			return float64(s.Sizes.Projected(s.Unwritten)) / float64(quota)
		})
	for _, c := range []prometheus.Collector{m.compactions, m.compactionsFailed, m.disarmed, m.warning, used} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register the caretaker's metrics: %w", err)
		}
	}
	return m, nil
}

func (m *careMetrics) high(is bool) {
	value := 0.0
	if is {
		value = 1
	}
	m.warning.Set(value)
}
