package storeactor

import (
	"cmp"
	"sync/atomic"
	"time"

	"troupe/actors"
	"troupe/proto"
)

// rest lets others through between two pieces of copying: it waits for a share of the time that the piece took.
type rest struct {
	abandon *atomic.Bool
	now     func() time.Time
	wait    func(time.Duration)
	since   time.Time // the end of the last rest
}

func newRest(abandon *atomic.Bool, now func() time.Time, wait func(time.Duration)) *rest {
	return &rest{abandon: abandon, now: now, wait: wait, since: now()}
}

// rest fails when the member stops.
func (r *rest) rest() error {
	if r.abandon.Load() {
		return actors.ErrStopped
	}
	took := r.now().Sub(r.since)
	r.wait(min(time.Duration(float64(took)*copyRest), copyRestMax))
	r.since = r.now()
	return nil
}

// restingView is a view whose scans rest, for reading all of a file beside the work of others.
type restingView struct {
	FileView
	rest    *rest
	pending int // bytes since the last rest
}

// Scan implements FileView.
func (v *restingView) Scan(bucket proto.Bucket, from, to []byte, f func(key, value []byte) bool) error {
	var stopped error
	err := v.FileView.Scan(bucket, from, to, func(key, value []byte) bool {
		if v.pending += len(key) + len(value); v.pending >= hashBatchBytes {
			v.pending = 0
			if stopped = v.rest.rest(); stopped != nil {
				return false
			}
		}
		return f(key, value)
	})
	return cmp.Or(stopped, err)
}
