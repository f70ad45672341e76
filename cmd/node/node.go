// Package node puts a member together: it opens the data directory, starts the actors in an order with reasons,
// connects them, puts the gateway in front, and takes all of it down again in the reverse order. It is the only place
// that knows all rooms; it has no behaviour of its own.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"troupe/gateway"
)

// drainMax bounds how long requests that were admitted may take after the stop signal.
const drainMax = 5 * time.Second

// Run runs a member until ctx ends or it fails. A context that ends is a clean stop: the answer is nil then. The
// configuration must be valid (Config.Validate).
func Run(ctx context.Context, cfg Config, seams Seams) error {
	logConfiguration(seams.Log, &cfg)
	tuneTimers(&seams.Log)
	tuneMemory(&seams.Log)
	tuning, endTuning := context.WithCancel(context.Background())
	defer endTuning()
	giveMemoryBack(tuning)
	sockets, err := listen(&cfg)
	if err != nil {
		return err
	}
	seams = seams.withDefaults(&cfg)
	countLostLines(seams)
	t, err := Assemble(cfg, seams)
	if err != nil {
		return errors.Join(err, sockets.close())
	}
	together := newCrowd()
	tuneProcessors(tuning, t.Store.Tidying, t.Watch.Delivering, together)
	edge, err := newGateway(t, seams.LogLevel, together.note)
	if err != nil {
		return errors.Join(err, t.Stop(context.Background()), sockets.close())
	}
	failed := serveAll(edge, sockets)
	err = t.becomeReady(ctx, func() {
		edge.SetReady()
		forgetStart()
		logServing(seams.Log, t, sockets)
		if seams.Ready != nil {
			seams.Ready()
		}
	}, failed)
	began := time.Now()
	seams.Log.Info().AnErr("error", err).AnErr("signal", context.Cause(ctx)).Msg("stopping")
	drained, cancel := context.WithTimeout(context.Background(), drainMax)
	defer cancel()
	drainErr := edge.Stop(drained)
	if drainErr != nil {
		seams.Log.Warn().Err(drainErr).Msg("requests were cut off")
	}
	err = errors.Join(err, t.Stop(context.Background()))
	seams.Log.Info().Str("took", time.Since(began).Round(time.Millisecond).String()).Msg("stopped")
	return err
}

// countLostLines shows at /metrics how much of the log was lost because an output is too slow or fails.
func countLostLines(seams Seams) {
	if seams.LogDropped == nil {
		return
	}
	seams.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "troupe_log_lines_dropped_total", Help: "Lines of the log that an output, too slow or failing, has lost.",
	}, func() float64 { return float64(seams.LogDropped()) }))
}

// becomeReady makes the member known to the cluster, calls ready, and waits until ctx ends (nil) or a listener fails.
func (t *Troupe) becomeReady(ctx context.Context, ready func(), failed <-chan error) error {
	joining, cancel := context.WithCancel(ctx)
	defer cancel()
	joined := make(chan error, 1)
	go func() {
		err := t.join(joining)
		if err == nil {
			t.defragmentAtStart(joining)
		}
		joined <- err
	}()
	for {
		select {
		case err := <-joined:
			if err != nil {
				return ignoreEnd(ctx, err)
			}
			joined = nil
			t.Store.AdoptAlarm(t.Meta.Member)
			ready()
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// ignoreEnd is nil for an error that only says that ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// newGateway puts the gateway in front of the actors.
func newGateway(t *Troupe, level gateway.LogLevel, crowded func()) (*gateway.Server, error) {
	c := &t.cfg
	return gateway.New(gateway.Config{
		Member: t.Meta.Member, Cluster: t.Meta.Cluster,
		Versions: gateway.Versions{Server: CompatibleVersion, Troupe: Version},
		Raft:     gateway.GuardDisk(t.Raft, t.Store),
		Store:    gateway.StoreRoom(t.Store), Watch: gateway.WatchRoom(t.Watch), Leases: t.Leases,
		Actors: t.System, Registry: t.Registry, Log: t.log,
		RequestBytesMax: c.MaxRequestBytes, TxnOpsMax: c.MaxTxnOps, QuotaBytes: c.QuotaBytes,
		ConcurrentStreamsMax: c.MaxConcurrentStreams,
		KeepaliveMinTime:     c.KeepaliveMinTime, KeepaliveInterval: c.KeepaliveInterval,
		KeepaliveTimeout: c.KeepaliveTimeout, SlowRequest: c.WarningUnaryDuration, ElectionTimeout: c.Election,
		RequestTimes: t.timer.times, ExtensiveMetrics: c.ExtensiveMetrics, Profiling: c.EnablePprof, LogLevel: level,
		DebugElsewhere: len(c.ListenDebugURLs) > 0, NoJSON: !c.EnableGRPCGateway, Hosts: c.HostWhitelist, Origins: c.CORS,
		PagesElsewhere: len(c.ListenClientHTTPURLs) > 0, Features: c.Features,
		StopServingOnDefragment: c.StopServingOnDefragment, Crowded: crowded,
	})
}

// serveAll serves every socket in its own goroutine; the channel gets the first failure.
func serveAll(edge *gateway.Server, sockets *listeners) <-chan error {
	failed := make(chan error, 1)
	serve := func(l net.Listener, with func(net.Listener) error) {
		go func() {
			if err := with(l); err != nil {
				select {
				case failed <- fmt.Errorf("serve %s: %w", l.Addr(), err):
				default: // only the first failure ends the process
				}
			}
		}()
	}
	for _, l := range sockets.peers {
		serve(l, edge.ServePeers)
	}
	for _, l := range sockets.clients {
		serve(l, edge.ServeClients)
	}
	for _, l := range sockets.pages {
		serve(l, edge.ServePages)
	}
	for _, l := range sockets.metrics {
		serve(l, edge.ServeMetrics)
	}
	for _, l := range sockets.debug {
		serve(l, edge.ServeDebug)
	}
	return failed
}
