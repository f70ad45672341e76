package actors

import (
	"context"
	"log/slog"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

// Config is what a System needs.
type Config struct {
	// Name appears in log lines: the member's name.
	Name string
	// Log gets panics and what the library warns about. The zero Logger discards.
	Log zerolog.Logger
	// Clock is nil for the real time.
	Clock Clock
	// Dispatcher is nil for goroutines. With a Stepping one everything runs on the goroutine that steps: then Pinned and
	// TakeTurn are ignored, Spawn does not wait for Start, and Ref.Stop steps.
	Dispatcher Dispatcher
	// Fatal is called, in the turn that panicked, for a panic in a FailStop actor. nil: the process dies with the panic
	// and its stack. A hook that returns leaves the actor stopped, which is for tests.
	Fatal func(actor string, reason any, stack []byte)
}

// System holds actors. It starts no goroutine of its own and needs no closing; its actors are stopped one by one, in an
// order that only their owner knows (StopInOrder).
type System struct {
	lib        *actor.ActorSystem
	log        zerolog.Logger
	clock      Clock
	wall       bool
	base       time.Time
	dispatcher Dispatcher
	step       func() bool // nil: turns run by themselves
	labelled   bool
	fatal      func(actor string, reason any, stack []byte)
	strays     atomic.Uint64
	crowded    atomic.Bool // see Self.Crowded

	guardian *supervisor
	spawning sync.Mutex
	shared   *actor.Props // of all actors with the dispatcher of the system that are not restarted
	next     member       // the actor being spawned with shared; guarded by spawning

	mu      sync.Mutex
	members []member
	kinds   map[string]*kind
}

// member is an actor of any message type.
type member interface {
	actor.Mailbox
	actor.Actor
	stats() Stats
	tally(sums *KindStats, now int64) urgency
	family() *kind
	place() *int32
}

// NewSystem makes an empty system. The library makes 3 MB of tables for it that are garbage at once (shrinkRegistry),
// so simulations share one.
func NewSystem(cfg Config) *System {
	s := &System{
		log:        cfg.Log.With().Str("system", cfg.Name).Logger(),
		clock:      cfg.Clock,
		dispatcher: cfg.Dispatcher,
		fatal:      cfg.Fatal,
		kinds:      make(map[string]*kind),
	}
	if s.clock == nil {
		s.clock, s.wall = wallClock{}, true
	}
	// One nanosecond back, so that now is never 0, which means "not busy".
	s.base = s.clock.Now().Add(-1)
	if s.dispatcher == nil {
		s.dispatcher, s.labelled = goroutines{}, true
	} else if d, ok := s.dispatcher.(Stepping); ok {
		s.step = d.Step
	}
	s.lib = actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(quietLog{s.log}) }),
		actor.WithDeadLetterRequestLogging(false),
	)
	shrinkRegistry(s.lib.ProcessRegistry)
	s.guardian = &supervisor{}
	s.shared = s.props(func() member { return s.next }, s.dispatcher)
	return s
}

// shrinkRegistry leaves the library fewer tables for the names of actors. It makes 1,024 of 32 maps each: 3 MB and
// 98,000 objects, which each collection marks, for a member of a dozen actors and the streams of its clients. Nobody
// else has the registry yet. A name's table is its hash modulo their number, so names in tables that stay are in place.
func shrinkRegistry(r *actor.ProcessRegistryValue) {
	tables := r.LocalPIDs.LocalPIDs
	r.LocalPIDs.LocalPIDs = slices.Clone(tables[:registryTables])
	for _, given := range tables[registryTables:] {
		if given.IsEmpty() {
			continue // Items would start a goroutine for each map
		}
		for name, process := range given.Items() {
			r.LocalPIDs.GetBucket(name).Set(name, process)
		}
	}
}

// Clock gives the clock the system runs by.
func (s *System) Clock() Clock { return s.clock }

// now is the time since the system began, in nanoseconds, for statistics. Never 0.
func (s *System) now() int64 {
	if s.wall {
		return int64(time.Since(s.base)) // reads the monotonic clock only
	}
	return int64(s.clock.Now().Sub(s.base))
}

// launch registers the actor with the library. Props of their own cost memory, so only actors that need them get
// them: a restart calls the producer again, and a pinned actor, or one whose turns are offered, has a dispatcher of its
// own.
func (s *System) launch(name string, m member, d Dispatcher, own bool) error {
	if own {
		_, err := s.lib.Root.SpawnNamed(s.props(func() member { return m }, d), name)
		return err
	}
	s.spawning.Lock()
	defer s.spawning.Unlock()
	s.next = m
	_, err := s.lib.Root.SpawnNamed(s.shared, name)
	s.next = nil
	return err
}

// props describes an actor to the library.
func (s *System) props(of func() member, d Dispatcher) *actor.Props {
	return actor.PropsFromProducer(
		func() actor.Actor { return of() },
		actor.WithMailbox(func() actor.Mailbox { return of() }),
		actor.WithDispatcher(d),
		actor.WithGuardian(s.guardian),
	)
}

// kindOf gives the shared part of all actors of a kind.
func (s *System) kindOf(name string) *kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[name]
	if k == nil {
		k = &kind{
			name:   name,
			labels: pprof.WithLabels(context.Background(), pprof.Labels("actor", name)),
		}
		s.kinds[name] = k
	}
	return k
}

// quietLog passes the library's warnings on, without their attributes: those may hold messages.
type quietLog struct{ log zerolog.Logger }

func (quietLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (q quietLog) Handle(_ context.Context, r slog.Record) error {
	q.log.Warn().Str("lib", "protoactor").Msg(r.Message)
	return nil
}

func (q quietLog) WithAttrs([]slog.Attr) slog.Handler { return q }
func (q quietLog) WithGroup(string) slog.Handler      { return q }
