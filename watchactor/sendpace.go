package watchactor

import (
	"context"
	"sync"
	"time"

	"troupe/proto"
)

// sendPace spreads what the readers of all streams send at once. One large value for hundreds of watchers makes as many
// goroutines ready to copy and send it, and a write that comes then waits behind them at each of its steps. So while
// somebody writes, large frames leave one after the other, at a pace at which sending them takes less than half of the
// machine; a lone watcher does not notice, and small frames are not held up. The reader of history rests for the same
// reason and at the same rate.
type sendPace struct {
	mu       sync.Mutex
	mebibyte time.Duration // how long one MiB takes
	free     time.Time     // when the next frame may leave
	revision proto.Revision
	moved    time.Time // when the revision was seen to move
	crowded  time.Time // when a frame last had to wait for sendBusyMin
}

// take gives a large frame its turn: how long the reader has to wait before it sends it, at most sendWaitMax.
func (p *sendPace) take(now time.Time, r proto.Revision, bytes int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r != p.revision {
		p.revision, p.moved = r, now
	}
	if p.free.Before(now) || now.Sub(p.moved) > sendStillAfter {
		p.free = now
	}
	wait := min(p.free.Sub(now), sendWaitMax)
	p.free = now.Add(wait + time.Duration(bytes)*p.mebibyte/(1<<20))
	if wait >= sendBusyMin {
		p.crowded = now
	}
	return wait
}

// busy reports whether a frame had to wait for long in the last second.
func (p *sendPace) busy(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.crowded) < sendBusyAfter
}

// Delivering reports whether so much is being sent to watchers while somebody writes that it has to be spread in time.
func (c *Client) Delivering() bool { return c.sendPace.busy(time.Now()) }

// pace waits until a frame may leave, and reports whether it had to. When the reader's context ends first the frame
// goes to it at once: it has been taken out, and who asks again must not miss it.
func (s *Stream) pace(ctx context.Context, f *Frame) (waited bool) {
	if f.bytes < sendPacedMin {
		return false
	}
	c := s.client
	revision, _ := c.cfg.History.Position()
	wait := c.sendPace.take(time.Now(), revision, f.bytes)
	if wait < restMin {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}
