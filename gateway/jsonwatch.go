package gateway

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// jsonWatchClient makes watch streams that end when nothing can come any more: the client has said all, and none of its
// watches is left. Over gRPC such a stream stays open until its client leaves; an HTTP request has one body, and a
// client that has sent nothing but, say, a cancellation would wait for an answer for ever.
type jsonWatchClient struct{ pb.WatchClient }

// Watch implements pb.WatchClient.
func (c jsonWatchClient) Watch(ctx context.Context, options ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	ctx, end := context.WithCancelCause(ctx)
	stream, err := c.WatchClient.Watch(ctx, options...)
	if err != nil {
		end(nil)
		return nil, err
	}
	return &jsonWatch{Watch_WatchClient: stream, end: end, call: jsonCallOf(ctx), live: make(map[int64]struct{})}, nil
}

var (
	// errWatchesOver ends a stream of which nothing is left.
	errWatchesOver = errors.New("gateway: no watch is left and the client has said all")
	// errNoWatch answers a request that has created no watch.
	errNoWatch = status.Error(codes.InvalidArgument, "etcdserver: the request creates no watch, and a watch is canceled "+
		"or asked for progress only in the request that created it; to cancel it, close that request")
)

// jsonWatch is a watch stream of an HTTP request. One goroutine sends, one receives.
type jsonWatch struct {
	pb.Watch_WatchClient
	end  context.CancelCauseFunc
	call *jsonCall

	mu sync.Mutex
	// pending are the creations that are not answered; created says that there was one.
	pending int
	created bool
	live    map[int64]struct{}
	said    bool // the client has said all
	over    bool
}

// Send implements pb.Watch_WatchClient.
func (w *jsonWatch) Send(r *pb.WatchRequest) error {
	if r.GetCreateRequest() != nil {
		w.mu.Lock()
		w.pending++
		w.created = true
		w.mu.Unlock()
	}
	return w.Watch_WatchClient.Send(r)
}

// CloseSend implements pb.Watch_WatchClient.
func (w *jsonWatch) CloseSend() error {
	err := w.Watch_WatchClient.CloseSend()
	w.mu.Lock()
	w.said = true
	over := w.isOver()
	w.mu.Unlock()
	if over {
		w.end(errWatchesOver)
	}
	return err
}

// isOver reports whether nothing can come any more. After a message that is no request only what was asked before it is
// answered. The caller holds the lock.
func (w *jsonWatch) isOver() bool {
	w.over = w.over || w.said && w.pending == 0 && (len(w.live) == 0 || w.call.failed() != nil)
	return w.over
}

// Recv implements pb.Watch_WatchClient.
func (w *jsonWatch) Recv() (*pb.WatchResponse, error) {
	w.mu.Lock()
	over := w.isOver()
	w.mu.Unlock()
	if over {
		return nil, w.ending()
	}
	r, err := w.Watch_WatchClient.Recv()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if w.over {
			err = w.ending()
		}
		return nil, err
	}
	w.note(r)
	return r, nil
}

// note keeps count of the watches. The caller holds the lock.
func (w *jsonWatch) note(r *pb.WatchResponse) {
	if r.Created {
		w.pending--
		w.live[r.WatchId] = struct{}{}
	}
	if r.Canceled {
		delete(w.live, r.WatchId)
	}
}

// ending ends the stream and gives what the client is told of it.
func (w *jsonWatch) ending() error {
	w.end(errWatchesOver)
	switch failed := w.call.failed(); {
	case failed != nil:
		return failed
	case !w.created:
		return errNoWatch
	}
	return io.EOF
}
