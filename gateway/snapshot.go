package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"troupe/storeactor"
)

// Housekeeping is what the maintenance service needs of the store's file. The Store of a member that keeps one has
// these methods too; without them the service answers that it is not implemented.
type Housekeeping interface {
	// Defragment makes the file as small as what it holds. The caller may leave; the work goes on.
	Defragment(ctx context.Context) error
	// Hash hashes everything in the file.
	Hash(ctx context.Context) (HashKV, error)
	// Snapshot gives a copy of the file that holds everything acknowledged before the call. The caller closes it.
	Snapshot(ctx context.Context) (Snapshot, error)
	// FileStatus tells whether the disk of the file is full. It never waits.
	FileStatus() storeactor.FileStatus
}

// Snapshot is a copy of the file that nothing changes any more.
type Snapshot interface {
	io.ReaderAt
	io.Closer
	// Size is its length in bytes.
	Size() int64
}

func (s *Server) housekeeping() (Housekeeping, error) {
	h, ok := s.cfg.Store.(Housekeeping)
	if !ok {
		return nil, ErrNotImplemented
	}
	return h, nil
}

// defragment answers when the file has been replaced by a smaller one. A drain does not wait for that.
func (s *Server) defragment(ctx context.Context, _ *pb.DefragmentRequest) (any, error) {
	h, err := s.housekeeping()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.lifetime, func() { end(ErrDraining) })()
	if s.cfg.StopServingOnDefragment {
		err = s.defragmentShown(ctx, h)
	} else {
		err = h.Defragment(ctx)
	}
	if err != nil {
		return nil, housekeepingError(ctx, err)
	}
	return &pb.DefragmentResponse{}, nil // without a header, as etcd's
}

// defragmentShown defragments while the health service says NOT_SERVING. A caller that leaves does not end the work, so
// that a goroutine of its own waits for its end, or for the server's. The store bounds how many wait.
func (s *Server) defragmentShown(ctx context.Context, h Housekeeping) error {
	done := make(chan error, 1)
	s.defragmenting(1)
	go func() {
		defer s.defragmenting(-1)
		defer func() {
			if r := recover(); r != nil {
				done <- s.panicked("Defragment", r)
			}
		}()
		done <- h.Defragment(s.lifetime)
	}()
	select {
	case err := <-done:
		if err != nil && s.isDraining() {
			return ErrDraining
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// defragmenting counts the defragmentations that were asked for and go on, and tells the health service: the first to
// end must not say that the others are over.
func (s *Server) defragmenting(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.defragments += change
	s.showHealth()
}

// showHealth tells the health service how the member is. The caller holds mu, so that what is told last is true.
func (s *Server) showHealth() {
	now := healthpb.HealthCheckResponse_NOT_SERVING
	if s.isReady.Load() && s.defragments == 0 {
		now = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", now) // nothing after Drain
}

// hash hashes the whole file, for tests of equal members.
func (s *Server) hash(ctx context.Context, _ *pb.HashRequest) (any, error) {
	h, err := s.housekeeping()
	if err != nil {
		return nil, err
	}
	hash, err := h.Hash(ctx)
	if err != nil {
		return nil, housekeepingError(ctx, err)
	}
	return &pb.HashResponse{Header: s.pbHeader(hash.Current), Hash: hash.Hash}, nil
}

// housekeepingError says what went wrong with the file in full: whoever asked is an operator, and the short answer for
// a full disk would send him to the quota.
func housekeepingError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, storeactor.ErrDiskFull):
		return status.Error(codes.ResourceExhausted, "etcdserver: "+err.Error())
	}
	return err
}

// snapshot sends a copy of the file: pieces of 32 KiB that count the remaining bytes down, then the SHA-256 of them
// all. The pieces are sent in a goroutine of their own, because sending to a client that does not read waits until the
// call has ended.
func (s *Server) snapshot(stream *stream) error {
	defer stream.input.leave()
	if err := stream.receive(new(pb.SnapshotRequest)); err != nil {
		return err
	}
	h, err := s.housekeeping()
	if err != nil {
		return err
	}
	place, err := s.downloads.enter(stream.ctx, remoteOf(stream.ctx), stream.end)
	if err != nil {
		s.sayRefusedSnapshot(err)
		return err
	}
	sending := false
	defer func() {
		if !sending {
			place.leave()
		}
	}()
	copied, err := h.Snapshot(stream.ctx)
	if err != nil {
		s.sayRefusedSnapshot(err)
		return housekeepingError(stream.ctx, err)
	}
	started := time.Now()
	s.cfg.Log.Info().Int64("total-bytes", copied.Size()).Msg("sending database snapshot to client")
	place.move()
	sender := &snapshotSender{stream: stream, from: copied, version: s.cfg.Store.StorageVersion(), moved: place.move}
	done := make(chan error, 1)
	sending = true
	go func() {
		defer place.leave() // after the copy is closed
		defer func() {
			if r := recover(); r != nil {
				_ = copied.Close() // its place is one of few
				done <- s.panicked("Snapshot", r)
			}
		}()
		done <- errors.Join(sender.send(), copied.Close())
	}()
	err = sender.watch(done, snapshotStallMax, s.spaceIsShort)
	log := s.cfg.Log.Info()
	message := "successfully sent database snapshot to client"
	if err != nil {
		log = s.cfg.Log.Warn().Err(err)
		message = "a database snapshot was not sent to its end"
	}
	log.Int64("total-bytes", copied.Size()).Int64("sent-bytes", sender.sent.Load()).
		Str("took", time.Since(started).String()).Msg(message)
	return err
}

// sayRefusedSnapshot counts a snapshot that is refused because of those that are being downloaded, and logs it within
// a rate. The store may refuse one that has a place here: a copy whose client has gone keeps its own there until that
// is noticed.
func (s *Server) sayRefusedSnapshot(err error) {
	if errors.Is(err, storeactor.ErrSnapshotsOpen) {
		s.gates.snapshots.rejected.Inc()
		s.sayRejected(&s.gates.snapshots)
	}
}

// snapshotSender sends one snapshot.
type snapshotSender struct {
	stream  *stream
	from    Snapshot
	version string
	moved   func()       // called for each piece that the client takes
	sent    atomic.Int64 // bytes of the file
}

// send sends everything. It ends early when the call has ended.
func (s *snapshotSender) send() error {
	total := s.from.Size()
	sum := sha256.New()
	buffer := make([]byte, snapshotPieceBytes)
	for offset := int64(0); offset < total; {
		piece := buffer[:min(int64(len(buffer)), total-offset)]
		if n, err := s.from.ReadAt(piece, offset); n < len(piece) {
			return fmt.Errorf("read the copy of the database at %d: %w", offset, err)
		}
		sum.Write(piece)
		offset += int64(len(piece))
		if err := s.piece(piece, total-offset); err != nil {
			return err
		}
		s.sent.Store(offset)
		s.moved()
	}
	return s.piece(sum.Sum(nil), 0)
}

// piece sends one message; it is encoded when that returns.
func (s *snapshotSender) piece(blob []byte, remaining int64) error {
	if s.stream.ctx.Err() != nil {
		return context.Cause(s.stream.ctx)
	}
	return s.stream.send(&pb.SnapshotResponse{RemainingBytes: uint64(remaining), Blob: blob, Version: s.version})
}

// watch waits for the end of sending, for that of the call, or for a client that takes nothing any more. A download
// also ends when the log or the file finds the disk full: its copy may be what fills it, and writes come first.
func (s *snapshotSender) watch(done <-chan error, stall time.Duration, full func() bool) error {
	ticker, look := time.NewTicker(stall), time.NewTicker(snapshotSpaceLook)
	defer ticker.Stop()
	defer look.Stop()
	last := int64(-1)
	for {
		select {
		case err := <-done:
			return err
		case <-s.stream.ctx.Done():
			return context.Cause(s.stream.ctx)
		case <-look.C:
			if full() {
				return errSnapshotSpace
			}
			continue
		case <-ticker.C:
		}
		sent := s.sent.Load()
		if sent == last {
			return errSnapshotStalled
		}
		last = sent
	}
}

// statusSnapshotsOpen refuses a snapshot while as many as may be are downloaded.
var statusSnapshotsOpen = status.Error(codes.ResourceExhausted,
	"etcdserver: too many snapshots are being downloaded from this member")

// errSnapshotSpace ends a snapshot whose copy takes the space that writes need.
var errSnapshotSpace = status.Error(codes.ResourceExhausted,
	"etcdserver: the disk is full and the copy that was being downloaded has been given up for writes")

// errSnapshotYielded ends a snapshot whose client reads nothing while another waits for its place.
var errSnapshotYielded = status.Error(codes.Unavailable,
	"etcdserver: the client did not read the snapshot while another client waited to download one")

// errSnapshotStalled ends a snapshot whose client reads nothing.
var errSnapshotStalled = status.Error(codes.Unavailable, "etcdserver: the client has stopped reading the snapshot")
