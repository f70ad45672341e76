package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"troupe/actors"
	"troupe/proto"
)

// Actors is what the debug page and the metrics need of the actor system. *actors.System satisfies it.
type Actors interface {
	// Picture gives the sums over every kind of actor, and at most so many actors of each.
	Picture(perKind int) *actors.Picture
	// Collector gives the same to Prometheus.
	Collector() prometheus.Collector
}

// Versions are the versions this member reports.
type Versions struct {
	// Server is the compatibility version, for example 3.7.3: clients turn features on by it.
	Server string
	// Troupe is the version of this daemon.
	Troupe string
}

// Config says what a Server serves, and within which limits. Zero limits mean etcd's defaults.
type Config struct {
	// Member and Cluster are the ids that every header carries.
	Member  proto.MemberID
	Cluster proto.ClusterID
	// Versions are reported by Status and /version.
	Versions Versions

	// Raft, Store, Watch and Leases are the rooms behind the gateway; Actors is shown on the debug page and may be nil.
	Raft   Raft
	Store  Store
	Watch  Watch
	Leases Leases
	Actors Actors
	// Registry collects the metrics of the whole member; it is served at /metrics.
	Registry *prometheus.Registry
	// Log must not block: a slow log would be a slow request.
	Log zerolog.Logger

	// RequestBytesMax and TxnOpsMax are --max-request-bytes and --max-txn-ops.
	RequestBytesMax, TxnOpsMax int
	// QuotaBytes is --quota-backend-bytes: 0 is the default of 2 GiB, a negative number is no quota.
	QuotaBytes int64
	// ConcurrentStreamsMax is --max-concurrent-streams, per connection.
	ConcurrentStreamsMax uint32
	// AnswerBytesMax bounds the bytes of large answers in flight.
	AnswerBytesMax int64
	// KeepaliveMinTime, KeepaliveInterval and KeepaliveTimeout are the --grpc-keepalive flags.
	KeepaliveMinTime, KeepaliveInterval, KeepaliveTimeout time.Duration
	// SlowRequest is --warning-unary-request-duration.
	SlowRequest time.Duration
	// ElectionTimeout paces the check for a leader of streams that asked for one.
	ElectionTimeout time.Duration
	// RequestTimes is where requests are timed; nil: a new one, registered with Registry. The member's own proposals are
	// timed by whoever makes them.
	RequestTimes *RequestTimes
	// Crowded is called for each unary call with which crowdedCalls or more are being worked on. It must not wait; nil:
	// nobody is told.
	Crowded func()
	// ExtensiveMetrics adds grpc_server_handling_seconds (--metrics=extensive).
	ExtensiveMetrics bool
	// LogLevel is shown on the debug pages and changed there; nil: neither.
	LogLevel LogLevel
	// Profiling serves /debug/pprof (--enable-pprof).
	Profiling bool
	// PagesElsewhere leaves gRPC alone on the client ports: HTTP/1.1 has ports of its own (ServePages).
	PagesElsewhere bool
	// StopServingOnDefragment makes the health service say NOT_SERVING while a defragmentation runs.
	StopServingOnDefragment bool
	// Features are the feature gates that were decided, by name; the others are shown with their default.
	Features map[string]bool
	// DebugElsewhere keeps the debug pages and the Introspect service off the client port: they have ports of their own
	// (--debug-listen-urls), which are given to ServeDebug.
	DebugElsewhere bool
	// NoJSON leaves the JSON gateway out (--enable-grpc-gateway=false).
	NoJSON bool
	// Hosts are the names in Host headers that the client and debug ports answer over HTTP (--host-whitelist), Origins
	// those whose pages browsers let read the answers (--cors); empty lists, and those with "*", allow all.
	Hosts, Origins []string

	// stallCheck is for tests that look themselves; 0: answerStallCheck.
	stallCheck time.Duration
}

func (c *Config) fillDefaults() error {
	switch {
	case c.Raft == nil, c.Store == nil, c.Watch == nil, c.Leases == nil, c.Registry == nil:
		return fmt.Errorf("%w: Raft, Store, Watch, Leases and Registry are required", ErrBadConfig)
	}
	setDefault(&c.RequestBytesMax, requestBytesDefault)
	setDefault(&c.TxnOpsMax, txnOpsDefault)
	setDefault(&c.ConcurrentStreamsMax, math.MaxUint32)
	setDefault(&c.AnswerBytesMax, answerBytesInFlightDefault)
	setDefault(&c.KeepaliveMinTime, keepaliveMinTimeDefault)
	setDefault(&c.KeepaliveInterval, keepaliveIntervalDefault)
	setDefault(&c.KeepaliveTimeout, keepaliveTimeoutDefault)
	setDefault(&c.SlowRequest, slowRequestDefault)
	setDefault(&c.ElectionTimeout, electionTimeoutDefault)
	setDefault(&c.stallCheck, answerStallCheck)
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// quotaBytes is the effective quota; negative when there is none.
func (c *Config) quotaBytes() int64 {
	if c.QuotaBytes == 0 {
		return quotaBytesDefault
	}
	return c.QuotaBytes
}

// Server is the edge of one member. Make it with New, give it listeners, tell it when the member is ready, Stop it.
type Server struct {
	cfg      Config
	metrics  *metrics
	answers  *ledger
	chunks   *chunkPool
	quota    *quota
	versions clientVersions
	slow     slowLog
	gates    gates
	// keyBytes is how large a key with its value has been lately, in large ranges; wholeReads are the places for reads
	// that cannot be executed in pieces.
	keyBytes   atomic.Int64
	wholeReads chan struct{}
	// These bound what clients can make the log say.
	panicLines, healthLines, probeLines, acceptLines lineRate

	leader *leaderWatch
	access *access
	pace   answerPace

	grpc   *grpc.Server
	wire   *codec
	local  *localConn
	json   *jsonGateway // nil with Config.NoJSON
	health *health.Server
	client *http.Server
	// scrape serves the metrics ports, debug the debug ports.
	scrape *http.Server
	peer   *http.Server
	debug  *debugPort
	// pictures is what the debug pages and Introspect show; introspectors counts the streams that follow.
	pictures      *pictures
	introspectors atomic.Int64
	keyspace      keyspaceTurns
	downloads     downloads

	// ready is closed by SetReady.
	ready        chan struct{}
	readyOnce    sync.Once
	readyWaiters atomic.Int64
	isReady      atomic.Bool
	// lifetime ends when the server drains. It is a context, so that a stream can hook its end without a goroutine.
	lifetime context.Context
	endLife  context.CancelFunc

	// conns is every connection, whatever it has said. work is what a stop waits for: the unary calls and streamed ranges
	// that were admitted. pages are the HTTP/1.1 requests, which are cut when pageLife ends.
	conns    connections
	work     *inFlight
	unary    atomic.Int64 // unary calls that are being worked on
	pages    *inFlight
	pageLife context.Context
	endPages context.CancelFunc

	// background are the goroutines that end with lifetime.
	background sync.WaitGroup

	mu     sync.Mutex
	splits map[*splitter]struct{}
	// defragments are the defragmentations that were asked for and go on, counted with Config.StopServingOnDefragment.
	defragments int
}

// New makes a server that serves nothing yet. It registers the gateway's metrics, the process's and the actors' with
// cfg.Registry. Fails with ErrBadConfig.
func New(cfg Config) (*Server, error) {
	if err := cfg.fillDefaults(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		answers: newLedger(cfg.AnswerBytesMax),
		ready:   make(chan struct{}),
		splits:  make(map[*splitter]struct{}),
		health:  health.NewServer(),
		work:    newInFlight(),
		pages:   newInFlight(),
		access:  newAccess(cfg.Hosts, cfg.Origins),
	}
	s.chunks = newChunkPool()
	s.keyBytes.Store(pieceKeyBytesFirst)
	s.keyspace.turn = make(chan struct{}, 1)
	s.wholeReads = make(chan struct{}, wholeReadsMax)
	s.lifetime, s.endLife = context.WithCancel(context.Background())
	s.pageLife, s.endPages = context.WithCancel(context.Background())
	s.metrics = newMetrics(&s.cfg, s.answers)
	s.gates.make(cfg.Registry)
	s.downloads.gate, s.downloads.yieldAfter = &s.gates.snapshots, snapshotYieldAfter
	s.downloads.now, s.downloads.yielded = time.Now, s.sayYielded
	for _, g := range []*gate{&s.gates.pages, &s.gates.metrics, &s.gates.json} {
		g.idle = &idleConnections{closing: s.sayMadeRoom}
	}
	if cfg.Actors != nil {
		cfg.Registry.MustRegister(cfg.Actors.Collector())
	}
	s.quota = newQuota(s)
	s.versions.counters = s.metrics.clientRequests
	s.slow.make(cfg.Log, cfg.SlowRequest, s.metrics)
	s.panicLines.max = panicLinesPerSecondMax
	s.healthLines.max, s.acceptLines.max = healthLinesPerSecondMax, acceptLinesPerSecondMax
	s.probeLines.max = healthLinesPerSecondMax
	s.background.Go(func() { s.closeStalled(cfg.stallCheck) })
	s.leader = newLeaderWatch(cfg.Raft, cfg.ElectionTimeout, s.lifetime.Done())
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	s.wire = &codec{sent: s.metrics.sent, received: s.metrics.received, chunks: s.chunks}
	s.local = &localConn{server: s, methods: make(map[string]grpc.StreamDesc)}
	s.grpc = grpc.NewServer(s.options()...)
	s.pictures = newPictures(s)
	s.registerServices()
	s.debug = newDebugPort(s)
	s.scrape = s.httpServer(s.metricsMux())
	client, err := s.clientMux()
	if err != nil {
		return nil, err
	}
	s.pace = answerPaceDefault
	s.client = s.httpServer(client)
	s.peer = s.httpServer(s.peerMux())
	return s, nil
}

// options are the options of the gRPC server. Buffers, workers and the shared write buffer belong together: measured,
// they save a quarter of the CPU of a small call, and none of them does so alone.
func (s *Server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(s.wire),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ReadBufferSize(connectionBufferBytes),
		grpc.WriteBufferSize(connectionBufferBytes),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(windowBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(s.receivedBytesMax()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(headerListBytesMax),
		grpc.MaxConcurrentStreams(s.cfg.ConcurrentStreamsMax),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: s.cfg.KeepaliveMinTime, PermitWithoutStream: false}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: s.cfg.KeepaliveInterval, Timeout: s.cfg.KeepaliveTimeout}),
	}
}

func (s *Server) httpServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:     s.page(handler),
		BaseContext: func(net.Listener) context.Context { return s.pageLife },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()}) // as gRPC does, for connectionOf
		},
		ReadHeaderTimeout: httpHeaderTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpHeaderBytesMax,
		ConnState:         closeSpent,
		ErrorLog:          quietLogger(s.cfg.Log),
	}
}

// ServeClients serves gRPC and, without PagesElsewhere, HTTP/1.1 on one listener until it fails or the server stops;
// then it returns nil for a stop and the error otherwise. The listener is closed. It may be called for several
// listeners.
func (s *Server) ServeClients(l net.Listener) error {
	split := newSplitter(s.conns.listen(l))
	split.paused = func(err error) {
		if s.acceptLines.allow(time.Now()) {
			s.cfg.Log.Warn().Err(err).Str("address", l.Addr().String()).
				Msg("no connection can be accepted now, trying again; raise the limit of open files if that is why")
		}
	}
	split.pass, split.refused = s.passClient, s.sayHalfOpen
	if !s.keep(split) {
		return nil
	}
	defer s.forget(split)
	var wait sync.WaitGroup
	wait.Go(func() { _ = s.grpc.Serve(split.http2) })
	wait.Go(func() { _ = s.client.Serve(split.http1) })
	err := split.run()
	wait.Wait()
	if s.isDraining() {
		return nil
	}
	return err
}

// ServePages serves HTTP/1.1 alone, as the client ports do without PagesElsewhere, until the listener fails or the
// server stops.
func (s *Server) ServePages(l net.Listener) error {
	return ignoreClosed(s.client.Serve(s.conns.listenThrough(l, &s.gates.pages, s.sayRefused)))
}

// ServeMetrics serves metrics and health over HTTP/1.1 (--listen-metrics-urls), until the listener fails or the server
// stops.
func (s *Server) ServeMetrics(l net.Listener) error {
	return ignoreClosed(s.scrape.Serve(s.conns.listenThrough(l, &s.gates.metrics, s.sayRefused)))
}

// passClient gives a connection on a client port its place, if there is one. What has come of its first request tells
// clients of the JSON gateway from probes and scrapers, so that a burst of the ones leaves the others alone; one that
// finds no place there is told so in an answer (jsongateway.go).
func (s *Server) passClient(conn net.Conn, grpc bool, seen []byte) bool {
	if !grpc && s.cfg.PagesElsewhere {
		return false
	}
	entered, ok := conn.(*connection)
	if !ok {
		return true
	}
	g := &s.gates.pages
	switch {
	case grpc:
		g = &s.gates.grpc
	case s.json != nil && asksJSON(seen) && s.gates.json.inside() < s.gates.json.max:
		g = &s.gates.json
	}
	if !entered.pass(g, bytes.Contains(seen, []byte("\r\n\r\n"))) {
		s.sayRefused(g, conn)
		return false
	}
	return true
}

// asksJSON reports whether the first line of a request is one to the JSON gateway, as far as it has come.
func asksJSON(seen []byte) bool {
	_, path, _ := bytes.Cut(seen, []byte{' '})
	return bytes.HasPrefix(path, []byte(jsonPrefix)) || bytes.HasPrefix(path, []byte(jsonPrefixOld))
}

// sayHalfOpen counts, and logs within a rate, that a connection is closed that has not shown what it speaks.
func (s *Server) sayHalfOpen(conn net.Conn) {
	s.gates.halfOpen.Inc()
	if s.gates.lines.allow(time.Now()) {
		s.cfg.Log.Warn().Str("kind", halfOpenKind).Int("bound", sniffedConnectionsMax).
			Str("remote-addr", conn.RemoteAddr().String()).
			Msg("too many connections that say nothing, closing the one that has been silent longest for a new one")
	}
}

// sayRefused logs, within a rate, that a connection is closed because there are too many; the message is etcd's.
func (s *Server) sayRefused(g *gate, conn net.Conn) {
	if s.gates.lines.allow(time.Now()) {
		s.cfg.Log.Warn().Str("kind", g.name).Int64("bound", g.max).
			Str("remote-addr", conn.RemoteAddr().String()).Str("error", errRefused.Error()).
			Msg("rejected connection on client endpoint")
	}
}

// ServePeers serves what other members and tools read over HTTP on the peer port, until the listener fails or the
// server stops.
func (s *Server) ServePeers(l net.Listener) error {
	return ignoreClosed(s.peer.Serve(s.conns.listen(l)))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// keep remembers a listener for Stop; it is closed at once when the server stops already.
func (s *Server) keep(split *splitter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		split.close()
		return false
	}
	s.splits[split] = struct{}{}
	return true
}

func (s *Server) forget(split *splitter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.splits, split)
}

// SetReady lets client requests in. Until then only health and debug pages are answered; requests wait.
func (s *Server) SetReady() {
	s.readyOnce.Do(func() {
		s.isReady.Store(true)
		close(s.ready)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.showHealth()
	})
}
