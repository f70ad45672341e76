package watchactor

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"troupe/actors"
	"troupe/proto"
)

// shown is what a stream shows of itself without being asked. Written in its turns, read by anybody.
type shown struct {
	watches, slow atomic.Int64
	resyncs       atomic.Uint64
	// place is where the watch that last read history was; it says something while slow is not 0.
	place atomic.Int64
	// asked is how many inspects wait in the stream's mailbox.
	asked atomic.Int32
}

// inspect asks a stream for its watches. Told by Client.Inspect; lane Control; not told while inspectsMax wait, so that
// who looks never takes the room of what the stream tells itself, and then only what the stream publishes is known.
// Answered exactly once.
type inspect struct {
	watchesMax int
	asked      *atomic.Int32 // counts it until it is answered
	reply      actors.Reply[[]proto.WatchInfo]
}

func (inspect) streamMessage() {}

// Abort answers for a stream that has ended.
func (m inspect) Abort(err error) {
	m.asked.Add(-1)
	m.reply.Fail(err)
}

func (m inspect) answer(list []proto.WatchInfo) {
	m.asked.Add(-1)
	m.reply.Send(list)
}

// ask tells the stream to answer; false when it will not.
func (s *Stream) ask(watchesMax int, reply actors.Reply[[]proto.WatchInfo]) bool {
	asked := &s.shown.asked
	if asked.Add(1) <= inspectsMax && s.getRef().Tell(actors.Control, inspect{watchesMax, asked, reply}) == nil {
		return true
	}
	asked.Add(-1)
	return false
}

// Inspect gives at most streamsMax streams, each with at most watchesMax watches: those that read history first, the
// furthest behind at the front, then those with most bytes queued. It asks only the streams that it gives, and waits
// for each no longer than ctx; a stream that does not answer is shown without watches. The error is ErrStopped, or
// context.Cause(ctx) when nothing could be found out before its end.
func (c *Client) Inspect(ctx context.Context, streamsMax, watchesMax int) ([]proto.StreamInfo, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil, ErrStopped
	}
	list := make([]*Stream, 0, len(c.streams))
	for _, s := range c.streams {
		list = append(list, s)
	}
	c.mu.Unlock()
	return inspectStreams(ctx, mostNotable(list, streamsMax), watchesMax), nil
}

// mostNotable gives the streams to show, in order.
func mostNotable(list []*Stream, most int) []*Stream {
	type noted struct {
		stream *Stream
		behind bool
		place  int64
		queued int64
	}
	notes := make([]noted, len(list))
	for i, s := range list {
		notes[i] = noted{s, s.shown.slow.Load() > 0, s.shown.place.Load(), s.outbox.queued()}
	}
	slices.SortFunc(notes, func(a, b noted) int {
		switch {
		case a.behind && !b.behind:
			return -1
		case b.behind && !a.behind:
			return 1
		case a.behind && a.place != b.place:
			return cmp.Compare(a.place, b.place)
		}
		return cmp.Or(cmp.Compare(b.queued, a.queued), cmp.Compare(a.stream.id, b.stream.id))
	})
	shown := make([]*Stream, min(max(most, 0), len(notes)))
	for i := range shown {
		shown[i] = notes[i].stream
	}
	return shown
}

// inspectStreams asks all of them, then waits for the answers.
func inspectStreams(ctx context.Context, list []*Stream, watchesMax int) []proto.StreamInfo {
	replies := make([]actors.Reply[[]proto.WatchInfo], len(list))
	for i, s := range list {
		r := actors.NewReply[[]proto.WatchInfo]()
		if s.ask(max(watchesMax, 0), r) {
			replies[i] = r
		}
	}
	infos := make([]proto.StreamInfo, len(list))
	for i, s := range list {
		infos[i] = proto.StreamInfo{
			Stream: uint64(s.id), Watches: int(s.shown.watches.Load()), QueuedBytes: s.outbox.queued(),
			Resyncs: s.shown.resyncs.Load(),
		}
		if replies[i].Valid() {
			infos[i].Shown, _ = replies[i].Wait(ctx) // without an answer there is still the rest
		}
	}
	return infos
}

// inspect gives the watches to show: those behind first, the furthest at the front.
func (c *streamCore) inspect(most int) []proto.WatchInfo {
	list := make([]*watch, 0, len(c.watches))
	for _, w := range c.watches {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *watch) int {
		switch aBehind, bBehind := a.reads(), b.reads(); {
		case aBehind && !bBehind:
			return -1
		case bBehind && !aBehind:
			return 1
		}
		return cmp.Or(cmp.Compare(a.sent, b.sent), cmp.Compare(a.id, b.id))
	})
	infos := make([]proto.WatchInfo, min(most, len(list)))
	for i := range infos {
		w := list[i]
		infos[i] = proto.WatchInfo{
			ID: w.id, Key: []byte(w.keys.Key), End: []byte(w.keys.End), Next: w.sent + 1, Behind: w.reads(),
		}
	}
	return infos
}

// reads reports whether the watch reads history.
func (w *watch) reads() bool { return w.state == watchBehind || w.state == watchReading }
