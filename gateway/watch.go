package gateway

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// watch drives one watch stream: one goroutine reads requests, this one writes frames. Both sides belong to the stream
// actor behind WatchStream; nothing about watches is decided here.
func (s *Server) watch(stream *stream) error {
	conn := connectionOf(stream.ctx)
	watches, err := s.cfg.Watch.Open(conn.watchOwner())
	if err != nil {
		return err
	}
	defer watches.Close()
	defer s.debug.watchers.note(stream.ctx, watches)()
	go s.readWatchRequests(stream, watches)
	var lent account = watchAccount{watches}
	local := jsonCallOf(stream.ctx) != nil // which enters them in the ledger
	var entered *claim
	defer func() {
		// gRPC loses what is queued just when the client ends the stream, and drops all else then.
		if stream.ServerStream.Context().Err() != nil {
			entered.drop()
		}
	}()
	// One answer serves the whole stream: it is encoded when send returns.
	var out answer
	var frame WatchFrame
	for {
		frame, err = watches.Next(stream.ctx)
		if err != nil {
			return watchEnd(stream.ctx, err)
		}
		out = answer{header: s.header(frame.Revision), frame: &frame, body: proto.Body{Pieces: frame.Events}}
		if n := out.body.Len(); n >= answerBytesCounted && !local {
			watches.Lend(n)
			entered = newClaimOn(conn, lent, int64(n))
			out.entered = entered
		}
		err := stream.send(&out)
		out, frame = answer{}, WatchFrame{} // a stream that rests holds nothing
		if err != nil {
			entered.drop()
			return watchEnd(stream.ctx, err)
		}
	}
}

// watchEnd is why a stream ended: what ended its context, if that did, else the error.
func watchEnd(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return ErrWatchCanceled
	default:
		return cause
	}
}

// readWatchRequests passes the client's requests on until the client has said all or the stream ends. A client that
// closes its side still gets events.
func (s *Server) readWatchRequests(stream *stream, watches WatchStream) {
	defer func() {
		if r := recover(); r != nil {
			stream.end(s.panicked("Watch", r))
		}
	}()
	defer stream.input.leave()
	for {
		in := new(pb.WatchRequest)
		err := stream.receive(in)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = watches.Request(stream.ctx, in)
		}
		if err != nil {
			stream.end(err)
			return
		}
	}
}
