package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

// watchTurn ends a watcher's turn: one whose watches are all cancelled, or whose keys are quiet, would wait for ever.
const watchTurn = 2 * time.Second

// crowdTurn ends that of a crowd, which waits for answers that always come, however slow the machine.
const crowdTurn = 30 * time.Second

// watching opens a connection with a watch stream on it and calls work. All of it ends with work, or after a while.
func watching(ctx context.Context, s *harness.Server, work func(ctx context.Context, stream pb.Watch_WatchClient) error,
) error {
	return watchingFor(ctx, s, watchTurn, work)
}

func watchingFor(ctx context.Context, s *harness.Server, turn time.Duration,
	work func(ctx context.Context, stream pb.Watch_WatchClient) error) error {
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return err
	}
	err = work(ctx, stream)
	if errors.Is(err, io.EOF) {
		// Sending on a stream that has ended says only that; receiving says why.
		for err = nil; err == nil; {
			_, err = stream.Recv()
		}
	}
	return err
}

// anyWatch asks for a watch of one key, of some or of all, with the options that change what is sent.
func anyWatch(r *rand.Rand, start int64) *pb.WatchRequest {
	create := &pb.WatchCreateRequest{
		Key: stormKey(r), StartRevision: start, PrevKv: r.IntN(3) == 0, Fragment: r.IntN(3) == 0,
		ProgressNotify: r.IntN(3) == 0,
	}
	switch r.IntN(3) {
	case 0:
		create.Key, create.RangeEnd = []byte(stormPrefix), []byte(stormEnd)
	case 1:
		create.RangeEnd = append([]byte(nil), create.Key...)
		create.RangeEnd[len(create.RangeEnd)-2]++
	}
	if r.IntN(5) == 0 {
		create.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}
	}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
}

func askProgress() *pb.WatchRequest {
	return &pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}},
	}
}

func cancelWatch(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}},
	}
}

// watchFast reads what comes, asks for progress now and then, and ends the stream in one of several ways.
func watchFast(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	r := source(seed)
	return watching(ctx, s, func(_ context.Context, stream pb.Watch_WatchClient) error {
		for range 1 + r.IntN(5) {
			if err := stream.Send(anyWatch(r, int64(r.IntN(2)))); err != nil {
				return err
			}
		}
		for range turns {
			answer, err := stream.Recv()
			if err != nil {
				return err
			}
			if len(answer.Events) > 0 {
				c.ok("watch events", nil)
			}
			if r.IntN(10) == 0 {
				if err := stream.Send(askProgress()); err != nil {
					return err
				}
			}
		}
		if r.IntN(2) == 0 {
			return stream.CloseSend()
		}
		return nil
	})
}

// watchSlow falls behind: it reads a response, then nothing for a while, so that buffers fill and are given up.
func watchSlow(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	r := source(seed)
	return watching(ctx, s, func(ctx context.Context, stream pb.Watch_WatchClient) error {
		create := &pb.WatchCreateRequest{
			Key: []byte(stormPrefix), RangeEnd: []byte(stormEnd), StartRevision: int64(r.IntN(2)),
			PrevKv: r.IntN(2) == 0, Fragment: r.IntN(2) == 0,
		}
		request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
		if err := stream.Send(request); err != nil {
			return err
		}
		for range 10 {
			if !pause(ctx, time.Duration(r.IntN(400))*time.Millisecond) {
				return nil
			}
			answer, err := stream.Recv()
			if err != nil {
				return err
			}
			if len(answer.Events) > 0 {
				c.ok("slow watch events", nil)
			}
		}
		return nil
	})
}

// watchRestless creates and cancels watches, also ones that are not there, from the past and from the future.
func watchRestless(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	r := source(seed)
	return watching(ctx, s, func(_ context.Context, stream pb.Watch_WatchClient) error {
		for range turns {
			start := []int64{0, 0, 1, 1 << 40}[r.IntN(4)]
			if err := stream.Send(anyWatch(r, start)); err != nil {
				return err
			}
			if err := stream.Send(cancelWatch(int64(1_000_000 + r.IntN(10)))); err != nil {
				return err
			}
		}
		for ended := 0; ended < turns; {
			answer, err := stream.Recv()
			if err != nil {
				return err
			}
			switch {
			case answer.Canceled:
				ended++
				c.ok("watch cancelled", nil)
			case answer.Created:
				if err := stream.Send(cancelWatch(answer.WatchId)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// watchCrowd puts very many watches on one stream, waits for the answers, and goes away.
func watchCrowd(ctx context.Context, s *harness.Server, c *tally, seed uint64) error {
	const crowd = 1000
	return watchingFor(ctx, s, crowdTurn, func(_ context.Context, stream pb.Watch_WatchClient) error {
		sent := make(chan error, 1)
		go func() {
			for i := range crowd {
				create := &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "crowd/%d/%d", seed, i)}
				request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
				if err := stream.Send(request); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for range crowd {
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		c.ok("crowded watches", nil)
		return <-sent
	})
}
