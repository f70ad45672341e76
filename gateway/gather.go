package gateway

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
	"troupe/storeactor"
)

// A large answer is entered in the ledger before it exists. Executing the range first and asking for room afterwards
// would bound nothing: fifty readers that wait would hold fifty whole answers. A range in the order of the keys is
// therefore read in pieces, and whoever has to wait for room holds no piece while it waits.

// inPieces reports whether a range can be read in pieces with the answer it has as a whole.
func inPieces(q *pb.RangeRequest) bool {
	return len(q.RangeEnd) > 0 && !q.CountOnly && q.SortTarget == pb.RangeRequest_KEY &&
		storeactor.CheckRangeStream(q) == nil
}

// gathering is one range that is read in pieces, all at one revision.
type gathering struct {
	server *Server
	asked  *pb.RangeRequest
	piece  *pb.RangeRequest // asked, at the revision of the first piece
	// reserved is what it has in the ledger.
	reserved int64
	// weight is what each byte counts for there, 0 while it is not known.
	weight int64
	tries  int

	// What has been read since the beginning:
	bodies      []proto.Body
	keys, bytes int64
	revision    proto.Revision
}

// errNoRoom says that a range must wait until bytes of the ledger are free.
type errNoRoom struct{ bytes int64 }

func (errNoRoom) Error() string { return "gateway: no room for the answer now" }

// gather answers a range for which inPieces holds. Errors: as of Store.RangeChunk; ErrTooManyAnswers.
func (s *Server) gather(ctx context.Context, q *pb.RangeRequest) (*answer, error) {
	s.cfg.Store.NoteRange()
	g := gathering{server: s, asked: q}
	for {
		out, err := g.read(ctx)
		if err == nil {
			return out, nil
		}
		g.drop()
		var room errNoRoom
		switch {
		case errors.As(err, &room):
			s.answers.leave(g.reserved)
			g.reserved = 0
			if err := s.answers.enter(ctx, room.bytes); err != nil {
				return nil, err
			}
			g.reserved = room.bytes
		case errors.Is(err, storeactor.ErrCompacted) && q.Revision <= 0 && g.tries < gatherTriesMax:
			// The client asked for what is current, and a compaction has passed what was that.
		default:
			s.answers.leave(g.reserved)
			return nil, err
		}
		g.tries++
	}
}

// drop forgets what has been read.
func (g *gathering) drop() {
	for i := range g.bodies {
		if release := g.bodies[i].Release; release != nil {
			release()
		}
	}
	g.bodies, g.keys, g.bytes = nil, 0, 0
}

// read reads from the first key on. It fails with errNoRoom when there is no room for the whole.
func (g *gathering) read(ctx context.Context) (*answer, error) {
	q := g.asked
	g.piece = &pb.RangeRequest{Key: q.Key, RangeEnd: q.RangeEnd, Revision: q.Revision, KeysOnly: q.KeysOnly,
		Serializable: q.Serializable}
	keyBytes := g.server.keyBytes.Load()
	for from := []byte(nil); ; {
		chunk, err := g.server.cfg.Store.RangeChunk(ctx, g.piece, from, g.next(keyBytes))
		if err != nil {
			return nil, err
		}
		if from == nil {
			g.revision, g.piece.Revision = chunk.Result.Revision, int64(chunk.At)
		}
		g.bodies = append(g.bodies, chunk.Result.Body)
		g.keys += chunk.Keys
		g.bytes += int64(chunk.Result.Body.Len())
		if g.keys > 0 {
			keyBytes = max(g.bytes/g.keys, 1)
		}
		full := q.Limit > 0 && g.keys >= q.Limit
		if err := g.enter(ctx, &chunk, full); err != nil {
			return nil, err
		}
		if full || chunk.Next == nil {
			g.server.learnKeyBytes(g.keys, keyBytes)
			return g.finish(ctx, chunk.Next)
		}
		from = chunk.Next
	}
}

// next is how many keys the next piece has.
func (g *gathering) next(keyBytes int64) int64 {
	n := min(max(pieceBytes/keyBytes, pieceKeysMin), pieceKeysMax)
	if g.asked.Limit > 0 {
		return min(n, g.asked.Limit-g.keys)
	}
	return n
}

// enter makes sure that what has been read is in the ledger.
func (g *gathering) enter(ctx context.Context, chunk *storeactor.RangeChunk, full bool) error {
	if g.bytes < answerBytesCounted {
		return nil
	}
	if g.weight == 0 {
		g.weight = answerWeight(ctx)
	}
	if g.bytes*g.weight <= g.reserved {
		return nil
	}
	wanted := g.bytes
	if chunk.Next != nil && !full && g.bytes >= unplannedBytesMax {
		estimate, err := g.estimate(chunk.Next)
		if err != nil {
			return err
		}
		wanted = estimate
	}
	more := wanted*g.weight - g.reserved
	switch {
	case g.server.answers.extend(g.reserved, more):
	case g.tries < gatherTriesMax:
		if wanted == g.bytes && chunk.Next != nil && !full {
			estimate, err := g.estimate(chunk.Next)
			if err != nil {
				return err
			}
			wanted = estimate
		}
		return errNoRoom{wanted * g.weight}
	default:
		g.server.answers.enterNow(more) // it grows faster than it can be read: let it end
	}
	g.reserved = wanted * g.weight
	return nil
}

// estimate is how large the whole answer will be, from what has been read and the number of keys left.
func (g *gathering) estimate(from []byte) (int64, error) {
	left, err := g.server.cfg.Store.CountFrom(g.piece, from)
	if err != nil {
		return 0, err
	}
	if g.asked.Limit > 0 {
		left = min(left, g.asked.Limit-g.keys)
	}
	mean := g.bytes/max(g.keys, 1) + 1
	return g.bytes + left*mean + left*mean/16 + pieceBytes, nil
}

// finish makes the answer; next is the key at which the limit ended it, or nil.
func (g *gathering) finish(ctx context.Context, next []byte) (*answer, error) {
	count := g.keys
	if next != nil {
		left, err := g.server.cfg.Store.CountFrom(g.piece, next)
		if err != nil {
			return nil, err
		}
		count += left
	}
	front := g.server.header(g.revision).append(make([]byte, 0, headerBytesMax+rangeFieldsBytesMax))
	front = appendBool(front, fieldRangeMore, next != nil)
	front = appendUint(front, fieldRangeCount, uint64(count))
	out := &answer{header: header{revision: g.revision}, bare: front, body: g.bodies[0], more: g.bodies[1:], count: count}
	if g.reserved > 0 {
		g.server.answers.leave(g.reserved - g.bytes*g.weight)
		out.entered = newClaim(ctx, g.server.answers, g.bytes*g.weight)
	}
	return out, nil
}

// learnKeyBytes remembers how large keys and values are, for the first piece of the next range. Losing an update to
// another reader does no harm.
func (s *Server) learnKeyBytes(keys, keyBytes int64) {
	if keys >= pieceKeysMin {
		old := s.keyBytes.Load()
		s.keyBytes.Store(max(old+(keyBytes-old)/4, 1))
	}
}

// readEntered executes a read whose size is known only afterwards, and enters its answer. When there is no room, it
// lets go of what it has read, waits, and reads again. The claim is nil for a small answer.
func (s *Server) readEntered(ctx context.Context, read func() (*proto.Result, error)) (*proto.Result, *claim, error) {
	reserved := int64(0)
	for {
		result, err := read()
		if err != nil {
			s.answers.leave(reserved)
			return nil, nil, err
		}
		bytes := int64(result.Body.Len())
		if bytes < answerBytesCounted {
			s.answers.leave(reserved)
			return result, nil, nil
		}
		bytes *= answerWeight(ctx)
		if reserved > 0 && bytes > reserved {
			s.answers.enterNow(bytes - reserved) // it has waited, and others wrote meanwhile
			reserved = bytes
		}
		if reserved > 0 || s.answers.extend(0, bytes) {
			s.answers.leave(max(reserved-bytes, 0))
			return result, newClaim(ctx, s.answers, bytes), nil
		}
		release(result)
		if err := s.answers.enter(ctx, bytes); err != nil {
			return nil, nil, err
		}
		reserved = bytes
	}
}

// whole runs a read of unknown size with one of the few places for such reads.
func (s *Server) whole(ctx context.Context, read func() (*proto.Result, error)) (*proto.Result, error) {
	select {
	case s.wholeReads <- struct{}{}:
		defer func() { <-s.wholeReads }()
		return read()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readsMany reports whether a transaction that only reads may have a large answer.
func readsMany(t *pb.TxnRequest) bool {
	for _, ops := range [2][]*pb.RequestOp{t.Success, t.Failure} {
		if len(ops) > fewGets {
			return true
		}
		for _, op := range ops {
			if r := op.GetRequestRange(); r != nil && len(r.RangeEnd) > 0 && !r.CountOnly {
				return true
			}
		}
	}
	return false
}
