package gateway

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"troupe/proto"
	"troupe/storeactor"
)

func (s *Server) registerKV() {
	const n = serviceKV
	s.register(n, []grpc.MethodDesc{
		unary(s, n, "Range", s.rangeKeys),
		unary(s, n, "Put", s.put),
		unary(s, n, "DeleteRange", s.deleteRange),
		unary(s, n, "Txn", s.txn),
		unary(s, n, "Compact", s.compact),
	}, s.streaming(rpcServerStream, n, "RangeStream", "range", s.rangeStream))
}

// header makes a header at a revision.
func (s *Server) header(revision proto.Revision) header {
	return header{cluster: s.cfg.Cluster, member: s.cfg.Member, revision: revision, term: s.cfg.Raft.Status().Term}
}

// pbHeader is header for answers that are ordinary messages.
func (s *Server) pbHeader(revision proto.Revision) *pb.ResponseHeader {
	h := s.header(revision)
	return &pb.ResponseHeader{ClusterId: uint64(h.cluster), MemberId: uint64(h.member),
		Revision: int64(h.revision), RaftTerm: uint64(h.term)}
}

// answer makes the answer of a result.
func (s *Server) answer(r *proto.Result) *answer {
	return &answer{header: s.header(r.Revision), body: r.Body}
}

// linearize waits until the published state holds everything that was acknowledged before the call.
func (s *Server) linearize(ctx context.Context) error {
	c := callOf(ctx)
	index, err := s.cfg.Raft.ReadIndex(ctx)
	c.lap(phaseReadIndex)
	if err != nil {
		return err
	}
	err = s.cfg.Store.WaitApplied(ctx, index)
	c.lap(phaseApplyWait)
	return err
}

// propose sends a request through the log and times it.
func (s *Server) propose(ctx context.Context, kind requestKind, r *pb.InternalRaftRequest) (*proto.Result, error) {
	c := callOf(ctx)
	c.lap(phaseQueue)
	result, err := s.cfg.Raft.Propose(ctx, r)
	s.metrics.requests.proposed(kind, c.lap(phaseApplyWait), err)
	return result, err
}

// read runs a read against the published state, in the caller's goroutine, and times it.
func (s *Server) read(ctx context.Context, kind requestKind, serializable bool,
	run func(context.Context) (*answer, error)) (any, error) {
	c := callOf(ctx)
	c.lap(phaseQueue)
	began := c.last
	out, err := s.readState(ctx, c, kind, serializable, run)
	took := c.last - began
	s.metrics.requests.observe(kind, took, err == nil)
	s.cfg.Store.NoteRead(took)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Server) readState(ctx context.Context, c *call, kind requestKind, serializable bool,
	run func(context.Context) (*answer, error)) (*answer, error) {
	if !serializable {
		if err := s.linearize(ctx); err != nil {
			return nil, err
		}
	}
	out, err := run(ctx)
	if took := c.lap(phaseRead); kind == kindRange {
		s.metrics.observeRange(took, err)
	}
	return out, err
}

// readWhole executes a read whose size is known only afterwards, with one of the few places for such reads if it may be
// large.
func (s *Server) readWhole(ctx context.Context, large bool, run func() (*proto.Result, error)) (*answer, error) {
	once := run
	if large {
		once = func() (*proto.Result, error) { return s.whole(ctx, run) }
	}
	result, held, err := s.readEntered(ctx, once)
	if err != nil {
		return nil, err
	}
	out := s.answer(result)
	out.entered = held
	return out, nil
}

func (s *Server) rangeKeys(ctx context.Context, r *pb.RangeRequest) (any, error) {
	if err := storeactor.CheckRange(r); err != nil {
		return nil, err
	}
	return s.read(ctx, kindRange, r.Serializable, func(ctx context.Context) (*answer, error) {
		if inPieces(r) {
			return s.gather(ctx, r)
		}
		return s.readWhole(ctx, len(r.RangeEnd) > 0 && !r.CountOnly, func() (*proto.Result, error) {
			return s.cfg.Store.Range(ctx, r)
		})
	})
}

func (s *Server) put(ctx context.Context, r *pb.PutRequest) (any, error) {
	if err := s.quota.check(ctx, storeactor.PutCost(r)); err != nil {
		return nil, err
	}
	if err := storeactor.CheckPut(r); err != nil {
		return nil, err
	}
	return s.write(ctx, kindPut, &pb.InternalRaftRequest{Put: r})
}

func (s *Server) deleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (any, error) {
	if err := storeactor.CheckDeleteRange(r); err != nil {
		return nil, err
	}
	return s.write(ctx, kindDeleteRange, &pb.InternalRaftRequest{DeleteRange: r})
}

// txn runs a transaction: through the log if it may write, else against the published state.
func (s *Server) txn(ctx context.Context, r *pb.TxnRequest) (any, error) {
	if err := s.quota.check(ctx, storeactor.TxnCost(r)); err != nil {
		return nil, err
	}
	if err := storeactor.CheckTxn(r, s.cfg.TxnOpsMax); err != nil {
		return nil, err
	}
	if storeactor.TxnReadOnly(r) {
		return s.read(ctx, kindReadonlyTxn, storeactor.TxnSerializable(r), func(ctx context.Context) (*answer, error) {
			return s.readWhole(ctx, readsMany(r), func() (*proto.Result, error) { return s.cfg.Store.Txn(ctx, r) })
		})
	}
	return s.write(ctx, kindTxn, &pb.InternalRaftRequest{Txn: r})
}

// write proposes a request whose answer is what apply made of it.
func (s *Server) write(ctx context.Context, kind requestKind, r *pb.InternalRaftRequest) (any, error) {
	result, err := s.propose(ctx, kind, r)
	if err != nil {
		return nil, err
	}
	out := s.answer(result)
	if size := int64(out.body.Len()); size >= answerBytesCounted {
		size *= answerWeight(ctx)
		s.answers.enterNow(size)
		out.entered = newClaim(ctx, s.answers, size)
	}
	return out, nil
}

// compact answers when the compaction is decided, or, if the client asks, when its deletions are done.
func (s *Server) compact(ctx context.Context, r *pb.CompactionRequest) (any, error) {
	result, err := s.propose(ctx, kindCompaction, &pb.InternalRaftRequest{Compaction: r})
	if err != nil {
		return nil, err
	}
	if r.Physical && result.Done != nil {
		err := s.waitDone(ctx, result.Done)
		callOf(ctx).lap(phaseApplyWait)
		if err != nil {
			release(result)
			return nil, err
		}
	}
	return s.answer(result), nil
}

// waitDone waits for work that goes on behind an answer.
func (s *Server) waitDone(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-s.lifetime.Done():
		return ErrDraining
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release gives back a result that will not be encoded.
func release(r *proto.Result) {
	if r.Body.Release != nil {
		r.Body.Release()
	}
}
