package main

import (
	"slices"
	"time"
)

// latencies are durations of requests in ascending order.
type latencies []time.Duration

// quantile gives the smallest duration that is not exceeded by the share of the requests, in milliseconds; 0 when there
// are none. Quantile 1 is the longest.
func (l latencies) quantile(share float64) float64 {
	if len(l) == 0 {
		return 0
	}
	at := min(int(share*float64(len(l))), len(l)-1)
	return float64(l[at].Microseconds()) / 1000
}

// with gives the latencies of two times as those of one.
func (l latencies) with(more latencies) latencies {
	both := slices.Concat(l, more)
	slices.Sort(both)
	return both
}

// timing is one request: when it was sent and how long its answer took.
type timing struct {
	at   time.Time
	took time.Duration
}

// within gives the latencies of the requests that were sent and answered between two moments.
func within(all []timing, from, to time.Time) latencies {
	return choose(all, func(one timing) bool { return !one.at.Before(from) && !one.at.Add(one.took).After(to) })
}

// overlapping gives the latencies of the requests of which a part lies between two moments: one that was sent just
// before a stall shows the stall.
func overlapping(all []timing, from, to time.Time) latencies {
	return choose(all, func(one timing) bool { return one.at.Before(to) && one.at.Add(one.took).After(from) })
}

func choose(all []timing, chosen func(timing) bool) latencies {
	var l latencies
	for _, one := range all {
		if chosen(one) {
			l = append(l, one.took)
		}
	}
	slices.Sort(l)
	return l
}
