package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// inFlight counts work that a stop waits for: handlers, not answers on their way. Large ones of those are in the ledger
// of answers, and small ones arrive within the grace.
//
// Work enters first and then looks whether it may begin; the stop forbids work first and then calls drain. So whatever
// enters after the count was 0 in a drain finds itself forbidden, and the first 0 in a drain is the end: no lock, and
// nothing to poll.
type inFlight struct {
	count    atomic.Int64
	draining atomic.Bool
	once     sync.Once
	idle     chan struct{}
}

func newInFlight() *inFlight { return &inFlight{idle: make(chan struct{})} }

// enter counts one piece of work, before it is known whether it may begin.
func (f *inFlight) enter() { f.count.Add(1) }

// leave strikes it.
func (f *inFlight) leave() {
	if f.count.Add(-1) == 0 && f.draining.Load() {
		f.once.Do(func() { close(f.idle) })
	}
}

// drain says that no work may begin any more.
func (f *inFlight) drain() {
	f.enter()
	f.draining.Store(true)
	f.leave()
}

// whenIdle is closed when all work is over, which is for good. It is never closed before drain.
func (f *inFlight) whenIdle() <-chan struct{} { return f.idle }

// page counts the handling of HTTP/1.1 requests, so that Stop can wait for handlers that it has cut, and keeps their
// connections from making room for others. Pages are not
// admitted work: they tell probes and scrapers what is true now, and are asked again.
func (s *Server) page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.pages.enter()
		defer s.pages.leave()
		if conn := connectionOf(r.Context()); conn != nil {
			conn.busy()
			defer conn.rest()
			if conn.gate.Load() != nil { // a client's; other members are timed by whoever speaks with them
				paced := &pacedWriter{ResponseWriter: w, pace: s.pace, conn: conn}
				paced.streams.Store(strings.HasPrefix(r.URL.Path, "/debug/pprof/")) // these take their time between writes
				defer paced.finish()
				w = paced
			}
		}
		if s.pageLife.Err() == nil {
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Server) isDraining() bool { return s.lifetime.Err() != nil }

// Drain refuses new connections and requests, and ends streams with an error that makes clients go elsewhere. Requests
// that were admitted go on.
func (s *Server) Drain() {
	s.mu.Lock()
	s.endLife()
	splits := slices.Collect(maps.Keys(s.splits))
	s.mu.Unlock()
	s.work.drain()
	s.health.Shutdown()
	for _, split := range splits {
		split.close()
	}
}

// Stop drains, waits for admitted requests until the context ends, then cuts what is left: connections that say
// nothing, requests that were never sent whole, answers that nobody reads. After it no handler runs. The error wraps
// the context's cause, and means that admitted requests were cut.
func (s *Server) Stop(ctx context.Context) error {
	s.Drain()
	var wait sync.WaitGroup
	wait.Go(s.grpc.GracefulStop)
	// These end with their connections, at the latest when cut ends the pages.
	wait.Go(func() { _ = s.client.Shutdown(s.pageLife) })
	wait.Go(func() { _ = s.scrape.Shutdown(s.pageLife) })
	wait.Go(func() { _ = s.peer.Shutdown(s.pageLife) })
	ended := make(chan struct{})
	go func() {
		wait.Wait()
		close(ended)
	}()
	err := s.waitForWork(ctx, ended)
	s.cut()
	<-ended
	<-s.pages.whenIdle()
	s.leader.wait()
	s.background.Wait()
	return err
}

// waitForWork waits until everything has ended by itself, or admitted work is over, its large answers are written and a
// grace has passed, or the context ends. It fails when admitted work is left.
func (s *Server) waitForWork(ctx context.Context, ended <-chan struct{}) error {
	// Calls first: each enters its large answer before it leaves.
	for _, over := range []func() <-chan struct{}{s.work.whenIdle, s.answers.whenEmpty} {
		select {
		case <-over():
		case <-ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("gateway: requests were cut at the end of the drain: %w", context.Cause(ctx))
		}
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	case <-ctx.Done():
	}
	return nil
}

// cut closes every connection and ends what runs for it. The connections come first: gRPC waits for the handshakes it
// has begun before it closes anything.
func (s *Server) cut() {
	s.endPages()
	s.pages.drain()
	s.conns.closeAll()
	s.grpc.Stop()
	_ = s.client.Close()
	_ = s.scrape.Close()
	s.debug.cut()
	_ = s.peer.Close()
}
