package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// readersOrder describes watches that a process of its own holds, so that their reading does not delay the requests
// whose latency is measured in this one.
type readersOrder struct {
	Endpoint    string
	Connections int
	Streams     int
	// Watches is the number on each stream, all of [Key, End) from Start; an empty End means one key.
	Watches  int
	Key, End string
	Start    int64
	// Events is how many each watch must see to be complete.
	Events int
	// Hold makes the streams stop reading once the watches are created, until the other side says "read".
	Hold bool
}

// readersReport is one line of what the readers tell: that the watches are there, or how it went.
type readersReport struct {
	Created bool
	Done    bool
	// Seconds is from the begin of the reading until the last watch had everything.
	Seconds float64
	// Complete, Cancelled and Broken are numbers of watches: with every event in order, with a compaction cancel instead,
	// with neither.
	Complete, Cancelled, Broken int
	Bytes                       int64
	Failure                     string
}

// serveReaders is the readers' process: one order on standard input, reports on standard output. It ends when the order
// is done or standard input closes.
func serveReaders(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return errors.New("readers: no order")
	}
	var order readersOrder
	if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	read := make(chan struct{})
	go func() {
		if lines.Scan() { // "read"
			close(read)
		}
		lines.Scan()
		cancel(errors.New("readers: told to end"))
	}()
	report := json.NewEncoder(out)
	r := &readers{order: order, read: read, cancel: cancel}
	created := func() error { return report.Encode(readersReport{Created: true}) }
	if err := r.run(ctx, created); err != nil {
		return report.Encode(readersReport{Failure: err.Error()})
	}
	r.total.Done = true
	return report.Encode(r.total)
}

// readers are all streams of one order.
type readers struct {
	order  readersOrder
	read   chan struct{}
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	total readersReport
}

func (r *readers) run(ctx context.Context, created func() error) error {
	var conns connections
	defer func() { conns.close() }()
	for range r.order.Connections {
		c, err := grpc.NewClient("passthrough:///"+r.order.Endpoint,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	var opened, finished sync.WaitGroup
	begin := time.Now()
	opened.Add(r.order.Streams)
	for i := range r.order.Streams {
		finished.Go(func() {
			open := sync.OnceFunc(opened.Done)
			defer open()
			if err := r.stream(ctx, conns.at(i), open); err != nil {
				r.cancel(err)
			}
		})
	}
	opened.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := created(); err != nil {
		return err
	}
	if r.order.Hold {
		<-r.read
		begin = time.Now()
	}
	finished.Wait()
	r.total.Seconds = time.Since(begin).Seconds()
	return context.Cause(ctx)
}

// progress is what one watch has seen.
type progress struct {
	events    int
	last      int64
	disorder  bool
	cancelled bool
}

// stream holds the watches of one stream from their creation to their last event.
func (r *readers) stream(ctx context.Context, conn *grpc.ClientConn, opened func()) error {
	s, err := openWatchStream(ctx, conn)
	if err != nil {
		return err
	}
	for range r.order.Watches {
		if err := s.create(r.order.Key, r.order.End, r.order.Start); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	seen := map[int64]*progress{}
	open := r.order.Watches
	created := 0
	for open > 0 {
		a, err := s.receive()
		if err != nil {
			return fmt.Errorf("watch stream with %d of %d watches open: %w", open, r.order.Watches, err)
		}
		p := seen[a.watchID]
		if p == nil {
			p = &progress{}
			seen[a.watchID] = p
		}
		if a.created {
			created++
		}
		if p.take(a, r.order.Events) {
			open--
		}
		if created == r.order.Watches && a.created {
			opened()
			if r.order.Hold {
				select {
				case <-r.read:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	}
	r.count(seen)
	return nil
}

// take adds an answer and reports whether the watch has come to its end with it.
func (p *progress) take(a watchAnswer, events int) bool {
	before := p.cancelled || p.events >= events
	if a.events > 0 {
		p.disorder = p.disorder || !a.ordered || a.first <= p.last
		p.last = a.last
	}
	p.events += a.events
	p.cancelled = p.cancelled || a.canceled
	return !before && (p.cancelled || p.events >= events)
}

func (r *readers) count(seen map[int64]*progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range seen {
		switch {
		case p.disorder || p.events > r.order.Events:
			r.total.Broken++
		case p.cancelled:
			r.total.Cancelled++
		default:
			r.total.Complete++
		}
	}
}
