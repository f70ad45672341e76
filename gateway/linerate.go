package gateway

import (
	"sync/atomic"
	"time"
)

// lineRate lets a bounded number of log lines through per second. Clients cause the lines it guards, and must not be
// able to fill the log; what is left out is counted in a metric by whoever writes the lines.
type lineRate struct {
	max    int64
	second atomic.Int64 // unix time of the current second
	lines  atomic.Int64 // lines asked for in it
}

// allow reports whether a line may be written now.
func (r *lineRate) allow(now time.Time) bool {
	if second := now.Unix(); r.second.Swap(second) != second {
		r.lines.Store(0)
	}
	return r.lines.Add(1) <= r.max
}
